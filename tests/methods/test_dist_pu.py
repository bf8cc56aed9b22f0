from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adagc import losses
from adagc.errors import AdagcError, UsageError
from adagc.methods.dist_pu import DistPU
from adagc.methods.state import Mixup
from adagc.types import Batch, Task
from conftest import FixedLogits, make_batch, make_progress, make_task
from reference import slow_dist_pu as slow
from reference.slow_losses import cross_entropy, mean

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]
PI = [0.4, 0.3, 0.2]


class Echo(nn.Module):
    """Images are logits: what a mixed image is answered with can be computed by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))
        self.asked: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.asked.append(images)
        return images + self.shift


def task_of(y, pi=None, epochs: int = 10) -> Task:
    observed = torch.tensor(y, dtype=torch.int8)
    classes = tuple("abcdefgh"[: observed.shape[1]])
    priors = None if pi is None else torch.tensor(pi)
    return Task(classes, observed, epochs, 2, 0, priors=priors)


def ready(y=Y, pi=PI, **options) -> tuple[DistPU, Task]:
    method, task = DistPU(**options), task_of(y, pi)
    method.setup(Echo(), task)
    return method, task


def in_warm_up(method: DistPU, task: Task, z):
    network = FixedLogits(torch.tensor(z, dtype=torch.float64))
    return method.loss(network, make_batch(torch.zeros(len(z), 1), task), make_progress(1, 10))


# -- alignment ---------------------------------------------------------------------------------


def test_golden_values():
    method, task = ready()
    each = method._alignment(torch.tensor(Z, dtype=torch.float64), task.observed)
    assert each.tolist() == pytest.approx([0.426041, 0.365473, 0.3], abs=1e-6)
    found = in_warm_up(method, task, Z)
    assert found.parts["alignment"].item() == pytest.approx(0.363838, abs=1e-6)
    assert found.parts["entropy"].item() == pytest.approx(0.498723, abs=1e-6)
    assert found.total.item() == pytest.approx(0.363838 + 0.002 * 0.498723, abs=1e-6)


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    z = [[draw(st.floats(-30, 30)) for _ in range(columns)] for _ in range(rows)]
    y = [[draw(st.sampled_from([1, 0, 0, -1])) for _ in range(columns)] for _ in range(rows)]
    # float32 keeps these exactly
    pi = [draw(st.integers(1, 63)) / 64 for _ in range(columns)]
    return z, y, pi


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from(["paper", "code"]), st.sampled_from(["all", "unobserved"]))
def test_warm_up_agrees_with_its_slow_twin(problem, form, unlabelled):
    z, y, pi = problem
    method, task = ready(y, pi, form=form, unlabelled=unlabelled)
    found = in_warm_up(method, task, z)
    targets = method.target.tolist()
    everyone = unlabelled == "all"
    each = slow.alignment(z, y, pi, form=form, everyone=everyone, targets=targets)
    if form == "code":  # no prior below that of a class with one image
        low = [max(p, 1 / len(z)) for p in pi]
        each = slow.alignment(z, y, low, form=form, everyone=everyone, targets=targets)
    alignment = sum(each) / len(each)
    wanted = alignment + slow.absent(z, y) + 0.002 * slow.entropy_of_unobserved(z, y)
    assert found.parts["alignment"].item() == pytest.approx(alignment, rel=1e-5, abs=1e-6)
    assert found.total.item() == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_the_released_code_is_the_paper_divided_by_twice_the_prior():
    paper, task = ready()
    code, _ = ready(form="code")
    code.observed = torch.zeros(100, 3)  # as if there were many images
    z = torch.tensor(Z, dtype=torch.float64)
    torch.testing.assert_close(
        code._alignment(z, task.observed), paper._alignment(z, task.observed) / (2 * paper.pi)
    )


def test_a_rare_class_dominates_in_the_released_form_only():
    y = [[1, 0]] * 400
    z = torch.full((400, 2), 20.0)  # everything predicted
    found = {}
    for form in ("paper", "code"):
        method, task = ready(y, [0.5, 0.003], form=form)
        found[form] = method._alignment(z, task.observed)
    assert found["paper"].tolist() == pytest.approx([0.5, 0.997], abs=1e-5)
    assert found["code"][1].item() == pytest.approx(0.997 / 0.006, rel=1e-4)


def test_no_class_counts_more_than_one_and_twice_its_prior():
    method, task = ready([[1, 1, 1]] * 4, [0.9, 0.5, 0.01])
    for value in (-60.0, 60.0):
        each = method._alignment(torch.full((4, 3), value), task.observed)
        assert (each <= 1 + 2 * method.pi).all()


def test_perfect_scores_have_no_alignment_loss_whichever_the_unlabelled_are():
    truth = torch.tensor([[1, 1, 0], [1, 0, 1], [1, 1, 0], [0, 1, 0]])
    y = [[1, 0, -1], [0, 0, 1], [0, 1, 0], [0, 1, 0]]
    pi = truth.float().mean(0).tolist()
    z = 80.0 * (truth.float() - 0.5)
    for unlabelled in ("all", "unobserved"):
        method, task = ready(y, pi, unlabelled=unlabelled)
        assert method._alignment(z, task.observed).tolist() == pytest.approx([0, 0, 0], abs=1e-6)
    columns = list(zip(*y, strict=True))
    wanted = [slow.corrected(p, column) for p, column in zip(pi, columns, strict=True)]
    assert method.target.tolist() == pytest.approx(wanted, abs=1e-6)
    # the trap: without the correction a perfect network would be told to predict more
    method.target = method.pi
    assert method._alignment(z, task.observed).max() > 0.2


def test_a_class_nobody_named_in_the_batch_only_has_its_frequency():
    method, task = ready([[0, 1, 0], [0, 1, 0]])
    z = torch.tensor(Z, requires_grad=True)
    each = method._alignment(z, task.observed)
    gaps = (z.sigmoid().mean(0) - method.pi).abs()
    torch.testing.assert_close(each[[0, 2]], gaps[[0, 2]])
    assert each[1] > gaps[1]
    each.sum().backward()
    assert z.grad.isfinite().all()


def test_averaged_means_steady_the_sign_of_the_gap():
    y = [[0], [0]]
    often, rarely = torch.tensor([[3.0], [3.0]]), torch.tensor([[-3.0], [-3.0]])
    pushes = {}
    for momentum in (0.0, 0.9):
        method, task = ready(y, [0.5], mean_momentum=momentum)
        method._alignment(often, task.observed)
        z = rarely.clone().requires_grad_()
        value = method._alignment(z, task.observed)
        value.sum().backward()
        pushes[momentum] = z.grad.clone()
    p = 1 / (1 + math.exp(-3))
    assert (pushes[0.0] < 0).all()  # this batch alone: predict more
    torch.testing.assert_close(pushes[0.9], -pushes[0.0])  # so far: predict less, as strongly
    assert value.item() == pytest.approx(0.9 * p + 0.1 * (1 - p) - 0.5, abs=1e-6)
    assert method.means.values.item() == pytest.approx(0.9 * p + 0.1 * (1 - p), abs=1e-6)


def test_absences_are_negatives_and_no_part_of_the_entropy():
    plain, task = ready([[1, 0, 0], [0, 1, 0]])
    with_absent, other = ready([[1, -1, 0], [0, 1, 0]])
    one, two = in_warm_up(plain, task, Z), in_warm_up(with_absent, other, Z)
    assert one.parts["absent"] == 0
    wanted = losses.negative(torch.tensor(-1.0)).item() / 6
    assert two.parts["absent"].item() == pytest.approx(wanted, abs=1e-6)
    torch.testing.assert_close(one.parts["alignment"], two.parts["alignment"])
    y = [[1, -1, 0], [0, 1, 0]]
    assert two.parts["entropy"].item() == pytest.approx(slow.entropy_of_unobserved(Z, y), abs=1e-6)


# -- phases ------------------------------------------------------------------------------------

OBSERVED = [[1, 0, 0], [0, 1, -1], [0, 0, 1], [1, 0, 0]]
IMAGES = torch.tensor([[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0], [1.5, 0.1, -0.7], [-2.5, 0.3, 0.9]])


def test_the_schedule_is_warm_up_then_a_quarter_cosine():
    method = DistPU(warm_up=0.3)
    weights = [method._entropy_weight(make_progress(epoch, 10)) for epoch in range(1, 11)]
    assert weights[:3] == [0.002] * 3
    wanted = [slow.entropy_weight(epoch, 3, 10, 0.004) for epoch in range(4, 11)]
    assert weights[3:] == pytest.approx(wanted)
    assert weights[3] == 0
    assert DistPU()._warm_up_epochs(make_progress(1, 70)) == 20


def test_one_review_at_the_end_of_warm_up():
    def epochs_of(share: float) -> list[int]:
        method = DistPU(warm_up=share)
        return [e for e in range(1, 11) if method.reviews(make_progress(e, 10))]

    assert epochs_of(0.3) == [3]
    assert epochs_of(0.0) == []  # nothing to look back at
    assert epochs_of(1.0) == []  # nothing follows


def test_warm_up_is_one_pass_and_then_there_are_two_with_gradients():
    method, task = ready(OBSERVED)
    for epoch, passes in ((3, 1), (4, 2)):
        network = Echo()
        found = method.loss(network, make_batch(IMAGES, task), make_progress(epoch, 10))
        assert len(network.asked) == passes
        assert ("mixed" in found.parts) == (epoch == 4)
    clean, blended = network.asked
    assert torch.equal(clean, IMAGES)
    assert not torch.equal(blended, IMAGES)
    for part in ("alignment", "mixed", "mixed_entropy"):
        (gradient,) = torch.autograd.grad(found.parts[part], network.shift, retain_graph=True)
        assert gradient != 0, part


def test_pseudo_labels_begin_with_the_review_and_follow_the_last_visit():
    method, task = ready(OBSERVED)
    probabilities = torch.tensor([[0.2, 0.3, 0.4]]).repeat(4, 1)
    method.loss(Echo(), make_batch(IMAGES, task), make_progress(1, 10))
    method.review(probabilities, make_progress(3, 10))
    reviewed = [[1.0, 0.3, 0.4], [0.2, 1.0, 0.0], [0.2, 0.3, 1.0], [1.0, 0.3, 0.4]]
    torch.testing.assert_close(method.estimates(), torch.tensor(reviewed))
    rows = torch.tensor([2, 0])
    batch = Batch(IMAGES[rows], task.observed[rows], rows, torch.Generator().manual_seed(0))
    method.loss(Echo(), batch, make_progress(4, 10))
    wanted = torch.tensor(reviewed)
    p = IMAGES.sigmoid()
    wanted[0], wanted[2] = p[0], p[2]
    wanted[0, 0] = wanted[2, 2] = 1
    torch.testing.assert_close(method.estimates(), wanted)


@pytest.mark.parametrize("seed", range(4))
def test_the_second_phase_agrees_with_its_slow_twin(seed):
    """The step mixes what was stored before it, not what it has just predicted."""
    method, task = ready(OBSERVED, mixup=1.0)
    stored = torch.rand(4, 3, generator=torch.Generator().manual_seed(seed + 10))
    method.review(stored, make_progress(3, 10))
    q = method.estimates().clone()
    found = method.loss(Echo(), make_batch(IMAGES, task, seed=seed), make_progress(6, 10))
    mix = Mixup.draw(4, 1.0, torch.Generator().manual_seed(seed))
    partner, share = mix.partner.tolist(), mix.share.tolist()
    z = IMAGES.tolist()
    blended = slow.mixed_rows(z, partner, share)
    mixed = slow.mixed_cross_entropy(blended, q.tolist(), partner, share)
    mixed_entropy = mean(slow.entropies(blended))
    assert found.parts["mixed"].item() == pytest.approx(mixed, abs=1e-5)
    assert found.parts["mixed_entropy"].item() == pytest.approx(mixed_entropy, abs=1e-5)
    each = slow.alignment(z, OBSERVED, PI)
    wanted = (
        sum(each) / 3
        + slow.absent(z, OBSERVED)
        + slow.entropy_weight(6, 3, 10, 0.004) * slow.entropy_of_unobserved(z, OBSERVED)
        + 5 * mixed
        + 0.04 * mixed_entropy
    )
    assert found.total.item() == pytest.approx(wanted, rel=1e-5)


def test_without_warm_up_the_first_visit_is_its_own_pseudo_label():
    method, task = ready([[1, 0, 0]], warm_up=0.0)
    network = Echo()
    found = method.loss(network, make_batch(IMAGES[:1], task), make_progress(1, 10))
    q = IMAGES[:1].sigmoid()
    q[0, 0] = 1
    wanted = mean(cross_entropy(IMAGES[:1].tolist(), q.tolist()))  # mixed with itself
    assert found.parts["mixed"].item() == pytest.approx(wanted, abs=1e-6)


def test_no_gradient_flows_into_pseudo_labels():
    method, task = ready(OBSERVED)
    network = Echo()
    method.loss(network, make_batch(IMAGES, task), make_progress(4, 10))
    assert not method.pseudo_labels.values.requires_grad
    assert method.pseudo_labels.seen.all()


@pytest.mark.parametrize("form", ["paper", "code"])
@pytest.mark.parametrize("unlabelled", ["all", "unobserved"])
@pytest.mark.parametrize(
    "y", [[[0, 0]], [[1, 1]], [[-1, -1]], [[1, 0]], [[0, 0], [0, -1]]], ids=str
)
@pytest.mark.parametrize("value", [0.3, 60.0, -60.0])
def test_small_and_odd_batches_stay_finite(form, unlabelled, y, value):
    """Priors taken from these labels may be 0 or 1."""
    task = make_task(torch.tensor(y, dtype=torch.int8), oracle=DistPU.needs)
    for half in (False, True):
        network = FixedLogits(torch.full((len(y), 2), value), half=half)
        method = DistPU(form=form, unlabelled=unlabelled, mean_momentum=0.5)
        method.setup(network, task)
        for epoch in (1, 4):
            images = torch.zeros(len(y), 1)
            found = method.loss(network, make_batch(images, task), make_progress(epoch, 4))
            found.total.backward()
            assert found.total.isfinite()
            assert network.logits.grad.isfinite().all()


def test_state_survives_save_and_load():
    options = {"mean_momentum": 0.9}
    method, task = ready(OBSERVED, **options)
    method.loss(Echo(), make_batch(IMAGES, task), make_progress(3, 10))
    method.review(IMAGES.flip(0).sigmoid(), make_progress(3, 10))
    method.loss(Echo(), make_batch(IMAGES, task), make_progress(4, 10))
    twin, _ = ready(OBSERVED, **options)
    twin.load_state_dict(method.state_dict())
    batch = [make_batch(-IMAGES, task, seed=3) for _ in range(2)]
    one = method.loss(Echo(), batch[0], make_progress(5, 10))
    other = twin.loss(Echo(), batch[1], make_progress(5, 10))
    assert torch.equal(one.total, other.total)
    assert torch.equal(method.estimates(), twin.estimates())


# -- options -----------------------------------------------------------------------------------


def test_priors_may_be_given_instead_of_clean_labels():
    blind = task_of(Y)
    method = DistPU(priors=PI)
    method.setup(Echo(), blind)
    assert in_warm_up(method, blind, Z).parts["alignment"].item() == pytest.approx(
        0.363838, abs=1e-6
    )
    with pytest.raises(AdagcError, match="Dist-PU needs priors"):
        DistPU().setup(Echo(), blind)


@pytest.mark.parametrize("priors", [[0.1, 0.2], [0.1, 0.2, 1.5], [0.1, 0.2, math.nan]])
def test_wrong_priors_are_one_line(priors):
    with pytest.raises(UsageError, match="must be 3 numbers between 0 and 1") as caught:
        DistPU(priors=priors).setup(Echo(), task_of(Y))
    assert "a, b, c" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mixup_that_never_mixes_is_refused():
    with pytest.raises(UsageError, match=r"method\.mixup must be at least 0\.1"):
        DistPU(mixup=0.0).check(task_of(Y, PI))


def test_the_right_frequency_is_learned_without_any_negative():
    """Two kinds of images, only one of them ever named: matching π finds the boundary."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(64) % 4 == 0
    images = torch.randn(64, 2, generator=generator) * 0.3 + truth.float().unsqueeze(1)
    observed = (truth & (torch.arange(64) < 32)).to(torch.int8).unsqueeze(1)
    task = Task(("a",), observed, 40, 1, 0, priors=truth.float().mean().reshape(1))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        network = nn.Linear(2, 1)
    method = DistPU(entropy=0.05)
    method.setup(network, task)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.2)
    for epoch in range(1, 41):
        progress = make_progress(epoch, 40)
        for _ in range(2):
            optimiser.zero_grad()
            method.loss(network, make_batch(images, task, seed=epoch), progress).total.backward()
            optimiser.step()
        if method.reviews(progress):
            method.review(network(images).detach().sigmoid(), progress)
    predicted = network(images).squeeze(1) > 0
    assert (predicted == truth).float().mean() > 0.9
    assert predicted[32:][truth[32:]].float().mean() > 0.7  # those nobody named
