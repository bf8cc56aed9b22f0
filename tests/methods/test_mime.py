from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adagc.errors import UsageError
from adagc.methods.mime import MIME, divergence
from adagc.models import HeadSpec, ModelSpec, build
from adagc.models.label_wise import BottleneckHead
from adagc.types import Task
from conftest import make_batch, make_progress, make_task
from reference import slow_mime as slow

WIDTH, LATENT = 5, 4
OBSERVED = torch.tensor([[1, 0, 0], [0, 1, -1], [0, 0, 1], [0, 0, 0]], dtype=torch.int8)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class FixedEmbeddings(nn.Module):
    """Label-wise embeddings that are a parameter, and a true bottleneck behind them."""

    def __init__(self, rows: int, columns: int, *, size: float = 1.0) -> None:
        super().__init__()
        self.embeddings = nn.Parameter(size * random(rows, columns, WIDTH))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.head = BottleneckHead(2, columns, width=WIDTH, latent=LATENT)

    def label_embeddings(self, images: Tensor) -> Tensor:
        return self.embeddings[: len(images)]


def ready(task: Task, **options) -> MIME:
    method = MIME(width=WIDTH, latent=LATENT, **options)
    method.setup(nn.Identity(), task)
    return method


def test_golden_divergence():
    sigma = torch.tensor([0.8, 1.2])
    found = divergence(torch.tensor([0.5, -1.0]), sigma, sigma.log())
    assert found.item() == pytest.approx(0.352911, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-6, 6)), min_size=1, max_size=6),
)
def test_divergence_agrees_with_its_slow_twin(entries):
    mean, sigma = zip(*((m, math.exp(s)) for m, s in entries), strict=True)
    spread = torch.tensor(sigma).double()
    found = divergence(torch.tensor(mean).double(), spread, spread.log()).item()
    assert found == pytest.approx(slow.divergence(mean, sigma), rel=1e-6, abs=1e-6)
    assert found >= -1e-6


@pytest.mark.parametrize("samples", [1, 10])
def test_the_loss_agrees_with_its_slow_twin(samples):
    task = make_task(OBSERVED)
    method, network = ready(task, samples=samples, bottleneck=0.3), FixedEmbeddings(4, 3).double()
    method.review(torch.eye(4, 3).double() * 0.99, make_progress(4))
    batch = make_batch(torch.zeros(4, 1), task, seed=3)
    found = method.loss(network, batch, make_progress())
    mean, log_sigma = network.head.encode(network.embeddings)
    sigma = log_sigma.exp()
    draws = torch.Generator().manual_seed(3)
    noise = torch.randn(mean.shape, generator=draws, dtype=torch.float64) / samples**0.5
    # Samples that average to that noise: one of them carries it all.
    codes = [
        [
            [
                slow.code(m, s, [n * samples] + [0.0] * (samples - 1))
                for m, s, n in zip(*vectors, strict=True)
            ]
            for vectors in zip(*image, strict=True)
        ]
        for image in zip(mean.tolist(), sigma.tolist(), noise.tolist(), strict=True)
    ]
    labels = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    readout = network.head.readout
    entropy = slow.cross_entropy(codes, readout.weight.tolist(), readout.bias.tolist(), labels)
    price = slow.divergence(mean.flatten().tolist(), sigma.flatten().tolist())
    assert found.parts["cross_entropy"].item() == pytest.approx(entropy, abs=1e-9)
    assert found.parts["divergence"].item() == pytest.approx(price, abs=1e-9)
    assert found.total.item() == pytest.approx(entropy + 0.3 * price, abs=1e-9)


def test_the_mean_of_samples_has_the_spread_it_should(monkeypatch):
    rows = 4000
    task = make_task(torch.zeros(rows, 1, dtype=torch.int8))
    network = FixedEmbeddings(rows, 1)
    network.embeddings.data.zero_()
    codes = []
    logits = network.head.logits
    monkeypatch.setattr(network.head, "logits", lambda code: codes.append(code) or logits(code))
    ready(task, samples=10).loss(network, make_batch(torch.zeros(rows, 1), task), make_progress())
    mean, log_sigma = network.head.encode(network.embeddings[:1])
    sigma = log_sigma.exp()
    torch.testing.assert_close(codes[0].mean(0), mean[0], atol=0.03, rtol=0)
    torch.testing.assert_close(codes[0].std(0), sigma[0] / 10**0.5, atol=0, rtol=0.05)


def test_noise_comes_from_the_batch_alone_and_predictions_have_none():
    task = make_task(OBSERVED)
    method, network = ready(task), FixedEmbeddings(4, 3)
    state = torch.get_rng_state()

    def total(seed: int) -> Tensor:
        batch = make_batch(torch.zeros(4, 1), task, seed=seed)
        return method.loss(network, batch, make_progress()).total

    assert torch.equal(total(1), total(1))
    assert not torch.equal(total(1), total(2))
    assert torch.equal(torch.get_rng_state(), state)
    features = random(2, 2, 3, 3)
    network.train()
    training = network.head(features)
    network.eval()
    assert torch.equal(network.head(features), training)


# -- the label matrix ------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.floats(0, 1, width=32), min_size=12, max_size=12), max_size=4),
    st.sampled_from([0.5, 0.6, 0.95]),
)
def test_labels_only_ever_grow(reviews, threshold):
    task = make_task(OBSERVED)
    method = ready(task, threshold=threshold)
    wanted = {(0, 0), (1, 1), (2, 2)}
    so_far = 0
    for epoch, values in enumerate(reviews, start=1):
        before = method.labels.clone()
        probabilities = torch.tensor(values).view(4, 3)
        method.review(probabilities, make_progress(epoch))
        single = torch.tensor(threshold).item()  # as probabilities are: 0.6 is not above 0.6
        wanted = slow.grow(wanted, OBSERVED.tolist(), probabilities.tolist(), single)
        assert {tuple(entry) for entry in method.labels.nonzero().tolist()} == wanted
        assert (method.labels | ~before).all()
        assert not method.labels[OBSERVED == -1].any()
        added = int(method.labels.sum() - before.sum())
        so_far += added
        assert method.status() == {"labels_added": added, "labels_added_so_far": so_far}
    assert torch.equal(method.estimates(), method.labels.float())


