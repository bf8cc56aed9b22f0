from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

from adagc import losses
from adagc.methods.adagc import AdaGC
from adagc.methods.state import Mixup
from adagc.metrics import score
from adagc.types import Scores, Verdict
from conftest import FixedLogits, TinyCNN, make_batch, make_progress, make_task

OBSERVED = torch.tensor(
    [[1, 0, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0], [0, 0, 0, 1], [1, -1, 0, 0], [0, 0, 1, 0]],
    dtype=torch.int8,
)
IMAGES = torch.rand(6, 3, 6, 6, generator=torch.Generator().manual_seed(1))


def ready(*, calibrating: bool = True, **options) -> tuple[AdaGC, TinyCNN]:
    """A method two steps into its life, on a network with batch normalisation."""
    network = TinyCNN()
    method = AdaGC(**options)
    method.setup(network, make_task(OBSERVED))
    optimiser = torch.optim.SGD(network.parameters(), lr=3.0)
    for step in range(2):
        network.train()
        method.loss(network, batch(step), make_progress()).total.backward()
        optimiser.step()
        optimiser.zero_grad()
        method.after_step(network)
    if calibrating:
        method.triggered_after = 1
    return method, network


def batch(seed: int = 0, images: Tensor = IMAGES):
    return make_batch(images, make_task(OBSERVED), seed=seed)


@torch.no_grad()
def probabilities(network: nn.Module) -> Tensor:
    """In evaluation mode, leaving the network as it was."""
    return copy.deepcopy(network).eval()(IMAGES).sigmoid()


# -- one step --------------------------------------------------------------------------------


def test_golden_value_and_gradient_of_a_step():
    z = torch.tensor([[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]])
    t = torch.tensor([[0.9, 0.2, 0.7], [0.4, 0.9, 0.05]])
    task = make_task(torch.tensor([[1, 0, 0], [0, 1, 0]], dtype=torch.int8))
    network = FixedLogits(z)
    # All of t comes from a teacher that is certain of t; the student's own view does not enter.
    method = AdaGC(weight=3.0, mixup=0.0, pseudo_labels="teacher")
    method.setup(network, task)
    method.teacher.network.logits.copy_(torch.logit(t))
    method.triggered_after = 1
    found = method.loss(network, make_batch(torch.zeros(2, 1), task), make_progress(2))
    assert found.total.item() == pytest.approx(0.057892, abs=1e-6)
    assert found.parts["assume_negative"].item() == pytest.approx(0.661108, abs=1e-6)
    assert found.parts["calibration"].item() == pytest.approx(-0.201072, abs=1e-6)
    found.total.backward()
    wanted = [[-0.377541, 0.144268, 0.305778], [0.072029, -0.310026, 0.103359]]
    torch.testing.assert_close(network.logits.grad * 6, torch.tensor(wanted), rtol=0, atol=2e-6)


def test_warm_up_is_assuming_negatives_and_feeds_the_memory():
    method, network = ready(calibrating=False)
    memory = method.memory.values.clone()
    with torch.no_grad():
        z = copy.deepcopy(network).train()(IMAGES)
    found = method.loss(network.train(), batch(), make_progress())
    wanted = losses.reduce(losses.binary_cross_entropy(z, (OBSERVED > 0).float()))
    torch.testing.assert_close(found.total, wanted)
    torch.testing.assert_close(method.memory.values, 0.8 * memory + 0.2 * z.sigmoid())
    assert method.memory.seen.all()
    assert not method.targets.seen.any()
    assert set(found.parts) == {"assume_negative"}


@pytest.mark.parametrize(("start", "factor"), [("first", 1.0), ("zeros", 0.2)])
def test_memory_starts_as_told(start, factor):
    network = TinyCNN()
    method = AdaGC(memory_start=start)
    method.setup(network, make_task(OBSERVED))
    with torch.no_grad():
        p = copy.deepcopy(network).train()(IMAGES).sigmoid()
    method.loss(network.train(), batch(), make_progress())
    torch.testing.assert_close(method.memory.values, factor * p)


@pytest.mark.parametrize("balance", [0.5, 0.2])
@pytest.mark.parametrize("kind", ["dual", "teacher", "student", "dual-raw", "raw"])
def test_pseudo_labels_are_made_of_what_their_name_says(kind, balance):
    method, network = ready(pseudo_labels=kind, balance=balance)
    p_s, p_t = probabilities(network), probabilities(method.teacher.network)
    averaged = 0.8 * method.memory.values + 0.2 * p_s  # updated before it is used
    wanted = {
        "dual": balance * p_t + (1 - balance) * averaged,
        "teacher": p_t,
        "student": averaged,
        "dual-raw": balance * p_t + (1 - balance) * p_s,
        "raw": p_s,
    }
    others = [t for name, t in wanted.items() if name != kind]
    assert all((wanted[kind] - t).abs().max() > 1e-3 for t in others)  # the test can tell
    method.loss(network.train(), batch(), make_progress(2))
    torch.testing.assert_close(method.targets.values, wanted[kind])
    torch.testing.assert_close(method.estimates(), wanted[kind])


