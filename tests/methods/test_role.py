from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagc.errors import AdagcError, UsageError
from adagc.methods.role import Role, RoleOracle
from adagc.types import Batch, Task
from conftest import FixedLogits, make_batch, make_progress, make_task
from reference import slow_role as slow

Z = torch.tensor([[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]])
Y = torch.tensor([[1, 0, 0], [0, 1, -1]], dtype=torch.int8)
THETA = torch.tensor([[4.0, 0.3, -0.2], [-0.4, 5.0, -3.0]])


def ready(z: Tensor = Z, y: Tensor = Y, theta: Tensor = THETA, **options):
    """A method with these estimates and its network."""
    network = FixedLogits(z)
    method = Role(**options)
    method.setup(network, make_task(y))
    with torch.no_grad():
        method.theta.copy_(theta)
    return method, network


def step(method: Role, network: FixedLogits, y: Tensor = Y):
    return method.loss(network, make_batch(torch.zeros(len(y), 1), make_task(y)), make_progress())


# -- the two halves --------------------------------------------------------------------------


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))

    def matrix(entries):
        return [[draw(entries) for _ in range(columns)] for _ in range(rows)]

    logits = st.floats(-30, 30, width=32)
    y = matrix(st.sampled_from((1, 0, 0, -1)))
    return matrix(logits), matrix(logits), y, draw(st.floats(0, 5))


@settings(max_examples=40, deadline=None)
@given(problems())
def test_values_and_gradients_agree_with_the_slow_twin(problem):
    z, theta, y, k = problem
    observed = torch.tensor(y, dtype=torch.int8)
    method, network = ready(
        torch.tensor(z, dtype=torch.float64), observed, torch.tensor(theta), expected=k
    )
    found = step(method, network, observed)
    first, second = slow.half(z, theta, y, k), slow.half(theta, z, y, k)
    assert found.parts["network"].item() == pytest.approx(first, rel=1e-5, abs=1e-6)
    assert found.parts["estimates"].item() == pytest.approx(second, rel=1e-5, abs=1e-6)
    assert found.total.item() == pytest.approx((first + second) / 2, rel=1e-5, abs=1e-6)
    found.total.backward()
    # Each side has half the gradient of its own half and nothing of the other.
    for parameter, mine, other in ((network.logits, z, theta), (method.theta, theta, z)):
        wanted = torch.tensor(slow.gradient(mine, other, y, k)) / 2
        torch.testing.assert_close(parameter.grad.float(), wanted, rtol=1e-4, atol=1e-6)


def test_neither_half_reaches_the_other_side():
    method, network = ready()
    parts = step(method, network).parts
    both = (network.logits, method.theta)
    of_network = torch.autograd.grad(parts["network"], both, allow_unused=True)
    of_estimates = torch.autograd.grad(parts["estimates"], both, allow_unused=True)
    assert of_network[1] is None
    assert of_estimates[0] is None
    assert of_network[0].abs().min() > 0
    assert of_estimates[1].abs().min() > 0


def test_the_observed_positive_is_in_the_cross_term_too():
    method, network = ready(
        torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.int8), torch.zeros(1, 1)
    )
    wanted = math.log(2) + math.log(2) + (0.5 - 1) ** 2  # the label, CE(½, ½), the gap to k = 1
    found = step(method, network, torch.ones(1, 1, dtype=torch.int8))
    assert found.total.item() == pytest.approx(wanted, abs=1e-6)


def test_rows_are_found_by_index_not_by_position_in_the_batch():
    method, network = ready()
    swapped = Batch(torch.zeros(2, 1), Y, torch.tensor([1, 0]), torch.Generator())
    found = method.loss(network, swapped, make_progress()).parts["network"].item()
    theta = THETA[[1, 0]].tolist()
    assert found == pytest.approx(slow.half(Z.tolist(), theta, Y.tolist(), 1.0), rel=1e-5)


