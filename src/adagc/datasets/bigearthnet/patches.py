"""The patches of a copy of BigEarthNet: names, pairs, splits and labels, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import replacing
from adagc.datasets.bigearthnet.nomenclature import CLASSES
from adagc.errors import DataError

SPLITS: Final = ("train", "val", "test")  # the numbers 0, 1, 2 in `Patches.split`
CLOUDY: Final = 1  # a bit of `Patches.flags`: snow, clouds or shadow
_SEPARATOR = "\0"  # between names in the file; no name has it


@dataclass(frozen=True, eq=False)
class Patches:
    """What is known of N patches without their pixels."""

    names: tuple[str, ...]  # of the optical patches
    radar: tuple[str, ...]  # of the radar patches; "" where there is none
    split: NDArray[np.int8]  # place in SPLITS, -1 for none
    labels: NDArray[np.bool_]  # (N, 19)
    flags: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: NDArray[np.int64]) -> Patches:
        """The patches of these rows."""
        if len(rows) == len(self) and (np.diff(rows) == 1).all():
            return self
        chosen = rows.tolist()
        return Patches(
            tuple(self.names[row] for row in chosen),
            tuple(self.radar[row] for row in chosen),
            self.split[rows],
            self.labels[rows],
            self.flags[rows],
        )

    def joined(self, other: Patches) -> Patches:
        """These patches and then the others."""
        return Patches(
            self.names + other.names,
            self.radar + other.radar,
            np.concatenate([self.split, other.split]),
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.flags, other.flags]),
        )

    def rows_of(self, split: str) -> NDArray[np.int64]:
        """The rows of this split."""
        return np.flatnonzero(self.split == SPLITS.index(split)).astype(np.int64)


def write_arrays(path: Path, patches: Patches, **more: NDArray[Any]) -> None:
    """Write patches, and arrays that belong to them, to a safetensors file; see `read_arrays`."""
    from safetensors.numpy import save

    content = {
        "names": _packed(patches.names),
        "radar": _packed(patches.radar),
        "split": patches.split,
        "labels": np.packbits(patches.labels, axis=1),
        "flags": patches.flags,
        **more,
    }
    with replacing(path) as (file,):
        file.write(save({key: np.ascontiguousarray(value) for key, value in content.items()}))


def read_arrays(path: Path) -> tuple[Patches, dict[str, NDArray[Any]]]:
    """Read what `write_arrays` wrote; DataError if the file is missing or damaged."""
    from safetensors.numpy import load_file

    try:
        content = load_file(path)
        labels = np.unpackbits(content.pop("labels"), axis=1, count=len(CLASSES))
        patches = Patches(
            _unpacked(content.pop("names")),
            _unpacked(content.pop("radar")),
            content.pop("split"),
            labels.view(np.bool_),
            content.pop("flags"),
        )
        lengths = {len(getattr(patches, field.name)) for field in fields(patches)}
        if len(lengths) != 1:
            raise ValueError("its arrays have different lengths")
    except Exception as error:  # safetensors has exceptions of its own
        raise DataError(f"{path} cannot be read ({error}): prepare the store again") from None
    return patches, content


def _packed(names: Sequence[str]) -> NDArray[np.uint8]:
    return np.frombuffer(_SEPARATOR.join(names).encode(), dtype=np.uint8)


def _unpacked(content: NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(content.tobytes().decode().split(_SEPARATOR))
