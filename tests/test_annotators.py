"""Likelihoods of annotators against counting, and where numbers are extreme."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagc import losses
from reference import slow_annotators as slow

LOGITS = st.floats(-8, 8)


def rows(classes: int) -> st.SearchStrategy[list[float]]:
    return st.lists(LOGITS, min_size=classes, max_size=classes)


@st.composite
def images(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    """Logits of one image, and what is known of it."""
    classes = draw(st.integers(1, 8))
    known = st.lists(st.sampled_from([-1, 0, 0, 1]), min_size=classes, max_size=classes)
    return draw(rows(classes)), draw(known)


@st.composite
def land(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    """Class maps of one image, and what is known of it."""
    classes, positions = draw(st.integers(2, 5)), draw(st.integers(1, 6))
    known = st.lists(st.sampled_from([-1, 0, 0, 1]), min_size=classes, max_size=classes)
    return [draw(rows(positions)) for _ in range(classes)], draw(known)


def double(values: list) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


# -- an annotator who likes some classes more than others ----------------------------------------


@st.composite
def liked(draw: st.DrawFn) -> tuple[list[float], list[int], list[float]]:
    """Logits of one image, what is known of it, and weights of the classes."""
    logits, observed = draw(images())
    weight = st.one_of(st.integers(1, 6).map(float), st.floats(0.2, 5))
    return logits, observed, draw(st.lists(weight, min_size=len(logits), max_size=len(logits)))


@given(liked())
@settings(max_examples=60, deadline=None)
def test_the_weighted_integral_is_the_sum_over_all_sets_of_labels(image):
    logits, observed, weights = image
    w = torch.tensor(weights, dtype=torch.float64)
    found = losses.random_annotator(double(logits), w).exp()[0]
    assert found.tolist() == pytest.approx(slow.selective_draw(logits, weights), rel=2e-6)
    known = losses.random_likelihood(double(logits), torch.tensor([observed]), w).item()
    wanted = math.log(slow.selective_known(logits, observed, weights))
    assert known == pytest.approx(wanted, abs=2e-6)


@given(liked())
@settings(max_examples=30, deadline=None)
def test_whole_weights_are_exact(image):
    logits, observed, weights = image
    weights = [float(max(1, round(w))) for w in weights]
    w = torch.tensor(weights, dtype=torch.float64)
    found = losses.random_likelihood(double(logits), torch.tensor([observed]), w).item()
    wanted = math.log(slow.selective_known(logits, observed, weights))
    assert found == pytest.approx(wanted, abs=1e-9)


@given(liked())
@settings(max_examples=40, deadline=None)
def test_the_weighted_posterior_is_that_of_counting(image):
    logits, observed, weights = image
    if not any(o > 0 for o in observed):
        return
    w = torch.tensor(weights, dtype=torch.float64)
    found = losses.random_posterior(double(logits), torch.tensor([observed]), w)[0].sigmoid()
    whole = slow.selective_known(logits, observed, weights)
    # Of what was observed only one is the label; the others say that they are there.
    for c, o in enumerate(observed):
        if o == 0:
            labels = [weights[j] for j, other in enumerate(observed) if other > 0]
            along = 0.0
            for subset in range(2 ** len(logits)):
                there = [bool(subset >> j & 1) for j in range(len(logits))]
                if there[c] and all(
                    (o2 <= 0 or y) and (o2 >= 0 or not y)
                    for o2, y in zip(observed, there, strict=True)
                ):
                    every = sum(wj for wj, y in zip(weights, there, strict=True) if y)
                    along += slow.chance(there, logits) * sum(labels) / every
            assert found[c].item() == pytest.approx(along / whole, abs=2e-6)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_equal_weights_give_the_very_numbers_of_no_weights(kind):
    z = torch.randn(40, 17, generator=torch.Generator().manual_seed(0)).to(kind) * 4
    observed = torch.randint(-1, 2, (40, 17), generator=torch.Generator().manual_seed(1))
    for w in (torch.ones(17), torch.full((17,), 0.37)):
        assert torch.equal(losses.random_annotator(z, w), losses.random_annotator(z))
        for function in (losses.random_likelihood, losses.random_posterior):
            assert torch.equal(function(z, observed, w), function(z, observed))


def test_only_the_ratios_of_weights_count():
    z = torch.randn(3, 6, generator=torch.Generator().manual_seed(0)).double()
    w = torch.tensor([0.5, 1, 2, 3, 1, 1.5], dtype=torch.float64)
    first, second = (losses.random_annotator(z, factor * w) for factor in (1, 7.3))
    assert torch.allclose(first, second, atol=1e-12)


# -- the random annotator ----------------------------------------------------------------------


@pytest.mark.parametrize("classes", range(1, 13))
def test_the_integral_is_the_sum_over_all_sets_of_labels(classes):
    z = torch.randn(classes, generator=torch.Generator().manual_seed(classes)) * 3
    found = losses.random_annotator(double(z.tolist())).exp()[0]
    assert found.tolist() == pytest.approx(slow.random_draw(z.double().tolist()), rel=1e-11)


@pytest.mark.parametrize("classes", [1, 2, 9])
def test_something_is_present_as_often_as_by_counting(classes):
    z = torch.randn(classes, generator=torch.Generator().manual_seed(classes)) * 3
    found = losses.anything_present(double(z.tolist())).exp().item()
    assert found == pytest.approx(slow.anything(z.double().tolist()), rel=1e-11)


def test_that_nothing_is_ever_present_stays_finite():
    z = torch.tensor([[-800.0, -800.0], [800.0, -800.0]], requires_grad=True)
    losses.anything_present(z).sum().backward()
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("classes", [1, 2, 5, 12])
def test_its_gradient_is_that_of_the_sum(classes):
    z = torch.randn(classes, generator=torch.Generator().manual_seed(classes)).double() * 3
    fast = z.clone().requires_grad_()
    losses.random_annotator(fast[None])[0, 0].backward()
    step = 1e-5
    for c in range(classes):
        moved = torch.zeros(classes, dtype=torch.float64)
        moved[c] = step
        up, down = (math.log(slow.random_draw((z + by).tolist())[0]) for by in (moved, -moved))
        assert fast.grad is not None
        assert fast.grad[c].item() == pytest.approx((up - down) / (2 * step), abs=1e-8)


@given(images())
@settings(max_examples=60, deadline=None)
def test_all_that_is_known_of_an_image_counts_as_it_is_meant(image):
    logits, observed = image
    found = losses.random_likelihood(double(logits), torch.tensor([observed])).item()
    assert found == pytest.approx(math.log(slow.random_known(logits, observed)), abs=1e-9)


@given(rows(6))
@settings(max_examples=40, deadline=None)
def test_one_observed_label_is_one_draw(logits):
    every = losses.random_annotator(double(logits))[0]
    for c in range(6):
        observed = torch.zeros(1, 6)
        observed[0, c] = 1
        assert losses.random_likelihood(double(logits), observed).item() == pytest.approx(
            every[c].item(), abs=1e-12
        )


@given(rows(7))
@settings(max_examples=40, deadline=None)
def test_draws_sum_to_the_probability_that_anything_is_present(logits):
    total = losses.random_annotator(double(logits)).exp().sum().item()
    nothing = math.prod(slow.sigmoid(-z) for z in logits)
    assert total == pytest.approx(1 - nothing, abs=1e-12)


def test_without_an_observed_label_nothing_is_learnt_from_unknown_classes():
    z = torch.randn(2, 5, requires_grad=True)
    observed = torch.tensor([[0, 0, 0, 0, 0], [0, -1, 0, 0, 0]])
    values = losses.random_likelihood(z, observed)
    assert values[0] == 0
    values.sum().backward()
    assert z.grad is not None
    assert z.grad[0].tolist() == [0] * 5
    assert (z.grad[1] != 0).tolist() == [False, True, False, False, False]


def test_an_image_of_which_all_is_known_is_plain_cross_entropy():
    z = torch.randn(3, 6, dtype=torch.float64)
    y = (torch.rand(3, 6) < 0.5).double()
    y[:, 0] = 1
    found = losses.random_likelihood(z, 2 * y - 1)
    wanted = -losses.binary_cross_entropy(z, y).sum(dim=1)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("classes", [1, 2, 19, 200])
@pytest.mark.parametrize("size", [0.0, 5.0, 12.0, 60.0])
@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_values_and_gradients_are_right_for_any_logits(classes, size, kind):
    generator = torch.Generator().manual_seed(classes)
    z = ((torch.rand(4, classes, generator=generator) * 2 - 1).sign() * size).to(kind)
    exact, fast = z.double().requires_grad_(), z.clone().requires_grad_()
    wanted, found = losses.random_annotator(exact), losses.random_annotator(fast)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=2e-6, atol=2e-5)
    wanted.mean().backward()
    found.mean().backward()
    assert fast.grad is not None
    assert exact.grad is not None
    close = {"rtol": 1e-3, "atol": 1e-4} if kind == torch.float16 else {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(fast.grad.double(), exact.grad, **close)


# -- the area annotator ------------------------------------------------------------------------


@given(land())
@settings(max_examples=60, deadline=None)
def test_areas_and_presence_are_those_of_every_position_in_turn(image):
    maps, observed = image
    fast = double(maps)
    assert losses.area_annotator(fast).exp()[0].tolist() == pytest.approx(slow.areas(maps))
    found = losses.presence_logits(fast, 9.0).sigmoid()[0].tolist()
    assert found == pytest.approx(slow.presence(maps, 9.0), abs=1e-9)
    known = losses.area_likelihood(fast, torch.tensor([observed]), 9.0).item()
    assert known == pytest.approx(
        math.log(max(slow.area_known(maps, observed, 9.0), 1e-300)), rel=1e-6
    )


def test_positions_in_rows_and_columns_are_positions():
    maps = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(losses.area_annotator(maps), losses.area_annotator(maps.flatten(2)))


@pytest.mark.parametrize("classes", [1, 2, 19, 200])
@pytest.mark.parametrize("size", [0.0, 1.0, 15.0, 60.0])
def test_presence_is_finite_and_right_for_any_maps(classes, size):
    generator = torch.Generator().manual_seed(classes)
    maps = torch.randn(3, classes, 4, 4, generator=generator) * size
    fast, exact = maps.clone().requires_grad_(), maps.double().requires_grad_()
    found, wanted = losses.presence_logits(fast, 9.0), losses.presence_logits(exact, 9.0)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-4)
    found.mean().backward()
    wanted.mean().backward()
    assert fast.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(fast.grad.double(), exact.grad, rtol=1e-3, atol=1e-6)


def test_presence_has_the_gradient_of_its_definition():
    maps = torch.randn(2, 4, 3, 3, dtype=torch.float64) * 3
    assert torch.autograd.gradcheck(
        lambda m: losses.presence_logits(m, 9.0), maps.requires_grad_(), atol=1e-6
    )
    observed = torch.tensor([[1, 0, 0, -1], [1, 1, 0, 0]])
    assert torch.autograd.gradcheck(
        lambda m: losses.area_likelihood(m, observed, 9.0), maps.requires_grad_(), atol=1e-6
    )


def test_a_position_that_looks_like_something_else_is_left_alone():
    """Where the observed class loses, its rival there has almost no gradient."""
    maps = torch.tensor([[[8.0, 0.0], [0.0, 8.0]]], requires_grad=True)  # a half each
    (-losses.area_annotator(maps)[0, 0]).backward()
    assert maps.grad is not None
    assert maps.grad.abs().max() < 1e-2


# -- what both are for ---------------------------------------------------------------------------


def test_the_random_annotator_finds_presence_from_single_draws():
    """One kind of image with classes 0 and 1, one with class 2 alone: what is present is found."""
    truth = torch.tensor([[1, 1, 0], [0, 0, 1]])
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(0, 2, (400,), generator=generator)
    drawn = torch.multinomial(truth[kind].float(), 1, generator=generator)
    observed = torch.zeros(400, 3).scatter(1, drawn, 1.0)
    z = torch.zeros(2, 3, requires_grad=True)
    optimiser = torch.optim.Adam([z], lr=0.1)
    for _ in range(300):
        optimiser.zero_grad()
        (-losses.random_likelihood(z[kind], observed).mean()).backward()
        optimiser.step()
    assert (z.sigmoid() > 0.7).int().tolist() == truth.tolist()
    assert z.sigmoid()[truth == 0].max() < 0.1
