"""Embeddings from Parquet files, with the place on earth of each row."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.images.array import ArrayScenes
from adagc.tables.reading import Source


class ParquetScenes(ArrayScenes):
    """The embeddings of a Parquet file or of a folder of such files.

    Args:
        root: The file or folder.
        nodata: Number that stands for missing values, besides NaN.
    """

    def __init__(self, root: Path, *, nodata: float | None = None) -> None:
        self._table = Source.at(root)
        super().__init__(self._table.vectors(), self._table.names, nodata=nodata, source=str(root))

    @property
    def crs(self) -> str | None:
        """See `SceneDataset.crs`."""
        return self._table.crs

    @property
    def notes(self) -> tuple[str, ...]:
        """Whose columns these are, and what was read from which."""
        table = self._table
        layout = f"columns as {table.layout} publishes them" if table.layout else "embeddings"
        named = f"names from {table.id_column}" if table.id_column else "rows are numbered"
        parts = [layout, f"{self.shape[0]} numbers in {table.vector_column}", named]
        if table.geometry_column is None:
            parts.append("no places on earth")
        else:
            parts.append(f"places in {self.crs or 'an unknown reference system'}")
        files = len(table.files)
        return (f"{files} Parquet file{'s' * (files > 1)}: {', '.join(parts)}",)

    def geometry(self, rows: NDArray[np.int64]) -> list[bytes | None]:
        """See `SceneDataset.geometry`."""
        return [self._places[row] for row in rows.tolist()]

    @cached_property
    def _places(self) -> list[bytes | None]:
        return self._table.geometry()  # read when it is first asked for: training never does

    def __getstate__(self) -> dict[str, Any]:
        # Open files cannot be sent to another process, which opens them again when it needs them.
        return {**super().__getstate__(), "_table": Source(self._table.files, self._table.root)}
