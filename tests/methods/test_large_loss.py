from __future__ import annotations

import copy
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adagc.errors import UsageError
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.boost import BoostLU
from adagc.methods.large_loss import (
    LargeLoss,
    LargeLossPermanent,
    LargeLossRejection,
    LargeLossTemporary,
    largest_losses,
)
from adagc.models.spec import HeadSpec
from adagc.types import Batch, Losses, Progress
from conftest import make_classifier, make_task
from reference import slow_large_loss as slow

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]
FAMILY = (LargeLossRejection, LargeLossTemporary, LargeLossPermanent, BoostLU)
EVERY = pytest.mark.parametrize("cls", FAMILY, ids=lambda cls: cls.title)


def observed_of(y) -> Tensor:
    return torch.tensor(y, dtype=torch.int8)


def step(
    method: LargeLoss,
    z,
    task,
    *,
    epoch: int,
    epochs: int = 2,
    index: Tensor | None = None,
    number: int = 0,
    steps: int = 1,
) -> Losses:
    """One step on images that are their own logits."""
    z = torch.as_tensor(z)
    index = torch.arange(len(z)) if index is None else index
    batch = Batch(z, task.observed[index], index, torch.Generator())
    progress = Progress(epoch, epochs, (epoch - 1) * steps + number, steps)
    return method.loss(nn.Identity(), batch, progress)


def ready(cls: type[LargeLoss], y=Y, **options) -> tuple[LargeLoss, object]:
    method, task = cls(**options), make_task(observed_of(y))
    method.setup(nn.Identity(), task)
    return method, task


def z64(z=Z) -> Tensor:
    return torch.tensor(z, dtype=torch.float64, requires_grad=True)


# -- golden values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "wanted"),
    [
        (LargeLossRejection, 0.214228),
        (LargeLossTemporary, 0.377775),
        (LargeLossPermanent, 0.377775),
        (BoostLU, 0.377775),  # the boost is in the network
    ],
    ids=lambda value: getattr(value, "title", value),
)
def test_golden_values_with_two_suspects(cls, wanted):
    method, task = ready(cls, final=1 / 3)
    assert step(method, z64(), task, epoch=2).total.item() == pytest.approx(wanted, abs=5e-7)


def test_golden_suspects_and_their_gradients():
    p = torch.tensor(Z, dtype=torch.float64).sigmoid()
    y = torch.tensor(Y)
    for cls, inside in ((LargeLossRejection, torch.zeros_like(p)), (LargeLossTemporary, p - 1)):
        method, task = ready(cls, final=1 / 3)
        z = z64()
        step(method, z, task, epoch=2).total.backward()
        wanted = p - y
        for entry in ((0, 2), (1, 0)):
            wanted[entry] = inside[entry]
        torch.testing.assert_close(z.grad * 6, wanted)


# -- slow twins ------------------------------------------------------------------------------

# Eighths: two logits are equal or so far apart that every precision ranks them alike.
logits = st.integers(-80, 240).map(lambda eighths: eighths / 8)


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    z = [[draw(logits) for _ in range(columns)] for _ in range(rows)]
    y = [[draw(st.sampled_from([0, 0, 0, 1, -1])) for _ in range(columns)] for _ in range(rows)]
    epochs = draw(st.integers(2, 9))
    return z, y, epochs, draw(st.integers(1, epochs)), draw(st.integers(0, 20)) / 20


@settings(max_examples=80, deadline=None)
@given(problems())
def test_temporary_methods_agree_with_their_slow_twins(problem):
    z, y, epochs, epoch, final = problem
    entries = len(y) * len(y[0])
    k = slow.count(entries, (epoch - 1) * slow.pace(final, epochs))
    chosen = slow.suspects(z, y, k)
    for cls, inside in ((LargeLossRejection, "nothing"), (LargeLossTemporary, "positive")):
        method, task = ready(cls, y, final=final)
        found = step(method, z64(z), task, epoch=epoch, epochs=epochs)
        wanted = slow.mean_loss(z, y, chosen, inside)
        assert found.total.item() == pytest.approx(wanted, rel=1e-6, abs=1e-7)
        plain = slow.mean_loss(z, y, set(), inside)
        assert found.parts["assume_negative"].item() == pytest.approx(plain, rel=1e-6, abs=1e-7)
        torch.testing.assert_close(sum(found.parts.values()), found.total)