@pytest.mark.parametrize("half", [False, True])
def test_extreme_logits_stay_finite(half):
    z = torch.tensor([[60.0, -60.0, 60.0], [-60.0, 60.0, -60.0]])
    method, _ = ready(theta=-z)
    network = FixedLogits(z, half=half)
    found = step(method, network)
    found.total.backward()
    assert found.total.dtype == torch.float32
    assert found.total.isfinite()
    assert network.logits.grad.isfinite().all()
    assert method.theta.grad.isfinite().all()


# -- the estimates ---------------------------------------------------------------------------


def big_task(seed: int = 0, **changes) -> Task:
    observed = torch.zeros(400, 5, dtype=torch.int8)
    observed[torch.arange(400), torch.arange(400) % 5] = 1
    observed[::7, 2] = -1
    return replace(make_task(observed), seed=seed, **changes)


def test_estimates_start_sure_or_undecided():
    task = big_task()
    method = Role()
    method.setup(FixedLogits(torch.zeros(1, 5)), task)
    g = method.estimates()
    assert not g.requires_grad
    torch.testing.assert_close(g[task.observed > 0], torch.tensor(0.995).expand(400 - 12))
    torch.testing.assert_close(g[task.observed < 0], torch.tensor(0.005).expand(58))
    undecided = g[task.observed == 0]
    assert 0.4 <= undecided.min() < 0.402
    assert 0.598 < undecided.max() <= 0.6
    assert undecided.mean().item() == pytest.approx(0.5, abs=0.01)
    # Uniform in the logits: their standard deviation is q / √3.
    spread = torch.logit(undecided).std().item()
    assert spread == pytest.approx(math.log(0.6 / 0.4) / math.sqrt(3), rel=0.05)


def test_the_start_depends_on_the_seed_of_the_task_alone():
    def theta(seed: int, noise: int) -> Tensor:
        torch.manual_seed(noise)
        state = torch.get_rng_state()
        method = Role()
        method.setup(FixedLogits(torch.zeros(1, 5)), big_task(seed))
        assert torch.equal(torch.get_rng_state(), state)
        return method.theta.detach()

    assert torch.equal(theta(1, 0), theta(1, 5))
    assert not torch.equal(theta(1, 0), theta(2, 0))


def test_half_width_zero_starts_at_one_half():
    method = Role(half_width=0.0)
    method.setup(FixedLogits(torch.zeros(1, 5)), big_task())
    assert torch.equal(method.theta[method.unobserved], torch.zeros(1554))


def test_status_is_the_mean_estimate_of_unobserved_entries():
    method, _ = ready()
    mean = THETA[Y == 0].sigmoid().mean().item()
    assert method.status()["mean_estimate"] == pytest.approx(mean)
    everything = torch.ones(2, 3, dtype=torch.int8)
    method, _ = ready(y=everything)
    assert method.status() == {"mean_estimate": None}


def test_adam_is_dense_and_rows_outside_the_batch_move_on_by_momentum():
    observed = torch.eye(4, dtype=torch.int8)
    task = make_task(observed)
    network = FixedLogits(torch.zeros(2, 4))
    method = Role(rate=10.0)
    method.setup(network, task)
    start = method.theta.detach().clone()
    optimiser = torch.optim.Adam(method.parameter_groups(network, 1e-3))
    gradients, path = [], []
    for rows in ([0, 1], [2, 3], [2, 3], [0, 2]):
        index = torch.tensor(rows)
        batch = Batch(torch.zeros(2, 1), observed[index], index, torch.Generator())
        optimiser.zero_grad()
        method.loss(network, batch, make_progress()).total.backward()
        assert not method.theta.grad.is_sparse
        gradients.append(method.theta.grad.clone())
        optimiser.step()
        path.append((method.theta.detach() - start).clone())
    assert gradients[0][2:].abs().max() == 0
    assert gradients[1][:2].abs().max() == 0
    assert torch.equal(path[0][2:], torch.zeros(2, 4))  # no momentum yet, no move
    moved = (path[1] - path[0])[:2]
    assert moved.abs().min() > 1e-3  # a tenth of lr * rate and more without a gradient
    assert torch.equal(moved.sign(), path[0][:2].sign())
    for i in range(4):
        for c in range(4):
            wanted = slow.adam([g[i, c].item() for g in gradients], lr=1e-2)
            assert [p[i, c].item() for p in path] == pytest.approx(wanted, rel=1e-3, abs=1e-6)


