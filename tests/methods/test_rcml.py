from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adagc.errors import AdagcError
from adagc.methods.rcml import RCML, discrepancy, ranking_errors, undoubted
from adagc.types import Losses, Task
from conftest import FixedLogits, make_batch, make_classifier, make_progress, make_task
from reference import slow_rcml as slow

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]
OBSERVED = torch.tensor(
    [[1, 0, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0], [0, 0, 0, 1], [1, -1, 0, 0], [0, 0, 1, 0]],
    dtype=torch.int8,
)


class Fixed(FixedLogits):
    """Its own parameters as logits and as early features."""

    def __init__(self, logits: Tensor, early: Tensor, *, half: bool = False) -> None:
        super().__init__(logits, half=half)
        self.early = nn.Parameter(early.clone())

    def logits_and_early_features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        early = self.early[: len(images)]
        return self(images), early.half() if self.half_precision else early


def generated(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ready(f: nn.Module, g: nn.Module, observed: Tensor = OBSERVED, **options) -> tuple[RCML, Task]:
    task = dataclasses.replace(make_task(observed), fresh=lambda _seed: g)
    method = RCML(**options)
    method.setup(f, task)
    return method, task


def fixed_pair(rows: int = 6, columns: int = 4, width: int = 3) -> tuple[Fixed, Fixed]:
    return (
        Fixed(generated(rows, columns, seed=1), generated(rows, width, seed=2)),
        Fixed(generated(rows, columns, seed=3), generated(rows, width, seed=4) + 1),
    )


def step(method: RCML, f: nn.Module, task: Task, *, epoch: int = 99, seed: int = 0) -> Losses:
    images = torch.zeros(len(task.observed), 1)
    return method.loss(f, make_batch(images, task, seed=seed), make_progress(epoch, 100))


# -- doubt and selection -----------------------------------------------------------------------


def test_golden_errors():
    found = ranking_errors(torch.tensor(Z).sigmoid(), torch.tensor(Y, dtype=torch.int8))
    wanted = torch.tensor([[0, 0.292964, 1.516675], [0.471166, 0, 0]])
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


@st.composite
def labelled(draw):
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    p = [[draw(st.floats(0, 1, width=32)) for _ in range(columns)] for _ in range(rows)]
    y = [[draw(st.sampled_from([1, 0, 0, -1])) for _ in range(columns)] for _ in range(rows)]
    return p, y


@settings(max_examples=80, deadline=None)
@given(labelled())
def test_errors_agree_with_their_slow_twin_for_any_number_of_positives(problem):
    p, y = problem
    found = ranking_errors(torch.tensor(p), torch.tensor(y, dtype=torch.int8))
    wanted = torch.tensor(slow.ranking_errors(p, y))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(labelled(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.875, 1.0]), st.integers(0, 3))
def test_selection_agrees_with_its_slow_twin(problem, share, seed):
    _, y = problem
    observed = torch.tensor(y, dtype=torch.int8)
    generator = torch.Generator().manual_seed(seed)
    errors = torch.rand(observed.shape, generator=generator)  # no ties
    found = undoubted(errors, observed == 0, share, torch.Generator().manual_seed(9))
    wanted = torch.tensor(slow.kept(errors.tolist(), y, share))
    assert torch.equal(found | (observed != 0), wanted)
    assert not (found & (observed != 0)).any()


