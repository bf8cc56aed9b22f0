from __future__ import annotations

import numpy as np
import pytest

from adagc.datasets.synthetic import synthetic_collection
from adagc.errors import UsageError
from adagc.images.synthetic.landcover import (
    CLASSES,
    LAND_COVER,
    MINIMUM_AREA,
    TRAINING_IMAGES,
    SceneNoise,
    compose,
    frequencies,
)
from adagc.images.synthetic.noise import smooth
from adagc.images.synthetic.scenes import SyntheticScenes
from adagc.images.synthetic.spectra import APPEARANCE, MATERIALS, OPTICAL

REAL = np.array([cover.support for cover in LAND_COVER]) / TRAINING_IMAGES


@pytest.fixture(scope="module")
def collection():
    return synthetic_collection(n_train=700, n_val=100, n_test=200)


@pytest.fixture(scope="module")
def by_class(collection):
    """Mean stored values per class, (C, 14), over pixels inside regions (not at borders)."""
    images = collection.images.gather(np.arange(len(collection.images))).astype(float)
    maps = collection.images.maps
    inside = np.zeros(maps.shape, dtype=bool)
    centre = maps[:, 1:-1, 1:-1]
    inside[:, 1:-1, 1:-1] = (
        (centre == maps[:, :-2, 1:-1])
        & (centre == maps[:, 2:, 1:-1])
        & (centre == maps[:, 1:-1, :-2])
        & (centre == maps[:, 1:-1, 2:])
    )
    bands = images.transpose(1, 0, 2, 3)
    means = [bands[:, inside & (maps == c)].mean(axis=1) for c in range(len(CLASSES))]
    return dict(zip(CLASSES, np.array(means), strict=True))


def band(collection, values, name):
    return values[collection.images.bands.index(name)]


def ndvi(collection, values):
    nir, red = band(collection, values, "B08"), band(collection, values, "B04")
    return (nir - red) / (nir + red)


def test_the_collection_has_the_announced_shape(collection):
    images = collection.images
    assert images.shape == (14, 32, 32)
    assert images.bands[:2] == ("VV", "VH")
    assert images.bands[2:] == OPTICAL
    assert len(OPTICAL) == 12
    assert [images.bands[i] for i in images.rgb] == ["B04", "B03", "B02"]
    assert {name: len(rows) for name, rows in collection.splits.items()} == {
        "train": 700,
        "val": 100,
        "test": 200,
    }
    rows = np.concatenate(list(collection.splits.values()))
    assert sorted(rows) == list(range(1000))
    assert len(set(images.names)) == len(images) == 1000
    assert images.names[123] == "scene_000123"
    assert collection.truth.shape == collection.areas.shape == (1000, 19)
    assert collection.truth.dtype == bool
    assert collection.areas.dtype == np.float32
    batch = images.gather(np.array([5, 2]))
    assert batch.dtype == images.dtype == np.int16
    assert len(collection.classes) == len(APPEARANCE) == 19


def test_gather_returns_a_copy(collection):
    first = collection.images.gather(np.array([3]))
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(collection.images.gather(np.array([3])), kept)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not():
    options = {"n_train": 20, "n_val": 5, "n_test": 5}
    one, two = (synthetic_collection(**options, seed=7) for _ in range(2))
    other = synthetic_collection(**options, seed=8)
    rows = np.arange(30)
    np.testing.assert_array_equal(one.images.gather(rows), two.images.gather(rows))
    np.testing.assert_array_equal(one.images.maps, two.images.maps)
    assert not np.array_equal(one.images.maps, other.images.maps)


@pytest.mark.parametrize("size", [16, 33, 96])
def test_a_scene_does_not_depend_on_the_scenes_it_is_built_with(size):
    together = SyntheticScenes(np.arange(200 if size < 90 else 20), size=size)
    for number in (0, 7, 19):
        alone = SyntheticScenes(np.array([number]), size=size)
        np.testing.assert_array_equal(alone.maps[0], together.maps[number])
        rows = np.array([number])
        np.testing.assert_array_equal(alone.gather(np.array([0])), together.gather(rows))


def test_a_larger_training_split_leaves_the_others_alone():
    small = synthetic_collection(n_train=10, n_val=6, n_test=8)
    large = synthetic_collection(n_train=25, n_val=6, n_test=9)
    for split in small.splits:
        rows, more = small.splits[split], large.splits[split][: len(small.splits[split])]
        assert [small.images.names[i] for i in rows] == [large.images.names[i] for i in more]
        np.testing.assert_array_equal(small.images.gather(rows), large.images.gather(more))
        np.testing.assert_array_equal(small.truth[rows], large.truth[more])


