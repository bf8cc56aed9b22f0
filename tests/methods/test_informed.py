"""Options that follow from how frequent classes are, against counts in clean labels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from adagc.errors import UnsuitedError
from adagc.methods import find, registry
from adagc.methods.told import awaits, knowledge, source_of
from adagc.options import read
from adagc.testing.tiny import FixedLogits, make_task

# Of five classes the first is everywhere and the last nowhere.
TRUTH = torch.tensor(
    [[1, 1, 0, 1, 0], [1, 0, 0, 0, 0], [1, 0, 1, 1, 0], [1, 1, 1, 1, 0]], dtype=torch.bool
)
SINGLE = torch.tensor(
    [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 0]], dtype=torch.int8
)
# Some images have two observed labels, and some classes were seen to be absent.
MORE = torch.tensor(
    [[1, 1, -1, 0, 0], [1, 0, 0, 0, -1], [0, 0, 0, 1, 0], [0, 1, 1, 1, -1]], dtype=torch.int8
)


def settled(title: str, observed: torch.Tensor, priors: torch.Tensor | None, **options) -> dict:
    """What the method decides on when it is set up with these frequencies."""
    network = FixedLogits(torch.zeros(4, 5))
    task = make_task(observed, fresh=lambda seed: FixedLogits(torch.ones(4, 5)))
    method = find(title)(**options)
    task = replace(task, priors=priors)
    method.setup(network, task)
    return method.settled(task) | {"method": method}


@pytest.mark.parametrize("observed", [SINGLE, MORE], ids=["single", "more"])
def test_what_follows_from_frequencies_is_what_clean_labels_say(observed):
    priors = TRUTH.float().mean(dim=0)
    unobserved = observed == 0
    labels_per_image = float(TRUTH.sum()) / len(TRUTH)
    missing = float((TRUTH & unobserved).sum()) / TRUTH.numel()
    negative = float((~TRUTH)[unobserved].float().mean())
    wanted = {
        "EPR": {"expected": labels_per_image},
        "ROLE": {"expected": labels_per_image},
        "ROLE-oracle": {"expected": labels_per_image},
        "Dist-PU": {"priors": [1.0, 0.5, 0.5, 0.75, 0.0]},
        "LL-R": {"final": missing},
        "LL-Ct": {"final": missing},
        "LL-Cp": {"final": missing},
        "BoostLU + LL-Ct": {"final": missing},
        "RCML": {"keep": negative},
        "EM+APL": {"share": min(0.9, negative)},
    }
    for title, values in wanted.items():
        found = settled(title, observed, priors)
        for name, value in values.items():
            assert found[name] == pytest.approx(value, abs=1e-6), title
    informed = {title for title, cls in registry().items() if awaits(cls, {})}
    assert informed == wanted.keys()  # a method that is added here needs a line above


def test_decisions_reach_what_methods_compute_with():
    priors = TRUTH.float().mean(dim=0)
    k = float(priors.sum())
    assert settled("EPR", SINGLE, priors)["method"].k == pytest.approx(k)
    assert settled("ROLE", SINGLE, priors)["method"].k == pytest.approx(k)
    assert settled("LL-R", SINGLE, priors)["method"].last_share == pytest.approx((k - 1) / 5)
    assert settled("RCML", SINGLE, priors)["method"].kept == pytest.approx(1 - (k - 1) / 4)
    assert settled("EM+APL", SINGLE, priors)["method"].rho == pytest.approx(1 - (k - 1) / 4)
    assert torch.equal(settled("Dist-PU", SINGLE, priors)["method"].pi, priors)


def test_without_frequencies_numbers_are_the_published_ones():
    published = {
        "ROLE": {"expected": 1.0},
        "LL-R": {"final": 0.1},
        "LL-Ct": {"final": 0.1},
        "LL-Cp": {"final": 0.1},
        "BoostLU + LL-Ct": {"final": 0.1},
        "RCML": {"keep": 0.8},
        "EM+APL": {"share": 0.9},
    }
    for title, values in published.items():
        found = settled(title, SINGLE, None)
        assert {name: found[name] for name in values} == values, title
    for title in ("EPR", "Dist-PU", "ROLE-oracle"):
        with pytest.raises(UnsuitedError, match="let --priors estimate them"):
            settled(title, SINGLE, None)


@pytest.mark.parametrize("cardinality", [0.0, 0.5, 9.0], ids=str)
def test_an_estimate_that_cannot_be_right_gives_shares_that_can(cardinality):
    priors = torch.full((5,), cardinality / 5)
    for title, name in (("LL-R", "final"), ("RCML", "keep"), ("EM+APL", "share")):
        assert 0 <= settled(title, SINGLE, priors)[name] <= 1


def test_an_option_that_is_set_is_not_replaced():
    priors = TRUTH.float().mean(dim=0)
    assert settled("LL-R", SINGLE, priors, final=0.3)["final"] == 0.3
    assert settled("LL-R", SINGLE, priors, final=0.1)["final"] == 0.1
    assert settled("RCML", SINGLE, priors, keep=0.6)["keep"] == 0.6
    # One number tells enough: the others do not follow from an estimate then.
    assert settled("LL-R", SINGLE, priors, largest=0.3)["final"] == 0.1
    assert settled("LL-R", SINGLE, priors, delta=0.3)["final"] == 0.1


@pytest.mark.parametrize(
    ("title", "options", "priors", "source"),
    [
        ("AN", {}, "estimated", None),
        ("EPR", {}, "estimated", "estimated"),
        ("EPR", {}, "truth", "truth"),
        ("EPR", {}, "published", "truth"),
        ("EPR", {}, "some/priors.json", "file"),
        ("EPR", {"expected": 3.0}, "estimated", None),
        ("LL-R", {}, "estimated", "estimated"),
        ("LL-R", {}, "truth", "truth"),
        ("LL-R", {}, "published", None),
        ("LL-R", {"final": 0.3}, "truth", None),
        ("LL-R", {"delta": 0.3}, "estimated", None),
        ("ROLE-oracle", {}, "estimated", "truth"),
        ("ROLE-oracle", {}, "some/priors.json", "truth"),
    ],
)
def test_where_frequencies_come_from(title, options, priors, source):
    method = registry()[title]
    full = {name: option.default for name, option in read(method).items()} | options
    assert source_of(method, full, priors) == source
    assert source_of(method, options, priors) == source  # options that are left out are not set


def test_a_plug_in_of_an_earlier_version_is_left_alone():
    class Earlier(registry()["AN"]):
        """Has an option with a default that is a number, and no published one to replace it."""

        frequencies = frozenset({"share"})

        def __init__(self, *, share: float = 0.4) -> None:
            super().__init__()
            self.share = share

    assert not awaits(Earlier, {})
    method, task = Earlier(), make_task(SINGLE)
    assert method.settled(replace(task, priors=torch.ones(5))) == {}
    method.setup(nn.Identity(), task)
    assert method.share == 0.4


def test_told_estimated_and_none_are_three_states():
    assert knowledge(False, None) == "none"
    assert knowledge(False, "estimated") == "estimated"
    assert knowledge(False, "truth") == knowledge(False, "file") == "told"
    assert knowledge(True, None) == knowledge(True, "estimated") == "told"
