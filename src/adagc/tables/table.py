"""A table: columns of equal length, and where on earth each row is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.errors import DataError, MissingExtraError

GEOMETRY = "geometry"


@dataclass(frozen=True, repr=False)
class Table:
    """Columns of equal length, with or without a place for every row.

    `frame` hands it to pandas, `adagc.tables.write` writes it to a file.

    Args:
        columns: Values by the name of the column: arrays or sequences of numbers, truth values or
            texts, in which None is a missing value. A matrix has a row of numbers for every row of
            the table, such as an embedding.
        geometry: Shape of each row as well-known binary (WKB), None where it is not known.
        crs: Coordinate reference system of the shapes: "EPSG:32633", or its WKT.
        meta: What is true of the whole table. Formats that have a place for it keep it.

    Raises:
        DataError: If columns differ in length or have more than two dimensions.
    """

    columns: Mapping[str, ArrayLike]
    geometry: Sequence[bytes | None] | None = None
    crs: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = {name: _array(values) for name, values in self.columns.items()}
        lengths = {name: len(values) for name, values in arrays.items()}
        if self.geometry is not None:
            if GEOMETRY in arrays:
                raise DataError(f"a column is called {GEOMETRY!r}, as the shapes are: rename it")
            lengths[GEOMETRY] = len(self.geometry)
        if not lengths:
            raise DataError("a table needs at least one column")
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} {count}" for name, count in lengths.items())
            raise DataError(f"the columns of a table must have equal lengths, not {told}")
        object.__setattr__(self, "columns", arrays)

    def __len__(self) -> int:
        """The number of rows."""
        if self.geometry is not None:
            return len(self.geometry)
        return len(self.arrays[next(iter(self.columns))])

    def __repr__(self) -> str:
        shapes = "" if self.geometry is None else f" with shapes ({self.crs or 'unknown CRS'})"
        return f"Table({len(self)} rows{shapes}: {', '.join(self.columns)})"

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column as an array; KeyError if there is none of this name."""
        return self.arrays[name]

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The columns as arrays of one or two dimensions."""
        return {name: np.asarray(values) for name, values in self.columns.items()}

    def flat(self) -> dict[str, NDArray[Any]]:
        """The columns with one value per row; a matrix x gives the columns x_0, x_1, ..."""
        found: dict[str, NDArray[Any]] = {}
        for name, values in self.arrays.items():
            if values.ndim == 1:
                found[name] = values
            else:
                found |= {f"{name}_{i}": values[:, i] for i in range(values.shape[1])}
        if len(found) < sum(1 if v.ndim == 1 else v.shape[1] for v in self.arrays.values()):
            raise DataError("two columns would have the same name: rename the matrix or the column")
        return found

    def listed(self) -> dict[str, list[Any]]:
        """The columns as lists of plain values: missing ones and NaN are None."""
        return {name: plain_values(values) for name, values in self.arrays.items()}

    def frame(self) -> Any:
        """As a data frame of pandas; of geopandas if rows have shapes.

        Raises:
            MissingExtraError: If the package is not installed.
        """
        columns = {
            name: list(values) if values.ndim > 1 else values
            for name, values in self.arrays.items()
        }
        try:
            if self.geometry is None:
                from pandas import DataFrame  # type: ignore[import-untyped,unused-ignore]

                return DataFrame(columns)
            import geopandas
            import shapely
        except ImportError as error:
            raise MissingExtraError(str(error.name), "geo") from error
        shapes = shapely.from_wkb(np.array(list(self.geometry), dtype=object))
        return geopandas.GeoDataFrame(columns, geometry=shapes, crs=self.crs)


def _array(values: ArrayLike) -> NDArray[Any]:
    """The values as an array of one or two dimensions, texts as objects."""
    if not isinstance(values, np.ndarray):
        listed = list(values)  # type: ignore[arg-type]
        if any(value is None or isinstance(value, str) for value in listed):
            made: NDArray[Any] = np.empty(len(listed), dtype=object)
            made[:] = listed
            return made
        values = np.asarray(listed)
    if values.ndim not in (1, 2):
        raise DataError(f"a column has one or two dimensions, not {values.ndim}")
    return values.astype(object) if values.dtype.kind == "U" else values


def plain_values(values: NDArray[Any]) -> list[Any]:
    """An array as a list of plain values, in which NaN is None."""
    if values.dtype.kind == "f":
        # float32 by its shortest text: 0.1 and not 0.10000000149011612
        exact = values.astype(str).astype(np.float64) if values.dtype.itemsize < 8 else values
        return [_without_nan(row) for row in exact.tolist()]
    return [_without_nan(row) for row in values.tolist()]


def _without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and value != value else value
