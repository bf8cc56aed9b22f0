"""Rows in the file formats that people use: CSV, JSON, Parquet, GeoParquet, GeoJSON, GeoPackage."""

from __future__ import annotations

from adagc.tables.formats import SUFFIXES, check_format, write
from adagc.tables.table import Table

__all__ = ["SUFFIXES", "Table", "check_format", "write"]
