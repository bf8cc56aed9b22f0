"""Images from an array: embeddings (N, D) or pictures (N, C, H, W)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.images.band_names import band_names
from adagc.images.base import SceneDataset
from adagc.images.decode import why
from adagc.images.missing import mark, marked_dtype, mean_of_rest
from adagc.images.scan import beside

KEYS = ("images", "embeddings", "features", "x", "X")  # possible names of the array in a file
SUFFIXES = (".npy", ".npz", ".safetensors")
NAMES = "names.txt"  # in the folder of an array: one name per line


class ArrayScenes(SceneDataset):
    """Images or embeddings from an array in memory or mapped from a file.

    Args:
        array: Integers or floats, (N, D) for embeddings or (N, C, H, W) for images.
        names: A different name for each row; 00000, 00001, ... by default.
        bands: Names of the bands (or features), one per entry of the second axis.
        nodata: Number that stands for missing values, besides NaN.
        source: Where the array comes from, for error messages. For a memory-mapped .npy file it
            must be the path, so that worker processes can map the file again.
    """

    def __init__(
        self,
        array: NDArray[Any],
        names: Sequence[str] | None = None,
        bands: Sequence[str] | None = None,
        *,
        nodata: float | None = None,
        source: str = "the array",
    ) -> None:
        _check(array, source)
        self._array = array
        self._nodata = () if nodata is None else (nodata,)
        self._source = source
        width = max(5, len(str(max(len(array) - 1, 0))))
        self.names = tuple(names) if names is not None else _numbers(len(array), width)
        if len(self.names) != len(array) or len(set(self.names)) != len(array):
            raise DataError(
                f"{source}: {len(set(self.names))} different names for {len(array)} rows; "
                f"give one name per row"
            )
        self.shape = tuple(array.shape[1:])
        self._depth = array.dtype.newbyteorder("=")
        self.dtype = marked_dtype(self._depth, self._nodata)
        if array.ndim == 2 and bands is None:
            bands = [f"feature_{i}" for i in range(1, array.shape[1] + 1)]
        self.bands = band_names(array.shape[1], bands)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See `SceneDataset.gather`."""
        values = np.take(self._array, rows, axis=0).astype(self._depth, copy=False)
        return mark(values, self._nodata)

    @property
    def depth(self) -> np.dtype[Any]:
        """See `SceneDataset.depth`."""
        return self._depth

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if isinstance(self._array, np.memmap) and Path(self._source).suffix == ".npy":
            state["_array"] = None  # a worker process maps the file again instead of copying it
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._array is None:
            self._array = np.load(self._source, mmap_mode="r", allow_pickle=False)


def pooled(images: SceneDataset, *, chunk: int = 256) -> ArrayScenes:
    """Replace each image or feature map by its mean over all known positions, (N, C) in memory.

    The result is kept as long as `images` is in use: testing, and the next run on the same opened
    data, do not compute it again.

    Args:
        images: Images (C, H, W).
        chunk: How many images are read at once.
    """
    existing = _POOLED.get(images)
    if existing is not None:
        return existing
    values = np.empty((len(images), images.shape[0]), dtype=np.float32)
    for start in range(0, len(images), chunk):
        rows = np.arange(start, min(start + chunk, len(images)))
        values[rows] = mean_of_rest(images.gather(rows), (2, 3))
    means = _POOLED[images] = ArrayScenes(values, images.names, images.bands)
    return means


# The results of `pooled`; an entry disappears with the images it belongs to.
_POOLED: WeakKeyDictionary[SceneDataset, ArrayScenes] = WeakKeyDictionary()


def open_arrays(
    root: Path,
    *,
    names: Path | Sequence[str] | None = None,
    bands: Sequence[str] | None = None,
    nodata: float | None = None,
) -> ArrayScenes:
    """Open an array file, or the array file of a folder; arguments as for `array_collection`."""
    root = Path(root)
    path = array_file(root)
    if path is None:
        raise DataError(
            f"{root}: no array here; expected a file ending in {', '.join(SUFFIXES)} or a folder "
            f"with images.npy or embeddings.npy"
        )
    array, names_in_file = _load(path)
    if names is None:
        names = names_file(root)
    if isinstance(names, (str, Path)):
        names = _lines(beside(path, Path(names)))
    if names is None:
        names = names_in_file
    return ArrayScenes(array, names, bands, nodata=nodata, source=str(path))


def names_file(root: Path) -> Path | None:
    """The file with the names of the rows: names.txt in a folder, x.names.txt beside x.npy."""
    path = root / NAMES if root.is_dir() else root.with_suffix(f".{NAMES}")
    return path if path.is_file() else None


def array_file(root: Path) -> Path | None:
    """The array file at a path: the file itself, or images.* or embeddings.* in a folder.

    None if there is no such file.
    """
    if root.is_file():
        return root if root.suffix.lower() in SUFFIXES else None
    candidates = [root / f"{stem}{suffix}" for stem in KEYS[:2] for suffix in SUFFIXES]
    return next((path for path in candidates if path.is_file()), None)


def _load(path: Path) -> tuple[NDArray[Any], list[str] | None]:
    """The array in a file, and the names of its rows if the file holds them."""
    try:
        if path.suffix.lower() == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False), None
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as content:
                names = content["names"].astype(str).tolist() if "names" in content else None
                return content[_key(path, content.files)], names
        from safetensors import safe_open

        with safe_open(path, framework="np") as content:
            return content.get_tensor(_key(path, list(content.keys()))), None
    except DataError:
        raise
    except Exception as error:  # each format has exceptions of its own
        raise DataError(f"{path}: cannot be read ({why(error)}); save it again as .npy") from error


def _key(path: Path, keys: Sequence[str]) -> str:
    """Which of the arrays in a file holds the images."""
    arrays = [key for key in keys if key != "names"]
    for key in KEYS:
        if key in arrays:
            return key
    if not arrays:
        raise DataError(f"{path}: holds no array; save one in it as {KEYS[0]!r}")
    if len(arrays) != 1:
        raise DataError(f"{path}: holds {', '.join(arrays)}; call the one to use {KEYS[0]!r}")
    return arrays[0]


def _bands_last(shape: tuple[int, ...]) -> bool:
    """Whether (N, a, b, c) looks like rows, columns, bands rather than bands, rows, columns."""
    _, first, second, last = shape
    if second == last:  # square pictures, or feature maps of 1280 x 3 x 3
        return False
    return first == second > last or last <= 4 < first


def _check(array: NDArray[Any], source: str) -> None:
    if array.dtype.kind not in "iuf":
        raise DataError(f"{source}: holds {array.dtype} values; save integers or real numbers")
    if array.ndim not in (2, 4) or 0 in array.shape:
        problem = "is empty" if 0 in array.shape else f"has {array.ndim} axes"
        raise DataError(
            f"{source}: an array of shape {array.shape} {problem}; save embeddings as (images,"
            " numbers) or pictures as (images, bands, height, width)"
        )
    if array.ndim == 4 and _bands_last(array.shape):
        raise DataError(
            f"{source}: shape {array.shape} has its bands last; save np.moveaxis(array, -1, 1)"
        )


def _numbers(count: int, width: int) -> tuple[str, ...]:
    return tuple(f"{i:0{width}d}" for i in range(count))


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a list of names ({error})") from error
    return [line.strip() for line in lines if line.strip()]
