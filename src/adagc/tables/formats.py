"""Writing a table in the format that the name of the file asks for, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import encoded, write_bytes
from adagc.errors import DataError, MissingExtraError, UsageError
from adagc.suggest import hint
from adagc.tables.table import GEOMETRY, Table

# Packages beside numpy that each format needs, without and with shapes; extra `geo` has them.
_ARROW = ("pyarrow",)
_SHAPES = ("shapely",)
_VECTOR = ("geopandas", "pyogrio", *_SHAPES)
SUFFIXES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    ".csv": ((), _SHAPES),
    ".json": ((), _SHAPES),
    ".parquet": (_ARROW, (*_ARROW, "pyproj", *_SHAPES)),
    ".geojson": (_VECTOR, _VECTOR),
    ".gpkg": (_VECTOR, _VECTOR),
}
_ONLY_WITH_SHAPES = (".geojson", ".gpkg")


def check_format(path: Path | str, *, geometry: bool | None = None, option: str = "--out") -> None:
    """Raise an error if no table can be written to this file, before any work is done for it.

    Args:
        path: The file to write; what it is called decides on its format.
        geometry: Whether the rows have shapes; None if that is not known yet.
        option: What the message calls the file.

    Raises:
        UsageError: If the suffix is unknown or for shapes and there are none, or the file cannot
            be written there.
        MissingExtraError: If a package is missing that the format needs.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        near = hint(suffix, SUFFIXES) or f": use one of {', '.join(SUFFIXES)}"
        named = f"the format {suffix!r}" if suffix else "a file without a suffix"
        raise UsageError(f"{option} {path}: {named} cannot be written{near}")
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder: give a file to write")
    above = next(place for place in path.absolute().parents if place.exists())
    if not above.is_dir():
        raise UsageError(f"{option} {path}: {above} is a file, not a folder")
    if not os.access(above, os.W_OK):
        raise UsageError(f"{option} {path}: nothing may be written to the folder {above}")
    if geometry is False and suffix in _ONLY_WITH_SHAPES:
        raise UsageError(
            f"{option} {path}: a {suffix} file has a place on earth for every row, and these have"
            " none: write .csv or .parquet"
        )
    for package in SUFFIXES[suffix][bool(geometry)]:
        require(package)


def require(package: str) -> None:
    """Raise MissingExtraError if a package of the extra `geo` is not installed."""
    if find_spec(package) is None:
        raise MissingExtraError(f"{package}, which this format of a file needs,", "geo")


def write(path: Path | str, table: Table) -> None:
    """Write a table; the file is replaced completely or stays as it was.

    Its suffix decides on the format. `.csv` has shapes as WKT and leaves out `meta`, as many
    programs expect a header in the first line; `.json` has `meta` and a list of `rows`; `.parquet`
    is GeoParquet 1.1 if there are shapes; `.geojson` is reprojected to WGS 84, as its standard
    asks; `.gpkg` is a GeoPackage with one layer, called as the file.

    Raises:
        UsageError: If the suffix is unknown.
        DataError: If the table does not suit the format.
        MissingExtraError: If a package is missing that the format needs.
        NoSpaceError: If the disk is full.
    """
    path = Path(path)
    check_format(path, geometry=table.geometry is not None, option="the file")
    content = _WRITERS[path.suffix.lower()](table, path.stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)


def _csv(table: Table, name: str) -> bytes:
    del name
    columns = {key: _cells(values) for key, values in table.flat().items()}
    if table.geometry is not None:
        columns[GEOMETRY] = _texts(table)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return encoded(text.getvalue())


def _cells(values: NDArray[Any]) -> list[Any]:
    """Values as a CSV file shows them: nothing where one is missing, 1 and 0 for truth values."""
    if values.dtype.kind == "b":
        return list(values.astype(np.int8))
    if values.dtype.kind == "f":  # the shortest text that means the same number
        return list(np.where(np.isnan(values), "", values.astype(str)))
    return ["" if value is None or value != value else value for value in values.tolist()]


