"""Exported graphs compute what our networks compute, of every head and kind of input."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from adagc.deploy import checks
from adagc.deploy.graph import Deployed, to_onnx, to_pt2, trace
from adagc.errors import AdagcError
from adagc.models import HEADS, HeadSpec, ModelSpec, build

pytest.importorskip("onnxscript")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

KINDS = ("linear", "class-map", "label-wise", "bottleneck", "any-position", "areas")
NODATA = -9999.0


def network(backbone: str, shape: tuple[int, ...], kind: str = "linear", nodata=None):
    bands = tuple(f"b{i}" for i in range(shape[0])) if len(shape) == 3 else ()
    head = HeadSpec(kind, boost=5.0 if kind == "class-map" else 1.0, width=16, latent=8)
    spec = ModelSpec(backbone, shape, ("a", "b", "c"), bands, hidden=16, dropout=0.3, head=head)
    scale = shape[0] if len(shape) == 3 else 1
    mean, std = np.linspace(100, 900, scale), np.linspace(20, 300, scale)
    made = build(spec, seed=1, mean=mean.tolist(), std=std.tolist(), nodata=nodata).eval()
    random = torch.Generator().manual_seed(2)
    for name, value in made.named_buffers():  # statistics as after training
        if name.endswith(("running_mean", "running_var")):
            value.uniform_(0.5, 1.5, generator=random)
    return made


def written(classifier) -> bytes:
    example = torch.from_numpy(checks.probe(classifier, 2, seed=0))
    return to_onnx(trace(Deployed(classifier), example), {})


CASES = [
    *(("test_resnet", (4, 32, 32), kind, NODATA) for kind in KINDS),
    ("test_convnext", (3, 32, 32), "linear", None),
    ("test_vit", (3, 160, 160), "areas", None),
    ("mlp", (7,), "linear", NODATA),
    ("mlp", (5, 3, 3), "areas", None),
    ("linear", (5, 3, 3), "class-map", None),
]


@pytest.mark.parametrize(("backbone", "shape", "kind", "nodata"), CASES)
def test_onnx_equals_our_network(backbone, shape, kind, nodata):
    ours = network(backbone, shape, kind, nodata)
    content = written(ours)
    assert checks.onnx_difference(content, ours, "it") <= 1e-6
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (given,), (got,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("images", "tensor(float)", ["N", *shape])
    assert (got.name, got.shape) == ("probabilities", ["N", 3])
    read = onnx.load_from_string(content)
    onnx.checker.check_model(read, full_check=True)
    # What onnxruntime 1.17 knows.
    assert read.ir_version <= 9
    assert [(one.domain, one.version <= 20) for one in read.opset_import] == [("", True)]


def test_every_head_of_ours_is_among_the_tested_ones():
    ours = {kind for kind, head in HEADS.items() if head.__module__.startswith("adagc.")}
    assert ours == set(KINDS)


def test_the_graph_says_nothing_of_the_machine_that_wrote_it():
    ours = network("mlp", (7,))
    content = written(ours)
    read = onnx.load_from_string(content)
    parts = (read.graph, *read.graph.node, *read.graph.input, *read.graph.initializer)
    assert not any(part.metadata_props or part.doc_string for part in parts)
    example = torch.from_numpy(checks.probe(ours, 2, seed=0))
    for text in (content, to_pt2(trace(Deployed(ours), example))):
        assert b"site-packages" not in text
        assert b".py" not in text


def test_missing_values_are_put_in_by_three_operators():
    plain, marked = (
        sorted(node.op_type for node in onnx.load_from_string(written(one)).graph.node)
        for one in (network("mlp", (7,)), network("mlp", (7,), nodata=NODATA))
    )
    assert [plain.count(name) for name in ("IsNaN", "Where", "IsInf", "Equal")] == [1, 1, 0, 0]
    assert [marked.count(name) for name in ("IsNaN", "Where", "Equal", "Or")] == [1, 1, 1, 1]


def test_infinite_values_stay_an_error():
    ours = network("mlp", (7,))
    session = onnxruntime.InferenceSession(written(ours), providers=["CPUExecutionProvider"])
    values = np.full((1, 7), np.inf, dtype=np.float32)
    (found,) = session.run(None, {"images": values})
    with torch.no_grad():
        assert ours.probabilities(torch.from_numpy(values)).isnan().any()
    assert np.isnan(found).any()


def test_a_program_of_torch_equals_our_network_and_holds_no_example():
    ours = network("test_resnet", (4, 32, 32), "areas", NODATA)
    example = torch.from_numpy(checks.probe(ours, 2, seed=0))
    content = to_pt2(trace(Deployed(ours), example))
    assert checks.pt2_difference(content, ours) <= 1e-6
    assert example.numpy().tobytes() not in content


def test_a_difference_is_noticed_whatever_it_is():
    ours, other = network("mlp", (7,)), network("mlp", (7,))
    with torch.no_grad():
        other.head.bias += 2e-4
    found = checks.onnx_difference(written(other), ours, "it")
    assert found > 1e-5
    for value in (found, float("nan"), 1.001e-5):
        with pytest.raises(AdagcError, match=r"differs from our network by .* nothing was written"):
            checks.check("model.onnx", value)
    assert checks.check("model.onnx", 9.9e-6) == 9.9e-6


def test_what_torch_cannot_export_is_said_in_one_line():
    class Fickle(torch.nn.Module):
        def forward(self, images):
            return images if images.sum() > 0 else -images

    with pytest.raises(AdagcError, match="cannot export this network") as error:
        trace(Fickle(), torch.zeros(2, 3))
    assert "\n" not in str(error.value)


def test_metadata_are_json():
    read = onnx.load_from_string(
        to_onnx(trace(Deployed(network("mlp", (7,))), torch.zeros(2, 7)), {"classes": '["ä", "b"]'})
    )
    (entry,) = read.metadata_props
    assert (entry.key, json.loads(entry.value)) == ("classes", ["ä", "b"])
    assert read.producer_name == "adagc"