def test_labels_and_areas_are_those_of_the_maps(collection):
    for row in range(0, len(collection.images), 9):
        pixels = collection.images.maps[row].ravel().tolist()
        for c in range(len(CLASSES)):
            share = pixels.count(c) / len(pixels)
            assert collection.areas[row, c] == pytest.approx(share, abs=1e-6)
            assert collection.truth[row, c] == (share >= MINIMUM_AREA)
    assert collection.truth.any(axis=1).all()
    hidden = (collection.areas > 0) & ~collection.truth
    assert 0.1 < hidden.any(axis=1).mean() < 0.7  # specks below the minimum exist


def test_class_frequencies_and_cardinality_follow_the_real_ones(collection):
    shares = collection.truth.mean(axis=0)
    assert np.corrcoef(shares, REAL)[0, 1] > 0.93
    np.testing.assert_allclose(shares, frequencies(0.5), atol=0.045)
    assert (shares > 0.01).all()
    assert 2.7 < collection.truth.sum(axis=1).mean() < 3.1


def test_temper_goes_from_the_real_frequencies_to_equal_ones():
    np.testing.assert_allclose(frequencies(0.0), REAL, rtol=0.01)
    np.testing.assert_allclose(frequencies(1.0), 2.9 / 19)
    assert frequencies(0.5).min() > 0.02
    for temper in (0.0, 1.0):
        planned = compose(SceneNoise(0, np.arange(4000), stream=0), temper=temper)
        np.testing.assert_allclose(planned.sum(axis=1), 1, atol=1e-5)
        assert planned[planned > 0].min() > MINIMUM_AREA
        np.testing.assert_allclose((planned > 0).mean(axis=0), frequencies(temper), atol=0.03)


def test_classes_meet_as_they_do_in_the_world():
    planned = compose(SceneNoise(1, np.arange(6000), stream=0), temper=0.5)
    present = planned > 0
    column = {name: present[:, c] for c, name in enumerate(CLASSES)}
    sea = column["Marine waters"]
    cardinality = present.sum(axis=1)
    assert (1 - 1 / cardinality[sea]).mean() < 0.15  # flip rate under random choice, really 0.08
    assert (1 - 1 / cardinality[column["Urban fabric"]]).mean() > 0.6
    beach = column["Beaches, dunes, sands"]
    land = cardinality > 1
    assert sea[beach].mean() > 5 * sea[land].mean()
    arable, pine = column["Arable land"], column["Coniferous forest"]
    assert column["Urban fabric"][arable].mean() > 1.5 * column["Urban fabric"][pine].mean()
    assert column["Mixed forest"][pine].mean() > 1.5 * column["Mixed forest"][arable].mean()


def test_beaches_lie_at_the_water():
    sea, beach = CLASSES.index("Marine waters"), CLASSES.index("Beaches, dunes, sands")
    planned = compose(SceneNoise(0, np.arange(1500), stream=0), temper=0.5)
    both = SyntheticScenes(np.flatnonzero((planned[:, sea] > 0) & (planned[:, beach] > 0))).maps
    assert len(both) >= 5
    touching = 0
    for scene in both:
        wet = np.pad(scene == sea, 1)
        near = wet[:-2, 1:-1] | wet[2:, 1:-1] | wet[1:-1, :-2] | wet[1:-1, 2:]
        touching += bool((near & (scene == beach)).any())
    assert touching >= 0.8 * len(both)


def test_maps_are_coherent_regions(collection):
    maps = collection.images.maps[collection.truth.sum(axis=1) >= 2]
    agreement = (maps[:, :, 1:] == maps[:, :, :-1]).mean()
    rng = np.random.default_rng(0)
    shuffled = rng.permuted(maps.reshape(len(maps), -1), axis=1).reshape(maps.shape)
    chance = (shuffled[:, :, 1:] == shuffled[:, :, :-1]).mean()
    assert agreement > 0.85
    assert chance < 0.6


def test_a_larger_size_shows_the_same_landscape():
    coarse, fine = (SyntheticScenes(np.arange(40), size=size) for size in (32, 64))
    assert (fine.maps[:, ::2, ::2] == coarse.maps).mean() > 0.85
    np.testing.assert_allclose(fine.areas(), coarse.areas(), atol=0.03)


