"""Embeddings of images: what a pretrained network sees in each, in a file that training reads."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from adagc._version import __version__
from adagc.atomic import encoded, replacing
from adagc.datasets.collection import Collection
from adagc.errors import UsageError
from adagc.images.array import NAMES
from adagc.images.base import SceneDataset
from adagc.prediction.journal import MemoryRecords, Records
from adagc.prediction.shared import fingerprint, folder_of, recorded
from adagc.prediction.sources import ArrayRows, Rows
from adagc.prediction.work import Work, perform
from adagc.tables import Table, check_format, write
from adagc.training.config import RunConfig

if TYPE_CHECKING:
    from adagc.models import Classifier

Numbers = Literal["float32", "float16"]
_ARRAYS = (".npy", ".npz")
_TABLES = (".parquet",)


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings:
    """Vectors of images, their names and places, and what made them."""

    values: NDArray[Any]  # (N, D)
    names: tuple[str, ...]
    geometry: list[bytes | None] | None  # well-known binary; None if no image has a place
    crs: str | None
    meta: dict[str, str]  # network, weights, size of the images, bands

    def __repr__(self) -> str:
        count, width = self.values.shape
        return f"Embeddings({count} images, {width} numbers each, by {self.meta['backbone']})"

    def table(self) -> Table:
        """A row per image: its name, its embedding and its place."""
        columns: dict[str, Any] = {"id": self.names, "embedding": self.values}
        return Table(columns, self.geometry, self.crs, self.meta)

    def write(self, out: Path | str) -> None:
        """Write a file that training reads, whole or not at all.

        A .parquet file has the columns id and embedding, and geometry where places are known; an
        .npz file the arrays embeddings and names; beside an .npy file the names stand in a file of
        their own, x.names.txt.
        """
        out = Path(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix.lower() in _TABLES:
            write(out, self.table())
        elif out.suffix.lower() == ".npz":
            with replacing(out) as (file,):
                np.savez(file, embeddings=self.values, names=np.array(self.names))
        else:
            with replacing(out, out.with_suffix(f".{NAMES}")) as (file, names):
                np.save(file, self.values)
                names.write(encoded("".join(f"{name}\n" for name in self.names)))


def check_out(out: Path) -> None:
    """Raise UsageError if no embeddings can be written to this file, before any work is done."""
    suffix = out.suffix.lower()
    if suffix not in (*_ARRAYS, *_TABLES):
        raise UsageError(f"--out {out} must end with {', '.join((*_ARRAYS, *_TABLES))}: rename it")
    # Where a table may be written, an array may; the format of a table needs a package more.
    check_format(out if suffix in _TABLES else out.with_suffix(".csv"))


def embed(
    images: RunConfig | str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    dtype: Numbers = "float32",
    collection: Collection | None = None,
) -> Embeddings | None:
    """The embeddings of all images of a data set: the pooled features of a network.

    The values are normalised as in training: as the weights expect where that is known, else by
    mean and deviation of these images. A call that writes a file and was killed is continued by the
    same call, with the same result.

    Example:
        >>> from adagc import RunConfig, embed
        >>> config = RunConfig(data="synthetic", scenes=24, size=16, backbone="test_resnet",
        ...                    weights="none")
        >>> embed(config)
        Embeddings(60 images, 96 numbers each, by test_resnet)

    Args:
        images: A folder of images; or settings, of which data, size, network and weights matter.
        out: File to write: .parquet, .npz or .npy. Without one the result is only returned.
        dtype: Numbers of the result; half precision takes half the space.
        collection: The data, if it is already open.

    Returns:
        The embeddings; None in all but the first of several processes that write a file together.

    Raises:
        UsageError: If the network would have no pretrained weights and nobody has asked for that,
            or if the data are embeddings already.
    """
    config = images if isinstance(images, RunConfig) else RunConfig(root=os.fspath(images))
    path = None if out is None else Path(out)
    if path is not None:
        check_out(path)
    scenes, settled = _opened(config, collection)
    rows = np.arange(len(scenes), dtype=np.int64)
    network = _network(settled, scenes, rows)
    work = _work(network, scenes, settled)

    def made(records: Records) -> Embeddings:
        values = np.concatenate([result.numbers for result in work.results(records)])
        return _placed(values.astype(dtype), scenes, network)

    if path is None:
        memory = MemoryRecords()
        perform(work, memory)
        return made(memory)

    def write(records: Records) -> Embeddings:
        found = made(records)
        found.write(path)
        return found

    whole = (__version__, "embed", _digest(network), work.source.stamp, work.batch)
    with folder_of(path):
        return recorded(path, fingerprint(*whole), work, write)


def _opened(config: RunConfig, collection: Collection | None) -> tuple[SceneDataset, RunConfig]:
    """The images, and the settings with the network and weights that are used for them."""
    from adagc.training.inputs import check_values, open_configured
    from adagc.training.network import resolve

    images = (collection or open_configured(config)).images
    if not images.is_image:
        raise UsageError("these are embeddings already: train on them as they are")
    settled = resolve(config, images)
    if settled.weights == "none" and config.weights != "none":
        raise UsageError(
            f"there are no pretrained weights for {settled.backbone} here, and without them"
            " embeddings say little: give --weights hub or a file (--weights none if you mean it)"
        )
    check_values(images, np.arange(len(images), dtype=np.int64))
    return images, settled


def _network(config: RunConfig, images: SceneDataset, rows: NDArray[np.int64]) -> Classifier:
    """The network of the settings, with a head that nobody uses."""
    from adagc.models import HeadSpec
    from adagc.training.network import network_maker

    network = network_maker(config, images, ("any",), rows, HeadSpec())(config.seed)
    return network.eval()


def _work(network: Classifier, images: SceneDataset, config: RunConfig) -> Work:
    """The features of all images as work in blocks, on the device that the settings name."""
    import torch

    from adagc.training.contents import images_digest
    from adagc.training.fabric import make_fabric

    device = make_fabric(config).device
    network.to(device)

    def features(values: NDArray[Any]) -> NDArray[np.float32]:
        with torch.no_grad():
            pixels = torch.from_numpy(values).to(device).to(torch.float32)
            found: NDArray[np.float32] = network.embed(pixels).float().cpu().numpy()
        return found

    every = np.arange(len(images), dtype=np.int64)
    source = _Images(images, None, 4 * config.batch_size, (images_digest(images, every),))
    return Work(source, features, network.width, config.batch_size, doing="embedding images")


class _Images(ArrayRows):
    """Rows that are all computed, even those without a value: training reads no gaps."""

    unit = "images"

    def read(self, block: int) -> Rows:
        found = super().read(block)
        return replace(found, known=np.ones_like(found.known))


def _placed(values: NDArray[Any], images: SceneDataset, network: Classifier) -> Embeddings:
    """The vectors with what is known of the images and of the network."""
    places = images.geometry(np.arange(len(images), dtype=np.int64))
    meta = {
        "backbone": network.spec.backbone,
        "weights": network.spec.weights,
        "size": "x".join(map(str, images.shape[1:])),
        "bands": ",".join(images.bands),
        "adagc": __version__,
    }
    placed = any(place is not None for place in places)
    return Embeddings(
        values, images.names, places if placed else None, images.crs if placed else None, meta
    )


def _digest(network: Classifier) -> str:
    """A digest of all numbers of a network, and of its normalisation."""
    whole = hashlib.sha256(repr(network.spec).encode())
    for name, value in network.state_dict().items():
        whole.update(name.encode())
        whole.update(value.detach().cpu().contiguous().numpy().tobytes())
    return whole.hexdigest()