def test_the_pass_for_pseudo_labels_leaves_batch_normalisation_alone():
    counts = {}
    for mode in ("eval", "train"):
        method, network = ready(student_mode=mode)
        before = int(network[1].num_batches_tracked)
        network.train()
        method.loss(network, batch(), make_progress(2))
        assert network.training
        counts[mode] = int(network[1].num_batches_tracked) - before
        assert method.teacher.network[1].num_batches_tracked == 2
    assert counts == {"eval": 1, "train": 2}


def by_hand(method: AdaGC, network: nn.Module, seed: int) -> tuple[Tensor, Tensor]:
    """L_AN and R of a step in stage 2, from the definitions."""
    t = 0.5 * probabilities(method.teacher.network)
    t = t + 0.5 * (0.8 * method.memory.values + 0.2 * probabilities(network))
    generator = torch.Generator().manual_seed(seed)
    mix = Mixup.draw(6, method.mixup, generator, per=method.mixup_per)
    y, unknown = (OBSERVED > 0).float(), (OBSERVED == 0).float()
    with torch.no_grad():
        p = copy.deepcopy(network).train()(mix(IMAGES)).sigmoid().double()
    mixed = mix(y).double()
    an = -(mixed * p.log() + (1 - mixed) * (1 - p).log())
    if method.mixup_mask == "strict":
        r = unknown * unknown[mix.partner] * (1 - p * mix(t)).log()
    elif method.mixup_mask == "soft":
        r = mix(unknown) * (1 - p * mix(t)).log()
    else:
        phi = mix.share.unsqueeze(1)
        own = unknown * (1 - p * t).log()
        other = unknown[mix.partner] * (1 - p * t[mix.partner]).log()
        r = phi * own + (1 - phi) * other
    return an.mean(), r.mean()


@pytest.mark.parametrize("per", ["batch", "sample"])
@pytest.mark.parametrize("mask", ["strict", "soft", "partners"])
def test_a_mixed_step_equals_its_definition(mask, per):
    method, network = ready(mixup_mask=mask, mixup_per=per, weight=5.0)
    an, r = by_hand(method, network, seed=9)
    found = method.loss(network.train(), batch(9), make_progress(2))
    assert found.parts["assume_negative"].item() == pytest.approx(an.item(), rel=1e-4)
    assert found.parts["calibration"].item() == pytest.approx(r.item(), rel=1e-4)
    assert found.total.item() == pytest.approx((an + 5 * r).item(), rel=1e-4)


@pytest.mark.parametrize("mask", ["strict", "soft", "partners"])
@pytest.mark.parametrize("mixup", [0.0, 1.0])
def test_entries_that_somebody_looked_at_are_never_calibrated(mixup, mask):
    """-1 and +1 alike: without an unobserved entry in the class, λ makes no difference."""
    observed = torch.tensor([[1, 0], [-1, 1], [-1, 1], [1, 0]], dtype=torch.int8)
    gradients = []
    for weight in (0.0, 7.0):
        network = FixedLogits(torch.tensor([[0.3, 1.0], [2.0, 0.1], [1.0, -1.0], [-0.7, 0.5]]))
        task = make_task(observed)
        method = AdaGC(weight=weight, mixup=mixup, mixup_mask=mask)
        method.setup(network, task)
        method.triggered_after = 1
        total = method.loss(network, make_batch(torch.zeros(4, 1), task), make_progress(2)).total
        (gradient,) = torch.autograd.grad(total, network.logits)
        gradients.append(gradient)
    assert torch.equal(gradients[0][:, 0], gradients[1][:, 0])
    if mask != "strict" or mixup == 0:
        assert not torch.equal(gradients[0][:, 1], gradients[1][:, 1])  # the test can fail


def test_weight_is_raised_over_the_ramp():
    method, network = ready(ramp_epochs=4, weight=8.0, mixup=0.0)
    factors = []
    for epoch in (2, 3, 5, 9):
        twin, net = copy.deepcopy(method), copy.deepcopy(network).train()
        found = twin.loss(net, batch(), make_progress(epoch, 9))
        factors.append(
            ((found.total - found.parts["assume_negative"]) / found.parts["calibration"]).item()
        )
    assert factors == pytest.approx([2.0, 4.0, 8.0, 8.0], rel=1e-4)


