from __future__ import annotations

import io
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagc.errors import UsageError
from adagc.methods.base import Method
from adagc.methods.entropy_maximisation import (
    AsymmetricPseudoLabels,
    EntropyMaximisation,
    lowest,
)
from adagc.types import Batch, Losses
from conftest import FixedLogits, make_batch, make_progress, make_task
from reference import slow_losses, slow_robust

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]


def ready(method: Method, z=Z, y=Y, *, half: bool = False) -> tuple[FixedLogits, Batch]:
    task = make_task(torch.tensor(y, dtype=torch.int8))
    network = FixedLogits(torch.as_tensor(z, dtype=torch.float32), half=half)
    method.setup(network, task)
    return network, make_batch(torch.zeros(len(y), 1), task)


def step(method: Method, z=Z, y=Y, **options) -> tuple[Losses, FixedLogits]:
    network, batch = ready(method, z, y, **options)
    return method.loss(network, batch, make_progress()), network


# -- EM --------------------------------------------------------------------------------------


def test_golden_entropy():
    found, _ = step(EntropyMaximisation(weight=0.2))
    assert found.parts["entropy"].item() * 6 / 4 == pytest.approx(0.498723, abs=1e-6)
    wanted = found.parts["observed"] - 0.2 * found.parts["entropy"]
    torch.testing.assert_close(found.total, wanted)


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    z = [[draw(st.floats(-60, 60, width=32)) for _ in range(columns)] for _ in range(rows)]
    y = [[draw(st.sampled_from((1, 0, 0, 0, -1))) for _ in range(columns)] for _ in range(rows)]
    return z, y


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from((0.0, 0.01, 0.1, 1.0)))
def test_both_start_as_their_slow_twin(problem, alpha):
    z, y = problem
    wanted = slow_losses.mean(slow_robust.entropy_maximisation(z, y, alpha))
    for method in (EntropyMaximisation(weight=alpha), AsymmetricPseudoLabels(weight=alpha)):
        found, _ = step(method, z, y)
        assert found.total.item() == pytest.approx(wanted, rel=2e-5, abs=2e-6)


@pytest.mark.parametrize("z", [-60.0, -10.0, -1.5, 0.0, 0.4, 3.0, 60.0])
def test_unobserved_entries_are_pulled_back_to_one_half(z):
    found, network = step(EntropyMaximisation(weight=0.3), [[z]], [[0]])
    found.total.backward()
    p = torch.tensor(z, dtype=torch.float64).sigmoid()
    wanted = 0.3 * p * (1 - p) * z
    assert network.logits.grad.item() == pytest.approx(wanted.item(), rel=1e-4, abs=1e-7)
    assert found.total.item() >= -0.3 * math.log(2) - 1e-6


@pytest.mark.parametrize("cls", [EntropyMaximisation, AsymmetricPseudoLabels])
def test_a_class_seen_to_be_absent_is_a_full_negative(cls):
    found, network = step(cls(), [[3.0]], [[-1]])
    assert found.total.item() == pytest.approx(math.log1p(math.exp(3.0)), rel=1e-6)
    found.total.backward()
    assert network.logits.grad.item() == pytest.approx(1 / (1 + math.exp(-3.0)), rel=1e-6)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("cls", [EntropyMaximisation, AsymmetricPseudoLabels])
def test_extreme_logits_stay_finite(cls, half):
    z = torch.tensor([[60.0, -60.0, 1000.0, -1000.0]] * 3)
    y = [[label] * 4 for label in (1, 0, -1)]
    found, network = step(cls(), z, y, half=half)
    found.total.backward()
    assert found.total.dtype == torch.float32
    assert found.total.isfinite()
    assert network.logits.grad.isfinite().all()


# -- which entries become soft negatives -----------------------------------------------------


@st.composite
def histories(draw):
    rows, columns = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    y = [[draw(st.sampled_from((1, 0, 0, 0, -1))) for _ in range(columns)] for _ in range(rows)]
    few = st.sampled_from((0.0, 0.125, 0.25, 0.5, 0.75, 1.0))  # ties are the rule
    rounds = draw(st.integers(1, 4))
    reviews = [[[draw(few) for _ in range(columns)] for _ in range(rows)] for _ in range(rounds)]
    share = draw(st.sampled_from((0.0, 0.29, 0.5, 0.9, 1.0)))
    return y, reviews, share


