from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagc import losses
from reference import slow_losses as slow

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]
TRUTH = [[1, 0, 1], [0, 1, 0]]
T = [[0.9, 0.2, 0.7], [0.4, 0.9, 0.05]]


def z64(requires_grad: bool = False) -> Tensor:
    return torch.tensor(Z, dtype=torch.float64, requires_grad=requires_grad)


def matrix(values: list[list[float]]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def gradient(z: Tensor, t: Tensor, y: Tensor | None = None) -> Tensor:
    z = z.clone().requires_grad_()
    observed = torch.zeros_like(z) if y is None else y
    losses.gradient_calibration(z, t, observed).sum().backward()
    assert z.grad is not None
    return z.grad


def assert_agrees(fast: Tensor, exact: list[list]) -> None:
    wanted = torch.tensor([[float(v) for v in row] for row in exact], dtype=torch.float64)
    torch.testing.assert_close(fast.double(), wanted, rtol=1e-5, atol=1e-5)


# -- golden values ---------------------------------------------------------------------------


def test_golden_assume_negative():
    value = losses.reduce(losses.binary_cross_entropy(z64(), matrix(Y)))
    assert value.item() == pytest.approx(0.661108, abs=5e-7)


def test_golden_label_smoothing():
    soft = matrix(Y) * 0.9 + (1 - matrix(Y)) * 0.1
    value = losses.reduce(losses.binary_cross_entropy(z64(), soft))
    assert value.item() == pytest.approx(0.704442, abs=5e-7)


def test_golden_ground_truth():
    value = losses.reduce(losses.binary_cross_entropy(z64(), matrix(TRUTH)))
    assert value.item() == pytest.approx(0.327775, abs=5e-7)


def test_golden_gradient_calibration():
    entries = losses.gradient_calibration(z64(), matrix(T), matrix(Y))
    found = [entries[0, 1], entries[0, 2], entries[1, 0], entries[1, 2]]
    wanted = [-0.055289, -0.958567, -0.186598, -0.005978]
    assert [v.item() for v in found] == pytest.approx(wanted, abs=5e-7)
    assert entries[0, 0] == 0
    assert entries[1, 1] == 0
    assert losses.reduce(entries).item() == pytest.approx(-0.201072, abs=5e-7)


def test_golden_calibrated_loss_and_its_gradient():
    z = z64(requires_grad=True)
    total = losses.reduce(losses.binary_cross_entropy(z, matrix(Y)))
    total = total + 3 * losses.reduce(losses.gradient_calibration(z, matrix(T), matrix(Y)))
    assert total.item() == pytest.approx(0.057892, abs=5e-7)
    total.backward()
    wanted = [[-0.377541, 0.144268, 0.305778], [0.072029, -0.310026, 0.103359]]
    torch.testing.assert_close(z.grad * 6, matrix(wanted), rtol=0, atol=5e-7)


def test_golden_expected_positives_gap():
    positive = losses.reduce(matrix(Y) * losses.positive(z64()))
    total = positive + losses.expected_positives_gap(z64(), 1.5)
    assert z64().sigmoid().sum(1).mean().item() == pytest.approx(1.503466, abs=5e-7)
    assert total.item() == pytest.approx(0.140864, abs=5e-7)


def test_golden_values_in_single_precision():
    z = torch.tensor(Z)
    total = losses.reduce(losses.binary_cross_entropy(z, torch.tensor(Y)))
    total += 3 * losses.reduce(losses.gradient_calibration(z, torch.tensor(T), torch.tensor(Y)))
    assert total.item() == pytest.approx(0.057892, abs=1e-6)


# -- slow twins ------------------------------------------------------------------------------


@st.composite
def problems(draw, limit: float = 60.0):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))

    def table(entries):
        return [[draw(entries) for _ in range(columns)] for _ in range(rows)]

    # One ulp is lost when a logit becomes float32: draw numbers that survive it.
    logits = table(st.floats(-limit, limit, width=32))
    return logits, table(st.floats(0, 1, width=32)), table(st.integers(0, 1))


@settings(max_examples=60, deadline=None)
@given(problems())
def test_cross_entropy_agrees_with_its_definition(problem):
    z, soft, hard = problem
    for targets in (soft, hard):
        for dtype in (torch.float32, torch.float64):
            fast = losses.binary_cross_entropy(
                torch.tensor(z, dtype=dtype), torch.tensor(targets, dtype=dtype)
            )
            assert_agrees(fast, slow.cross_entropy(z, targets))


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_two_halves_make_the_cross_entropy(problem):
    z, _, y = (torch.tensor(part, dtype=torch.float64) for part in problem)
    halves = y * losses.positive(z) + (1 - y) * losses.negative(z)
    torch.testing.assert_close(halves, losses.binary_cross_entropy(z, y), atol=1e-8, rtol=1e-8)


