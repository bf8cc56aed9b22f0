from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagc.errors import UsageError
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.asymmetric import AsymmetricLoss
from adagc.types import Losses
from conftest import FixedLogits, make_batch, make_progress, make_task
from reference import slow_losses, slow_robust

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]


def step(z, y=Y, *, half: bool = False, **options) -> tuple[Losses, FixedLogits]:
    task = make_task(torch.tensor(y, dtype=torch.int8))
    network = FixedLogits(torch.as_tensor(z, dtype=torch.float32), half=half)
    method = AsymmetricLoss(**options)
    method.setup(network, task)
    batch = make_batch(torch.zeros(len(y), 1), task)
    return method.loss(network, batch, make_progress()), network


def gradient(z: float, label: int, **options) -> float:
    found, network = step([[z]], [[label]], **options)
    found.total.backward()
    return network.logits.grad.item()


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    z = [[draw(st.floats(-60, 60, width=32)) for _ in range(columns)] for _ in range(rows)]
    y = [[draw(st.sampled_from((1, 0, 0, -1))) for _ in range(columns)] for _ in range(rows)]
    options = {
        "positive_focus": draw(st.sampled_from((0.0, 0.5, 1.0))),
        "negative_focus": draw(st.sampled_from((0.0, 0.5, 2.0, 4.0))),
        "margin": draw(st.sampled_from((0.0, 0.05, 0.3))),
    }
    return z, y, options


@settings(max_examples=60, deadline=None)
@given(problems(), st.booleans())
def test_agrees_with_its_slow_twin(problem, through_focus):
    z, y, options = problem
    wanted = slow_losses.mean(slow_robust.asymmetric(z, y, **options))
    found, network = step(z, y, **options, focus_gradient=through_focus)
    assert found.total.item() == pytest.approx(wanted, rel=2e-5, abs=1e-6)
    torch.testing.assert_close(sum(found.parts.values()), found.total)
    found.total.backward()
    assert network.logits.grad.isfinite().all()


@pytest.mark.parametrize("through_focus", [False, True])
@pytest.mark.parametrize("focus", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("z", [-6.0, -1.0, 0.0, 2.0, 8.0])
def test_gradients_with_and_without_the_fading_weights(z, focus, through_focus):
    options = {"positive_focus": focus, "negative_focus": focus, "margin": 0.05}
    for label in (0, 1):
        wanted = slow_robust.asymmetric_gradient(
            z, label, focus=focus, margin=0.05, through_focus=through_focus
        )
        found = gradient(z, label, **options, focus_gradient=through_focus)
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-7)


def test_by_default_weights_carry_no_gradient():
    # At p = ½: weight .45⁴ times the slope p (1 - p) / (1 - p + m) of -log(1 - p + m).
    assert gradient(0.0, 0) == pytest.approx(0.45**4 * 0.25 / 0.55, rel=1e-5)
    assert gradient(0.0, 0, focus_gradient=True) > 3 * gradient(0.0, 0)


def test_without_focus_and_margin_it_assumes_negatives():
    task = make_task(torch.tensor(Y, dtype=torch.int8))
    batch = make_batch(torch.zeros(2, 1), task)
    plain = FixedLogits(torch.tensor(Z))
    wanted = AssumeNegative().loss(plain, batch, make_progress()).total
    found, network = step(Z, negative_focus=0.0, margin=0.0)
    torch.testing.assert_close(found.total, wanted)
    assert found.total.item() == pytest.approx(0.661108, abs=1e-6)
    wanted.backward()
    found.total.backward()
    torch.testing.assert_close(network.logits.grad, plain.logits.grad)


def test_below_the_margin_an_unobserved_entry_costs_nothing():
    just_below = math.log(0.049 / 0.951)
    for z in (just_below, -20.0, -60.0):
        found, network = step([[z]], [[0]])
        assert found.total.item() == 0
        found.total.backward()
        assert network.logits.grad.item() == 0


def test_a_suspicious_negative_costs_at_most_the_margin():
    found, _ = step([[60.0]], [[0]])
    assert found.total.item() == pytest.approx(0.95**4 * -math.log(0.05), rel=1e-5)
    # ... and hardly pulls: the probable false negative is left alone.
    assert abs(gradient(60.0, 0)) < 1e-6
    assert gradient(60.0, -1) == pytest.approx(1.0)


def test_a_class_seen_to_be_absent_is_a_full_negative():
    found, _ = step([[3.0]], [[-1]])
    assert found.total.item() == pytest.approx(math.log1p(math.exp(3.0)), rel=1e-6)
    assert found.parts["assume_negative"].item() == 0


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("margin", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("focus", [0.0, 0.3, 4.0])
@pytest.mark.parametrize("through_focus", [False, True])
def test_extreme_logits_stay_finite(half, margin, focus, through_focus):
    z: Tensor = torch.tensor([[60.0, -60.0, 1000.0, -1000.0, 0.0]] * 3)
    y = [[label] * 5 for label in (1, 0, -1)]
    found, network = step(
        z, y, half=half, margin=margin, positive_focus=focus, negative_focus=focus,
        focus_gradient=through_focus,
    )  # fmt: skip
    found.total.backward()
    assert found.total.dtype == torch.float32
    assert found.total.isfinite()
    assert network.logits.grad.isfinite().all()


def test_a_margin_beyond_one_is_refused():
    with pytest.raises(UsageError, match="margin"):
        AsymmetricLoss(margin=1.1).check(make_task(torch.tensor(Y)))