def test_equal_errors_are_dropped_by_chance_and_for_each_class_alone():
    errors, among = torch.ones(10, 6), torch.ones(10, 6, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    masks = torch.stack([undoubted(errors, among, 0.8, generator) for _ in range(300)])
    assert (masks.sum(dim=1) == 8).all()  # of every class, every time
    rate = masks.float().mean(dim=0)
    assert ((rate - 0.8).abs() < 0.12).all()  # no image is favoured
    alike = (masks == masks[:, :, :1]).all(dim=1)
    assert alike[:, 1:].float().mean() < 0.1  # classes do not drop the same images


def test_ties_follow_the_batch_generator():
    errors, among = torch.zeros(8, 3), torch.ones(8, 3, dtype=torch.bool)

    def draw(seed: int) -> Tensor:
        return undoubted(errors, among, 0.5, torch.Generator().manual_seed(seed))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_chance_never_overrules_a_difference():
    errors = torch.tensor([[0.0], [1.0], [0.0], [2.0], [0.0], [1.0]])
    among = torch.ones(6, 1, dtype=torch.bool)
    for seed in range(20):
        found = undoubted(errors, among, 5 / 6, torch.Generator().manual_seed(seed))
        assert found.squeeze(1).tolist() == [True, True, True, False, True, True]


def test_an_image_without_any_positive_has_no_doubts():
    observed = torch.tensor([[0, 0, -1], [0, 1, 0]], dtype=torch.int8)
    found = ranking_errors(torch.tensor([[0.9, 0.9, 0.9], [0.9, 0.1, 0.2]]), observed)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0, 0], [2.6, 0, 1.2]]))


def test_each_network_learns_what_the_other_does_not_doubt():
    """The swap: f's gradient is zero exactly where g ranks high, and the other way round."""
    f, g = fixed_pair()
    method, task = ready(f, g, keep=0.5, ramp_epochs=0, agreement=0.0, diversity=0.0)
    step(method, f, task).total.backward()
    y = OBSERVED.tolist()
    for learner, judge in ((f, g), (g, f)):
        p = judge.logits.detach().sigmoid()
        mask = torch.tensor(slow.kept(slow.ranking_errors(p.tolist(), y), y, 0.5))
        assert torch.equal(learner.logits.grad != 0, mask)
    assert not torch.equal(f.logits.grad != 0, g.logits.grad != 0)  # the test can tell


def test_what_was_observed_is_never_dropped():
    f, g = fixed_pair()
    method, task = ready(f, g, keep=0.0, ramp_epochs=0, agreement=0.0, diversity=0.0)
    step(method, f, task).total.backward()
    for network in (f, g):
        assert torch.equal(network.logits.grad != 0, OBSERVED != 0)
        assert (network.logits.grad[OBSERVED > 0] < 0).all()
        assert (network.logits.grad[OBSERVED < 0] > 0).all()


def test_the_share_falls_from_all_to_keep():
    f, g = fixed_pair()
    method, _ = ready(f, g, keep=0.6, ramp_epochs=4)
    shares = [method._share(make_progress(epoch, 10)) for epoch in range(1, 8)]
    assert shares == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6, 0.6, 0.6])
    method, _ = ready(f, g, keep=0.6, ramp_epochs=0)
    assert method._share(make_progress(1, 10)) == 0.6


def test_the_first_epoch_drops_nothing():
    f, g = fixed_pair()
    method, task = ready(f, g, keep=0.1, agreement=0.0, diversity=0.0)
    step(method, f, task, epoch=1).total.backward()
    assert (f.logits.grad != 0).all()
    assert (g.logits.grad != 0).all()


# -- discrepancy -------------------------------------------------------------------------------


@st.composite
def pairs(draw):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    value = st.integers(-40, 40).map(lambda v: v / 8)
    make = st.lists(
        st.lists(value, min_size=columns, max_size=columns), min_size=rows, max_size=rows
    )
    return draw(make), draw(make)


