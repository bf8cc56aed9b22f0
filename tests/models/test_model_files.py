from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from adagc import _version
from adagc.errors import AdagcError
from adagc.models import Classifier, ModelSpec, build, load_model, read_description, save_model
from adagc.models import files as model_files

CLASSES = ("bare soil", "forêt", "water")


def classifier(backbone: str, shape: tuple[int, ...], seed: int = 4) -> Classifier:
    bands = tuple(f"B{i:02}" for i in range(shape[0])) if len(shape) == 3 else ()
    mean = [0.1 * i for i in range(shape[0])]
    std = [1.0 + i / 3 for i in range(shape[0])]
    spec = ModelSpec(backbone, shape, CLASSES, bands, hidden=16)
    return build(spec, seed=seed, mean=mean, std=std)


@pytest.mark.parametrize(
    ("backbone", "shape"),
    [
        ("mlp", (20,)),
        ("linear", (20,)),
        ("linear", (5, 3, 3)),
        ("resnet10t", (14, 32, 32)),
        ("tf_efficientnet_lite0", (3, 32, 32)),
    ],
)
def test_round_trip(tmp_path: Path, backbone: str, shape: tuple[int, ...]) -> None:
    network = classifier(backbone, shape)
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    network(x)  # moves the running statistics of batch normalisation
    save_model(tmp_path / "new" / "run", network)
    assert network.training
    again = load_model(tmp_path / "new" / "run")
    assert not again.training
    assert again.spec == network.spec
    assert torch.equal(again(x), network.eval()(x))
    assert sorted(p.name for p in (tmp_path / "new" / "run").iterdir()) == [
        "model.json",
        "model.safetensors",
    ]
    modes = {p.stat().st_mode for p in (tmp_path / "new" / "run").iterdir()}
    assert len(modes) == 1  # both as readable as the user's other files


def test_description(tmp_path: Path) -> None:
    network = classifier("mlp", (3,))
    network.set_thresholds([0.1, 0.2, 0.3])
    save_model(tmp_path, network, extra={"méthode": "AdaGC"})
    described = read_description(tmp_path)
    assert described.spec == network.spec
    assert described.thresholds == (0.1, 0.2, 0.3)
    assert described.extra == {"méthode": "AdaGC"}
    assert described.version == _version.__version__
    assert torch.equal(torch.tensor(described.std), network.normalise.std)
    assert "forêt" in (tmp_path / "model.json").read_text("utf-8")
    again = load_model(tmp_path)
    assert torch.equal(again.thresholds, network.thresholds)  # to the bit
    assert "thresholds" not in again.state_dict()
    save_model(tmp_path, classifier("mlp", (3,)))
    assert read_description(tmp_path).thresholds == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("said", [None, "nothing"])
def test_a_model_from_before_thresholds_has_the_usual_ones(tmp_path: Path, said: None) -> None:
    save_model(tmp_path, classifier("mlp", (3,)))
    content = json.loads((tmp_path / "model.json").read_text("utf-8"))
    content["thresholds"] = None
    if said == "nothing":
        del content["thresholds"]
    (tmp_path / "model.json").write_text(json.dumps(content))
    assert load_model(tmp_path).thresholds.tolist() == [0.5] * 3


def test_wrong_thresholds_are_refused_in_one_line(tmp_path: Path) -> None:
    network = classifier("mlp", (3,))
    with pytest.raises(AdagcError, match="2 thresholds for 3 classes"):
        network.set_thresholds([0.5, 0.5])
    with pytest.raises(AdagcError, match="not finite"):
        network.set_thresholds([0.5, float("nan"), 0.5])
    assert network.thresholds.tolist() == [0.5] * 3
    save_model(tmp_path, network)
    content = json.loads((tmp_path / "model.json").read_text("utf-8"))
    del content["thresholds"]["water"]
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(AdagcError, match="incomplete or damaged"):
        load_model(tmp_path)


def test_failure_leaves_the_old_pair(tmp_path: Path) -> None:
    network = classifier("mlp", (3,))
    save_model(tmp_path, network)
    with pytest.raises(TypeError):
        save_model(tmp_path, classifier("mlp", (3,), seed=5), extra={"not": {"json": object()}})
    assert torch.equal(load_model(tmp_path).head.weight, network.head.weight)
    assert len(list(tmp_path.iterdir())) == 2


def test_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(AdagcError, match=r"no model in .*model\.json is missing"):
        load_model(tmp_path)
    save_model(tmp_path, classifier("mlp", (3,)))
    description, weights = tmp_path / "model.json", tmp_path / "model.safetensors"
    good_text, good_bytes = description.read_text("utf-8"), weights.read_bytes()
    content = json.loads(good_text)

    def refused(message: str) -> None:
        with pytest.raises(AdagcError, match=message) as caught:
            load_model(tmp_path)
        assert "\n" not in str(caught.value)

    weights.unlink()
    refused(r"model\.safetensors is missing")
    weights.write_bytes(good_bytes[:-8])
    refused("cannot be read")
    weights.write_bytes(good_bytes)

    description.write_text(good_text[:40])
    refused("cannot be read")
    description.write_text("[]")
    refused("not a model description")
    description.write_text(json.dumps({**content, "format": 99}))
    refused("not a model description")
    description.write_text(json.dumps({k: v for k, v in content.items() if k != "spec"}))
    refused("incomplete or damaged")
    description.write_text(json.dumps({**content, "spec": {**content["spec"], "depth": 3}}))
    refused("unknown: depth")
    description.write_text(json.dumps({**content, "spec": {**content["spec"], "hidden": 17}}))
    refused("do not fit the network")
    description.write_text(good_text)
    load_model(tmp_path)


def test_files_of_two_models_are_not_mixed(tmp_path: Path) -> None:
    save_model(tmp_path / "a", classifier("mlp", (3,), seed=1))
    save_model(tmp_path / "b", classifier("mlp", (3,), seed=2))
    (tmp_path / "b" / "model.json").replace(tmp_path / "a" / model_files.DESCRIPTION)
    with pytest.raises(AdagcError, match=r"not the file that model\.json was written for"):
        load_model(tmp_path / "a")
