"""The coordinate reference system that a GeoParquet file names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adagc.tables.formats import require

_UNSAID = "OGC:CRS84"  # what the standard means if a file does not name one


def named_crs(said: Mapping[str, Any], column: str) -> str | None:
    """The coordinate reference system that GeoParquet names, as EPSG:32633 where it has a code."""
    if not said:
        return None  # plain Parquet says nothing
    told = said.get("columns", {}).get(column, {}).get("crs", _UNSAID)
    if not isinstance(told, dict):
        return told if told is None else str(told)
    code = told.get("id", {})
    if {"authority", "code"} <= set(code):
        return f"{code['authority']}:{code['code']}"
    require("pyproj")
    import pyproj

    try:
        return str(pyproj.CRS.from_json_dict(told).to_wkt())
    except pyproj.exceptions.CRSError:
        return None
