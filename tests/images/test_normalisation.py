from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adagc.images import moments as kept
from adagc.images import normalisation
from adagc.images.array import ArrayScenes
from adagc.images.moments import Moments
from adagc.images.normalisation import far_from_unit, measure
from reference import slow_statistics

IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def assert_agrees(images: np.ndarray, chunk: int = 50) -> None:
    scenes = ArrayScenes(images)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalisation, "CHUNK_VALUES", chunk)
        patch.setattr(kept, "CHUNK_VALUES", chunk)
        fast = measure(scenes, np.arange(len(images)))
    slow = slow_statistics.band_statistics(images)
    np.testing.assert_allclose(fast.mean, slow["mean"], rtol=1e-12, atol=1e-12)
    std = np.where(fast.constant, 1.0, slow["std"])
    np.testing.assert_allclose(fast.std, std, rtol=1e-9)
    np.testing.assert_array_equal(fast.minimum, slow["low"])
    np.testing.assert_array_equal(fast.maximum, slow["high"])
    np.testing.assert_allclose(fast.missing + fast.infinite, slow["nonfinite"], atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([np.uint8, np.int16, np.uint16, np.float32, np.float64]),
    st.sampled_from([(3, 4, 5), (1, 20, 20), (6,)]),
    st.integers(2, 9),
    st.integers(1, 2_000),
)
def test_equals_the_slow_twin(
    seed: int, dtype: type, shape: tuple[int, ...], n: int, chunk: int
) -> None:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 250, (n, *shape)).astype(dtype)
    if images.dtype.kind == "f":
        images = images * dtype(1.37)
        images[rng.random(images.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
        images[0] = 1.0  # some finite value in every band
    assert_agrees(images, chunk)


def test_is_stable_far_from_zero() -> None:
    rng = np.random.default_rng(0)
    assert_agrees(1e9 + rng.normal(size=(30, 2, 5, 5)))


def test_rows_and_limit() -> None:
    images = np.arange(100, dtype=np.float64)[:, None] * np.ones((1, 2))
    scenes = ArrayScenes(images)
    assert measure(scenes, np.array([10, 20])).mean.tolist() == [15, 15]
    few = measure(scenes, np.arange(100), limit=5)
    assert few.count.tolist() == [5, 5]
    assert (few.minimum[0], few.maximum[0]) == (0, 99)  # spread over all rows, not the first five


def test_constant_and_empty_bands() -> None:
    images = np.random.default_rng(0).normal(size=(4, 3, 5, 5))
    images[:, 1] = 0.1
    images[:, 2] = np.nan
    measured = measure(ArrayScenes(images, bands=("a", "b", "c")), np.arange(4))
    assert measured.std[1:].tolist() == [1, 1]
    assert measured.constant.tolist() == [False, True, False]
    assert measured.notes == ("band b is constant", "band c has no finite value")
    assert measured.missing.tolist() == [0, 0, 1]
    assert np.isfinite(measured.mean).all()
    assert json.loads(json.dumps(measured.to_dict(), allow_nan=False))["minimum"][2] is None


def test_saturated_share() -> None:
    images = np.zeros((2, 1, 20, 20), dtype=np.uint8)
    images[0] = 255
    assert measure(ArrayScenes(images), np.arange(2)).saturated.tolist() == [0.5]
    assert measure(ArrayScenes(images.astype(np.uint16)), np.arange(2)).saturated.tolist() == [0]


def test_merge_equals_adding() -> None:
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=(3, 2, 4, 4)), rng.normal(5, 2, size=(2, 2, 4, 4))
    whole, left, right = Moments(2), Moments(2), Moments(2)
    whole.add(np.concatenate([one, two]))
    left.add(one)
    right.add(two)
    left.merge(right)
    a, b = whole.statistics("xy"), left.statistics("xy")
    np.testing.assert_allclose([a.mean, a.std], [b.mean, b.std], rtol=1e-12)
    np.testing.assert_array_equal(a.maximum, b.maximum)


def pictures(mean: list[float], std: list[float], scale: float = 1.0) -> ArrayScenes:
    noise = np.random.default_rng(0).normal(size=(20, len(mean), 8, 8))
    values = noise * np.array(std)[:, None, None] + np.array(mean)[:, None, None]
    return ArrayScenes((values * scale).astype(np.float32))


def test_fitting_statistics_are_silent() -> None:
    assert far_from_unit(pictures(*IMAGENET), np.arange(20), *IMAGENET) == []


def test_bytes_without_division() -> None:
    found = far_from_unit(pictures(*IMAGENET, scale=255), np.arange(20), *IMAGENET)
    assert len(found) == 4
    assert found[0].startswith("band red: after normalising, mean 5")
    assert found[-1] == "the statistics fit if you divide the values by 255"


def test_sentinel_divided_by_255() -> None:
    mean, std = [1350.0, 1115.0, 1040.0], [240.0, 290.0, 450.0]
    found = far_from_unit(pictures(mean, std, scale=1 / 255), np.arange(20), mean, std)
    assert found[-1] == "the statistics fit if you multiply the values by 255"


def test_blue_first() -> None:
    mean, std = [1000.0, 2000.0, 4000.0], [200.0, 300.0, 400.0]
    found = far_from_unit(pictures(mean[::-1], std[::-1]), np.arange(20), mean, std)
    assert found[-1] == "the statistics fit in reverse order: are the bands blue-first?"


def test_wrong_number_of_bands() -> None:
    found = far_from_unit(pictures(*IMAGENET), np.arange(20), [0.0] * 13, [1.0] * 13)
    assert found == ["statistics of 13 bands for images of 3: use those of these bands"]
