"""Reading Parquet files as embedding products are published: ids, vectors, shapes, labels.

One file or a folder of files with the same columns. Which column holds what follows from its name.
Vectors are read piece by piece, so that a file never stands in memory twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.tables.crs import named_crs
from adagc.tables.formats import require

SUFFIXES = (".parquet", ".geoparquet", ".gpq")
# Columns by which rows are known, the best first: those of adagc, Earth Index, Major TOM and Clay.
IDS = (
    *("image", "id", "unique_id", "tile_id", "item_id", "chip_id", "chips_id", "name"),
    "source_url",
)
VECTORS = ("embedding", "embeddings")
LABELS = ("label", "labels")
_PIECE = 8192  # rows that are converted at once
# Columns that only one publisher uses, beside the vectors.
_LAYOUTS = {
    "Major TOM": {"unique_id", "grid_cell", "embedding"},
    "Clay": {"source_url", "embeddings"},
    "Earth Index": {"id", "embedding", "geometry"},
}


def parquet_files(root: Path) -> tuple[Path, ...]:
    """The Parquet files at a path: the file itself, or all in the folder and its subfolders."""
    if root.is_file():
        return (root,) if root.suffix.lower() in SUFFIXES else ()
    if not root.is_dir():
        return ()
    found = (path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES)
    hidden = (path.relative_to(root).parts for path in found)
    return tuple(
        sorted(root.joinpath(*parts) for parts in hidden if not any(p[0] in "._" for p in parts))
    )


@dataclass(frozen=True, eq=False)
class Source:
    """Parquet files that are read as one table.

    Args:
        files: The files, in the order of the rows.
        root: What the user named, for messages.
    """

    files: tuple[Path, ...]
    root: Path

    @classmethod
    def at(cls, root: Path) -> Source:
        """The files at a path; DataError if there are none, or if their columns differ."""
        files = parquet_files(root)
        if not files:
            raise DataError(
                f"{root}: no Parquet file here; expected a file ending in {', '.join(SUFFIXES)} or"
                " a folder of such files"
            )
        require("pyarrow")
        return cls(files, root)

    @cached_property
    def _opened(self) -> tuple[Any, ...]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        opened = []
        for path in self.files:
            try:
                # Buffering ahead would keep all that was read until the file is closed.
                opened.append(pq.ParquetFile(path, pre_buffer=False))
            except (OSError, pa.ArrowException) as error:
                reason = " ".join(str(error).split())
                raise DataError(f"{path}: cannot be read ({reason}); copy it again") from error
        return tuple(opened)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that all files have, in the order of the first."""
        return tuple(
            name
            for name in self._opened[0].schema_arrow.names
            if all(name in file.schema_arrow.names for file in self._opened)
        )

    def __len__(self) -> int:
        """The number of rows in all files."""
        return sum(int(file.metadata.num_rows) for file in self._opened)

    @property
    def layout(self) -> str | None:
        """Whose columns these are: Clay, Major TOM or Earth Index; None if nobody's in particular.

        Earth Index has no column of its own, so its name is said only of exactly its columns.
        """
        here = set(self.columns)
        for name, known in _LAYOUTS.items():
            if known <= here and (name != "Earth Index" or here == known):
                return name
        return None

    # -- columns -----------------------------------------------------------------------------

    def values(self, column: str) -> list[Any]:
        """A column of all files, as plain values; None where one is missing."""
        return [value for piece in self._pieces(column) for value in piece.to_pylist()]

    def _pieces(self, column: str) -> Iterator[Any]:
        import pyarrow as pa

        for path, file in zip(self.files, self._opened, strict=True):
            try:
                for batch in file.iter_batches(batch_size=_PIECE, columns=[column]):
                    yield batch.column(0)
            except (OSError, pa.ArrowException) as error:
                reason = " ".join(str(error).split())
                raise DataError(f"{path}: cannot be read ({reason}); copy it again") from error

    @cached_property
    def id_column(self) -> str | None:
        """The column that names the rows; None if no known column has a different id in each."""
        return self._named[0]

    @property
    def names(self) -> tuple[str, ...]:
        """A different name for each row: its id, or else the name of its file and its number."""
        return self._named[1]

    @cached_property
    def _named(self) -> tuple[str | None, tuple[str, ...]]:
        for column in IDS:
            if column in self.columns:
                ids = self.values(column)
                names = tuple(str(value).strip() for value in ids)
                if None not in ids and "" not in names and len(set(names)) == len(names):
                    return column, names
        base = self.root if self.root.is_dir() else self.root.parent
        numbered = []
        for path, file in zip(self.files, self._opened, strict=True):
            place = path.relative_to(base).with_suffix("").as_posix()
            numbered += [f"{place}/{row:05d}" for row in range(file.metadata.num_rows)]
        return None, tuple(numbered)

    @property
    def vector_column(self) -> str:
        """The column of the vectors; DataError if there is none."""
        found = next((name for name in VECTORS if name in self.columns), None)
        if found is None:
            listed = ", ".join(self.columns[:8])
            raise DataError(
                f"{self.root}: has no column {' or '.join(VECTORS)}, but {listed}: rename the"
                " column of the vectors"
            )
        return found

    def vectors(self) -> NDArray[Any]:
        """(N, D) the vectors; half-precision numbers stay as they are, others become float32.

        Raises DataError if they are no vectors of numbers, of one length, or one is missing.
        """
        import pyarrow as pa

        column, whole, row = self.vector_column, None, 0
        for piece in self._pieces(column):
            storage = piece.storage if isinstance(piece, pa.ExtensionArray) else piece
            kind = storage.type
            listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
            if not (listed or pa.types.is_fixed_size_list(kind)):
                raise DataError(
                    f"{self.root}: the column {column} holds {kind} values; store a list of numbers"
                    " in each row"
                )
            lengths = storage.value_lengths().to_numpy(zero_copy_only=False)
            width = int(lengths[0]) if whole is None and len(lengths) else None
            width = whole.shape[1] if whole is not None else width
            wrong = np.flatnonzero(~(lengths == width))  # NaN where there is no vector
            if len(wrong):
                got = lengths[wrong[0]]
                told = "no vector" if np.isnan(got) else f"a vector of {got:g} numbers"
                raise DataError(
                    f"{self.root}: row {row + int(wrong[0])} has {told} where others have {width}:"
                    " leave such rows out"
                )
            if width is None:
                continue
            numbers = _numbers(storage.flatten(), f"{self.root}: the column {column}")
            if whole is None:
                kept = numbers.dtype if numbers.dtype == np.float16 else np.dtype(np.float32)
                whole = np.empty((len(self), width), dtype=kept)
            whole[row : row + len(lengths)] = numbers.reshape(len(lengths), width)
            row += len(lengths)
        if whole is None:
            raise DataError(f"{self.root}: has no rows")
        return whole

    # -- shapes ------------------------------------------------------------------------------

    @cached_property
    def _geo(self) -> tuple[Mapping[str, Any], ...]:
        """What GeoParquet says about each file; empty for a Parquet file without it."""
        said = []
        for file in self._opened:
            raw = (file.schema_arrow.metadata or {}).get(b"geo")
            try:
                told = {} if raw is None else json.loads(raw)
            except ValueError:
                told = {}
            said.append(told if isinstance(told, dict) else {})
        return tuple(said)

    @property
    def geometry_column(self) -> str | None:
        """The column with the shape of each row; None if there is none."""
        named = str(self._geo[0].get("primary_column", "geometry"))
        return named if named in self.columns else None

    @cached_property
    def crs(self) -> str | None:
        """The coordinate reference system of the shapes; DataError if files differ in it."""
        column = self.geometry_column
        if column is None:
            return None
        found = {named_crs(said, column) for said in self._geo}
        if len(found) > 1:
            told = " and ".join(sorted(map(str, found)))
            raise DataError(f"{self.root}: shapes are in {told}; write all files in one of them")
        return found.pop()

    def geometry(self) -> list[bytes | None]:
        """The shape of each row as well-known binary; None where there is none."""
        column = self.geometry_column
        if column is None:
            return [None] * len(self)
        encodings = {said.get("columns", {}).get(column, {}).get("encoding") for said in self._geo}
        if encodings <= {"WKB", None}:
            return [_bytes(value, self.root) for value in self.values(column)]
        require("geopandas")
        import geopandas

        frames = [geopandas.read_parquet(path, columns=[column]) for path in self.files]
        return [shape for frame in frames for shape in frame[column].to_wkb()]

    # -- labels ------------------------------------------------------------------------------

    def label_rows(self) -> Iterator[Sequence[str]]:
        """Header and rows of the label file that these columns are: image, and label or labels.

        Raises DataError if there is no such column.
        """
        column = next((name for name in LABELS if name in self.columns), None)
        if column is None:
            raise DataError(
                f"{self.root}: has no column {' or '.join(LABELS)}, but"
                f" {', '.join(self.columns[:8])}: rename the column of the labels"
            )
        cells = self.values(column)
        several = column == "labels" or any(isinstance(cell, list) for cell in cells)
        yield ("image", "labels" if several else "label")
        for name, cell in zip(self.names, cells, strict=True):
            yield name, _cell(cell)


def _cell(value: Any) -> str:
    """The labels of a row as a label file has them; nothing where none is known."""
    if value is None or value != value:
        return ""
    return ";".join(map(str, value)) if isinstance(value, list) else str(value)


def _numbers(values: Any, where: str) -> NDArray[Any]:
    import pyarrow as pa

    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise DataError(f"{where} holds lists of {values.type}; store lists of numbers")
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)  # NaN where a number is missing
    return found


def _bytes(value: Any, root: Path) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise DataError(f"{root}: its shapes are no well-known binary (WKB); write them as GeoParquet")
