"""What INPUT is: image files, arrays, a store of decoded images, or a scene to cut into windows."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError, UsageError
from adagc.images.array import SUFFIXES, ArrayScenes, array_file, open_arrays
from adagc.images.base import SceneDataset
from adagc.images.cached import CachedScenes
from adagc.images.decode import EXTENSIONS, TIFF, peek
from adagc.images.footprint import footprints
from adagc.images.parquet import ParquetScenes
from adagc.images.scan import find_images, image_names
from adagc.images.store.cache import open_store
from adagc.images.store.index import read_index
from adagc.prediction.bands import Chosen, choose
from adagc.prediction.models import Model
from adagc.prediction.scenes import SceneWindows
from adagc.prediction.sources import ArrayRows, ImageFiles, Picture, Source, keeps_alpha
from adagc.suggest import require_path
from adagc.tables.reading import parquet_files
from adagc.windows.grid import share
from adagc.windows.scene import Scene

Cut = Literal["auto", "always", "never"]
Input = str | os.PathLike[str] | NDArray[Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """How an input is read; None leaves a decision to the model and the input."""

    bands: Sequence[str] | None = None  # names of the bands of the input, in its order
    nodata: float | None = None  # number that stands for missing values
    windows: Cut = "auto"  # whether to cut an image into windows
    window: int | None = None  # side of a window in pixels of the scene
    stride: int | None = None  # pixels from one window to the next
    overlap: float | None = None  # share of a window that overlaps the next one
    cell: int | None = None  # side of a cell of a map, in pixels of the scene
    batch: int = 32  # rows that are predicted together
    skip: bool = False  # leave out files that cannot be read


@dataclass(frozen=True)
class Opened:
    """An input that is ready to be predicted."""

    source: Source
    names: tuple[str, ...]  # of its rows; of a scene its own name alone
    scene: SceneWindows | None = None
    # Where its rows are on earth, as well-known binary; None where no row has a place.
    shapes: Sequence[bytes | None] | None = None
    crs: str | None = None

    @property
    def placed(self) -> bool:
        """Whether rows have places on earth."""
        return self.scene is not None or self.shapes is not None


def open_input(given: Input, model: Model, reading: Reading, *, mapped: bool = False) -> Opened:
    """Open what is to be predicted, and check that it suits the model.

    Args:
        given: A file, a folder, or an array.
        model: What predicts.
        reading: How it is read.
        mapped: Whether a map is wanted, for which only scenes will do.
    """
    if isinstance(given, np.ndarray):
        images = ArrayScenes(given, bands=reading.bands, nodata=reading.nodata)
        return _rows(images, model, reading, ())
    path = Path(given)
    require_path("INPUT", path)
    scene = _as_scene(path, model, reading, mapped=mapped)
    if scene is not None:
        return _windows(scene, model, reading, mapped=mapped)
    if mapped:
        raise UsageError(
            f"a map (.tif) is made of a scene, and {path} is none: write .csv or .parquet"
        )
    if reading.window or reading.stride or reading.overlap is not None or reading.cell:
        raise UsageError(
            f"{path} is not cut into windows: leave out --window, --stride and --overlap, or add"
            " --windows always"
        )
    return _open_rows(path, model, reading)


def _open_rows(path: Path, model: Model, reading: Reading) -> Opened:
    if path.is_dir() and read_index(path) is not None:
        store = open_store(path)
        names = image_names(store.files)
        images: SceneDataset = CachedScenes(store, names, reading.bands)
        return _rows(images, model, reading, _stamp(store.path))
    if len(model.shape) == 1 and parquet_files(path):
        return _rows(ParquetScenes(path, nodata=reading.nodata), model, reading, _stamp(path))
    if _is_array(path, model):
        images = open_arrays(path, bands=reading.bands, nodata=reading.nodata)
        return _rows(images, model, reading, _stamp(array_file(path) or path))
    if len(model.shape) != 3:
        raise DataError(
            f"the model takes embeddings of length {model.shape[0]}, and {path} holds images: give"
            " an array (.npy) or a .parquet file of embeddings"
        )
    return _pictures(path, model, reading)


# -- scenes --------------------------------------------------------------------------------------


def _as_scene(path: Path, model: Model, reading: Reading, *, mapped: bool) -> Scene | None:
    """The scene at a path, if it is to be cut into windows."""
    always = reading.windows == "always" or mapped or path.suffix.lower() not in _KNOWN
    if path.is_dir() or reading.windows == "never" or len(model.shape) != 3:
        if always and path.is_dir() and reading.windows == "always":
            raise UsageError(f"{path} is a folder: give one scene at a time")
        return None
    numbers = [n for n in (reading.nodata, model.nodata) if n is not None]
    if always:
        return Scene(path, numbers)
    if path.suffix.lower() not in TIFF:
        return None
    side = reading.window or model.trained_on or max(model.shape[1:])
    if max(peek(path).shape[1:]) <= side:
        return None
    scene = Scene(path, numbers)
    if scene.georeferenced or reading.window or reading.stride or reading.overlap is not None:
        return scene
    log.info(
        "%s has no coordinates and is taken for one image, resized to %d pixels: --windows always"
        " cuts it into windows",
        path.name,
        model.shape[1],
    )
    return None


_KNOWN = (*EXTENSIONS, *SUFFIXES)


# What is assumed of the resolution of a scene, whether the size of training images is known or not.
_ASSUMED = (
    "taken to have the resolution of the model's input, as nothing is known of the training images"
    " (--window says otherwise)",
    "as large as the images of training, whose resolution it is taken to have (--window says"
    " otherwise)",
)


def _windows(scene: Scene, model: Model, reading: Reading, *, mapped: bool) -> Opened:
    _, height, width = model.shape
    side = reading.window or (model.trained_on if height == width else None)
    window = (height, width) if side is None else (side, side)
    if window != (height, width) and height != width:
        raise UsageError(
            f"the model takes {height} x {width} pixels, which are no square: leave out --window"
        )
    chosen = choose(
        model.bands, scene.names, given=reading.bands, colours=scene.colours,
        place=str(scene.path),
    )  # fmt: skip
    _say(chosen, scene.path.name)
    stride = strides(window, reading)
    grid = share(
        scene.height, scene.width, window, stride,
        bands=len(chosen.numbers), across=scene.in_lines,
    )  # fmt: skip
    log.info(
        "%s: %d windows of %d x %d pixels, every %d%s%s",
        scene.path.name,
        grid.windows,
        *window,
        stride[0],
        "" if window == (height, width) else f", resized to {height} x {width}",
        "" if reading.window else f"; {_ASSUMED[model.trained_on is not None]}",
    )
    cell = (reading.cell or min(stride)) if mapped else None
    windows = SceneWindows(scene, grid, chosen.numbers, (height, width), cell)
    return Opened(windows, (scene.path.stem,), windows)


def strides(window: tuple[int, int], reading: Reading) -> tuple[int, int]:
    """Pixels from one window to the next, down and to the right."""
    if reading.stride is not None:
        return reading.stride, reading.stride
    kept = 1 - (reading.overlap or 0.0)
    return max(1, round(kept * window[0])), max(1, round(kept * window[1]))


# -- arrays and images ---------------------------------------------------------------------------


def _is_array(path: Path, model: Model) -> bool:
    """Whether a path is an array of many rows; a .npy file may be a single picture, too."""
    if path.suffix.lower() != ".npy" or not path.is_file():
        return array_file(path) is not None
    try:
        lazy = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return True  # opening it says what is wrong
    return lazy.ndim == 4 or (lazy.ndim == 2 and len(model.shape) == 1)


def _rows(
    images: SceneDataset, model: Model, reading: Reading, stamp: tuple[object, ...]
) -> Opened:
    numbers: tuple[int, ...] | None = None
    if images.is_image and len(model.shape) == 3:
        named: Sequence[str | None] = [None] * images.shape[0]
        chosen = choose(model.bands, named, given=reading.bands, place="the array")
        _say(chosen, "the array")
        numbers = chosen.numbers
    found = images.shape if numbers is None else (len(numbers), *images.shape[1:])
    if found != model.shape:
        raise DataError(
            f"the rows have the shape {' x '.join(map(str, images.shape))}, and the model takes"
            f" {' x '.join(map(str, model.shape))}: give rows of that shape"
        )
    if numbers == tuple(range(images.shape[0])):
        numbers = None
    places = _places(images.geometry(np.arange(len(images), dtype=np.int64)), images.crs)
    return Opened(ArrayRows(images, numbers, 4 * reading.batch, stamp), images.names, None, *places)


def _places(
    shapes: Sequence[bytes | None], crs: str | None
) -> tuple[Sequence[bytes | None] | None, str | None]:
    """The shapes if one is known, else None."""
    return (shapes, crs) if any(shape is not None for shape in shapes) else (None, None)


def _pictures(path: Path, model: Model, reading: Reading) -> Opened:
    if path.is_dir():
        files = find_images(path)
        if not files:
            raise DataError(f"{path}: no images found; expected files like {', '.join(EXTENSIONS)}")
        places, names = [path / file for file in files], image_names(files)
    else:
        places, names = [path], (path.stem,)
    height, width = model.shape[1:]
    if height != width:
        raise DataError(
            f"the model takes {height} x {width} pixels, to which files cannot be resized: give an"
            " array of that shape"
        )

    def look(place: Path) -> tuple[Picture, Chosen] | None:
        try:
            return _picture(place, model, reading)
        except DataError:
            if reading.skip:
                return None
            raise

    if len(places) == 1:
        looked = [look(places[0])]
    else:
        with ThreadPoolExecutor(4) as pool:
            looked = list(pool.map(look, places))
    good = [number for number, found in enumerate(looked) if found is not None]
    if len(good) < len(places):
        log.warning("%d of %d files are left out", len(places) - len(good), len(places))
    if not good:
        raise DataError(f"{path}: no image can be read")
    found = [one for one in looked if one is not None]
    for note in dict.fromkeys(chosen.note for _, chosen in found):
        _say(Chosen((), note), path.name)
    nodata = [n for n in (reading.nodata, model.nodata) if n is not None]
    source = ImageFiles(
        [picture for picture, _ in found], side=height, nodata=nodata, size=reading.batch,
        skip=reading.skip,
    )  # fmt: skip
    shapes = _places(*footprints([picture.path for picture, _ in found]))
    return Opened(source, tuple(names[number] for number in good), None, *shapes)


def _picture(path: Path, model: Model, reading: Reading) -> tuple[Picture, Chosen]:
    """How one file is read."""
    alpha = keeps_alpha(path, len(model.bands), reading.bands)
    header = peek(path, alpha=alpha)
    count = header.shape[0]
    named = (header.named + (None,) * count)[:count]
    chosen = choose(model.bands, named, given=reading.bands, place=str(path))
    return Picture(path, chosen.numbers, alpha), replace(chosen, numbers=())


def _stamp(path: Path) -> tuple[object, ...]:
    stats = [one.stat() for one in (path, *(parquet_files(path) if path.is_dir() else ()))]
    return os.fspath(path.resolve()), *((one.st_size, one.st_mtime_ns) for one in stats)


def _say(chosen: Chosen, place: str) -> None:
    if chosen.note:
        log.info("%s: %s", place, chosen.note)
