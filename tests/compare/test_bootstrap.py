from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from adagc.compare.bootstrap import Ranked, Resampled, draw_images, draw_luck, resample
from adagc.errors import AdagcError
from adagc.metrics import average_precision
from adagc.types import NetworkRole
from fake_results import from_predictions
from reference import slow_bootstrap


def drawn_weights(images, resamples, seed, **options):
    """(resamples, images)"""
    return np.concatenate(list(draw_images(images, resamples, seed, **options)))


def rows_of(results):
    return {label: results.of(label) for label in results.labels}


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    images=st.integers(1, 14),
    classes=st.integers(1, 4),
    levels=st.integers(1, 6),
    share=st.sampled_from([0.1, 0.4, 0.9]),
)
def test_weights_do_what_repeated_images_do(seed, images, classes, levels, share):
    rng = np.random.default_rng(seed)
    truth = rng.random((images, classes)) < share
    scores = (rng.integers(levels, size=(images, classes)) / levels).astype(np.float32)  # ties
    weights = drawn_weights(images, 3, seed)
    wanted = [slow_bootstrap.mean_average_precision(truth, scores, one) for one in weights]
    found = Ranked(truth, scores).mean(weights)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), levels=st.sampled_from([1, 2, 3, 1000]))
def test_every_image_once_is_the_plain_metric(seed, levels):
    rng = np.random.default_rng(seed)
    truth = rng.random((30, 5)) < 0.3
    truth[0] = True
    scores = (rng.integers(levels, size=(30, 5)) / levels).astype(np.float32)
    once = np.ones((1, 30), np.int32)
    wanted = np.nanmean(average_precision(truth, scores))
    assert Ranked(truth, scores).mean(once)[0] == pytest.approx(wanted, abs=1e-12)


def test_by_hand():
    # From the top: hit, miss, hit; with weights 1, 2, 3: (1 * 1/1 + 3 * 4/6) / 4 = 0.75.
    truth = np.array([[True], [False], [True]])
    scores = np.array([[0.9], [0.5], [0.1]], np.float32)
    weights = np.array([[1, 2, 3], [0, 1, 1], [1, 0, 0]], np.int32)
    # Without the first image: 1 * 1/2; the first alone: 1.
    assert Ranked(truth, scores).mean(weights) == pytest.approx([0.75, 0.5, 1.0], abs=1e-12)
    # A class without a drawn positive is left out of the mean, and nothing is left without any.
    two = np.hstack([truth, [[False], [True], [False]]])
    both = Ranked(two, np.hstack([scores, scores])).mean(weights)
    assert both[0] == pytest.approx((0.75 + 2 * 2 / 3 / 2) / 2)
    assert both[2] == 1.0
    assert np.isnan(Ranked(truth, scores).mean(np.array([[0, 1, 0]], np.int32)))[0]


def test_draws_have_as_many_images_and_do_not_depend_on_the_chunk():
    weights = drawn_weights(40, 300, 3)
    assert weights.shape == (300, 40)
    assert (weights.sum(axis=1) == 40).all()
    assert np.array_equal(weights, drawn_weights(40, 300, 3, chunk=40 * 17))
    assert not np.array_equal(weights, drawn_weights(40, 300, 4))
    # An image is left out with probability (1 - 1/40)^40.
    assert (weights == 0).mean() == pytest.approx((1 - 1 / 40) ** 40, abs=0.02)