@st.composite
def runs(draw):
    """Images, labels, batch size, epochs, and another network in every epoch."""
    rows, columns = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    size = draw(st.integers(1, rows))
    y = [[draw(st.sampled_from([0, 0, 0, 1, -1])) for _ in range(columns)] for _ in range(rows)]
    epochs = draw(st.integers(2, 5))
    order = [draw(st.permutations(range(rows))) for _ in range(epochs)]
    seed = draw(st.integers(0, 99))
    eighths = torch.randint(
        -80, 240, (epochs, rows, columns), generator=torch.Generator().manual_seed(seed)
    )
    return y, size, order, (eighths / 8).double(), draw(st.integers(0, 20)) / 20


@settings(max_examples=40, deadline=None)
@given(runs())
def test_permanent_labels_agree_with_their_slow_twin(run):
    y, size, order, z, final = run
    epochs, rows, columns = z.shape
    method, task = ready(LargeLossPermanent, y, final=final)
    twin = slow.Permanent(columns, slow.pace(final, epochs))
    starts = range(0, rows, size)
    before = task.observed.clone()
    for epoch in range(1, epochs + 1):
        for number, start in enumerate(starts):
            index = order[epoch - 1][start : start + size]
            values = z[epoch - 1][index]
            found = step(
                method, values, task, epoch=epoch, epochs=epochs,
                index=torch.tensor(index), number=number, steps=len(starts),
            )  # fmt: skip
            wanted = twin.step(values.tolist(), [y[i] for i in index], index, epoch)
            assert found.total.item() == pytest.approx(wanted, rel=1e-6, abs=1e-7)
            added = {(i, c) for i, c in method.added.nonzero().tolist()}
            assert added == twin.added
    assert method.status() == {"labels_added": len(twin.added)}
    assert torch.equal(task.observed, before)


# -- the schedule ----------------------------------------------------------------------------


def chosen(method: LargeLoss, epoch: int, epochs: int, *, rows: int = 10, columns: int = 10) -> int:
    """How many entries a batch of entirely unobserved images with distinct losses changes."""
    task = make_task(torch.zeros(rows, columns, dtype=torch.int8))
    method.setup(nn.Identity(), task)
    z = torch.linspace(-3, 3, rows * columns, dtype=torch.float64).view(rows, columns)
    z.requires_grad_()
    step(method, z, task, epoch=epoch, epochs=epochs).total.backward()
    # Where nothing was changed the gradient is that of a negative.
    return int(((z.grad * z.numel() - z.sigmoid()).abs() > 1e-9).sum())


@pytest.mark.parametrize("epochs", [2, 10, 70])
def test_the_final_share_does_not_depend_on_the_number_of_epochs(epochs):
    for cls in (LargeLossRejection, LargeLossTemporary):
        assert chosen(cls(final=0.25), epochs, epochs) == 25
        assert chosen(cls(final=0.25), 1, epochs) == 0


@pytest.mark.parametrize(("final", "wanted"), [(0.07, 7), (0.14, 14), (0.28, 28), (0.55, 55)])
def test_an_error_of_floating_point_selects_no_extra_entry(final, wanted):
    assert 100 * final > wanted  # what a plain ceiling would have stumbled over
    assert chosen(LargeLossRejection(final=final), 2, 2) == wanted
    assert chosen(LargeLossPermanent(final=final), 2, 2) == wanted


def test_delta_is_in_per_cent_per_epoch_and_goes_first():
    for epoch, wanted in ((1, 0), (2, 1), (3, 1), (4, 2), (11, 5)):
        assert chosen(LargeLossTemporary(delta=0.5, final=0.9), epoch, 10) == wanted


