"""What predicts: the network of a run, or an exported model that needs no torch."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adagc.errors import UsageError


class Model(Protocol):
    """Raw values in, a probability per class out; normalisation is inside.

    It can be sent to other processes (pickled), which open its files again.
    """

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        ...

    @property
    def bands(self) -> tuple[str, ...]:
        """Names of the bands, in the order of the first axis; any or none for embeddings."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input: (bands, H, W) or (D,)."""
        ...

    @property
    def thresholds(self) -> NDArray[np.float32]:
        """(C,) probability from which on each class counts as predicted."""
        ...

    @property
    def nodata(self) -> float | None:
        """Number that stands for missing values, besides NaN."""
        ...

    @property
    def trained_on(self) -> int | None:
        """Side in pixels of the images it was trained on, before resizing; None: not known."""
        ...

    def probabilities(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """(B, C) probabilities of (B, *shape) raw values."""
        ...


class RunModel:
    """The deployed network of a run, computed with torch on a GPU if there is one.

    Args:
        folder: The folder of a finished run.
        threads: Number of threads that it may compute with; None leaves that to torch.
    """

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        import torch

        from adagc.models import load_model, read_description

        if threads is not None:
            torch.set_num_threads(threads)
        self._folder = folder
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._network = load_model(folder).to(self._device)
        spec = self._network.spec
        self.classes, self.bands, self.shape = spec.classes, spec.bands, spec.shape
        self.nodata = self._network.normalise.nodata
        side = read_description(folder).extra.get("trained_on")
        self.trained_on = side if isinstance(side, int) else None
        self.thresholds: NDArray[np.float32] = self._network.thresholds.cpu().numpy()

    def probabilities(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """See `Model.probabilities`."""
        import torch

        with torch.no_grad():
            given = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
            found = self._network.probabilities(given.to(self._device))
        numbers: NDArray[np.float32] = found.cpu().numpy()
        return numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return RunModel, (self._folder,)


def open_model(place: str | os.PathLike[str], *, threads: int | None = None) -> Model:
    """The model of a run folder, or of a folder (or file) that `adagc export` has written.

    Args:
        place: The folder or file.
        threads: Number of threads that it may compute with; None leaves that to the library.
    """
    path = Path(place)
    if is_exported(path):
        from adagc.deploy import ExportedModel

        return ExportedModel(path, threads=threads)
    if not path.exists():
        raise UsageError(f"{path} does not exist: give the folder of a run or an exported model")
    return RunModel(path, threads)


def is_exported(path: Path) -> bool:
    """Whether `adagc export` wrote what is there, which is run without torch."""
    return path.suffix == ".onnx" or (path / "model.onnx").is_file()


def identity(place: Path) -> str:
    """A digest of the files of a model, which another model does not have."""
    if place.suffix == ".onnx":
        names = [place]
    else:
        names = [place / name for name in ("model.onnx", "model.json", "model.safetensors")]
    whole = hashlib.sha256()
    for path in names:
        if path.is_file():
            with path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def batch_of(model: Model, wanted: int | None) -> int:
    """Inputs that are predicted together; by default fewer of large ones, to bound the memory."""
    values = int(np.prod(model.shape, dtype=np.int64))
    return wanted or int(np.clip((1 << 23) // values, 4, 256 if len(model.shape) == 1 else 64))