def test_differences_are_those_of_the_slow_twin(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.random((25, 3)) < 0.3
    truth[:2] = True
    scores = {
        label: {
            seed: (truth * help_ + rng.random((25, 3))).round(1).astype(np.float32)
            for seed in range(3)
        }
        for label, help_ in (("AN", 0.1), ("WAN", 0.4))
    }
    results = from_predictions(tmp_path, truth, scores)
    drawn = resample(rows_of(results), NetworkRole.DEPLOYED, "last", resamples=20, seed=5)
    found = drawn.difference("WAN", "AN")
    mean, low, high = slow_bootstrap.difference(
        truth, scores["WAN"], scores["AN"], drawn_weights(25, 20, 5), draw_luck(3, 20, 5).T
    )
    assert (found.mean, found.low, found.high) == pytest.approx((mean, low, high), abs=1e-12)
    assert (found.seeds, found.images) == (3, 25)
    back = drawn.difference("AN", "WAN")
    assert (back.mean, back.low, back.high) == pytest.approx((-mean, -high, -low), abs=1e-12)
    same = drawn.difference("AN", "AN")
    assert (same.mean, same.low, same.high, same.is_clear) == (0, 0, 0, False)


def test_pairs_are_made_by_seed_and_only_of_seeds_that_both_have(tmp_path):
    rng = np.random.default_rng(1)
    truth = rng.random((30, 2)) < 0.4
    runs = {seed: rng.random((30, 2), np.float32) for seed in range(4)}
    rows = {"AN": {0: runs[0], 1: runs[1]}, "WAN": {1: runs[1], 2: runs[2]}, "GR": {3: runs[3]}}
    results = from_predictions(tmp_path, truth, rows)
    drawn = resample(rows_of(results), NetworkRole.DEPLOYED, "last", resamples=20)
    # Seed 1 of both is the same network: no difference at all, whatever the others do.
    shared = drawn.difference("AN", "WAN")
    assert (shared.mean, shared.low, shared.high, shared.seeds) == (0, 0, 0, 1)
    assert drawn.difference("AN", "GR") is None


def test_paired_intervals_are_narrower_than_the_spread_of_either(tmp_path):
    rng = np.random.default_rng(2)
    truth = rng.random((200, 4)) < 0.3
    base = truth + rng.normal(size=(200, 4))
    better = base + 0.3 * truth
    rows = {"AN": {0: base.astype(np.float32)}, "WAN": {0: better.astype(np.float32)}}
    results = from_predictions(tmp_path, truth, rows)
    drawn = resample(rows_of(results), NetworkRole.DEPLOYED, "last", resamples=400)
    gap = drawn.difference("WAN", "AN")
    assert gap.is_clear
    assert gap.low < gap.mean < gap.high
    alone = np.percentile(drawn.drawn["AN"][0], [2.5, 97.5])
    assert gap.half < (alone[1] - alone[0]) / 4


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("images", [0.0, 0.5])
def test_equal_methods_are_rarely_called_different(seeds, images):
    """Seeds and images both bring luck; a 95 % interval may leave out the truth one time in 20."""
    rng, clear, times = np.random.default_rng(0), 0, 300
    for _ in range(times):
        # What the test images favour is shared by the seeds; resamples show how much that may be.
        favour = images * rng.normal()
        gaps = favour + rng.normal(size=seeds)
        noise = images * rng.normal(size=200)
        drawn = Resampled(
            images=100,
            plain={"A": dict(enumerate(gaps)), "B": dict.fromkeys(range(seeds), 0.0)},
            drawn={
                "A": {seed: gap + noise for seed, gap in enumerate(gaps)},
                "B": dict.fromkeys(range(seeds), np.zeros(200)),
            },
        )
        clear += drawn.difference("A", "B").is_clear
    # Binomial: 0.05 and three standard deviations of a share of 300.
    assert clear / times < 0.05 + 3 * (0.05 * 0.95 / times) ** 0.5


def test_one_seed_is_judged_by_its_images_alone():
    drawn = Resampled(
        images=100,
        plain={"A": {0: 0.3}, "B": {0: 0.1}},
        drawn={"A": {0: np.linspace(0.2, 0.4, 41)}, "B": {0: np.full(41, 0.1)}},
    )
    found = drawn.difference("A", "B")
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, 0.105, 0.295))


def test_runs_of_other_test_images_are_refused_by_name(tmp_path):
    rng = np.random.default_rng(3)
    truth = rng.random((10, 2)) < 0.5
    scores = rng.random((10, 2), np.float32)
    one = from_predictions(tmp_path / "one", truth, {"AN": {0: scores}})
    two = from_predictions(tmp_path / "two", ~truth, {"WAN": {0: scores}})
    with pytest.raises(AdagcError, match=r"one/AN-0 and .*two/WAN-0 were not tested on the same"):
        resample({**rows_of(one), **rows_of(two)}, NetworkRole.DEPLOYED, "last")


def test_predictions_that_contradict_the_scores_are_refused(tmp_path):
    rng = np.random.default_rng(3)
    truth = rng.random((10, 2)) < 0.5
    results = from_predictions(tmp_path, truth, {"AN": {0: rng.random((10, 2), np.float32)}})
    other = {"network-last": rng.random((10, 2), np.float32), "clean": truth.astype(np.uint8)}
    save_file(other, tmp_path / "AN-0" / "predictions.safetensors")
    with pytest.raises(
        AdagcError, match=r"AN-0 has predictions with another mAP .* adagc evaluate"
    ):
        resample(rows_of(results), NetworkRole.DEPLOYED, "last")


def test_memory_is_bounded_by_chunks_of_resamples():
    rng = np.random.default_rng(4)
    ranked = Ranked(rng.random((5000, 2)) < 0.2, rng.random((5000, 2)))
    tracemalloc.start()
    for weights in draw_images(5000, 400, 0):
        ranked.mean(weights)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5000 * 400 * 4 / 1.5  # less than the weights of all resamples at once
