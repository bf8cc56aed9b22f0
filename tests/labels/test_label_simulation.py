from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adagc.errors import DataError
from adagc.labels import areas_from_maps, simulate_dominant, simulate_random
from reference import slow_labels

shapes = hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=8)
seeds = st.integers(0, 2**32)


@given(truth=hnp.arrays(np.int8, shapes, elements=st.integers(-1, 1)), seed=seeds)
def test_one_true_class_for_each_image(truth, seed):
    observed = simulate_random(truth, seed)
    assert observed.shape == truth.shape
    assert observed.dtype == np.int8
    assert set(np.unique(observed)) <= {0, 1}
    assert (observed <= (truth == 1)).all()
    assert np.array_equal(observed.sum(axis=1), (truth == 1).any(axis=1))
    assert np.array_equal(observed, simulate_random(truth == 1, seed))
    assert np.array_equal(observed, simulate_random(truth, np.random.default_rng(seed)))


@given(seed=seeds)
def test_the_labels_of_other_images_do_not_matter(seed):
    truth = np.random.default_rng(0).random((20, 6)) < 0.5
    other = truth.copy()
    other[:10] = ~other[:10]
    assert np.array_equal(simulate_random(truth, seed)[10:], simulate_random(other, seed)[10:])


def test_seeds_differ():
    truth = np.ones((50, 5))
    assert not np.array_equal(simulate_random(truth, 0), simulate_random(truth, 1))


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def test_all_true_classes_are_equally_likely():
    # 99.99 % of a chi-square with 1, 3 and 6 degrees of freedom
    truth = np.zeros((3, 7), dtype=bool)
    truth[0, [2, 5]] = truth[1, [0, 1, 3, 6]] = truth[2] = True
    drawn = sum(simulate_random(truth, seed).astype(int) for seed in range(4000))
    for row, limit in enumerate((15.2, 21.2, 27.9)):
        assert chi_square(drawn[row, truth[row]]) < limit
    # and over the images of one draw
    drawn = simulate_random(np.ones((40_000, 4)), seed=5).sum(axis=0)
    assert chi_square(drawn) < 21.2


def test_images_are_drawn_independently():
    drawn = np.array([simulate_random(np.ones((2, 2)), seed)[:, 0] for seed in range(4000)])
    pairs = np.bincount(drawn[:, 0] * 2 + drawn[:, 1], minlength=4)
    assert chi_square(pairs) < 21.2


@given(
    areas=hnp.arrays(np.float64, shapes, elements=st.sampled_from([0.0, 0.1, 0.25, 0.5])),
    seed=seeds,
)
def test_dominant_picks_a_largest_area(areas, seed):
    observed = simulate_dominant(areas, seed)
    for row, candidates in zip(observed, slow_labels.dominant_candidates(areas), strict=True):
        chosen = np.flatnonzero(row).tolist()
        assert len(chosen) == bool(candidates)
        assert set(chosen) <= set(candidates)


def test_dominant_without_ties_is_the_argmax_whatever_the_seed():
    areas = np.random.default_rng(1).random((200, 9)).astype(np.float32)
    for seed in (0, 1):
        assert np.array_equal(simulate_dominant(areas, seed).argmax(axis=1), areas.argmax(axis=1))


def test_ties_are_broken_evenly_by_the_seed():
    areas = np.tile([0.4, 0.1, 0.4, 0.0, 0.4], (30_000, 1))
    drawn = simulate_dominant(areas, seed=3).sum(axis=0)
    assert drawn[[1, 3]].tolist() == [0, 0]
    assert chi_square(drawn[[0, 2, 4]]) < 18.5
    assert np.array_equal(simulate_dominant(areas, 3), simulate_dominant(areas, 3))
    assert not np.array_equal(simulate_dominant(areas, 3), simulate_dominant(areas, 4))


@pytest.mark.parametrize("truth", [[0, 1], [[0.5]], [[2]], [[np.nan]], [["a"]]])
def test_truth_is_checked(truth):
    with pytest.raises(ValueError, match="truth"):
        simulate_random(truth, 0)


@pytest.mark.parametrize("areas", [[0.5], [[-0.1]], [[np.nan]], [[np.inf]], [["a"]]])
def test_areas_are_checked(areas):
    with pytest.raises(ValueError, match="areas"):
        simulate_dominant(areas, 0)


@given(
    maps=hnp.arrays(
        st.sampled_from([np.uint8, np.int16, np.int64]),
        hnp.array_shapes(min_dims=3, max_dims=3, max_side=5),
        elements=st.integers(0, 4),
    ),
    ignore=st.sets(st.integers(0, 4), max_size=2),
)
def test_areas_equal_counting(maps, ignore):
    areas = areas_from_maps(maps, 5, ignore=ignore)
    assert areas.dtype == np.float32
    np.testing.assert_allclose(areas, slow_labels.areas(maps, 5, ignore), rtol=1e-6)


def test_areas_in_blocks(monkeypatch):
    maps = np.random.default_rng(2).integers(0, 3, (11, 4, 5))
    whole = areas_from_maps(maps, 3)
    monkeypatch.setattr("adagc.labels.simulate._BLOCK", 45)  # two maps at a time
    assert np.array_equal(areas_from_maps(maps, 3), whole)
    maps[9, 1, 1] = 7
    with pytest.raises(DataError, match=r"class map 9 holds the value 7, .*0 to 2.*`ignore`"):
        areas_from_maps(maps, 3)


def test_ignored_values_may_lie_outside_the_classes():
    maps = np.array([[[0, 255], [1, 1]], [[255, 255], [255, 255]]], dtype=np.uint8)
    areas = areas_from_maps(maps, 2, ignore=255)
    assert areas.tolist() == [[0.25, 0.5], [0, 0]]
    assert simulate_dominant(areas, 0).tolist() == [[0, 1], [0, 0]]
    assert areas_from_maps(np.array([[[-1, 0]]]), 1, ignore=-1).tolist() == [[0.5]]
    with pytest.raises(DataError, match="-1"):
        areas_from_maps(np.array([[[-1, 0]]]), 1)


def test_maps_are_checked():
    with pytest.raises(ValueError, match="maps"):
        areas_from_maps(np.zeros((2, 2), dtype=int), 2)
    with pytest.raises(ValueError, match="maps"):
        areas_from_maps(np.zeros((1, 2, 2)), 2)
    assert areas_from_maps(np.zeros((0, 2, 2), dtype=int), 2).shape == (0, 2)
