"""A network as an ONNX graph: raw values in, the probabilities that the network deploys out."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from adagc.deploy.runtime import INPUT, OUTPUT, open_session
from adagc.errors import AdagcError, MissingExtraError
from adagc.models import Classifier

if TYPE_CHECKING:
    from numpy.typing import NDArray

# onnxruntime 1.17 and later run them; what exporters use by themselves needs newer ones.
OPSET, IR = 18, 8
TOLERANCE = 1e-5  # largest difference of a probability to ours that is taken for rounding
_BATCHES = (1, 2, 5)  # sizes of batches that an export is checked with
_LIMIT = 2**31 - 1  # bytes of one file of the format


class Deployed(nn.Module):
    """What is exported: raw values (N, ...) in, probabilities (N, C) out."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = copy.deepcopy(classifier).eval().requires_grad_(False)
        self.classifier.normalise = _Normalised(classifier.normalise)  # type: ignore[assignment]

    def forward(self, images: Tensor) -> Tensor:
        """(N, C) probabilities of raw images (N, bands, H, W) or embeddings (N, D)."""
        return self.classifier.probabilities(images)


class _Normalised(nn.Module):
    """As `adagc.models.Normalise`; missing values are put in by one operator, not by seven."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.nodata = source.nodata
        self.register_buffer("mean", source.mean.clone())  # type: ignore[operator]
        self.register_buffer("std", source.std.clone())  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1) + (1,) * (x.ndim - 2)
        missing = x.isnan()
        if self.nodata is not None:
            missing = missing | (x == self.nodata)
        normalised = (x - self.mean.view(shape)) / self.std.view(shape)
        return torch.where(missing, torch.zeros((), dtype=x.dtype), normalised)


def to_onnx(module: nn.Module, example: Tensor, metadata: Mapping[str, str]) -> bytes:
    """The content of an ONNX file of any batch size.

    Args:
        module: The network, whose only parameter is called `images`.
        example: A batch of at least two inputs.
        metadata: What the file says about itself.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name}", "onnx") from error
    with _quiet():
        try:
            program = torch.onnx.export(
                module,
                (example,),
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes={INPUT: {0: torch.export.Dim("N")}},
                opset_version=OPSET,
                dynamo=True,
            )
        except Exception as error:  # torch raises classes of its own for every stage
            reason = str(error).partition("\n")[0]
            raise AdagcError(
                f"torch {torch.__version__} cannot export this network ({reason}): update torch"
                " and onnxscript, or train with another backbone"
            ) from error
    assert program is not None
    model = program.model_proto
    model.ir_version = min(model.ir_version, IR)
    for key, value in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    if model.ByteSize() > _LIMIT:
        raise AdagcError("the network has more than 2 GB, which an ONNX file cannot hold")
    return bytes(model.SerializeToString())


def difference(content: bytes, classifier: Classifier, *, seed: int = 0) -> float:
    """The largest difference of a probability between an ONNX file and our network."""
    session = open_session(content, threads=1, place="the exported model")
    worst = 0.0
    for size in _BATCHES:
        values = probe(classifier, size, seed=seed + size)
        theirs = session.run([OUTPUT], {INPUT: values})[0]
        with torch.no_grad():
            ours = classifier.probabilities(torch.from_numpy(values)).numpy()
        worst = max(worst, float(np.abs(theirs - ours).max()))
    return worst


def probe(classifier: Classifier, size: int, *, seed: int) -> NDArray[np.float32]:
    """Random inputs with the statistics that the network expects, some values missing."""
    random = np.random.default_rng(seed)
    shape = (size, *classifier.spec.shape)
    per_band = (1, -1) + (1,) * (len(shape) - 2)
    mean, std = (
        one.cpu().numpy().reshape(per_band)
        for one in (classifier.normalise.mean, classifier.normalise.std)
    )
    values = (random.normal(size=shape) * std + mean).astype(np.float32)
    gaps = random.random(shape) < 0.01
    values[gaps] = np.nan
    if classifier.normalise.nodata is not None:
        values[random.random(shape) < 0.01] = classifier.normalise.nodata
    return values


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that exporters print about their own work."""
    loggers: list[Any] = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