def test_gradients_are_those_of_full_precision_under_autocast():
    """The pass without gradient comes first and must not leave casts that carry none."""
    found = []
    for enabled in (False, True):
        method, network = ready(mixup=0.0)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            total = method.loss(network.train(), batch(), make_progress(2)).total
        total.backward()
        found.append(torch.cat([p.grad.flatten() for p in network.parameters()]))
    assert found[1].norm() > 0
    assert torch.cosine_similarity(found[0], found[1], dim=0) > 0.9


def test_the_teacher_follows_after_every_step():
    method, network = ready(calibrating=False)
    assert int(method.teacher.steps) == 2
    assert not torch.equal(method.teacher.network[0].weight, network[0].weight)
    assert method.watched(network) is method.teacher.network
    assert method.deployed(network) is network
    assert list(method.reported(network)) == ["network", "teacher"]


# -- what it does to a population ------------------------------------------------------------


class Shared(nn.Module):
    """Images that look alike: one logit for all of them."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.logit(torch.tensor([p])))

    def forward(self, images: Tensor) -> Tensor:
        return self.logit.expand(len(images), 1)


@pytest.mark.parametrize(("rate", "escapes"), [(0.10, False), (0.14, True)])
def test_a_population_escapes_above_its_critical_rate(rate, escapes):
    """λ = 3: r_crit = .118. Warm-up settles at the annotation rate, calibration decides."""
    count = 100
    observed = torch.zeros(count, 1, dtype=torch.int8)
    observed[: round(rate * count)] = 1
    network, task = Shared(0.4), make_task(observed)
    method = AdaGC(weight=3.0, mixup=0.0, teacher_momentum=0.5)
    method.setup(network, task)
    data = make_batch(torch.zeros(count, 1), task)

    def run(steps: int) -> float:
        for _ in range(steps):
            total = method.loss(network, data, make_progress(2)).total
            (slope,) = torch.autograd.grad(total, network.logit)
            with torch.no_grad():
                network.logit -= 6.0 * slope
            method.after_step(network)
        return network.logit.sigmoid().item()

    assert run(60) == pytest.approx(rate, abs=2e-3)
    method.triggered_after = 1
    assert (run(350) > 0.9) == escapes


# -- the trigger -----------------------------------------------------------------------------


def scores_of(value: float) -> Scores:
    table = score([[True, False], [False, True]], [[0.9, 0.1], [0.2, 0.8]])
    return Scores(**{**table.summary(), "mean_average_precision": value}, per_class=table.per_class)


def verdicts(method: AdaGC, values: list[float], epochs: int = 20) -> list[str]:
    """One letter per epoch; RESTORE is answered as the loop does."""
    said = []
    kept = None
    for epoch, value in enumerate(values, 1):
        progress = make_progress(epoch, epochs)
        verdict = method.end_epoch(scores_of(value), progress)
        if verdict is Verdict.KEEP:
            kept = copy.deepcopy(method.get_extra_state())
        elif verdict is Verdict.RESTORE:
            method.set_extra_state(kept)
            method.restored(progress)
        said.append(verdict.value[0].upper())
    return said


def quiet(**options) -> AdaGC:
    return AdaGC(**{"force_trigger": None, "minimum_warm_up": 0, **options})


def test_trigger_waits_for_the_patience_after_the_best_epoch():
    method = quiet(patience=3)
    said = verdicts(method, [0.1, 0.3, 0.2, 0.25, 0.29, 0.9, 0.1])
    assert said == ["K", "K", "C", "C", "R", "C", "C"]
    assert (method.best_epoch, method.triggered_after) == (2, 5)
    assert method.status() == {
        "stage": "calibration", "best_epoch": 2, "triggered_after": 5, "forced": False,
    }  # fmt: skip


def test_a_better_epoch_restarts_the_patience_and_a_tie_does_not():
    method = quiet(patience=2)
    assert verdicts(method, [0.3, 0.2, 0.4, 0.4, 0.4]) == ["K", "C", "K", "C", "R"]
    assert method.best_epoch == 3


def test_the_first_epochs_cannot_be_the_best():
    method = quiet(patience=2, minimum_warm_up=2)
    assert verdicts(method, [0.9, 0.8, 0.3, 0.2, 0.1]) == ["C", "C", "K", "C", "R"]
    assert method.best_epoch == 3


def test_without_restore_nothing_is_kept():
    method = quiet(patience=1, restore=False)
    assert verdicts(method, [0.3, 0.2, 0.4]) == ["C", "C", "C"]
    assert method.triggered_after == 2


def test_an_improving_teacher_is_waited_for_for_ever_if_told_so():
    method = quiet(patience=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(verdicts(method, [i / 20 for i in range(20)])) == {"K"}
    assert not method.calibrating


def test_calibration_is_forced_in_time_with_a_warning():
    method = AdaGC(force_trigger=0.5, patience=5)
    with pytest.warns(UserWarning, match="after epoch 5 of 10"):
        said = verdicts(method, [i / 20 for i in range(10)], epochs=10)
    assert method.triggered_after == 5
    assert method.forced
    assert "by force" in method.status()["remark"]
    # Epoch 5 is the best itself: nothing to go back to, nothing to keep.
    assert said == ["C", "C", "K", "K", "C", "C", "C", "C", "C", "C"]


def test_forced_after_a_worse_epoch_it_still_goes_back_to_the_best():
    method = AdaGC(force_trigger=0.5, patience=5)
    with pytest.warns(UserWarning, match="has not stood still"):
        said = verdicts(method, [0.1, 0.2, 0.5, 0.6, 0.4, 0.3], epochs=10)
    assert said == ["C", "C", "K", "K", "R", "C"]
    assert (method.best_epoch, method.triggered_after) == (4, 5)
    assert method.forced
    resumed = AdaGC(force_trigger=0.5, patience=5)
    assert "remark" not in resumed.status()
    resumed.set_extra_state(method.get_extra_state())
    assert resumed.status() == method.status()


def test_patience_that_runs_out_in_time_does_not_warn():
    method = AdaGC(force_trigger=0.5, patience=2, minimum_warm_up=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdicts(method, [0.1, 0.5, 0.4, 0.3, 0.2, 0.1], epochs=10)
    assert method.triggered_after == 4
    assert not method.forced
    asked = AdaGC(trigger_epoch=2)
    verdicts(asked, [0.1, 0.2, 0.3], epochs=10)
    assert (asked.triggered_after, asked.forced) == (2, False)


@pytest.mark.parametrize(("epochs", "share", "wanted"), [(11, 0.6, 7), (7, 0.5, 4), (4, 0.6, 2)])
def test_the_forced_trigger_is_at_the_nearest_epoch(epochs, share, wanted):
    method = AdaGC(force_trigger=share, patience=99)
    with pytest.warns(UserWarning, match=f"after epoch {wanted} of {epochs}"):
        verdicts(method, [i / 20 for i in range(epochs)], epochs=epochs)
    assert method.triggered_after == wanted


def test_a_fixed_trigger_ignores_the_scores():
    method = AdaGC(trigger_epoch=3, patience=1, force_trigger=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert verdicts(method, [0.9, 0.1, 0.1, 0.1]) == ["C", "C", "C", "C"]
    assert method.triggered_after == 3


def test_scores_that_are_not_numbers_are_never_the_best():
    method = quiet(patience=1)
    assert verdicts(method, [float("nan"), 0.2, float("nan")]) == ["C", "K", "R"]


def test_state_survives_in_the_middle_of_calibration(tmp_path):
    method, network = ready()
    method.best_epoch, method.best_score = 1, 0.25
    method.loss(network.train(), batch(3), make_progress(2))
    torch.save({"m": method.state_dict(), "n": network.state_dict()}, tmp_path / "x.ckpt")
    state = torch.load(tmp_path / "x.ckpt", weights_only=True)
    twin, net = AdaGC(), TinyCNN(seed=4)
    twin.setup(net, make_task(OBSERVED))
    net.load_state_dict(state["n"])
    twin.load_state_dict(state["m"])
    assert twin.calibrating
    assert (twin.best_epoch, twin.best_score, twin.triggered_after) == (1, 0.25, 1)
    one = method.loss(network.train(), batch(5), make_progress(2))
    other = twin.loss(net.train(), batch(5), make_progress(2))
    assert torch.equal(one.total, other.total)
    for name, value in method.state_dict().items():
        if isinstance(value, Tensor):
            assert torch.equal(value, twin.state_dict()[name]), name


def test_a_teacher_without_warm_up_follows_at_its_momentum_from_the_first_step():
    method, network = ready(teacher_warm_up=False, teacher_momentum=0.5)
    before = method.teacher.network[0].weight.clone()
    method.after_step(network)
    wanted = 0.5 * before + 0.5 * network[0].weight.detach()
    torch.testing.assert_close(method.teacher.network[0].weight, wanted)
    warming, network = ready(teacher_warm_up=True, teacher_momentum=0.5)
    assert warming.teacher.warm_up


def test_without_mixup_nothing_is_drawn():
    method, network = ready(mixup=0.0)
    one = batch()
    before = one.generator.get_state()
    method.loss(network, one, make_progress())
    assert torch.equal(one.generator.get_state(), before)


def test_it_goes_back_even_to_the_first_epoch():
    assert verdicts(quiet(patience=2), [0.9, 0.5, 0.4]) == ["K", "C", "R"]