@settings(max_examples=80, deadline=None)
@given(pairs(), st.sampled_from([None, 0.5, 10.0, 1e4]))
def test_discrepancy_agrees_with_its_slow_twin(pair, sigma):
    x, y = pair
    rows = [*x, *y]
    middle = sorted(slow.squared(rows[a], rows[b]) for a in range(len(rows)) for b in range(a))
    if sigma is None and middle[(len(middle) - 1) // 2] == 0:
        return  # without a width of its own, see the degenerate cases below
    found = discrepancy(torch.tensor(x), torch.tensor(y), sigma)
    assert found.item() == pytest.approx(slow.discrepancy(x, y, sigma), abs=2e-5)
    assert -1e-5 <= found.item() <= 2 + 1e-5


def test_discrepancy_does_not_grow_with_distance():
    """Pushing features apart pays at most λ_F times 2: it cannot outweigh everything else."""
    x = generated(8, 5, seed=0)
    for offset in (1e1, 1e3, 1e5):
        far = (x + offset).requires_grad_()
        for sigma in (None, 1.0):
            value = discrepancy(x, far, sigma)
            (gradient,) = torch.autograd.grad(value, far)
            assert value <= 2
            assert gradient.isfinite().all()


def test_the_median_width_does_not_mind_the_scale():
    x, y = generated(8, 5, seed=0), generated(8, 5, seed=1) + 0.5
    wanted = discrepancy(x, y)
    assert wanted > 0.05
    for scale in (1e-3, 1e3):
        torch.testing.assert_close(discrepancy(scale * x, scale * y), wanted, atol=1e-4, rtol=1e-4)


def test_a_common_offset_costs_no_digits():
    x, y = generated(8, 5, seed=0), generated(8, 5, seed=1) + 0.5
    torch.testing.assert_close(
        discrepancy(x + 300, y + 300), discrepancy(x, y), atol=1e-3, rtol=1e-3
    )


def test_the_width_carries_no_gradient():
    x, y = generated(6, 4, seed=0), generated(6, 4, seed=1)
    rows = torch.cat([x, y])
    one, other = torch.triu_indices(12, 12, offset=1)
    median = float((rows[one] - rows[other]).square().sum(dim=1).median())
    gradients = []
    for sigma in (None, median):
        leaf = x.clone().requires_grad_()
        discrepancy(leaf, y, sigma).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e4, -300.0])
@pytest.mark.parametrize("rows", [1, 5])
def test_equal_rows_have_no_discrepancy_and_finite_gradients(value, rows):
    """Two pretrained networks start with the same early features."""
    x = torch.full((rows, 3), value, requires_grad=True)
    y = torch.full((rows, 3), value, requires_grad=True)
    found = discrepancy(x, y)
    found.backward()
    assert found.item() == pytest.approx(0, abs=1e-5)
    assert x.grad.abs().max() < 1e-3
    assert y.grad.abs().max() < 1e-3


