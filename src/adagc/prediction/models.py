"""What predicts: the network of a run, or an exported model that needs no torch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adagc.deploy.runtime import ONNX, ExportedModel
from adagc.errors import UsageError
from adagc.prediction.work import Compute
from adagc.training.runs import Run

Given = str | os.PathLike[str] | Run | ExportedModel  # what stands for a model
Home = Path | MutableMapping[str, bytes]  # where its files are; those of a run in memory by name
MODEL_FILES = ("model.json", "model.safetensors")


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
        home: The folder of a finished run, or the two files of its model by name.
        threads: Number of threads that it may compute with; None leaves that to torch.
    """

    def __init__(self, home: Home, threads: int | None = None) -> None:
        import torch

        from adagc.models import load_model, read_description

        if threads is not None:
            torch.set_num_threads(threads)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._network = load_model(home).to(self._device)
        spec = self._network.spec
        self.classes, self.bands, self.shape = spec.classes, spec.bands, spec.shape
        self.nodata = self._network.normalise.nodata
        side = read_description(home).extra.get("trained_on")
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


def home_of(given: Given) -> Home:
    """Where the files of a model are."""
    if isinstance(given, ExportedModel):
        return given.path
    if not isinstance(given, Run):
        return Path(given)
    files = given.files.models
    if isinstance(files, Path):
        return files
    if not given.finished:
        raise UsageError(f"{given} is not finished: there is no model yet")
    return {name: files[name] for name in MODEL_FILES}


def open_model(home: Home, *, threads: int | None = None) -> Model:
    """The model of a run, or of a folder (or file) that `adagc export` has written.

    Args:
        home: The folder or file, or the files of a run in memory.
        threads: Number of threads that it may compute with; None leaves that to the library.
    """
    if not isinstance(home, Path):
        return RunModel(home, threads)
    if is_exported(home):
        return ExportedModel(home, threads=threads)
    if not home.exists():
        raise UsageError(f"{home} does not exist: give the folder of a run or an exported model")
    return RunModel(home, threads)


def opener(home: Home) -> Callable[[int], Compute]:
    """A function that can be sent to another process, where it opens the model for some threads."""
    return partial(_opened, home)


def _opened(home: Home, threads: int) -> Compute:
    return open_model(home, threads=threads).probabilities


def is_exported(path: Path) -> bool:
    """Whether `adagc export` wrote what is there, which is run without torch."""
    return path.suffix == ".onnx" or (path / ONNX).is_file()


def identity(home: Home) -> str:
    """A digest of the files of a model, which another model does not have."""
    whole = hashlib.sha256()
    if not isinstance(home, Path):
        for name in MODEL_FILES:
            whole.update(hashlib.sha256(home[name]).digest())
        return whole.hexdigest()
    names = [home] if home.suffix == ".onnx" else [home / name for name in (ONNX, *MODEL_FILES)]
    for path in names:
        if path.is_file():
            with path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def batch_of(model: Model, wanted: int | None) -> int:
    """Inputs that are predicted together; by default fewer of large ones, to bound the memory."""
    values = int(np.prod(model.shape, dtype=np.int64))
    return wanted or int(np.clip((1 << 23) // values, 4, 256 if len(model.shape) == 1 else 64))
