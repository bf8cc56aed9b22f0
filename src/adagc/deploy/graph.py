"""A network as a graph of operators: raw values in, the probabilities that it deploys out.

torch traces the network once; from that an ONNX file and a program of torch.export are written.
"""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import torch
from torch import Tensor, nn

from adagc._version import __version__
from adagc.deploy.runtime import INPUT, OUTPUT
from adagc.errors import AdagcError, MissingExtraError
from adagc.models import Classifier, Normalise

# onnxruntime 1.17 and later run them; what the exporter takes by itself needs newer ones.
OPSET, IR = 18, 8
_LIMIT = 2**31 - 1  # bytes of one ONNX file
_BATCH = "N"  # name of the dimension of any size


class Deployed(nn.Module):
    """What is exported: raw values (N, ...) in, probabilities (N, C) out."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = copy.deepcopy(classifier).eval().requires_grad_(False)
        self.classifier.normalise = _Normalise.of(classifier.normalise)

    def forward(self, images: Tensor) -> Tensor:
        """(N, C) probabilities of raw images (N, bands, H, W) or embeddings (N, D)."""
        return self.classifier.probabilities(images)


class _Normalise(Normalise):
    """As its base class, with three operators for missing values in place of seven."""

    @classmethod
    def of(cls, source: Normalise) -> _Normalise:
        return cls(source.mean, source.std, source.nodata)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1) + (1,) * (x.ndim - 2)
        missing = x.isnan()
        if self.nodata is not None:
            missing = missing | (x == self.nodata)
        normalised = (x - self.mean.view(shape)) / self.std.view(shape)
        return torch.where(missing, torch.zeros((), dtype=x.dtype), normalised)


def trace(module: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """The graph of a network, for batches of any size.

    Args:
        module: The network; its only parameter is called `images`.
        example: A batch of at least two inputs.
    """
    with _quiet(), _explained():
        program = torch.export.export(
            module.eval(), (example,), dynamic_shapes={INPUT: {0: torch.export.Dim(_BATCH)}}
        )
    for node in program.graph.nodes:  # where which line stood on the machine of whoever exports
        node.meta.pop("stack_trace", None)
    return program


def to_pt2(program: torch.export.ExportedProgram) -> bytes:
    """The content of a file for `torch.export.load`, without the example, which is pickled."""
    program = copy.copy(program)
    program.example_inputs = None
    content = io.BytesIO()
    with _quiet(), _explained():
        torch.export.save(program, content)
    return content.getvalue()


def to_onnx(
    program: torch.export.ExportedProgram,
    metadata: Mapping[str, str],
    outputs: Sequence[str] = (OUTPUT,),
) -> bytes:
    """The content of an ONNX file.

    Args:
        program: The graph.
        metadata: What the file says about itself.
        outputs: Names of the outputs.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name}", "onnx") from error
    with _quiet(), _explained():
        written = torch.onnx.export(
            program,
            input_names=[INPUT],
            output_names=list(outputs),
            opset_version=OPSET,
            dynamo=True,
        )
    assert written is not None
    model = written.model_proto
    _tidy(model)
    model.ir_version = IR
    for key, value in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    if model.ByteSize() > _LIMIT:
        raise AdagcError("the network has more than 2 GB, which an ONNX file cannot hold")
    return bytes(model.SerializeToString())


def _tidy(model: Any) -> None:
    """Name the producer and the batch, and leave out what only a debugger needs.

    Of every node the exporter notes the lines of Python that made it, with the folders they are in.
    """
    model.producer_name, model.producer_version = "adagc", __version__
    graph = model.graph
    del graph.value_info[:]
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for value in (*graph.input, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_param = _BATCH


@contextmanager
def _explained() -> Iterator[None]:
    """One line for whatever keeps torch from exporting a network."""
    try:
        yield
    except Exception as error:  # torch raises classes of its own for every stage
        reason = str(error).strip().partition("\n")[0]
        raise AdagcError(
            f"torch {torch.__version__} cannot export this network ({reason}): update torch and"
            " onnxscript, or train with another backbone"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that the exporter prints about its own work."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
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
