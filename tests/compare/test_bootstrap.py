from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from adagc.compare.bootstrap import Ranked, draw_images, resample
from adagc.errors import AdagcError
from adagc.metrics import average_precision
from adagc.training.views import View
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


def test_runs_are_scored_on_the_same_resamples(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.random((25, 3)) < 0.3
    truth[:2] = True
    scores = {
        label: {seed: rng.random((25, 3), np.float32).round(1) for seed in range(2)}
        for label in ("AN", "WAN")
    }
    results = from_predictions(tmp_path, truth, scores)
    found = resample(rows_of(results), View(), resamples=20, seed=5)
    weights = drawn_weights(25, 20, 5)
    assert found.images == 25
    for label, runs in scores.items():
        for seed, own in runs.items():
            wanted = [slow_bootstrap.mean_average_precision(truth, own, one) for one in weights]
            np.testing.assert_allclose(found.drawn[label][seed], wanted, atol=1e-12)
            once = slow_bootstrap.mean_average_precision(truth, own, [1] * 25)
            assert found.plain[label][seed] == pytest.approx(once)


def test_runs_of_other_test_images_are_refused_by_name(tmp_path):
    rng = np.random.default_rng(3)
    truth = rng.random((10, 2)) < 0.5
    scores = rng.random((10, 2), np.float32)
    one = from_predictions(tmp_path / "one", truth, {"AN": {0: scores}})
    two = from_predictions(tmp_path / "two", ~truth, {"WAN": {0: scores}})
    with pytest.raises(AdagcError, match=r"one/AN-0 and .*two/WAN-0 were not tested on the same"):
        resample({**rows_of(one), **rows_of(two)}, View())


def test_predictions_that_contradict_the_scores_are_refused(tmp_path):
    rng = np.random.default_rng(3)
    truth = rng.random((10, 2)) < 0.5
    results = from_predictions(tmp_path, truth, {"AN": {0: rng.random((10, 2), np.float32)}})
    other = {"network-last": rng.random((10, 2), np.float32), "clean": truth.astype(np.uint8)}
    save_file(other, tmp_path / "AN-0" / "predictions.safetensors")
    with pytest.raises(
        AdagcError, match=r"AN-0 has predictions with another mAP .* adagc evaluate"
    ):
        resample(rows_of(results), View())


def test_memory_is_bounded_by_chunks_of_resamples():
    rng = np.random.default_rng(4)
    ranked = Ranked(rng.random((5000, 2)) < 0.2, rng.random((5000, 2)))
    tracemalloc.start()
    for weights in draw_images(5000, 400, 0):
        ranked.mean(weights)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5000 * 400 * 4 / 1.5  # less than the weights of all resamples at once