def test_a_limit_is_never_exceeded():
    assert chosen(LargeLossTemporary(delta=20.0, largest=0.3), 5, 5) == 30
    assert chosen(LargeLossTemporary(delta=20.0, largest=0.3), 2, 5) == 20


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        ({"final": 0.3}, [0, 3, 6, 9, 12]),  # 40 entries, 4 epochs that add
        ({"final": 0.1}, [0, 1, 2, 3, 4]),
        ({"final": 0.05}, [0, 1, 1, 2, 2]),
        ({"final": 0.3, "largest": 0.2}, [0, 3, 6, 8, 8]),
        ({"delta": 1.0}, [0, 3, 6, 9, 12]),  # one in each batch, as rounding up says
        ({"delta": 10.0}, [0, 5, 10, 15, 20]),  # 2 + 2 + 1
        ({"delta": 10.0, "largest": 0.3}, [0, 5, 10, 12, 12]),
    ],
    ids=str,
)
def test_permanent_labels_add_up_to_the_plan_over_batches(options, plan):
    method, task = ready(LargeLossPermanent, [[0] * 4] * 10, **options)
    generator = torch.Generator().manual_seed(0)
    found = []
    for epoch in range(1, 6):
        order = torch.randperm(10, generator=generator)
        for number, index in enumerate(order.split(4)):  # 4, 4 and 2 images
            z = torch.randn(len(index), 4, generator=generator)
            step(method, z, task, epoch=epoch, epochs=5, index=index, number=number, steps=3)
        found.append(method.status()["labels_added"])
    assert found == plan


def test_rounding_does_not_pile_up_where_a_batch_owes_less_than_a_label():
    """32 images of 16 classes in 70 epochs: .74 labels per step."""
    method, task = ready(LargeLossPermanent, [[0] * 16] * 96, final=0.1)
    generator = torch.Generator().manual_seed(0)
    steps = []
    for epoch in range(1, 71):
        order = torch.randperm(96, generator=generator)
        for number, index in enumerate(order.split(32)):
            before = int(method.added.sum())
            z = torch.randn(32, 16, generator=generator)
            step(method, z, task, epoch=epoch, epochs=70, index=index, number=number, steps=3)
            steps.append(int(method.added.sum()) - before)
    assert set(steps[3:]) == {0, 1}
    assert method.status()["labels_added"] == math.ceil(Fraction(96 * 16, 10))


# -- traps -----------------------------------------------------------------------------------


@EVERY
def test_the_first_epoch_is_assume_negative_to_the_last_bit(cls):
    y = [[1, 0, 0], [0, 1, -1]]
    method, task = ready(cls, y, final=1.0, largest=1.0)
    plain = AssumeNegative()
    plain.setup(nn.Identity(), task)
    ours, theirs = (torch.tensor(Z, requires_grad=True) for _ in range(2))
    found = step(method, ours, task, epoch=1)
    wanted = step(plain, theirs, task, epoch=1)
    assert torch.equal(found.total, wanted.total)
    assert found.parts["correction"] == 0
    found.total.backward()
    wanted.total.backward()
    assert torch.equal(ours.grad, theirs.grad)
    assert method.estimates() is None or torch.equal(
        method.estimates(), (task.observed > 0).float()
    )


@EVERY
def test_known_entries_are_never_suspects_however_many_are_wanted(cls):
    y = [[1, 0, -1], [1, 0, 0]]
    method, task = ready(cls, y, final=1.0)
    z = torch.tensor([[-50.0, 1.0, 40.0], [-60.0, -2.0, 0.5]], requires_grad=True)
    step(method, z, task, epoch=2).total.backward()
    inside = torch.zeros(3) if cls is LargeLossRejection else z[task.observed == 0].sigmoid() - 1
    torch.testing.assert_close(z.grad[task.observed == 0] * 6, inside)
    assert (z.grad[task.observed == 1] * 6).tolist() == [-1.0, -1.0]  # still positives
    assert (z.grad[task.observed == -1] * 6).tolist() == [1.0]  # still absent


