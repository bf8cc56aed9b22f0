"""Embeddings of images: what a pretrained network sees in each, in a file that training reads."""

from __future__ import annotations

from dataclasses import dataclass
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
from adagc.progress import tracked
from adagc.tables import Table, check_format, write
from adagc.training.config import RunConfig

if TYPE_CHECKING:
    from adagc.models import Classifier

Numbers = Literal["float32", "float16"]
_ARRAYS = (".npy", ".npz")
_TABLES = (".parquet",)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Vectors of images, their names and places, and what made them."""

    values: NDArray[Any]  # (N, D)
    names: tuple[str, ...]
    geometry: list[bytes | None] | None  # well-known binary; None if no image has a place
    crs: str | None
    meta: dict[str, str]  # network, weights, size of the images, bands

    def write(self, out: Path) -> None:
        """Write a file that training reads, whole or not at all.

        A .parquet file has the columns id and embedding, and geometry where places are known; an
        .npz file the arrays embeddings and names; beside an .npy file the names stand in a file of
        their own, x.names.txt.
        """
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix.lower() in _TABLES:
            columns: dict[str, Any] = {"id": self.names, "embedding": self.values}
            write(out, Table(columns, self.geometry, self.crs, self.meta))
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
    config: RunConfig, *, dtype: Numbers = "float32", collection: Collection | None = None
) -> Embeddings:
    """The embeddings of all images of a data set: the pooled features of a network.

    The values are normalised as in training: as the weights expect where that is known, else by
    mean and deviation of these images.

    Args:
        config: Data, size, network and weights; what it says of training does not matter.
        dtype: Numbers of the result; half precision takes half the space.
        collection: The data, if it is already open.

    Raises:
        UsageError: If the network would have no pretrained weights and nobody has asked for that,
            or if the data are embeddings already.
    """
    from adagc.training.inputs import check_values, open_configured
    from adagc.training.network import resolve

    collection = collection or open_configured(config)
    images = collection.images
    if not images.is_image:
        raise UsageError("these are embeddings already: train on them as they are")
    settled = resolve(config, images)
    if settled.weights == "none" and config.weights != "none":
        raise UsageError(
            f"there are no pretrained weights for {settled.backbone} here, and without them"
            " embeddings say little: give --weights hub or a file (--weights none if you mean it)"
        )
    rows = np.arange(len(images), dtype=np.int64)
    check_values(images, rows)
    network = _network(settled, images, rows)
    places = images.geometry(rows)
    meta = {
        "backbone": settled.backbone,
        "weights": network.spec.weights,
        "size": "x".join(map(str, images.shape[1:])),
        "bands": ",".join(images.bands),
        "adagc": __version__,
    }
    placed = any(place is not None for place in places)
    return Embeddings(
        _vectors(network, images, rows, settled).astype(dtype),
        images.names,
        places if placed else None,
        images.crs if placed else None,
        meta,
    )


def _network(config: RunConfig, images: SceneDataset, rows: NDArray[np.int64]) -> Classifier:
    """The network of the settings, with a head that nobody uses."""
    from adagc.models import HeadSpec
    from adagc.training.network import network_maker

    return network_maker(config, images, ("any",), rows, HeadSpec())(config.seed)


def _vectors(
    network: Classifier, images: SceneDataset, rows: NDArray[np.int64], config: RunConfig
) -> NDArray[np.float32]:
    import torch

    from adagc.training.fabric import make_fabric

    device = make_fabric(config).device
    network = network.to(device).eval()
    values = np.empty((len(rows), network.width), dtype=np.float32)
    step = config.batch_size
    with torch.no_grad():
        for start in tracked(range(0, len(rows), step), "embedding images"):
            chunk = rows[start : start + step]
            pixels = torch.from_numpy(images.gather(chunk)).to(device).to(torch.float32)
            values[chunk] = network.embed(pixels).float().cpu().numpy()
    return values