@settings(max_examples=60, deadline=None)
@given(problems(limit=12.0))
def test_calibration_agrees_with_its_definition(problem):
    z, t, y = problem
    t = [[min(value, 0.999) for value in row] for row in t]  # the clamp has its own test
    fast = losses.gradient_calibration(
        torch.tensor(z, dtype=torch.float64), torch.tensor(t, dtype=torch.float64), torch.tensor(y)
    )
    wanted = torch.tensor([[float(v) for v in row] for row in slow.calibration(z, t, y)])
    torch.testing.assert_close(fast.float(), wanted, rtol=1e-6, atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.floats(-60, 60), st.floats(0, 1 - 1e-6))
def test_calibration_gradient_is_the_stated_one(z, t):
    found = gradient(torch.tensor([[z]], dtype=torch.float64), torch.tensor([[t]]).double())
    t32 = float(torch.tensor(t))  # the same rounding as above
    assert found.item() == pytest.approx(slow.calibration_gradient(z, min(t32, 1 - 1e-6)), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_expected_positives_gap_agrees_with_its_definition(problem):
    z, _, y = problem
    _, wanted = slow.expected_positives(z, y, 1.7, 0.3)
    logits = torch.tensor(z, dtype=torch.float64)
    positive = losses.reduce(torch.tensor(y) * losses.positive(logits))
    found = positive + 0.3 * losses.expected_positives_gap(logits, 1.7)
    assert found.item() == pytest.approx(wanted, rel=1e-6, abs=1e-9)


# -- numerics --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("t", [0.0, 1e-30, 0.5, 1 - 1e-7, 1.0])
def test_calibration_gradient_stays_between_minus_one_and_zero(dtype, t):
    z = torch.linspace(-60, 60, 2401, dtype=dtype).unsqueeze(0)
    found = gradient(z, torch.full_like(z, t))
    assert found.isfinite().all()
    slack = 4 * torch.finfo(dtype).eps
    assert found.min() >= -1 - slack
    assert found.max() <= slack


def test_a_certain_pseudo_label_pulls_with_p():
    z = torch.linspace(-10, 5, 31, dtype=torch.float64).unsqueeze(0)
    found = gradient(z, torch.ones_like(z))
    torch.testing.assert_close(found, -z.sigmoid(), rtol=1e-3, atol=0)


def test_a_certain_pseudo_label_is_clamped_so_that_no_entry_runs_away():
    z = torch.tensor([[30.0, 60.0, 1000.0]], dtype=torch.float64)
    entries = losses.gradient_calibration(z, torch.ones_like(z), torch.zeros_like(z))
    assert entries[0].tolist() == pytest.approx([math.log(1e-6)] * 3, rel=1e-3)


def test_a_pseudo_label_of_zero_does_nothing():
    z = torch.linspace(-60, 60, 31, dtype=torch.float64).unsqueeze(0)
    assert (
        losses.gradient_calibration(z, torch.zeros_like(z), torch.zeros_like(z)).abs().max() < 1e-12
    )
    assert gradient(z, torch.zeros_like(z)).abs().max() < 1e-12


@pytest.mark.parametrize("value", [-60.0, 60.0, -1000.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_extreme_logits_are_finite_with_finite_gradients(value, dtype):
    z = torch.full((2, 3), value, dtype=dtype, requires_grad=True)
    y, t = torch.tensor(Y), torch.tensor([[0.0, 0.5, 1.0], [1.0, 0.0, 0.5]])
    total = (
        losses.binary_cross_entropy(z, y).sum()
        + losses.positive(z).sum()
        + losses.negative(z).sum()
        + losses.gradient_calibration(z, t, y).sum()
        + losses.expected_positives_gap(z, 1.0)
    )
    total.backward()
    assert total.isfinite()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_half_precision_logits_are_lifted_before_any_logarithm():
    z = torch.tensor(Z, dtype=torch.float16)
    exact = torch.tensor(Z, dtype=torch.float16).double()
    for found, wanted in (
        (
            losses.binary_cross_entropy(z, torch.tensor(Y)),
            losses.binary_cross_entropy(exact, torch.tensor(Y)),
        ),
        (
            losses.gradient_calibration(z, torch.tensor(T).half(), torch.tensor(Y)),
            losses.gradient_calibration(exact, torch.tensor(T).half(), torch.tensor(Y)),
        ),
    ):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    assert losses.precise(exact).dtype == torch.float64


def test_no_gradient_flows_into_pseudo_labels():
    t = torch.tensor(T, requires_grad=True)
    z = torch.tensor(Z, requires_grad=True)
    losses.gradient_calibration(z, t, torch.tensor(Y)).sum().backward()
    assert t.grad is None


@pytest.mark.parametrize("seen", [-1, 1, 0.3])
def test_only_entries_that_are_exactly_zero_are_calibrated(seen):
    observed = torch.tensor([[0.0, seen]])
    entries = losses.gradient_calibration(torch.zeros(1, 2), torch.full((1, 2), 0.5), observed)
    assert entries[0, 0].item() == pytest.approx(math.log(0.75))
    assert entries[0, 1] == 0


def test_masked_entries_count_in_the_denominator():
    assert losses.reduce(torch.tensor([[4.0, 0.0], [0.0, 0.0]])).item() == 1.0


# -- what gradient calibration does: methods 9.3 ---------------------------------------------


def entry_after(p: float, weight: float, steps: int = 4000, rate: float = 1.0) -> float:
    """One unobserved entry under L_AN + λ R, its pseudo-label the .8 memory of its probability."""
    z = torch.tensor([[math.log(p / (1 - p))]], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(1, 1)
    memory = z.detach().sigmoid()
    for _ in range(steps):
        memory = 0.8 * memory + 0.2 * z.detach().sigmoid()
        loss = losses.reduce(losses.binary_cross_entropy(z, zero))
        loss = loss + weight * losses.reduce(losses.gradient_calibration(z, memory, zero))
        (slope,) = torch.autograd.grad(loss, z)
        with torch.no_grad():
            z -= rate * slope
            z.clamp_(-30, 30)
        if not 0.005 < z.sigmoid().item() < 0.995:
            break
    return z.sigmoid().item()


@pytest.mark.parametrize("weight", [3, 5, 8, 9])
def test_a_single_entry_is_bistable_around_its_threshold(weight):
    threshold = 1 / (weight - 1)
    assert entry_after(threshold * 1.05, weight) > 0.9
    assert entry_after(threshold * 0.95, weight) < threshold / 2


def populations_after(rates: list[float], weights: list[float], steps: int = 3000) -> Tensor:
    """Populations of images that share one logit each; a share `rates` of them is annotated."""
    r, weight = matrix([rates]), matrix([weights])
    z = torch.logit(r).requires_grad_()
    one, zero = torch.ones_like(r), torch.zeros_like(r)
    memory = z.detach().sigmoid()
    for _ in range(steps):
        memory = 0.8 * memory + 0.2 * z.detach().sigmoid()
        annotated = losses.binary_cross_entropy(z, one)
        missed = losses.binary_cross_entropy(z, zero)
        missed = missed + weight * losses.gradient_calibration(z, memory, zero)
        (slope,) = torch.autograd.grad((r * annotated + (1 - r) * missed).sum(), z)
        with torch.no_grad():
            z -= 4.0 * slope
    return z.detach().sigmoid()[0]


def test_without_calibration_a_population_settles_at_its_annotation_rate():
    for rate in (0.1, 0.35):
        z = torch.tensor([[0.7]], dtype=torch.float64, requires_grad=True)
        for _ in range(600):
            loss = losses.reduce(losses.binary_cross_entropy(z, torch.full((1, 1), rate)))
            (slope,) = torch.autograd.grad(loss, z)
            with torch.no_grad():
                z -= 4.0 * slope
        assert z.sigmoid().item() == pytest.approx(rate, abs=1e-4)


CRITICAL = {2: 0.333, 3: 0.118, 4: 0.079, 5: 0.060, 6: 0.048, 7: 0.040, 8: 0.035, 9: 0.030}


@pytest.mark.parametrize(("weight", "critical"), CRITICAL.items())
def test_the_printed_critical_rates_follow_from_the_gradient(weight, critical):
    z = torch.linspace(-9, 9, 20001, dtype=torch.float64).unsqueeze(0)
    p = z.sigmoid()
    down = p.clone() + weight * gradient(z, p)  # of an unobserved entry with t = p
    odds = (down / (1 - p)).max().item()
    assert odds / (1 + odds) == pytest.approx(critical, abs=6e-4)


def test_populations_escape_exactly_above_their_critical_rates():
    weights = [3.0, 5.0, 9.0]
    above = populations_after([CRITICAL[w] * 1.15 for w in weights], weights)
    below = populations_after([CRITICAL[w] * 0.9 for w in weights], weights)
    assert above.min() > 0.9
    assert below.max() < 0.5