def test_an_added_label_turns_the_gradient_round_for_good():
    task = make_task(torch.zeros(1, 1, dtype=torch.int8))
    method, network = ready(task, samples=10**9, bottleneck=0.0), FixedEmbeddings(1, 1)

    def push() -> float:
        batch = make_batch(torch.zeros(1, 1), task)
        total = method.loss(network, batch, make_progress()).total
        bias = network.head.readout.bias
        return torch.autograd.grad(total, bias)[0].item()

    assert push() > 0  # unobserved counts as negative
    method.review(torch.full((1, 1), 0.95), make_progress())
    assert push() > 0  # not more than θ
    method.review(torch.full((1, 1), 0.96), make_progress())
    assert push() < 0
    method.review(torch.zeros(1, 1), make_progress())
    assert push() < 0


@pytest.mark.parametrize(("epochs", "first"), [(70, 5), (40, 3), (10, 1), (4, 1), (1, 1)])
def test_labels_are_reviewed_from_the_end_of_the_warm_up_on(epochs, first):
    method = MIME()
    found = [
        epoch for epoch in range(1, epochs + 1) if method.reviews(make_progress(epoch, epochs))
    ]
    assert found == list(range(first, epochs + 1))
    assert not MIME(warm_up=1.0).reviews(make_progress(69, 70))
    assert MIME(warm_up=0.0).reviews(make_progress(1, 70))


def test_rows_are_found_by_their_index():
    task = make_task(OBSERVED)
    method, network = ready(task, samples=10**9, bottleneck=0.0), FixedEmbeddings(4, 3)
    network.embeddings.data[:] = network.embeddings.data[:1]
    whole = make_batch(torch.zeros(4, 1), task)
    totals = []
    for row in range(4):
        batch = type(whole)(
            whole.images[:1], OBSERVED[row : row + 1], torch.tensor([row]), whole.generator
        )
        totals.append(method.loss(network, batch, make_progress()).total)
    together = method.loss(network, whole, make_progress()).total
    torch.testing.assert_close(torch.stack(totals).mean(), together, atol=1e-3, rtol=0)


# -- everything else -------------------------------------------------------------------------

HARD = {
    "extreme": OBSERVED,
    "batch of one": OBSERVED[:1],
    "class without positive": OBSERVED * torch.tensor([1, 1, 0], dtype=torch.int8),
    "all positive": torch.ones_like(OBSERVED),
    "nothing observed": torch.zeros_like(OBSERVED),
    "all seen to be absent": -torch.ones_like(OBSERVED),
    "low precision": OBSERVED,
}


@pytest.mark.parametrize("case", HARD)
def test_hard_batches_stay_finite(case):
    observed = HARD[case]
    task = make_task(observed)
    method = ready(task)
    network = FixedEmbeddings(*observed.shape, size=1e3 if case == "extreme" else 1.0)
    for epoch in (1, 2):
        batch = make_batch(torch.zeros(len(observed), 1), task)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=case == "low precision"):
            found = method.loss(network, batch, make_progress(epoch))
        assert found.total.isfinite()
        assert all(part.dtype == torch.float32 for part in found.parts.values())
        found.total.backward()
        method.review(torch.ones(observed.shape), make_progress(epoch))
    assert network.embeddings.grad.isfinite().all()
    assert torch.equal(method.labels, observed >= 0)


def picture_network(method: MIME, seed: int = 0) -> nn.Module:
    spec = ModelSpec("linear", (3, 4, 4), ("a", "b", "c"), ("r", "g", "b"), head=method.head())
    return build(spec, seed=seed)


def test_state_survives_save_and_load(tmp_path):
    task = make_task(OBSERVED)
    method = MIME(width=8, latent=6)
    assert method.head() == HeadSpec("bottleneck", width=8, latent=6)
    network = picture_network(method)
    method.setup(network, task)
    images = random(4, 3, 4, 4)
    method.loss(network, make_batch(images, task), make_progress()).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    method.review(torch.full((4, 3), 0.99) * torch.eye(4, 3).flip(0), make_progress(4))
    assert method.status()["labels_added"] > 0
    torch.save([network.state_dict(), method.state_dict()], tmp_path / "state.ckpt")
    weights, state = torch.load(tmp_path / "state.ckpt", weights_only=True)
    twin = MIME(width=8, latent=6)
    twin_network = picture_network(method, seed=9)
    twin.setup(twin_network, make_task(OBSERVED))
    twin_network.load_state_dict(weights)
    twin.load_state_dict(state)
    assert twin.status() == method.status()
    one = method.loss(network, make_batch(images, task, seed=5), make_progress(3))
    other = twin.loss(twin_network, make_batch(images, task, seed=5), make_progress(3))
    assert torch.equal(one.total, other.total)
    assert torch.equal(task.observed, OBSERVED)


def test_senseless_options_are_refused():
    for options in ({"threshold": 1.2}, {"samples": 0}, {"warm_up": -0.1}, {"bottleneck": -1.0}):
        with pytest.raises(UsageError, match=f"method.{next(iter(options)).replace('_', '-')}"):
            MIME(**options).setup(nn.Identity(), make_task(OBSERVED))