@settings(max_examples=60, deadline=None)
@given(histories(), st.randoms())
def test_reviews_agree_with_the_slow_twin(history, random):
    y, reviews, share = history
    rows, columns = len(y), len(y[0])
    method = AsymmetricPseudoLabels(weight=0.1, pseudo_weight=0.4, share=share)
    z = [[random.uniform(-5, 5) for _ in range(columns)] for _ in range(rows)]
    network, batch = ready(method, z, y)
    epochs = 2 * len(reviews)  # the first half is warm-up
    done = 0
    for epoch in range(1, epochs + 1):
        if not method.reviews(make_progress(epoch, epochs)):
            continue
        p = reviews[done]
        method.review(torch.tensor(p), make_progress(epoch, epochs))
        soft = slow_robust.asymmetric_labels(y, reviews, share)[done]
        done += 1
        labelled = ~method.unknown & (batch.observed == 0)
        assert {(i, c) for i, c in labelled.nonzero().tolist()} == set(soft)
        assert all(method.table[i, c].item() == value for (i, c), value in soft.items())
        assert method.status() == {"soft_negatives": len(soft)}
        found = method.loss(network, batch, make_progress(epoch + 1, epochs)).total.item()
        matrix = slow_robust.entropy_maximisation(
            torch.tensor(z).tolist(), y, 0.1, beta=0.4, soft=soft
        )
        assert found == pytest.approx(slow_losses.mean(matrix), rel=1e-5, abs=1e-6)
    assert done == len(reviews)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**31))
def test_lowest_takes_the_right_number_from_every_column(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 4, (rows, columns), generator=generator).float()
    eligible = torch.rand(rows, columns, generator=generator) < 0.6
    count = torch.randint(0, rows + 2, (columns,), generator=generator)
    found = lowest(values, eligible, count)
    for c in range(columns):
        candidates = [i for i in range(rows) if eligible[i, c]]
        candidates.sort(key=lambda i: (values[i, c].item(), i))
        assert set(found[:, c].nonzero().flatten().tolist()) == set(candidates[: count[c]])


def reviewed(p: Tensor, y: Tensor, epochs: int = 4, **options) -> AsymmetricPseudoLabels:
    method = AsymmetricPseudoLabels(**options)
    ready(method, torch.zeros(y.shape), y.tolist())
    method.review(p, make_progress(epochs // 2, epochs))
    return method


def test_observed_entries_are_never_relabelled():
    y = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])
    method = reviewed(torch.zeros(4, 2), y, epochs=2, share=1.0)
    assert not method.unknown.any()
    assert method.status() == {"soft_negatives": 4}
    wanted = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    assert torch.equal(method.estimates(), wanted)


def test_a_soft_negative_keeps_its_value_while_the_others_follow_the_network():
    y = torch.zeros(4, 1)
    first = torch.tensor([[0.4], [0.1], [0.3], [0.2]])
    method = reviewed(first, y, share=1.0)  # two rounds of two
    assert method.unknown.flatten().tolist() == [True, False, True, False]
    method.review(torch.full((4, 1), 0.9), make_progress(3, 4))
    assert not method.unknown.any()
    torch.testing.assert_close(method.estimates().flatten(), torch.tensor([0.9, 0.1, 0.9, 0.2]))


def test_the_quota_counts_unknown_entries_of_the_start_class_by_class():
    y = torch.zeros(20, 2, dtype=torch.int8)
    y[:15, 1] = 1
    method = AsymmetricPseudoLabels()
    ready(method, torch.zeros(20, 2), y.tolist())
    p = torch.rand(20, 2, generator=torch.Generator().manual_seed(0))
    added = []
    for epoch in (5, 6, 7, 8, 9):
        method.review(p, make_progress(epoch, 10))
        added.append((method.unknown_at_start - method.unknown.sum(dim=0)).tolist())
    # ⌊.9 · 20 / 5⌋ = 3 a round, not fewer as the unknown run out; ⌊.9 · 5 / 5⌋ = 0.
    assert added == [[3, 0], [6, 0], [9, 0], [12, 0], [15, 0]]


def test_the_quota_rounds_like_plain_arithmetic():
    # .29 · 100 is 28.999… in floating point and .7 · 10 / 7 = 1: as int() says, in float64.
    for share, rows, rounds in ((0.29, 100, 1), (0.7, 10, 7), (0.9, 70, 9), (0.57, 100, 1)):
        method = AsymmetricPseudoLabels(share=share, warm_up=0.5)
        ready(method, torch.zeros(rows, 1), torch.zeros(rows, 1).tolist())
        method.review(torch.rand(rows, 1), make_progress(rounds, 2 * rounds))
        assert method.status()["soft_negatives"] == int(share * rows / rounds)


