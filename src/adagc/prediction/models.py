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
    """Raw values in, a probability per class out; normalisation is inside."""

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
    def thresholds(self) -> tuple[float, ...]:
        """From which probability on each class counts as predicted."""
        ...

    @property
    def nodata(self) -> float | None:
        """Number that stands for missing values, besides NaN."""
        ...

    @property
    def trained_on(self) -> int | None:
        """Side in pixels of the image files it was trained on, before resizing; None: not known."""
        ...

    @property
    def identity(self) -> str:
        """A digest that another model does not have."""
        ...

    def probabilities(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """(B, C) probabilities of (B, *shape) raw values."""
        ...


class RunModel:
    """The deployed network of a run, computed with torch on a GPU if there is one.

    Args:
        folder: The folder of a finished run.
    """

    def __init__(self, folder: Path) -> None:
        import torch

        from adagc.models import load_model, read_description

        described = read_description(folder)
        self.classes, self.bands = described.spec.classes, described.spec.bands
        self.shape, self.nodata = described.spec.shape, described.nodata
        self.thresholds = described.thresholds
        side = described.extra.get("trained_on")
        self.trained_on = side if isinstance(side, int) else None
        self.identity = described.sha256
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._network = load_model(folder).to(self._device)

    def probabilities(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `Model.probabilities`."""
        import torch

        with torch.no_grad():
            found = self._network.probabilities(torch.from_numpy(values).to(self._device))
        numbers: NDArray[np.float32] = found.cpu().numpy()
        return numbers


def open_model(place: str | os.PathLike[str]) -> Model:
    """The model of a run folder, or of a folder (or file) that `adagc export` has written."""
    path = Path(place)
    if path.suffix == ".onnx" or (path / "model.onnx").is_file():
        return _exported(path if path.is_dir() else path.parent)
    if not path.exists():
        raise UsageError(f"{path} does not exist: give the folder of a run or an exported model")
    return RunModel(path)


def _exported(folder: Path) -> Model:
    from adagc.prediction.exported import Exported

    return Exported(folder)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def batch_of(model: Model, wanted: int | None) -> int:
    """Inputs that are predicted together; by default fewer of large ones, to bound the memory."""
    values = int(np.prod(model.shape, dtype=np.int64))
    return wanted or int(np.clip((1 << 23) // values, 4, 256 if len(model.shape) == 1 else 64))


def limit_threads(model: Any, count: int) -> None:
    """Let a worker process compute with this many threads, if it computes with torch."""
    if isinstance(model, RunModel):
        import torch

        torch.set_num_threads(count)