def test_an_entry_without_loss_is_no_suspect():
    z = torch.tensor([[-200.0, 1.0, -200.0]])
    task = make_task(observed_of([[0, 0, 0]]))
    method = LargeLossTemporary(final=1.0)
    method.setup(nn.Identity(), task)
    found = step(method, z, task, epoch=2).total.item()
    assert found == pytest.approx(math.log1p(math.exp(-1)) / 3)
    losses = torch.tensor([[0.0, 0.3, 0.0]])
    assert largest_losses(losses, losses >= 0, 3).tolist() == [[False, True, False]]


def test_equal_losses_are_selected_together():
    losses = torch.tensor([[0.5, 0.2, 0.5], [0.9, 0.5, 0.1]])
    everywhere = torch.ones(2, 3, dtype=torch.bool)
    counts = [int(largest_losses(losses, everywhere, k).sum()) for k in range(8)]
    assert counts == [0, 1, 4, 4, 4, 5, 6, 6]
    # A permanent tie is paid back: four labels at once, then none until the plan has caught up.
    method, task = ready(LargeLossPermanent, [[0] * 4] * 2, final=0.75)
    added = []
    for epoch in range(1, 5):
        step(method, torch.zeros(1, 4), task, epoch=epoch, epochs=4, index=torch.tensor([0]),
             steps=2)  # fmt: skip
        z = torch.tensor([[0.0, 0.1, 0.2, 0.3]])
        step(method, z, task, epoch=epoch, epochs=4, index=torch.tensor([1]), number=1, steps=2)
        added.append(method.added.sum(1).tolist())
    assert added == [[0, 0], [4, 0], [4, 0], [4, 2]]


def test_the_ranking_is_over_the_whole_batch():
    method, task = ready(LargeLossTemporary, [[0, 0]] * 3, final=1 / 3)
    z = torch.tensor([[3.0, 2.0], [1.0, 0.0], [-1.0, -2.0]], requires_grad=True)
    step(method, z, task, epoch=2).total.backward()
    assert (z.grad < 0).tolist() == [[True, True], [False, False], [False, False]]


def test_labels_only_grow_and_observed_positives_never_flip():
    generator = torch.Generator().manual_seed(3)
    observed = torch.randint(-1, 2, (12, 5), generator=generator, dtype=torch.int8)
    task = make_task(observed.clone(), epochs=6)
    method = LargeLossPermanent(final=0.3)
    method.setup(nn.Identity(), task)
    before = method.estimates()
    assert torch.equal(before, (observed > 0).float())
    grew = 0
    for epoch in range(1, 7):
        order = torch.randperm(12, generator=generator)
        for number, index in enumerate(order.split(5)):
            z = 5 * torch.randn(len(index), 5, generator=generator)
            step(method, z, task, epoch=epoch, epochs=6, index=index, number=number, steps=3)
            now = method.estimates()
            assert (now >= before).all()
            untouched = torch.ones(12, dtype=torch.bool)
            untouched[index] = False
            assert torch.equal(now[untouched], before[untouched])
            grew += not torch.equal(now, before)
            before = now
        assert (before[observed > 0] == 1).all()
        assert (before[observed < 0] == 0).all()
    assert grew >= 5
    assert torch.equal(task.observed, observed)
    assert method.status()["labels_added"] == int(before.sum()) - int((observed > 0).sum())