@pytest.mark.parametrize(
    ("epochs", "warm_up", "wanted"),
    [
        (10, 0.5, [5, 6, 7, 8, 9]),
        (5, 0.5, [2, 3, 4]),
        (4, 0.0, [1, 2, 3]),
        (3, 1.0, []),
        (2, 0.5, [1]),
        (1, 0.5, []),
    ],
)
def test_reviews_from_the_end_of_warm_up_but_not_after_the_last_epoch(epochs, warm_up, wanted):
    method = AsymmetricPseudoLabels(warm_up=warm_up)
    asked = [e for e in range(1, epochs + 1) if method.reviews(make_progress(e, epochs))]
    assert asked == wanted


def test_all_rounds_together_label_the_wanted_share():
    rows, epochs = 200, 12
    method = AsymmetricPseudoLabels(share=0.9)
    ready(method, torch.zeros(rows, 3), torch.zeros(rows, 3).tolist())
    generator = torch.Generator().manual_seed(1)
    for epoch in range(1, epochs + 1):
        if method.reviews(make_progress(epoch, epochs)):
            method.review(torch.rand(rows, 3, generator=generator), make_progress(epoch, epochs))
    assert method.unknown.sum(dim=0).tolist() == [20, 20, 20]


def test_rows_are_found_by_index_not_by_position_in_the_batch():
    y = torch.zeros(3, 1)
    method = reviewed(torch.tensor([[0.9], [0.1], [0.8]]), y, epochs=2, share=0.4)
    network = FixedLogits(torch.zeros(1, 1))
    found = []
    for row in range(3):
        batch = Batch(torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([row]), torch.Generator())
        parts = method.loss(network, batch, make_progress(2, 2)).parts
        found.append(parts["soft_negative"].item() > 0)
    assert found == [False, True, False]


def test_a_soft_negative_pulls_towards_its_value():
    method = reviewed(torch.tensor([[0.2]]), torch.zeros(1, 1), epochs=2, share=1.0)
    network = FixedLogits(torch.zeros(1, 1))
    batch = make_batch(torch.zeros(1, 1), make_task(torch.zeros(1, 1, dtype=torch.int8)))
    found = method.loss(network, batch, make_progress(2, 2))
    found.total.backward()
    assert found.total.item() == pytest.approx(0.2 * math.log(2), rel=1e-5)
    assert network.logits.grad.item() == pytest.approx(0.2 * (0.5 - 0.2), rel=1e-5)
    assert found.parts["entropy"].item() == 0


def test_there_is_nothing_to_report_before_the_first_review():
    method = AsymmetricPseudoLabels()
    ready(method)
    assert method.estimates() is None
    assert method.status() == {"soft_negatives": 0}


def test_a_run_that_was_interrupted_between_reviews_goes_on_the_same():
    y = torch.zeros(30, 2)
    generator = torch.Generator().manual_seed(2)
    p = [torch.rand(30, 2, generator=generator) for _ in range(2)]
    method = reviewed(p[0], y)
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    twin = AsymmetricPseudoLabels()
    ready(twin, torch.zeros(30, 2), y.tolist())
    twin.load_state_dict(torch.load(file, weights_only=True))
    assert twin.status() == method.status()
    for one in (method, twin):
        one.review(p[1], make_progress(3, 4))
    assert torch.equal(twin.unknown, method.unknown)
    assert torch.equal(twin.table, method.table)
    assert method.status()["soft_negatives"] == 2 * 2 * 13


def test_what_a_review_is_given_stays_as_it_was():
    p = torch.rand(6, 2, generator=torch.Generator().manual_seed(3))
    kept = p.clone()
    method = reviewed(p, torch.zeros(6, 2), share=1.0)
    seen = method.estimates()
    method.review(torch.ones(6, 2), make_progress(3, 4))
    assert torch.equal(p, kept)
    assert torch.equal(seen, kept)


@pytest.mark.parametrize("options", [{"share": 1.1}, {"warm_up": -0.1}, {"pseudo_weight": -1.0}])
def test_senseless_options_are_refused(options):
    with pytest.raises(UsageError, match=next(iter(options)).replace("_", "-")):
        AsymmetricPseudoLabels(**options).check(make_task(torch.tensor(Y)))