def _json(table: Table, name: str) -> bytes:
    del name
    columns = table.listed()
    if table.geometry is not None:
        columns[GEOMETRY] = _texts(table)
    lines = (
        json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False)
        for row in zip(*columns.values(), strict=True)
    )
    meta = json.dumps(dict(table.meta), ensure_ascii=False)
    return encoded(f'{{"meta": {meta},\n"rows": [\n' + ",\n".join(lines) + "\n]}\n")


def _texts(table: Table) -> list[str | None]:
    """The shapes as well-known text, with the coordinates as they are."""
    import shapely

    shapes = shapely.from_wkb(_wkb(table))
    return [None if shape is None else shape.wkt for shape in shapes]


def _wkb(table: Table) -> NDArray[Any]:
    assert table.geometry is not None
    made: NDArray[Any] = np.empty(len(table), dtype=object)
    made[:] = list(table.geometry)
    return made


def _parquet(table: Table, name: str) -> bytes:
    del name
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {key: _arrow(values) for key, values in table.arrays.items()}
    meta = {str(key): str(value) for key, value in table.meta.items()}
    if table.geometry is not None:
        columns[GEOMETRY] = pa.array(_wkb(table), type=pa.binary())
        meta["geo"] = json.dumps(_described(table))
    made = pa.table(columns).replace_schema_metadata(meta or None)
    sink = pa.BufferOutputStream()
    pq.write_table(made, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _arrow(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values, from_pandas=values.dtype.kind == "O")
    flat = pa.array(values.reshape(-1))
    starts = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(starts, flat)


def _described(table: Table) -> dict[str, Any]:
    """What GeoParquet 1.1 says about the column of shapes."""
    import shapely

    shapes = shapely.from_wkb(_wkb(table))
    kinds = sorted({f"{s.geom_type}{' Z' * s.has_z}" for s in shapes if s is not None})
    column: dict[str, Any] = {"encoding": "WKB", "geometry_types": kinds, "crs": None}
    if table.crs is not None:
        column["crs"] = _known_crs(table.crs).to_json_dict()
    if kinds:
        column["bbox"] = shapely.total_bounds(shapes).tolist()
    return {"version": "1.1.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: column}}


def _known_crs(crs: str) -> Any:
    import pyproj

    try:
        return pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError:
        raise DataError(f"{crs!r} is no coordinate reference system: EPSG:4326 is one") from None


def _geojson(table: Table, name: str) -> bytes:
    if table.crs is None:
        raise DataError(
            "GeoJSON needs to know the coordinate reference system, and the shapes have none:"
            " write .gpkg or .parquet"
        )
    # The standard wants longitude and latitude, and outer rings counter-clockwise.
    content = _vector(table, name, "GeoJSON", RFC7946="YES")
    if not table.meta:
        return content
    meta = json.dumps(dict(table.meta), ensure_ascii=False)
    return content.replace(b"{", b'{\n"meta": ' + encoded(meta) + b",", 1)


def _geopackage(table: Table, name: str) -> bytes:
    return _vector(table, name, "GPKG", dataset_metadata=dict(table.meta) or None)


def _vector(table: Table, name: str, driver: str, **options: Any) -> bytes:
    """The content of a file that GDAL writes."""
    import geopandas
    import pyogrio
    import shapely

    if table.geometry is None:
        raise DataError("the rows have no place on earth: write .csv or .parquet")
    crs = None if table.crs is None else _known_crs(table.crs)
    columns = {key: _typed(values) for key, values in table.flat().items()}
    frame = geopandas.GeoDataFrame(columns, geometry=shapely.from_wkb(_wkb(table)), crs=crs)
    # In memory, so that a file is replaced as a whole and a full disk is explained.
    target = io.BytesIO()
    pyogrio.write_dataframe(frame, target, driver=driver, layer=name, **options)
    return target.getvalue()


def _typed(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers of which some are missing as numbers, which GDAL would take for texts."""
    if values.dtype.kind == "O" and not any(isinstance(value, str) for value in values):
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    return values


_WRITERS: dict[str, Callable[[Table, str], bytes]] = {
    ".csv": _csv,
    ".json": _json,
    ".parquet": _parquet,
    ".geojson": _geojson,
    ".gpkg": _geopackage,
}
