"""The STAC item is what the core schema, the MLM extension and stac-model take.

The JSON schema of the extension is published on the web only and is not in any package. What it
demands beyond the classes of stac-model is therefore written down here as tests.
"""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from adagc.deploy.facts import ModelFacts
from adagc.deploy.stac import MLM, Asset, Description, item

FACTS = ModelFacts(
    classes=("Bäume / Wald", "Bäume - Wald", "water"), bands=("red", "nir"), shape=(2, 8, 8),
    thresholds=(0.1, 0.2, 0.3), rule="pooled-f1", nodata=-9999.0, method="AN", licence="Ask.",
    version="1",
)  # fmt: skip
ABOUT = Description(
    name="AN on Fotos (süd)", about="A classifier.", architecture="resnet18", pretrained=None,
    parameters=7, mean=[1.0, 2.0], std=[3.0, 4.0], hyperparameters={"epochs": 2},
    framework=("ONNX", "1.17.0"),
)  # fmt: skip
ASSETS = [
    Asset("model.onnx", "the model", b"abc", artifact="onnx", framework=("ONNX", "1.17.0")),
    Asset(
        "model.pt2", "the model", b"ab", artifact="torch.export.save", framework=("PyTorch", "?")
    ),
    Asset("MODEL_CARD.md", "card", b"# card", media="text/markdown"),
]


@pytest.fixture(params=["written by hand", "of an export"])
def described(request):
    if request.param == "written by hand":
        return item(FACTS, ABOUT, ASSETS)
    folder = request.getfixturevalue("exported").folder
    return json.loads((folder / "model.stac.json").read_text(encoding="utf-8"))


def test_the_core_schema_takes_it(described):
    jsonschema = pytest.importorskip("jsonschema")
    pystac = pytest.importorskip("pystac")
    from pystac.validation.local_validator import get_local_schema_cache
    from referencing import Registry, Resource

    schemas = get_local_schema_cache()
    registry = Registry().with_resources(
        [(uri, Resource.from_contents(schema)) for uri, schema in schemas.items()]
    )
    (core,) = [uri for uri in schemas if uri.endswith("item.json")]
    assert "v1.1.0" in core
    validator = jsonschema.Draft7Validator(schemas[core], registry=registry)
    assert list(validator.iter_errors(described)) == []
    broken = {**described, "properties": {}}
    assert list(validator.iter_errors(broken)) != []
    assert pystac.Item.from_dict(described).to_dict()["properties"] == described["properties"]


def test_stac_model_takes_it_and_gives_it_back(described):
    schema = pytest.importorskip("stac_model.schema")
    given = {k: v for k, v in described["properties"].items() if k.startswith("mlm:")}
    back = json.loads(schema.MLModelProperties(**given).model_dump_json(by_alias=True))
    for key, value in given.items():
        if key == "mlm:tasks":  # a set
            assert sorted(back[key]) == sorted(value)
        elif key in ("mlm:input", "mlm:output"):
            for name, part in value[0].items():
                found = back[key][0][name]
                assert (sorted(found) if name == "tasks" else found) == part
        elif value is not None:
            assert back[key] == value, key


def test_the_rules_of_the_extension_hold(described):
    properties, assets = described["properties"], described["assets"]
    assert MLM in described["stac_extensions"]
    assert re.fullmatch(r".*/mlm/v1\.5\.\d+/schema\.json", MLM)
    assert {"mlm:name", "mlm:architecture", "mlm:tasks", "mlm:input", "mlm:output"} <= {*properties}
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_.\-\s]+[a-zA-Z0-9]", properties["mlm:name"])
    assert "classification" in properties["mlm:tasks"]
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", properties["mlm:framework_version"])
    if not properties["mlm:pretrained"]:
        assert properties["mlm:pretrained_source"] is None
    # Fields of the asset are not allowed in the item, and the other way round.
    assert not {"mlm:artifact_type", "mlm:compile_method"} & properties.keys()
    for asset in assets.values():
        assert not {"mlm:name", "mlm:input", "mlm:output", "mlm:hyperparameters"} & asset.keys()
        # An artifact type and the role of a model go together.
        assert ("mlm:model" in asset["roles"]) == ("mlm:artifact_type" in asset)
    assert any("mlm:model" in asset["roles"] for asset in assets.values())
    (given,), (got,) = properties["mlm:input"], properties["mlm:output"]
    # Bands that the input names are described by the item, as STAC 1.1 does it.
    assert described["stac_version"] == "1.1.0"
    assert [band["name"] for band in properties["bands"]] == given["bands"]
    for part in (given["input"], got["result"]):
        assert len(part["shape"]) == len(part["dim_order"]) == len(set(part["dim_order"]))
        assert all(re.fullmatch(r"[a-z-_]+", name) for name in part["dim_order"])
        assert part["shape"][0] == -1
    assert all(re.fullmatch(r"[0-9a-zA-Z_.-]+", key) for key in properties["mlm:hyperparameters"])
    classes = got["classification:classes"]
    assert [one["value"] for one in classes] == list(range(len(classes)))
    assert all(re.fullmatch(r"[0-9A-Za-z-_]+", one["name"]) for one in classes)
    assert len({one["name"] for one in classes}) == len(classes)


def test_thresholds_classes_bands_and_scaling():
    properties = item(FACTS, ABOUT, ASSETS)["properties"]
    hyper = properties["mlm:hyperparameters"]
    assert hyper["thresholds"] == {"Bäume / Wald": 0.1, "Bäume - Wald": 0.2, "water": 0.3}
    assert "estimates" in hyper["thresholds_are"]
    assert (hyper["epochs"], hyper["method"]) == (2, "AN")
    (got,), (given,) = properties["mlm:output"], properties["mlm:input"]
    assert [one["description"] for one in got["classification:classes"]] == list(FACTS.classes)
    assert properties["bands"][1] == {
        "name": "nir", "nodata": -9999.0, "statistics": {"mean": 2.0, "stddev": 4.0},
    }  # fmt: skip
    # The model normalises: a reader who does what the item says must leave values as they are.
    assert given["value_scaling"] == [{"type": "scale", "value": 1}]
    assert given["input"]["shape"] == [-1, 2, 8, 8]


def test_checksums_are_multihashes_of_the_files(exported):
    described = json.loads((exported.folder / "model.stac.json").read_text(encoding="utf-8"))
    others = {p.name for p in exported.folder.iterdir()} - {"model.stac.json"}
    assert described["assets"].keys() == others
    for name, asset in described["assets"].items():
        content = (exported.folder / name).read_bytes()
        assert asset["href"] == f"./{name}"
        assert asset["file:size"] == len(content)
        assert asset["file:checksum"] == "1220" + hashlib.sha256(content).hexdigest()
    assert bytes.fromhex(asset["file:checksum"])[:2] == bytes([0x12, 32])  # SHA-256, 32 bytes


def test_embeddings_have_no_bands():
    facts = ModelFacts(**{**vars(FACTS), "bands": (), "shape": (5,)})
    properties = item(facts, ABOUT, ASSETS)["properties"]
    (given,) = properties["mlm:input"]
    assert "bands" not in properties
    assert not any("bands" in asset for asset in item(facts, ABOUT, ASSETS)["assets"].values())
    assert (given["bands"], given["input"]["dim_order"]) == ([], ["batch", "embedding"])


def test_a_version_that_is_none_is_left_out():
    assert "mlm:framework_version" not in item(FACTS, ABOUT, ASSETS)["assets"]["model.pt2"]
