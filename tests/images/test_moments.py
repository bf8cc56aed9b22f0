from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from adagc import demo
from adagc.datasets.synthetic import synthetic_collection
from adagc.images.array import ArrayScenes
from adagc.images.base import SceneDataset
from adagc.images.moments import Kept, Moments, tally_images
from adagc.images.normalisation import measure
from reference.slow_statistics import exact_moments, running_statistics

WHOLE = [np.uint8, np.int8, np.int16, np.uint16]
BANDS = ("a", "b", "c")


class Counted(SceneDataset):
    """Images that note which rows were read."""

    def __init__(self, values: NDArray[np.generic]) -> None:
        self.values, self.read = values, list[int]()
        self.names = tuple(f"{i}" for i in range(len(values)))
        self.bands = tuple(f"band {i}" for i in range(values.shape[1]))
        self.shape, self.dtype = values.shape[1:], values.dtype

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        self.read += rows.tolist()
        return self.values[rows]


def values_of(seed: int, dtype: type, n: int, *, wide: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if wide else (info.max - 3, info.max)
        return rng.integers(low, high, (n, 3, 4, 5), dtype=dtype, endpoint=True)
    return (rng.normal(rng.normal(0, 1e4), 3, (n, 3, 4, 5))).astype(dtype)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(WHOLE), st.integers(1, 7), st.booleans())
def test_whole_numbers_are_exact(seed: int, dtype: type, n: int, wide: bool) -> None:
    """Mean and spread are the true ones, rounded once."""
    images = values_of(seed, dtype, n, wide=wide)
    found = Kept(tally_images(images), np.arange(n), 20).combined().statistics(BANDS)
    count = n * 20
    for band, (mean, squares) in enumerate(exact_moments(images)):
        assert found.mean[band] == float(mean)
        wanted = np.sqrt(float(squares) / count)
        assert found.std[band] == (1.0 if found.constant[band] else wanted)
    assert (found.saturated == (images == np.iinfo(dtype).max).mean(axis=(0, 2, 3))).all()
    np.testing.assert_array_equal(found.minimum, images.min(axis=(0, 2, 3)))
    np.testing.assert_array_equal(found.maximum, images.max(axis=(0, 2, 3)))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([*WHOLE, np.int32, np.float32, np.float64]),
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.booleans(),
)
def test_it_does_not_matter_how_images_are_cut_into_parts(
    seed: int, dtype: type, sizes: list[int], holes: bool
) -> None:
    """Kept per image, added in chunks or merged: the same; bit for bit of whole numbers."""
    n = sum(sizes) + 1
    images = values_of(seed, dtype, n)
    if holes and images.dtype.kind == "f":
        images[np.random.default_rng(seed).random(images.shape) < 0.2] = np.nan
        images[0, 1] = np.inf
    order = np.random.default_rng(seed).permutation(n)
    kept = Kept(tally_images(images), order, 20).combined()
    parts = Moments(3)
    for part in np.split(images, np.cumsum(sizes)):
        one = Moments(3)
        one.add(part)
        parts.merge(one)
    one, two = kept.statistics(BANDS), parts.statistics(BANDS)
    for name in ("count", "minimum", "maximum", "missing", "infinite", "saturated", "constant"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    if dtype in WHOLE:
        assert (one.mean == two.mean).all()
        assert (one.std == two.std).all()
    for band, (mean, squares) in enumerate(exact_moments(images)):
        count = max(int(one.count[band]), 1)
        for found in (one, two):
            assert found.mean[band] == pytest.approx(float(mean), rel=1e-13)
            if not found.constant[band] and found.count[band]:
                wanted = float(squares / count) ** 0.5
                assert found.std[band] == pytest.approx(wanted, rel=1e-11)


def test_the_squares_of_half_a_million_patches_fit() -> None:
    """At the top of 16 bits the sum of squares is beyond 64 bits."""
    assert 600_000 * 120 * 120 * 65_534**2 > 2**63
    kept = np.repeat(tally_images(np.full((1, 1, 120, 120), 65_535, np.uint16)), 600_000, axis=0)
    kept[::3] = tally_images(np.full((1, 1, 120, 120), 65_534, np.uint16))
    found = Kept(kept, np.arange(len(kept)), 120 * 120).combined().statistics("x")
    assert found.mean.tolist() == [float(65_535 - Fraction(1, 3))]
    assert found.std.tolist() == [pytest.approx((2 / 9) ** 0.5, rel=1e-15)]


def test_kinds_of_values_may_be_mixed() -> None:
    """As `inspect` finds them in a folder."""
    bytes_, floats = values_of(0, np.uint8, 3), values_of(1, np.float32, 2)
    mixed = Moments(3)
    mixed.add(bytes_)
    mixed.add(floats)
    both = np.concatenate([bytes_.astype(np.float64), floats.astype(np.float64)])
    found = mixed.statistics(BANDS)
    np.testing.assert_allclose(found.mean, both.mean(axis=(0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(found.std, both.std(axis=(0, 2, 3)), rtol=1e-12)
    assert found.count.tolist() == [100] * 3


# -- an image is measured once ---------------------------------------------------------------


def test_another_split_reads_only_what_is_new() -> None:
    scenes = Counted(np.random.default_rng(0).integers(0, 99, (12, 2, 8, 8), dtype=np.int16))
    first = measure(scenes, np.array([1, 3, 5]))
    assert sorted(scenes.read) == [1, 3, 5]
    measure(scenes, np.array([3, 5, 7, 7]))
    assert sorted(scenes.read) == [1, 3, 5, 7]
    again = measure(scenes, np.array([5, 3, 1]))
    assert sorted(scenes.read) == [1, 3, 5, 7]
    assert (first.mean == again.mean).all()
    np.testing.assert_allclose(first.mean, scenes.values[[1, 3, 5]].mean(axis=(0, 2, 3)))
    assert measure(scenes, np.array([], dtype=np.int64)).count.tolist() == [0, 0]


def test_embeddings_and_small_maps_are_read_as_they_are() -> None:
    """Their moments would take as much room as they do."""
    for shape in ((6,), (6, 3, 3)):
        scenes = Counted(np.random.default_rng(0).normal(size=(10, *shape)))
        assert scenes.moments(np.arange(3)) is None
        assert (
            measure(scenes, np.arange(3)).count.tolist() == [3 * max(1, 9 ** (len(shape) // 2))] * 6
        )


def test_what_was_measured_travels_with_the_images(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(5, 2, 9, 9)))
    array = np.load(tmp_path / "x.npy", mmap_mode="r")
    scenes = ArrayScenes(array, source=str(tmp_path / "x.npy"))
    before = measure(scenes, np.arange(4))
    after = measure(pickle.loads(pickle.dumps(scenes)), np.arange(4))
    assert (before.mean == after.mean).all()
    assert (before.std == after.std).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_networks_of_the_demo_see_the_statistics_they_always_saw(seed: int) -> None:
    """Bit for bit in the precision of a network, so that published numbers stay what they are."""
    count, size = demo.SETTINGS["scenes"], demo.SETTINGS["size"]
    data = synthetic_collection(n_train=count, n_val=0, n_test=0, size=size, seed=seed)
    found = measure(data.images, data.splits["train"])
    mean, std = running_statistics(data.images, data.splits["train"])
    assert (found.mean.astype(np.float32) == mean.astype(np.float32)).all()
    assert (found.std.astype(np.float32) == std.astype(np.float32)).all()
