from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagc.errors import UsageError
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.generalized_robust import GeneralizedRobust, generalised
from adagc.types import Losses
from conftest import FixedLogits, make_batch, make_progress, make_task
from reference import slow_losses, slow_robust

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]
MIDDLE = {"w": 1.0, "b": -2.0, "mu": 0.65, "s": 1.25, "q2": 0.01, "q3": 1.0}


def step(
    z, y=Y, *, epoch: int = 3, epochs: int = 5, half: bool = False, **options
) -> tuple[Losses, FixedLogits]:
    observed = torch.tensor(y, dtype=torch.int8)
    task = make_task(observed)
    network = FixedLogits(torch.as_tensor(z, dtype=torch.float32), half=half)
    method = GeneralizedRobust(**options)
    method.setup(network, task)
    batch = make_batch(torch.zeros(len(y), 1), task)
    return method.loss(network, batch, make_progress(epoch, epochs)), network


def gradient(z: Tensor, **options) -> Tensor:
    """Of unobserved entries, times their number."""
    found, network = step(z, torch.zeros(z.shape).tolist(), **options)
    found.total.backward()
    return network.logits.grad * z.numel()


def test_golden_value_in_the_middle_of_the_run():
    found, _ = step(Z)
    assert found.total.item() == pytest.approx(0.462264, abs=1e-6)
    torch.testing.assert_close(sum(found.parts.values()), found.total)


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    z = [[draw(st.floats(-60, 60, width=32)) for _ in range(columns)] for _ in range(rows)]
    y = [[draw(st.sampled_from((1, 0, 0, -1))) for _ in range(columns)] for _ in range(rows)]
    constants = {
        "w": draw(st.floats(-4, 4)),
        "b": draw(st.floats(-4, 4)),
        "mu": draw(st.floats(0, 1)),
        "s": draw(st.floats(0.1, 3)),
        "q2": draw(st.sampled_from((0.01, 0.1, 1.0))),
        "q3": draw(st.sampled_from((0.3, 0.5, 1.0, 1.5))),
    }
    return z, y, constants


def constant(w, b, mu, s, q2, q3) -> dict[str, float]:
    """Options of a run without schedule."""
    return {
        "slope_start": w, "slope_end": w, "offset_start": b, "offset_end": b,
        "centre_start": mu, "centre_end": mu, "width_start": s, "width_end": s,
        "positive_exponent": q2, "negative_exponent": q3,
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(problems())
def test_agrees_with_its_slow_twin(problem):
    z, y, constants = problem
    wanted = slow_losses.mean(slow_robust.generalized_robust(z, y, **constants))
    found, _ = step(z, y, **constant(**constants))
    assert found.total.item() == pytest.approx(wanted, rel=2e-5, abs=1e-6)


@pytest.mark.parametrize("z", [-60.0, -20.0, -3.0, -0.2, 0.0, 1.0, 8.0, 20.0, 60.0])
@pytest.mark.parametrize("q", [(0.01, 1.0), (0.1, 0.5), (1.0, 1.5)])
def test_gradient_is_exact_with_trust_and_weight_held_fixed(z, q):
    constants = {**MIDDLE, "q2": q[0], "q3": q[1]}
    wanted = slow_robust.generalized_robust_gradient(z, **constants)
    found = gradient(torch.tensor([[z]]), **constant(**constants))
    assert found.item() == pytest.approx(wanted, rel=1e-4, abs=1e-15)


@pytest.mark.parametrize(
    ("epoch", "epochs", "share"), [(1, 5, 0.0), (2, 5, 0.25), (5, 5, 1.0), (1, 1, 0.0), (70, 70, 1)]
)
def test_one_ramp_goes_from_first_to_last_value(epoch, epochs, share):
    ends = {"w": (0.0, 2.0), "b": (-2.0, -2.0), "mu": (0.5, 0.8), "s": (2.0, 0.5)}
    now = {name: first + share * (last - first) for name, (first, last) in ends.items()}
    wanted = slow_losses.mean(slow_robust.generalized_robust(Z, Y, **now, q2=0.01, q3=1.0))
    found, _ = step(Z, epoch=epoch, epochs=epochs)
    assert found.total.item() == pytest.approx(wanted, rel=1e-5)


def test_trust_is_flat_at_first_and_never_certain():
    for epoch, trust in ((1, 0.1192), (5, 0.2689)):  # σ(-2), σ(2 · ½ - 2)
        same = {"centre_start": 0.5, "centre_end": 0.5}
        found, _ = step([[0.0]], [[0]], epoch=epoch, epochs=5, **same)
        as_positive, as_negative = (1 - 0.5**0.01) / 0.01, 0.5
        wanted = trust * as_positive + (1 - trust) * as_negative
        assert found.total.item() == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("q", [0.0, 0.01, 0.5, 1.0, 1.5])
def test_extreme_logits_have_finite_bounded_gradients(q, half):
    z = torch.tensor([[60.0, -60.0, 0.0, 1000.0, -1000.0, 17.0, -17.0]])
    found = gradient(z, half=half, positive_exponent=q, negative_exponent=q)
    assert found.isfinite().all()
    assert found.abs().max() <= 1.001


def test_sure_negatives_do_not_vanish_for_a_small_exponent():
    # p^(q - 1) overflows long before p = 1e-26; from the logit the pull up is K v p^q.
    found = gradient(torch.tensor([[-60.0]]), epoch=1)
    assert found.item() == pytest.approx(-0.1192 * 0.9692 * 0.5488, rel=1e-3)


def test_half_precision_logits_are_computed_in_single():
    z = torch.tensor(Z).half().float()
    one, other = step(z, half=True)[0].total, step(z)[0].total
    assert one.dtype == torch.float32
    assert torch.equal(one, other)


def test_exponent_zero_is_the_limit_of_small_ones():
    x = torch.tensor([0.0, 0.1, 3.0, 50.0], dtype=torch.float64)
    assert torch.equal(generalised(x, 0.0), x)
    torch.testing.assert_close(generalised(x, 1e-9), x, rtol=1e-6, atol=0)
    torch.testing.assert_close(generalised(x, 1.0), 1 - torch.exp(-x))


def test_without_trust_and_with_cross_entropy_it_assumes_negatives():
    options = constant(w=0.0, b=-100.0, mu=0.5, s=1e6, q2=1.0, q3=0.0)
    task = make_task(torch.tensor(Y, dtype=torch.int8))
    batch = make_batch(torch.zeros(2, 1), task)
    wanted = AssumeNegative().loss(FixedLogits(torch.tensor(Z)), batch, make_progress()).total
    torch.testing.assert_close(step(Z, **options)[0].total, wanted)


def test_a_class_seen_to_be_absent_is_a_full_negative():
    z = torch.tensor([[3.0, 3.0]])
    found, network = step(z, [[-1, 0]])
    assert found.parts["observed"].item() == pytest.approx(torch.tensor(3.0).exp().log1p() / 2)
    found.total.backward()
    absent, unobserved = network.logits.grad[0] * 2
    assert absent.item() == pytest.approx(torch.tensor(3.0).sigmoid().item(), rel=1e-5)
    assert unobserved < 0.1


def test_a_width_of_zero_is_refused():
    with pytest.raises(UsageError, match="width-end"):
        GeneralizedRobust(width_end=0.0).check(make_task(torch.tensor(Y)))