@pytest.mark.parametrize(
    ("cls", "wanted"),
    [
        (LargeLossTemporary, [[False, True, True]]),  # the largest loss of this step
        (LargeLossPermanent, [[True, False, True]]),  # the label outlives the loss that made it
    ],
    ids=["LL-Ct", "LL-Cp"],
)
def test_a_permanent_label_stays_a_positive_and_a_temporary_one_does_not(cls, wanted):
    method, task = ready(cls, [[0, 0, 1]], largest=0.4, delta=30.0)  # one label, then no more
    step(method, torch.tensor([[4.0, 0.0, -1.0]]), task, epoch=2, epochs=3)
    z = torch.tensor([[-4.0, 1.0, -1.0]], requires_grad=True)
    step(method, z, task, epoch=2, epochs=3).total.backward()
    assert (z.grad < 0).tolist() == wanted


def test_half_precision_ranks_and_sums_in_single_precision():
    method, task = ready(LargeLossTemporary, final=1 / 3)
    z = torch.tensor(Z).half().requires_grad_()
    found = step(method, z, task, epoch=2)
    assert found.total.dtype == torch.float32
    assert found.total.item() == pytest.approx(0.377775, abs=2e-4)
    found.total.backward()
    assert z.grad.isfinite().all()


def test_only_permanent_labels_are_state_and_they_survive_a_checkpoint():
    for cls in (LargeLossRejection, LargeLossTemporary, BoostLU):
        assert not ready(cls)[0].state_dict()
    y = [[0] * 4] * 6
    method, task = ready(LargeLossPermanent, y, final=0.5)
    generator = torch.Generator().manual_seed(0)
    index = torch.tensor([4, 1, 3])
    step(method, torch.randn(3, 4, generator=generator), task, epoch=2, epochs=3, index=index,
         steps=2)  # fmt: skip
    assert 0 < method.status()["labels_added"] < 12
    assert set(method.state_dict()) == {"added"}
    assert method.state_dict()["added"].dtype == torch.bool
    twin, _ = ready(LargeLossPermanent, y, final=0.5)
    twin.load_state_dict(copy.deepcopy(method.state_dict()))
    assert twin.status() == method.status()
    z = torch.randn(3, 4, generator=generator)
    one, other = (
        step(m, z, task, epoch=3, epochs=3, index=index, number=1, steps=2) for m in (method, twin)
    )
    assert torch.equal(one.total, other.total)
    assert torch.equal(method.added, twin.added)
    assert torch.equal(method.estimates(), twin.estimates())


@EVERY
@pytest.mark.parametrize("options", [{"final": 1.2}, {"delta": -0.1}, {"largest": 2.0}], ids=str)
def test_senseless_options_are_refused(cls, options):
    (name,) = options
    with pytest.raises(UsageError, match=f"--method.{name} must be"):
        ready(cls, **options)


# -- BoostLU ---------------------------------------------------------------------------------


def test_the_boost_is_asked_of_the_network():
    assert BoostLU().head() == HeadSpec("class-map", boost=5.0)
    assert BoostLU(boost=2.0).head() == HeadSpec("class-map", boost=2.0)
    assert BoostLU.needs == {"feature_map"}
    assert LargeLossTemporary().head() == HeadSpec()
    with pytest.raises(UsageError, match=r"--method.boost must be at least 1"):
        ready(BoostLU, boost=0.5)


def test_a_boost_of_one_is_plain_large_loss_and_more_lifts_what_is_positive():
    images = torch.rand(4, 3, 6, 6, generator=torch.Generator().manual_seed(0)) - 0.5
    plain, one, five = (
        make_classifier((3, 6, 6), backbone="linear", head=head)
        for head in (HeadSpec(), BoostLU(boost=1.0).head(), BoostLU().head())
    )
    torch.testing.assert_close(one(images), plain(images))
    boosted = five(images)
    assert (boosted >= plain(images) - 1e-6).all()
    assert not torch.allclose(boosted, plain(images))
    task = make_task(observed_of([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))
    found = []
    for method, network in ((LargeLossTemporary(), plain), (BoostLU(boost=1.0), one)):
        method.setup(network, task)
        batch = Batch(images, task.observed, torch.arange(4), torch.Generator())
        found.append(method.loss(network, batch, Progress(4, 4, 6, 2)).total)
    torch.testing.assert_close(*found)
