from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adagc import losses
from adagc.errors import UsageError
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.early_learning import EarlyLearning, binary_agreement
from adagc.types import Batch, Losses
from conftest import make_progress, make_task
from reference import slow_early_learning as slow
from reference import slow_losses

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]
T = [[0.9, 0.2, 0.7], [0.4, 0.9, 0.05]]
FORMS = pytest.mark.parametrize("form", ["product", "binary"])


def ready(y=Y, **options) -> tuple[EarlyLearning, object]:
    method, task = EarlyLearning(**options), make_task(torch.tensor(y, dtype=torch.int8))
    method.setup(nn.Identity(), task)
    return method, task


def step(method, z, task, *, index: Tensor | None = None) -> Losses:
    """One step on images that are their own logits."""
    z = torch.as_tensor(z)
    index = torch.arange(len(z)) if index is None else index
    batch = Batch(z, task.observed[index], index, torch.Generator())
    return method.loss(nn.Identity(), batch, make_progress())


def z64(z=Z) -> Tensor:
    return torch.tensor(z, dtype=torch.float64, requires_grad=True)


# -- golden values and slow twins ------------------------------------------------------------


@pytest.mark.parametrize(("form", "wanted"), [("product", -0.499676), ("binary", -1.102357)])
def test_golden_values(form, wanted):
    method, task = ready(form=form, momentum=1.0)  # the memory stays what it is
    method.memory.values.copy_(torch.tensor(T))
    found = step(method, z64(), task)
    assert found.parts["early_learning"].item() == pytest.approx(wanted, abs=5e-7)
    assert found.parts["assume_negative"].item() == pytest.approx(0.661108, abs=5e-7)
    assert found.total.item() == pytest.approx(0.661108 + 3 * wanted, abs=2e-6)


