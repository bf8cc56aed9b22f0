"""Images to look at: a folder of any size, opened without reading a single image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.registry import open_collection, registry
from adagc.errors import DataError, UsageError
from adagc.images.array import SUFFIXES, array_file, open_arrays
from adagc.images.band_names import agreed, band_names
from adagc.images.base import SceneDataset
from adagc.images.cached import CachedScenes
from adagc.images.decode import Header, peek, read_image, resize, transparent
from adagc.images.footprint import Place, file_place
from adagc.images.scan import find_images, image_names

_LOOKED_AT = 20  # files that may be unreadable before the first one that can be read


def open_images(
    root: Path, *, bands: Sequence[str] | None = None, nodata: float | None = None
) -> SceneDataset:
    """The images of a folder, of an array, or of a published copy; names as in training.

    Args:
        root: The folder or the file.
        bands: Names of the bands in the order of the files; of BigEarthNet those to show.
        nodata: Number that stands for missing values, besides NaN and what a TIFF file names.
    """
    if array_file(root) is None:
        if root.is_file():
            kinds = ", ".join(SUFFIXES)
            raise UsageError(
                f"{root} is a file: give the folder of the images, or an array ({kinds})"
            )
        published = _published(root, bands, nodata)
        if published is not None:
            return published
        return FolderScenes(root, bands=bands, nodata=nodata)
    images = open_arrays(root, bands=bands, nodata=nodata)
    if not images.is_image:
        raise DataError(f"{root}: holds embeddings, which nobody can look at; give the images")
    return images


def _published(
    root: Path, bands: Sequence[str] | None, nodata: float | None
) -> SceneDataset | None:
    """The images of a data set that is no folder of image files, such as BigEarthNet.

    All bands that are there, unless some are named.
    """
    for entry in reversed(registry().values()):  # as `adagc inspect` asks them
        found = entry.recognise(root)
        if found is None:
            continue
        if found.collection is None:
            return None
        if bands is None:
            return found.collection(nodata).images
        return open_collection(entry.name, root, bands=bands).images
    return None


def originals(images: SceneDataset, root: Path, *, nodata: float | None = None) -> SceneDataset:
    """The files that images in a cache were made from, in their own size; else the images.

    Training makes images smaller and square, and people see more in the files themselves.

    Args:
        images: Images of a run, as it has opened them.
        root: Folder of the data of the run.
        nodata: Number that stands for missing values.
    """
    if not isinstance(images, CachedScenes):
        return images
    files = dict(zip(images.names, images.files, strict=True))
    if not all((root / file).is_file() for file in images.files[:_LOOKED_AT]):
        return images
    return FolderScenes(root, bands=images.bands, nodata=nodata, files=files)


class FolderScenes(SceneDataset):
    """The image files of a folder, each decoded when it is asked for, in its own size.

    What all have in common (bands, dtype) is that of the first file that can be read.

    Args:
        root: The folder.
        bands: Names of the bands; by default those that the file has for them (see `agreed`), or
            else those of `band_names`.
        nodata: Number that stands for missing values.
        files: Name of each image and its path in the folder, instead of all that are found.
    """

    def __init__(
        self,
        root: Path,
        *,
        bands: Sequence[str] | None = None,
        nodata: float | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self._root, self._nodata = root, nodata
        self.files = find_images(root) if files is None else tuple(files.values())
        if not self.files:
            raise DataError(f"{root}: holds no images; check the path")
        self.names = image_names(self.files) if files is None else tuple(files)
        header = self._first()
        self._alpha = not header.alpha or (
            len(bands) in (2, 4) if bands is not None else self._is_band(header)
        )
        count = header.shape[0] - (not self._alpha)
        named = agreed({header.named: str(self.files[0])}, count)
        self.bands = band_names(count, named if bands is None else bands)
        self.shape = (count, *header.shape[1:])
        self.dtype, self._depth = header.dtype, header.depth

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See `SceneDataset.gather`; one image alone has its own height and width.

        Several of different sizes are all resized to squares of the smallest side among them.
        """
        images = [self._read(int(row)) for row in rows]
        if len({image.shape for image in images}) > 1:
            side = min(min(image.shape[1:]) for image in images)
            images = [resize(image, side) for image in images]
        if not images:
            return np.empty((0, *self.shape), self.dtype)
        return np.stack(images)

    @property
    def depth(self) -> np.dtype[Any]:
        """See `SceneDataset.depth`."""
        return self._depth

    def place(self, row: int) -> Place | None:
        """See `SceneDataset.place`; only the file of this image is read."""
        return file_place(self.path(row))

    def path(self, row: int) -> Path:
        """The file of an image."""
        return self._root / self.files[row]

    def _first(self) -> Header:
        reason = None
        for row in range(min(_LOOKED_AT, len(self.files))):
            try:
                header = peek(self.path(row), nodata=self._nodata)
            except DataError as error:
                reason = error
            else:
                self._example = row
                return header
        raise DataError(f"{self._root}: none of the first images can be read, such as {reason}")

    def _is_band(self, header: Header) -> bool:
        """Whether the last band, declared to be transparency, looks like something else."""
        try:
            return not transparent(read_image(self.path(self._example))[-1], header.depth)
        except DataError:
            return False

    def _read(self, row: int) -> NDArray[Any]:
        path = self.path(row)
        image = read_image(path, alpha=self._alpha, nodata=self._nodata)
        if image.shape[0] != len(self.bands):
            raise DataError(
                f"{path}: has {image.shape[0]} bands where other images have {len(self.bands)};"
                " convert or remove it"
            )
        return image
