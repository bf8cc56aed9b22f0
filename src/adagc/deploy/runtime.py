"""An exported model, run by onnxruntime; torch is not needed and not imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adagc.deploy.facts import ModelFacts
from adagc.errors import AdagcError, DataError, MissingExtraError, UsageError, examples

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

ONNX = "model.onnx"
INPUT, OUTPUT = "images", "probabilities"
_BATCH = 64  # images at a time, if nothing else is said; of embeddings four times as many
# What files begin with that Python would run code of: pickles, and archives such as torch's.
_UNSAFE = (b"\x80", b"PK")


class ExportedModel:
    """A model.onnx that `adagc export` wrote: raw values in, probabilities out.

    It knows its classes, bands, size of images and thresholds. Objects can be sent to other
    processes, where the file is opened again.

    Example:
        >>> import numpy as np
        >>> from adagc import ExportedModel, RunConfig, collect, export, train
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.normal(size=(40, 8)), np.eye(2)[np.arange(40) % 2]
        >>> run = train(RunConfig(epochs=1), "AN", collection=collect(X, labels=y))
        >>> done = export(run, "models/first", formats=["onnx"])
        >>> model = ExportedModel("models/first")  # from here on no torch is needed
        >>> found = model.probabilities(X)
        >>> found.shape, model.decide(found).dtype
        ((40, 2), dtype('bool'))

    Args:
        place: The file, or the folder that `adagc export` wrote.
        threads: Number of threads that one call may use; by default OMP_NUM_THREADS, or all cores.
    """

    facts: ModelFacts

    def __init__(self, place: str | os.PathLike[str], *, threads: int | None = None) -> None:
        self.path = _file(Path(place))
        self.threads = _threads() if threads is None else threads
        self._session = open_session(_read(self.path), threads=self.threads, place=str(self.path))
        metadata = self._session.get_modelmeta().custom_metadata_map
        self.facts = ModelFacts.from_metadata(metadata, str(self.path))

    def __repr__(self) -> str:
        form = " x ".join(map(str, self.shape))
        return f"ExportedModel({str(self.path)!r}: {form} to {len(self.classes)} classes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.path, self.threads)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        return self.facts.classes

    @property
    def bands(self) -> tuple[str, ...]:
        """Names of the bands, in the order of the first axis of an image."""
        return self.facts.bands

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input: (bands, height, width), or (length,) of an embedding."""
        return self.facts.shape

    @property
    def nodata(self) -> float | None:
        """The number that stands for missing values, besides NaN; the model knows it itself."""
        return self.facts.nodata

    @property
    def trained_on(self) -> int | None:
        """Side in pixels of the images it was trained on, before resizing; None: not known."""
        return self.facts.trained_on

    @property
    def thresholds(self) -> NDArray[np.float32]:
        """(C,) probability from which on each class counts as predicted."""
        return np.array(self.facts.thresholds, dtype=np.float32)

    def probabilities(
        self, values: NDArray[Any], *, batch_size: int | None = None
    ) -> NDArray[np.float32]:
        """(N, C) probabilities of raw images (N, bands, height, width) or embeddings (N, length).

        Args:
            values: Raw values of any integer or float type, not normalised.
            batch_size: How many to run at a time; by default 64 images or 256 embeddings.
        """
        values = np.asarray(values)
        self._check(values)
        step = batch_size or (_BATCH if self.facts.is_image else 4 * _BATCH)
        found = np.empty((len(values), len(self.classes)), dtype=np.float32)
        for start in range(0, len(values), step):
            part = np.ascontiguousarray(values[start : start + step], dtype=np.float32)
            found[start : start + step] = self._session.run([OUTPUT], {INPUT: part})[0]
        return found

    def decide(self, probabilities: NDArray[Any]) -> NDArray[np.bool_]:
        """(N, C) bool: classes whose probability is at least their threshold."""
        decided: NDArray[np.bool_] = probabilities >= self.thresholds
        return decided

    def _check(self, values: NDArray[Any]) -> None:
        if values.dtype.kind not in "iuf":
            raise DataError(
                f"the model takes numbers, got values of type {values.dtype}: convert them to"
                " integers or floats"
            )
        if values.shape[1:] == self.shape:
            return
        got = " x ".join(map(str, values.shape[1:])) or "nothing"
        if not self.facts.is_image:
            raise DataError(
                f"the model takes embeddings (N, {self.shape[0]}), got N x {got}: make them with"
                " the network that the training embeddings came from"
            )
        bands, height, width = self.shape
        raise DataError(
            f"the model takes images (N, {bands}, {height}, {width}) with the bands"
            f" {examples(self.bands, 20)}, got N x {got}: give these bands in this order, resized"
        )


def open_session(content: bytes, *, threads: int, place: str) -> InferenceSession:
    """A session that runs a model on the CPU; AdagcError if it is not one.

    Args:
        content: The content of an ONNX file.
        threads: Number of threads; 0 means one per core.
        place: The file, for error messages.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingExtraError("onnxruntime", "onnx") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors, which are raised as well
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # what onnxruntime raises has no common class but this one
        reason = " ".join(str(error).split())[:200]
        raise AdagcError(
            f"{place} is not a model that onnxruntime {onnxruntime.__version__} can run"
            f" ({reason}): export the run again, or update onnxruntime"
        ) from error


def _file(place: Path) -> Path:
    """The ONNX file of a path that a user gave."""
    path = place / ONNX if place.is_dir() else place
    if not path.is_file():
        raise UsageError(f"{path} does not exist: give a folder or file that adagc export wrote")
    return path


def _read(path: Path) -> bytes:
    content = path.read_bytes()
    if content.startswith(_UNSAFE):
        raise AdagcError(
            f"{path} is an archive or a pickle, which may contain code, and is not read: give the"
            f" {ONNX} that adagc export wrote"
        )
    return content


def _threads() -> int:
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdigit() else 0


def _reopened(path: Path, threads: int) -> ExportedModel:
    return ExportedModel(path, threads=threads)