def test_half_precision_features_are_compared_in_full():
    x, y = generated(6, 40, seed=0).half(), generated(6, 40, seed=1).half()
    wanted = discrepancy(x.float(), y.float())
    torch.testing.assert_close(discrepancy(x, y), wanted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(discrepancy(x.float(), y.float()), wanted)


# -- both together -----------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [None, 7.0])
def test_the_loss_agrees_with_its_slow_twin(sigma):
    f, g = fixed_pair()
    weights = {"agreement": 0.3, "diversity": 2.0, "sigma": sigma}
    method, task = ready(f, g, keep=0.75, ramp_epochs=0, **weights)
    found = step(method, f, task)
    y = OBSERVED.tolist()
    z = {net: net.logits.detach().tolist() for net in (f, g)}
    own = {}
    for learner, judge in ((f, g), (g, f)):
        p = judge.logits.detach().sigmoid().tolist()
        mask = slow.kept(slow.ranking_errors(p, y), y, 0.75)
        own[learner] = slow.loss(z[learner], y, mask)
    logits = slow.discrepancy(z[f], z[g], sigma)
    early = slow.discrepancy(f.early.detach().tolist(), g.early.detach().tolist(), sigma)
    wanted = {"network": own[f], "peer": own[g], "logit_gap": logits, "feature_gap": early}
    for name, value in wanted.items():
        assert found.parts[name].item() == pytest.approx(value, abs=2e-5), name
    total = own[f] + own[g] + (0.3 * logits - 2.0 * early) / 4
    assert found.total.item() == pytest.approx(total, abs=2e-5)


def test_logits_are_drawn_together_and_early_features_apart():
    f, g = fixed_pair()
    before = [(f.logits - g.logits).norm().item(), (f.early - g.early).norm().item()]
    weights = {"agreement": 50.0, "diversity": 50.0, "sigma": None}
    method, task = ready(f, g, keep=0.0, ramp_epochs=0, **weights)
    optimiser = torch.optim.SGD(method.parameter_groups(f, 0.1))
    for _ in range(20):
        optimiser.zero_grad()
        step(method, f, task).total.backward()
        optimiser.step()
    after = [(f.logits - g.logits).norm().item(), (f.early - g.early).norm().item()]
    assert after[0] < before[0]
    assert after[1] > before[1]


def test_doubt_carries_no_gradient():
    f, g = fixed_pair()
    method, task = ready(f, g, keep=0.5, ramp_epochs=0, agreement=0.0, diversity=0.0)
    found = step(method, f, task)
    others = torch.autograd.grad(found.parts["network"], [g.logits, g.early], allow_unused=True)
    assert others == (None, None)


HARD = {
    "batch of one": [[1, 0, 0, 0]],
    "class without positive": [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, -1]],
    "nothing observed": [[0, 0, 0, 0]] * 3,
    "all positive": [[1, 1, 1, 1]] * 3,
    "all absent": [[-1, -1, -1, -1]] * 3,
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize("half", [False, True])
def test_hard_batches_stay_finite(case, scale, half):
    observed = torch.tensor(HARD[case], dtype=torch.int8)
    rows = len(observed)
    logits = scale * generated(rows, 4, seed=1).sign()
    early = torch.zeros(rows, 2)
    f, g = Fixed(logits, early, half=half), Fixed(-logits, early, half=half)
    method, task = ready(f, g, observed, keep=0.5, ramp_epochs=0)
    found = step(method, f, task)
    found.total.backward()
    assert found.total.isfinite()
    for network in (f, g):
        assert network.logits.grad.isfinite().all()
        assert network.early.grad.isfinite().all()


# -- the second network ------------------------------------------------------------------------


def test_the_peer_is_another_network_from_another_seed_and_is_trained_too():
    seeds = []

    def fresh(seed: int) -> nn.Module:
        seeds.append(seed)
        return make_classifier(seed=seed)

    network, images = make_classifier(), generated(6, 6, seed=0)
    task = dataclasses.replace(make_task(OBSERVED), fresh=fresh)
    method = RCML()
    method.setup(network, task)
    assert seeds == [task.seed + 1]
    reported = method.reported(network)
    assert list(reported) == ["network", "peer"]
    assert reported["network"] is network
    assert method.deployed(network) is network
    peer = reported["peer"]
    assert not torch.equal(peer.head.weight, network.head.weight)

    before = {name: p.detach().clone() for name, p in peer.named_parameters()}
    optimiser = torch.optim.Adam(method.parameter_groups(network, 0.01))
    method.train()
    method.loss(network, make_batch(images, task), make_progress()).total.backward()
    optimiser.step()
    for name, parameter in peer.named_parameters():
        assert not torch.equal(parameter, before[name]), name
    trained = [p for group in optimiser.param_groups for p in group["params"]]
    assert len(trained) == len(list(network.parameters())) + len(list(peer.parameters()))


def test_state_survives_save_and_load():
    task = dataclasses.replace(make_task(OBSERVED), fresh=lambda seed: make_classifier(seed=seed))
    network, images = make_classifier(), generated(6, 6, seed=0)
    method, twin = RCML(), RCML()
    method.setup(network, task)
    twin.setup(network, dataclasses.replace(task, seed=50))
    twin.load_state_dict(method.state_dict())
    found = [
        each.loss(network, make_batch(images, task, seed=5), make_progress(3, 4)).total
        for each in (method, twin)
    ]
    assert torch.equal(*found)


def test_what_is_missing_is_one_line_with_a_remedy():
    f, g = fixed_pair()
    with pytest.raises(AdagcError, match=r"second network.*Task\.fresh") as caught:
        RCML().setup(f, make_task(OBSERVED))
    assert "\n" not in str(caught.value)
    with pytest.raises(AdagcError, match=r"early features.*Classifier") as caught:
        ready(nn.Linear(4, 4), g)
    assert "\n" not in str(caught.value)


def test_dropping_what_the_other_doubts_lets_missed_labels_survive():
    """Labels that were missed at random rise above those that assuming negative leaves."""
    truth = generated(96, 4, seed=0) > 0
    truth[torch.arange(96), torch.arange(96) % 4] = True
    images = truth.float() * 2 - 1 + 0.1 * generated(96, 4, seed=1)
    # one of the present classes, at random
    chosen = torch.where(truth, generated(96, 4, seed=2).abs(), -1.0).argmax(dim=1)
    observed = torch.nn.functional.one_hot(chosen, 4).to(torch.int8)
    task = dataclasses.replace(
        make_task(observed), fresh=lambda seed: make_classifier((4,), seed=seed)
    )
    recall = {}
    for keep in (1.0, 0.7):
        network = make_classifier((4,))
        method = RCML(keep=keep, ramp_epochs=5, sigma=None)
        method.setup(network, task)
        optimiser = torch.optim.Adam(method.parameter_groups(network, 0.04))
        for epoch in range(1, 31):
            optimiser.zero_grad()
            batch = make_batch(images, task, seed=epoch)
            method.loss(network, batch, make_progress(epoch, 30)).total.backward()
            optimiser.step()
        p = network(images).detach().sigmoid()
        recall[keep] = (p > 0.5)[truth].float().mean().item()
        assert p[truth].mean() > p[~truth].mean() + 0.2
    assert recall[0.7] > recall[1.0] + 0.2


# -- as the released code compares the networks ---------------------------------------------------


def test_whole_maps_are_compared_where_they_are_asked_for():
    """The stage before the last of the tiny network has 16 x 16 positions; 8 x 8 when pooled."""

    def make(seed: int) -> nn.Module:
        return make_classifier((3, 64, 64), backbone="test_resnet", seed=seed).eval()

    images = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    f, g = make(0), make(1)
    stage = {}
    for name, net in (("f", f), ("g", g)):
        hook = net.backbone.early_stage().register_forward_hook(
            lambda _m, _i, output, name=name: stage.update({name: output.detach()})
        )
        pooled, whole = (net.logits_and_early_features(images, whole=w)[1] for w in (False, True))
        hook.remove()
        side = stage[name].shape[-1]
        assert side > 8
        assert torch.equal(whole, stage[name].flatten(1))
        assert pooled.shape[1] * side**2 == whole.shape[1] * 64
        assert net.logits_and_early_features(images)[1].shape == pooled.shape
    observed = OBSERVED[:4]
    gaps = {}
    for features in ("pooled", "whole"):
        method, task = ready(f, g, observed, sigma=1e4, features=features)
        batch = make_batch(images, task)
        gaps[features] = method.loss(f, batch, make_progress()).parts["feature_gap"].item()
    x, y = (stage[name].flatten(1).double().tolist() for name in ("f", "g"))
    assert gaps["whole"] == pytest.approx(slow.discrepancy(x, y, 1e4), abs=1e-5)
    assert gaps["whole"] > 2 * gaps["pooled"] > 0


def test_the_width_is_that_of_the_released_code():
    f, g = fixed_pair()
    totals = {}
    for name, options in {
        "plain": {},
        "released": {"sigma": 1e4},
        "median": {"sigma": None},
    }.items():
        method, task = ready(f, g, **options)
        totals[name] = step(method, f, task).total.item()
    assert totals["plain"] == totals["released"] != totals["median"]


def test_golden_discrepancies_of_the_two_widths():
    """By hand: distances within a set are 0, the four others are 25, and so is the median."""
    x, y = torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    assert discrepancy(x, y).item() == pytest.approx(2 - 2 * math.exp(-1), abs=1e-6)
    assert discrepancy(x, y, 1e4).item() == pytest.approx(2 - 2 * math.exp(-0.0025), abs=1e-6)
