from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adagc.errors import AdagcError, UsageError
from adagc.methods import find
from adagc.methods.assume_negative import AssumeNegative, LabelSmoothing, WeakAssumeNegative
from adagc.methods.base import Method
from adagc.methods.expected_positives import ExpectedPositives
from adagc.methods.ground_truth import GroundTruth, IgnoreUnobserved
from adagc.types import Batch, Losses, Task
from conftest import FixedLogits, make_batch, make_progress, make_task
from reference import slow_losses as slow

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]
TRUTH = [[1, 0, 1], [0, 1, 0]]


def losses_of(method: Method, z=Z, y=Y, truth=TRUTH) -> Losses:
    """The method's loss of a batch that is the whole training set."""
    observed = torch.tensor(y, dtype=torch.int8)
    clean = torch.tensor(truth, dtype=torch.float32)
    classes = tuple("abcdefgh"[: observed.shape[1]])
    task = Task(classes, observed, 4, 1, 0, truth=clean, priors=clean.mean(0))
    network = FixedLogits(torch.tensor(z, dtype=torch.float64))
    method.setup(network, task)
    return method.loss(network, make_batch(torch.zeros(len(z), 1), task), make_progress())


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        (AssumeNegative(), 0.661108),
        (LabelSmoothing(smoothing=0.1), 0.704442),
        (WeakAssumeNegative(negative_weight=0.5), 0.400986),
        (WeakAssumeNegative(), 0.400986),  # 1 / (C - 1)
        (ExpectedPositives(expected=1.5), 0.140864),
        (ExpectedPositives(), 0.140864),  # the truth has 1.5 labels per image
        (IgnoreUnobserved(), 0.306620),
        (GroundTruth(), 0.327775),
    ],
    ids=lambda value: getattr(value, "title", value),
)
def test_golden_values(method, wanted):
    assert losses_of(method).total.item() == pytest.approx(wanted, abs=5e-7)


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    z = [[draw(st.floats(-40, 40)) for _ in range(columns)] for _ in range(rows)]
    y = [[int(c == draw(st.integers(0, columns - 1))) for c in range(columns)] for _ in range(rows)]
    truth = [[max(v, draw(st.integers(0, 1))) for v in row] for row in y]
    return z, y, truth


@settings(max_examples=40, deadline=None)
@given(problems())
def test_all_agree_with_their_slow_twins(problem):
    z, y, truth = problem
    w = 1 / max(len(z[0]) - 1, 1)
    soft = [[0.8 if v else 0.2 for v in row] for row in y]
    k = sum(map(sum, truth)) / len(truth)
    pairs = [
        (AssumeNegative(), slow.mean(slow.cross_entropy(z, y))),
        (LabelSmoothing(smoothing=0.2), slow.mean(slow.cross_entropy(z, soft))),
        (WeakAssumeNegative(), slow.mean(slow.weighted_negatives(z, y, w))),
        (WeakAssumeNegative(negative_weight=0.3), slow.mean(slow.weighted_negatives(z, y, 0.3))),
        (IgnoreUnobserved(), slow.mean(slow.known_entries(z, y, truth))),
        (GroundTruth(), slow.mean(slow.cross_entropy(z, truth))),
        (ExpectedPositives(weight=0.3), slow.expected_positives(z, y, k, 0.3)[1]),
    ]
    for method, wanted in pairs:
        found = losses_of(method, z, y, truth).total.item()
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6), method.title


def test_parts_add_up_to_the_total():
    for method in (WeakAssumeNegative(), IgnoreUnobserved()):
        found = losses_of(method)
        torch.testing.assert_close(sum(found.parts.values()), found.total)
    found = losses_of(ExpectedPositives(weight=3.0))
    torch.testing.assert_close(found.parts["positive"] + 3 * found.parts["gap"], found.total)


def test_a_class_seen_to_be_absent_is_a_negative_like_any_other():
    with_absent = [[1, -1, 0], [0, 1, -1]]
    for method in (AssumeNegative, LabelSmoothing, WeakAssumeNegative):
        torch.testing.assert_close(
            losses_of(method(), y=with_absent).total, losses_of(method()).total
        )


def test_missed_positives_are_ignored_by_iun_only():
    z = [[0.0, 50.0, -50.0]]
    y, truth = [[1, 0, 0]], [[1, 1, 0]]
    assert losses_of(IgnoreUnobserved(), z, y, truth).total.item() < 0.3
    assert losses_of(AssumeNegative(), z, y, truth).total.item() > 10


def test_given_cardinality_needs_no_prior():
    observed = torch.tensor(Y, dtype=torch.int8)
    network = FixedLogits(torch.tensor(Z))
    method = ExpectedPositives(expected=1.5)
    method.setup(network, make_task(observed))
    found = method.loss(
        network, make_batch(torch.zeros(2, 1), make_task(observed)), make_progress()
    )
    assert found.total.item() == pytest.approx(0.140864, abs=1e-6)
    with pytest.raises(AdagcError, match="EPR needs priors"):
        ExpectedPositives().setup(network, make_task(observed))


def test_truth_that_never_arrived_is_an_error_not_a_guess():
    batch = Batch(torch.zeros(2, 1), torch.tensor(Y), torch.arange(2), torch.Generator())
    for method in (GroundTruth(), IgnoreUnobserved()):
        with pytest.raises(AdagcError, match="clean training labels"):
            method.loss(FixedLogits(torch.tensor(Z)), batch, make_progress())


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("AdaGC", "AdaGC"),
        ("ada-gc", "AdaGC"),
        ("an ls", "AN-LS"),
        ("GT", "GT w/ BCE"),
        ("WeakAssumeNegative", "WAN"),
    ],
)
def test_methods_are_found_by_loose_names(name, title):
    assert find(name).title == title


def test_an_unknown_method_gets_one_line_with_a_similar_one_or_where_all_are():
    with pytest.raises(UsageError) as caught:
        find("AdaGX")
    assert str(caught.value) == "there is no method 'AdaGX'; did you mean 'AdaGC'?"
    with pytest.raises(UsageError) as caught:
        find("nothing like it")
    assert str(caught.value) == "there is no method 'nothing like it'; adagc methods lists them"
