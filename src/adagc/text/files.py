"""Read and write files of class-name embeddings.

The extension of the file name decides between two formats:

* `.csv`: the header `class,v1,v2,...` and one line per class; cells are separated by commas, tabs
  or semicolons, whichever the header uses. Such a file is easy to make by other means.
* `.safetensors`: one tensor `embeddings` (classes, width) and, in the metadata, `classes`, the
  names with a line break between them. Values are written in half precision, which is more precise
  than embeddings of names need.

Both may say where the numbers come from: in comment lines `# key: value` above the header, or in
further entries of the metadata. Neither format can contain code that is run.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import write_bytes
from adagc.errors import DataError
from adagc.text.names import closest, locate

_TENSOR, _NAMES = "embeddings", "classes"
_HEADER = re.compile(r'\s*"?class"?\s*([,;\t])', re.IGNORECASE)
_CSV = (".csv", ".tsv", ".txt")
_REMEDY = "make it with  adagc text CLASSES --out FILE"


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Class names, one vector for each, and where they come from."""

    classes: tuple[str, ...]
    values: NDArray[np.float32]  # (C, D)
    meta: Mapping[str, str] = field(default_factory=dict)

    def rows(self, classes: Sequence[str]) -> NDArray[np.float32] | None:
        """The embeddings of these classes, (len(classes), D); None if one of them is missing."""
        places = [place for place in locate(classes, self.classes) if place is not None]
        return self.values[places] if len(places) == len(classes) else None


def read_text(path: str | os.PathLike[str], classes: Sequence[str]) -> NDArray[np.float32]:
    """Read the embeddings of these classes, (C, D) in their order.

    Names are compared without upper and lower case, spaces, hyphens and other punctuation. The file
    may contain further classes.

    Raises:
        DataError: The file cannot be used; the message names file, class and remedy.
    """
    stored = read_embeddings(path)
    embeddings = stored.rows(classes)
    if embeddings is not None:
        return embeddings
    places = locate(classes, stored.classes)
    missing = [name for name, place in zip(classes, places, strict=True) if place is None]
    near = closest(missing[0], stored.classes)
    hint = f"did you mean its {near!r}?" if near else f"add it, or {_REMEDY}"
    more = f" ({len(missing)} of {len(classes)} classes are missing)" if len(missing) > 1 else ""
    raise DataError(f"{path} has no single embedding of class {missing[0]!r}{more}: {hint}")


def read_embeddings(path: str | os.PathLike[str]) -> Embeddings:
    """Read all embeddings in a file; the module docstring describes the two formats."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): {_REMEDY}") from None
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        embeddings = _from_safetensors(path, content)
    elif suffix in _CSV:
        embeddings = _from_csv(path, content)
    else:
        raise DataError(f"{path} is no file of embeddings: use .csv or .safetensors")
    twice = next((name for name, n in Counter(embeddings.classes).items() if n > 1), None)
    if twice is not None:
        raise DataError(f"{path}: class {twice!r} is there twice: remove one")
    if not np.isfinite(embeddings.values).all():
        row = int(np.flatnonzero(~np.isfinite(embeddings.values).all(axis=1))[0])
        raise DataError(
            f"{path}: the embedding of class {embeddings.classes[row]!r} holds a value that is not"
            f" a finite number: correct it, or {_REMEDY}"
        )
    return embeddings


def write_text(
    path: str | os.PathLike[str],
    classes: Sequence[str],
    embeddings: NDArray[np.floating],
    meta: Mapping[str, str] | None = None,
) -> None:
    """Write embeddings to a file that `read_text` can read; the file is written atomically.

    Args:
        path: The file; its extension, .csv or .safetensors, decides the format.
        classes: Names of the classes, all different and without line breaks.
        embeddings: One row per class, (C, D).
        meta: Where the numbers come from: encoder, template.
    """
    path = Path(path)
    values = np.asarray(embeddings, dtype=np.float32)
    if values.ndim != 2 or len(values) != len(classes):
        raise ValueError(f"embeddings must be ({len(classes)}, D), not {values.shape}")
    if len({name.strip() for name in classes if "\n" not in name} - {""}) != len(classes):
        raise ValueError("class names must be different, not empty and without line breaks")
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        content = _as_safetensors(classes, values, meta or {})
    elif suffix == ".csv":
        content = _as_csv(classes, values, meta or {})
    else:
        raise DataError(f"{path} must end with .csv or .safetensors: rename it")
    try:
        write_bytes(path, content)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror}): check that its folder exists"
        ) from None


# -- safetensors -----------------------------------------------------------------------------


def _from_safetensors(path: Path, content: bytes) -> Embeddings:
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import load

    try:
        tensors = load(content)
        with safe_open(path, framework="numpy") as file:
            meta = dict(file.metadata() or {})
    except (SafetensorError, OSError, TypeError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be read ({reason}): {_REMEDY}") from None
    values = tensors.get(_TENSOR)
    names = tuple(name for name in meta.pop(_NAMES, "").split("\n") if name)
    if values is None or values.ndim != 2 or values.dtype.kind != "f" or not values.shape[1]:
        raise DataError(f"{path} has no tensor {_TENSOR!r} (classes, width) of floats: {_REMEDY}")
    if len(names) != len(values):
        raise DataError(
            f"{path} names {len(names)} classes in its metadata for {len(values)} embeddings:"
            f" {_REMEDY}"
        )
    return Embeddings(names, values.astype(np.float32), meta)


def _as_safetensors(
    classes: Sequence[str], values: NDArray[np.float32], meta: Mapping[str, str]
) -> bytes:
    from safetensors.numpy import save

    half = {_TENSOR: np.ascontiguousarray(values, dtype=np.float16)}
    content: bytes = save(half, metadata={**meta, _NAMES: "\n".join(classes)})
    return content


# -- CSV -------------------------------------------------------------------------------------


def _from_csv(path: Path, content: bytes) -> Embeddings:
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text: save it as UTF-8") from None
    meta: dict[str, str] = {}
    above = 0  # number of comment lines and empty lines above the header
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            break
        key, colon, value = (part.strip() for part in line.lstrip()[1:].partition(":"))
        if key and colon:
            meta[key] = value
        above += 1
    header = _HEADER.match(lines[above]) if above < len(lines) else None
    if header is None:
        raise DataError(f"{path}, line {above + 1}: the header must be class,v1,v2,...: add it")
    rows = csv.reader(lines[above:], delimiter=header[1])
    width = len(next(rows)) - 1
    names: list[str] = []
    values: list[list[float]] = []
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        name = row[0].strip()
        try:
            numbers = [float(cell) for cell in row[1:]]
        except ValueError:
            numbers = []
        if not name or len(numbers) != width:
            raise DataError(
                f"{path}, line {above + rows.line_num}: expected a class and {width} numbers, as"
                " the header says: correct the line"
            )
        names.append(name)
        values.append(numbers)
    if not names:
        raise DataError(f"{path} has a header and no class: {_REMEDY}")
    return Embeddings(tuple(names), np.array(values, dtype=np.float32), meta)


def _as_csv(classes: Sequence[str], values: NDArray[np.float32], meta: Mapping[str, str]) -> bytes:
    text = io.StringIO()
    for key, value in meta.items():
        text.write(f"# {key}: {value}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["class", *(f"v{i + 1}" for i in range(values.shape[1]))])
    for name, row in zip(classes, values.tolist(), strict=True):
        # nine digits are enough to read the same 32-bit floats again
        writer.writerow([name, *(f"{value:.9g}" for value in row)])
    return text.getvalue().encode()