def test_spectra_are_physically_plausible(collection, by_class):
    forests = [name for name in CLASSES if name.endswith("forest")]
    waters = ["Inland waters", "Marine waters"]
    assert len(forests) == 3
    for name in forests:
        assert ndvi(collection, by_class[name]) > 0.6
        # The red edge: reflectance rises by more than twice from B05 to B07.
        assert band(collection, by_class[name], "B07") > 2 * band(collection, by_class[name], "B05")
    for name in waters:
        assert ndvi(collection, by_class[name]) < 0.1
        assert band(collection, by_class[name], "B11") < 400
        assert band(collection, by_class[name], "VH") < -2200
    conifers, leaves = by_class["Coniferous forest"], by_class["Broad-leaved forest"]
    mixed = by_class["Mixed forest"]
    nir = [band(collection, values, "B08") for values in (conifers, mixed, leaves)]
    assert nir == sorted(nir)
    sand = by_class["Beaches, dunes, sands"]
    assert band(collection, sand, "B12") == max(
        band(collection, v, "B12") for v in by_class.values()
    )
    built = by_class["Industrial or commercial units"]
    assert band(collection, built, "VV") == max(
        band(collection, v, "VV") for v in by_class.values()
    )
    assert ndvi(collection, built) < ndvi(collection, by_class["Urban fabric"]) < 0.6


def test_values_stay_in_the_range_of_the_sensors(collection):
    images = collection.images.gather(np.arange(len(collection.images)))
    radar, optical = images[:, :2], images[:, 2:]
    assert radar.min() >= -5000
    assert radar.max() < 1500
    assert (radar[:, 0] > radar[:, 1]).mean() > 0.95  # cross-polarised echoes are weaker
    assert optical.min() >= 1
    assert optical.max() <= 15_000
    assert all(len(m.optical) == 12 for m in MATERIALS.values())
    assert images.reshape(len(images), 14, -1).std(axis=2).min() > 0  # no dead band


def test_speckle_multiplies():
    scenes = SyntheticScenes(np.arange(300), size=32, difficulty=0.0)
    alone = (scenes.maps == CLASSES.index("Marine waters")).all(axis=(1, 2))
    decibel = scenes.gather(np.flatnonzero(alone))[:, 0] / 100
    power = 10 ** (decibel / 10)
    spread = power.std(axis=(1, 2)) / power.mean(axis=(1, 2))
    assert spread.mean() == pytest.approx(1 / np.sqrt(5), rel=0.15)  # five looks


def test_difficulty_changes_the_images_and_not_the_maps():
    easy, hard = (SyntheticScenes(np.arange(60), difficulty=d) for d in (0.0, 2.0))
    np.testing.assert_array_equal(easy.maps, hard.maps)
    conifers = easy.maps == CLASSES.index("Coniferous forest")
    rows = [i for i in range(60) if conifers[i].sum() > 100]
    spread = []
    for scenes in (easy, hard):
        images = scenes.gather(np.arange(60))[:, scenes.bands.index("B08")]
        means = np.array([images[i][conifers[i]].mean() for i in rows])
        spread.append(means.std() / means.mean())
    assert len(rows) >= 5
    assert spread[1] > 1.3 * spread[0]


def test_haze_is_strongest_in_the_blue():
    clear, hazy = (SyntheticScenes(np.arange(150), difficulty=d) for d in (0.0, 1.0))
    alone = (clear.maps == CLASSES.index("Marine waters")).all(axis=(1, 2))
    rows = np.flatnonzero(alone)
    added = (hazy.gather(rows).astype(float) - clear.gather(rows)).mean(axis=(0, 2, 3))
    blue, nir, swir = (added[clear.bands.index(name)] for name in ("B02", "B08", "B12"))
    assert blue > nir > 0
    assert blue > 2 * swir


def test_smooth_surfaces_have_unit_variance_everywhere():
    knots = np.random.default_rng(0).standard_normal((4000, 7, 7)).astype(np.float32)
    surface = smooth(knots, 20)
    assert surface.shape == (4000, 20, 20)
    np.testing.assert_allclose(surface.var(axis=0), 1, atol=0.15)
    steps = np.abs(np.diff(surface, axis=2)).mean()
    assert steps < 0.4


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"size": 8}, "size=8"),
        ({"size": 300}, "size=300"),
        ({"seed": -1}, "seed=-1"),
        ({"temper": 1.5}, "temper=1.5"),
        ({"difficulty": -0.1}, "difficulty=-0.1"),
        ({"difficulty": float("nan")}, "difficulty=nan"),
        ({"n_val": -3}, "n_val=-3"),
        ({"n_test": 200_001}, "n_test=200001"),
    ],
)
def test_options_out_of_range_are_refused_with_a_remedy(options, named):
    with pytest.raises(UsageError, match="choose") as caught:
        synthetic_collection(**{"n_train": 1, "n_val": 1, "n_test": 1, **options})
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_split_may_be_empty():
    collection = synthetic_collection(n_train=3, n_val=0, n_test=0, size=16)
    assert len(collection.images) == 3
    assert len(collection.splits["val"]) == 0