def test_estimates_know_neither_weight_decay_nor_clipping():
    method, network = ready(rate=30.0)
    ours, theirs = method.parameter_groups(network, 2e-3)
    assert ours["params"] == [network.logits]
    assert ours["lr"] == 2e-3
    assert theirs["params"] == [method.theta]
    assert theirs["lr"] == pytest.approx(6e-2)
    assert theirs["clip"] is False
    optimiser = torch.optim.Adam([ours, theirs], weight_decay=0.5)
    one = Batch(torch.zeros(1, 1), Y[:1], torch.tensor([0]), torch.Generator())
    method.loss(network, one, make_progress()).total.backward()
    optimiser.step()
    assert torch.equal(method.theta[1], THETA[1])  # not in the batch: no gradient, no decay
    assert not torch.equal(method.theta[0], THETA[0])


def test_training_resumes_bit_for_bit():
    def train(method, network, optimiser, steps):
        for _ in range(steps):
            optimiser.zero_grad()
            step(method, network).total.backward()
            optimiser.step()

    method, network = ready()
    optimiser = torch.optim.Adam(method.parameter_groups(network, 0.01))
    train(method, network, optimiser, 2)
    saved = [part.state_dict() for part in (method, network, optimiser)]
    saved = torch.load(_file(saved), weights_only=True)
    train(method, network, optimiser, 3)

    twin, other = ready(theta=torch.zeros(2, 3))
    again = torch.optim.Adam(twin.parameter_groups(other, 0.01))
    for part, state in zip((twin, other, again), saved, strict=True):
        part.load_state_dict(state)
    train(twin, other, again, 3)
    assert torch.equal(twin.theta, method.theta)
    assert torch.equal(other.logits, network.logits)
    assert twin.status() == method.status()


def _file(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


# -- k ---------------------------------------------------------------------------------------


def test_a_larger_k_lifts_the_estimates():
    found = []
    for k in (0.0, 3.0):
        method, network = ready(theta=torch.zeros(2, 3), expected=k)
        optimiser = torch.optim.Adam(method.parameter_groups(network, 0.01))
        for _ in range(100):
            optimiser.zero_grad()
            step(method, network).total.backward()
            optimiser.step()
        found.append(method.status()["mean_estimate"])
    assert found[1] > found[0] + 0.1


def test_oracle_takes_k_from_the_priors():
    network = FixedLogits(Z)
    task = replace(make_task(Y), priors=torch.tensor([0.9, 0.8, 0.55]))
    oracle, told = RoleOracle(), Role(expected=2.25)
    for method in (oracle, told):
        method.setup(network, task)
    torch.testing.assert_close(step(oracle, network).total, step(told, network).total)
    with pytest.raises(AdagcError, match="ROLE-oracle needs priors"):
        RoleOracle().setup(network, make_task(Y))


def test_a_number_of_labels_that_is_set_does_not_follow_from_priors():
    network, priors = FixedLogits(Z), torch.tensor([0.9, 0.8, 0.55])
    for told, expected, k in (
        (None, None, 1.0),  # as published
        (priors, None, 2.25),
        (None, 3.0, 3.0),
        (priors, 3.0, 3.0),
        (priors, 1.0, 1.0),
    ):
        method = Role(expected=expected)
        method.setup(network, replace(make_task(Y), priors=told))
        assert method.k == pytest.approx(k)


@pytest.mark.parametrize("options", [{"expected": -1.0}, {"rate": -1.0}, {"half_width": 0.5}])
def test_senseless_options_are_refused(options):
    with pytest.raises(UsageError, match=next(iter(options)).replace("_", "-")):
        Role(**options).check(make_task(Y))