@st.composite
def visits(draw):
    """A few batches of the same images, each with its own logits."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    y = [[draw(st.sampled_from([0, 0, 1, -1])) for _ in range(columns)] for _ in range(rows)]
    batches = []
    for _ in range(draw(st.integers(1, 4))):
        index = draw(st.lists(st.integers(0, rows - 1), min_size=1, unique=True))
        z = [[draw(st.floats(-12, 12, width=32)) for _ in range(columns)] for _ in index]
        batches.append((index, z))
    return y, batches, draw(st.sampled_from([0.0, 0.7, 0.9])), draw(st.sampled_from([1.0, 3.0]))


@FORMS
@settings(max_examples=40, deadline=None)
@given(visits(), st.sampled_from([None, 0.0, 0.5, 0.25]))
@example(([[0]], [([0], [[-12.0]])], 0.9, 1.0), 0.0)  # t of 6e-7 was taken for 1e-6
def test_visits_agree_with_their_slow_twin(form, problem, start):
    y, batches, momentum, weight = problem
    method, task = ready(y, form=form, momentum=momentum, weight=weight, start=start)
    begin = {"product": 0.0, "binary": 0.5}[form] if start is None else start
    memory = slow.Memory(len(y), len(y[0]), momentum, begin)
    for index, z in batches:
        found = step(method, z64(z), task, index=torch.tensor(index))
        rows = [y[i] for i in index]
        memory.visit(index, z)
        torch.testing.assert_close(
            method.estimates(), torch.tensor(memory.rows, dtype=torch.float32), rtol=1e-5, atol=1e-6
        )
        # From the table as it is, in single precision: where p and t are both sure, 1 - p t takes
        # its digits from the last ones of t, and two right tables give losses that differ.
        t = method.estimates()[index].double().tolist()
        wanted = slow.regulariser(z, t, rows, form)
        plain = slow_losses.mean(
            slow_losses.cross_entropy(z, [[int(v == 1) for v in row] for row in rows])
        )
        assert found.parts["early_learning"].item() == pytest.approx(wanted, rel=1e-6, abs=1e-9)
        assert found.total.item() == pytest.approx(plain + weight * wanted, rel=1e-6, abs=1e-6)


# -- what the two forms do -------------------------------------------------------------------


def pushed_up(p: float, form: str, weight: float) -> bool:
    """Whether a step raises the logit of an unobserved entry whose memory agrees with it."""
    method, task = ready([[0]], form=form, weight=weight, momentum=0.0)
    z = torch.logit(torch.tensor([[p]], dtype=torch.float64)).requires_grad_()
    step(method, z, task).total.backward()
    return z.grad.item() < 0


@pytest.mark.parametrize("weight", [3.0, 5.0, 7.0])
def test_an_unobserved_entry_tips_where_the_algebra_says(weight):
    for form, tip in (("product", 1 / (weight - 1)), ("binary", weight / (2 * (weight - 1)))):
        assert pushed_up(tip + 0.01, form, weight)
        assert not pushed_up(tip - 0.01, form, weight)


def test_a_small_weight_never_completes_in_the_binary_form():
    for p in (0.5, 0.9, 0.999):
        assert not pushed_up(p, "binary", 1.9)
    assert pushed_up(0.35, "product", 5.0)  # what single positives leave of a present class


@FORMS
def test_the_memory_is_moved_before_it_is_used_and_carries_no_gradient(form):
    method, task = ready(form=form, momentum=0.75)
    start = method.memory.values[0, 0].item()
    z = z64()
    found = step(method, z, task)
    p = torch.tensor(Z).sigmoid()
    t = 0.75 * start + 0.25 * p
    torch.testing.assert_close(method.memory.values, t)
    assert not method.memory.values.requires_grad
    product = (p * t if form == "product" else p * t + (1 - p) * (1 - t)).double()
    wanted = torch.log(1 - product).mean()
    torch.testing.assert_close(found.parts["early_learning"], wanted, rtol=1e-6, atol=1e-7)
    found.parts["early_learning"].backward()
    slope = t if form == "product" else 2 * t - 1  # of the agreement in p, with t held
    torch.testing.assert_close(
        z.grad * 6, (-slope * p * (1 - p)).double() / (1 - product), rtol=1e-5, atol=1e-7
    )


@FORMS
def test_a_fresh_memory_pushes_nowhere(form):
    method, task = ready(form=form, momentum=1.0)
    z = z64()
    found = step(method, z, task)
    found.parts["early_learning"].backward()
    torch.testing.assert_close(z.grad, torch.zeros_like(z), rtol=0, atol=1e-9)


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_a_start_at_one_half_is_the_original_with_two_columns_that_start_at_zero(momentum):
    """Their agreements differ by βⁿ / 2, which has no gradient; a start at 0 is something else."""
    half, task = ready([[0, 0, 0]], form="binary", momentum=momentum)
    zero, _ = ready([[0, 0, 0]], form="binary", momentum=momentum, start=0.0)
    present, absent, apart = torch.zeros(1, 3), torch.zeros(1, 3), 0.0
    for visit, values in enumerate(([0.5, -1.0, 2.0], [0.1, -2.0, 3.0], [-0.3, 0.8, -2.0]), 1):
        logits = [torch.tensor([values], requires_grad=True) for _ in range(3)]
        p = logits[0].sigmoid()
        present = momentum * present + (1 - momentum) * p.detach()
        absent = momentum * absent + (1 - momentum) * (1 - p.detach())
        original = (p * present + (1 - p) * absent).squeeze()
        torch.log(1 - original).mean().backward()
        for method, z in ((half, logits[1]), (zero, logits[2])):
            step(method, z, task).parts["early_learning"].backward()
        t = half.estimates()
        ours = (p * t + (1 - p) * (1 - t)).squeeze()
        torch.testing.assert_close(ours - momentum**visit / 2, original)
        scale = (1 - original) / (1 - ours)
        torch.testing.assert_close(logits[1].grad, logits[0].grad * scale, rtol=1e-4, atol=1e-7)
        assert (scale > 1).all()
        apart = max(apart, float((logits[2].grad - logits[1].grad).abs().max()))
    assert apart > 0.05


def test_a_binary_table_that_starts_at_zero_says_absent():
    method, task = ready(form="binary", start=0.0, momentum=1.0)
    z = z64()
    step(method, z, task).parts["early_learning"].backward()
    assert (z.grad > 0).all()  # every class is pushed down, the observed ones too


@FORMS
def test_observed_positives_take_part_and_known_absences_do_not(form):
    method, task = ready([[1, 0, -1]], form=form, momentum=1.0)
    method.memory.values.fill_(0.9)
    z = z64([[0.5, 0.5, 0.5]])
    found = step(method, z, task)
    found.parts["early_learning"].backward()
    assert z.grad[0, 0] == z.grad[0, 1] < 0
    assert z.grad[0, 2] == 0
    all_absent, task = ready([[-1, -1, -1]], form=form)
    found = step(all_absent, z64([[0.5, 0.5, 0.5]]), task)
    assert found.parts["early_learning"] == 0
    assert found.total == found.parts["assume_negative"]


@FORMS
def test_without_weight_it_is_assume_negative(form):
    method, task = ready(form=form, weight=0.0)
    plain = AssumeNegative()
    plain.setup(nn.Identity(), task)
    ours, theirs = (torch.tensor(Z, requires_grad=True) for _ in range(2))
    one, other = step(method, ours, task).total, step(plain, theirs, task).total
    assert torch.equal(one, other)
    one.backward()
    other.backward()
    assert torch.equal(ours.grad, theirs.grad)


def test_the_product_is_gradient_calibration_without_its_mask():
    method, task = ready(momentum=1.0)
    method.memory.values.copy_(torch.tensor(T))
    found = step(method, z64(), task).parts["early_learning"]
    z, t = torch.tensor(Z, dtype=torch.float64), torch.tensor(T)
    everywhere = losses.gradient_calibration(z, t, torch.zeros(2, 3))
    assert torch.equal(found, losses.reduce(everywhere))
    masked = losses.gradient_calibration(z, t, torch.tensor(Y))
    assert everywhere.sum() < masked.sum()


# -- numbers and state -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("certain", [0.0, 1.0])
def test_binary_agreement_stays_finite_with_a_bounded_gradient(dtype, certain):
    z = torch.tensor([[-60.0, -10.0, 0.0, 10.0, 60.0]], dtype=dtype, requires_grad=True)
    t = torch.full((1, 5), certain)
    matrix = binary_agreement(z, t, torch.zeros(1, 5))
    assert matrix.dtype == torch.promote_types(dtype, torch.float32)
    assert matrix.isfinite().all()
    matrix.sum().backward()
    assert z.grad.isfinite().all()
    assert z.grad.abs().max() <= 1


@FORMS
def test_the_loss_may_fall_far_below_zero(form):
    method, task = ready([[1, 0]], form=form)
    z = torch.tensor([[30.0, 30.0]], requires_grad=True)
    for _ in range(200):
        found = step(method, z, task).total
    assert found < -4
    assert found.isfinite()


@FORMS
def test_the_memory_survives_a_checkpoint(form):
    method, task = ready(form=form)
    step(method, torch.tensor(Z[:1]), task, index=torch.tensor([1]))
    assert method.memory.seen.tolist() == [False, True]
    twin, _ = ready(form=form)
    twin.load_state_dict(copy.deepcopy(method.state_dict()))
    one, other = (step(m, torch.tensor(Z), task).total for m in (method, twin))
    assert torch.equal(one, other)
    assert torch.equal(method.estimates(), twin.estimates())


@pytest.mark.parametrize("options", [{"weight": -1.0}, {"momentum": 1.5}, {"start": -0.1}], ids=str)
def test_senseless_options_are_refused(options):
    (name,) = options
    with pytest.raises(UsageError, match=f"--method.{name} must be"):
        ready(**options)
