from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagc.models import HeadSpec, ModelSpec, build
from adagc.models.label_wise import BottleneckHead, LabelWiseHead
from reference import slow_lac as slow


def features(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def seeded(kind, *args, seed: int = 0, **options):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return kind(*args, **options)


@settings(max_examples=15, deadline=None)
@given(*[st.integers(1, 3)] * 4, st.integers(0, 9))
def test_embeddings_agree_with_loops_over_positions(rows, columns, classes, width, seed):
    head = seeded(LabelWiseHead, 3, classes, width=width, seed=seed).double()
    f = 3 * features(2, 3, rows, columns, seed=seed).double()
    found = head.embed(f)
    assert found.shape == (2, classes, width)
    logits = head.logits(found)
    weight, bias = head.reduce.weight.tolist(), head.reduce.bias.tolist()
    for i in range(2):
        positions = [
            [slow.gelu(slow.dot(weight[k], f[i, :, r, s].tolist()) + bias[k]) for k in range(width)]
            for r in range(rows)
            for s in range(columns)
        ]
        for c in range(classes):
            wanted = slow.attend(positions, head.score.weight[c].tolist())
            assert found[i, c].tolist() == pytest.approx(wanted, abs=1e-9)
            logit = slow.dot(head.readout.weight[c].tolist(), wanted) + head.readout.bias[c].item()
            assert logits[i, c].item() == pytest.approx(logit, abs=1e-9)
    torch.testing.assert_close(head(f), logits)


def test_a_logit_depends_on_its_own_embedding_alone():
    head = LabelWiseHead(5, 4, width=6)
    h = features(2, 4, 6).requires_grad_()
    head.logits(h)[:, 2].sum().backward()
    assert h.grad[:, 2].abs().min() > 0
    assert h.grad[:, [0, 1, 3]].abs().max() == 0


def test_a_class_finds_the_position_it_looks_for():
    head = LabelWiseHead(2, 2, width=2)
    with torch.no_grad():
        head.reduce.weight.copy_(torch.eye(2))
        head.reduce.bias.zero_()
        head.score.weight.copy_(50 * torch.eye(2))
    f = torch.zeros(1, 2, 4, 4)
    f[0, 0, 1, 2] = 3.0  # a small object of class 0, one position of sixteen
    attention = head.attention(torch.nn.functional.gelu(f).flatten(2).mT).view(1, 2, 4, 4)
    torch.testing.assert_close(attention.sum(dim=(2, 3)), torch.ones(1, 2))
    assert attention[0, 0, 1, 2] > 0.99
    torch.testing.assert_close(attention[0, 1], torch.full((4, 4), 1 / 16))
    assert head.embed(f)[0, 0, 0].item() == pytest.approx(3.0, abs=0.01)


@pytest.mark.parametrize("kind", [LabelWiseHead, BottleneckHead])
def test_dropout_acts_in_training_alone(kind):
    head, f = kind(8, 3, width=4, dropout=0.5), features(2, 8, 3, 3)
    head.train()
    assert not torch.equal(head(f), head(f))
    head.eval()
    assert torch.equal(head(f), head(f))


def test_the_bottleneck_is_deterministic_and_reads_the_mean():
    head, f = BottleneckHead(8, 3, width=4, latent=5), features(2, 8, 3, 3)
    mean, log_sigma = head.encode(head.embed(f))
    sigma = log_sigma.exp()
    assert mean.shape == sigma.shape == (2, 3, 5)
    for mode in (True, False):
        head.train(mode)
        assert torch.equal(head(f), head(f))
        torch.testing.assert_close(head(f), head.logits(mean))
    torch.testing.assert_close(
        head.logits(mean), (mean * head.readout.weight).sum(-1) + head.readout.bias
    )


def test_sigma_is_half_the_log_variance_within_bounds():
    head = BottleneckHead(8, 1, width=2, latent=3)
    with torch.no_grad():
        head.encoder[2].weight.zero_()
        head.encoder[2].bias.copy_(torch.tensor([0.0, 1.0, 2.0, -1e4, 1.0, 1e4]))
    mean, log_sigma = head.encode(torch.zeros(1, 1, 2))
    sigma = log_sigma.exp()
    assert mean.flatten().tolist() == [0.0, 1.0, 2.0]
    assert sigma.log().flatten().tolist() == pytest.approx([-6.0, 0.5, 6.0], abs=1e-5)
    assert sigma.isfinite().all()


@pytest.mark.parametrize("kind", [LabelWiseHead, BottleneckHead])
def test_half_precision_stays_close_and_finite(kind):
    head, f = seeded(kind, 8, 3, width=4), features(2, 8, 3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = head(f)
        assert head(1e4 * f).isfinite().all()
    torch.testing.assert_close(low.float(), head(f), atol=0.03, rtol=0.03)


@pytest.mark.parametrize("kind", ["label-wise", "bottleneck"])
@pytest.mark.parametrize(("backbone", "shape"), [("resnet10t", (5, 64, 64)), ("mlp", (6, 3, 2))])
def test_on_a_network(kind, backbone, shape):
    spec = ModelSpec(
        backbone,
        shape,
        ("bare", "forest", "water"),
        tuple(f"band {i}" for i in range(shape[0])),
        head=HeadSpec(kind, width=7, latent=5),
    )
    network = build(spec, seed=0)
    x = features(2, *shape)
    logits = network(x)
    assert logits.shape == (2, 3)
    network.eval()
    h = network.label_embeddings(x)
    assert h.shape == (2, 3, 7)
    codes = network.head.encode(h)[0] if kind == "bottleneck" else h
    torch.testing.assert_close(network.head.logits(codes), network(x))
    network(x).sum().backward()
    assert not [name for name, p in network.named_parameters() if p.grad is None]
    again = build(spec, seed=0).eval()
    for name, value in again.named_parameters():
        assert torch.equal(value, network.get_parameter(name)), name
