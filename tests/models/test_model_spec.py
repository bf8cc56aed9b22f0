from __future__ import annotations

import json

import pytest

from adagc.errors import AdagcError
from adagc.models import ModelSpec

SPEC = ModelSpec("resnet18", (3, 8, 9), ("water", "trees"), ("red", "green", "blue"), dropout=0.2)


def test_json_round_trip() -> None:
    assert ModelSpec.from_dict(json.loads(json.dumps(SPEC.to_dict()))) == SPEC


def test_from_dict_names_what_is_unknown_and_missing() -> None:
    values = SPEC.to_dict()
    values["depth"] = values.pop("shape")
    with pytest.raises(AdagcError, match="unknown: depth; missing: shape"):
        ModelSpec.from_dict(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (3, 8)}, "not \\(3, 8\\)"),
        ({"shape": ()}, "has the shape"),
        ({"shape": (4, 8, 8)}, "3 band names .* 4 bands"),
        ({"shape": (64,)}, "use backbone mlp or linear"),
        ({"bands": ("red", "red", "blue")}, "named twice"),
        ({"classes": ()}, "distinct classes"),
        ({"classes": ("a", "a")}, "distinct classes"),
        ({"dropout": 1.0}, "dropout"),
        ({"hidden": 0}, "hidden"),
    ],
)
def test_refuses_nonsense(change: dict[str, object], message: str) -> None:
    with pytest.raises(AdagcError, match=message):
        ModelSpec.from_dict({**SPEC.to_dict(), **change})
