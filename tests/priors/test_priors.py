"""Class frequencies from single labels: made-up images of which everything is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from adagc import losses
from adagc.errors import DataError
from adagc.priors import estimate
from adagc.priors.calibration import ENOUGH, Calibration, fit

Floats = NDArray[np.float64]


def images(
    count: int, sure: float, *, seed: int = 0, classes: int = 10, area: bool = False
) -> tuple[Floats, NDArray[np.int8], NDArray[np.int64]]:
    """True presence probabilities, observed labels and truth of images.

    Args:
        count: Number of images.
        sure: How far from each other the logits of a class are in different images; with 10 the
            presence of a class is as good as certain.
        seed: Of everything that is drawn.
        classes: Number of classes.
        area: Whether the class with the largest area is written down, instead of a random one.
    """
    rng = np.random.default_rng(seed)
    logits = sure * (rng.standard_normal((count, classes)) - np.linspace(0, 1.5, classes))
    p = 1 / (1 + np.exp(-logits))
    truth = (rng.random(p.shape) < p).astype(np.int64)
    truth[truth.sum(axis=1) == 0, 0] = 1
    size = (
        rng.gamma(1.0, size=p.shape) * np.linspace(3, 0.2, classes) if area else rng.random(p.shape)
    )
    label = np.where(truth > 0, size, -1).argmax(axis=1)
    observed = np.zeros(p.shape, np.int8)
    observed[np.arange(count), label] = 1
    return p, observed, truth


@pytest.mark.parametrize("sure", [2.0, 4.0, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_finds_the_number_of_labels_whether_images_are_clear_or_not(sure, seed):
    p, observed, truth = images(2000, sure, seed=seed)
    found = estimate(p, observed)
    assert found.cardinality == pytest.approx(truth.sum(axis=1).mean(), rel=0.15)
    true = truth.mean(axis=0)
    common = true > 0.02
    assert np.median(np.abs(found.frequencies / true - 1)[common]) < 0.2


@pytest.mark.parametrize("power", [0.3, 3.0])
def test_scores_need_an_order_and_no_level(power):
    """Scores of a method that is far too low or too high, or too sharp: the same answer."""
    p, observed, truth = images(2000, 3.0)
    odds = (p / (1 - p)) ** power
    found = estimate(0.1 * odds / (0.1 * odds + 1), observed)
    assert found.cardinality == pytest.approx(truth.sum(axis=1).mean(), rel=0.15)


def test_the_interval_holds_the_truth_and_shrinks_with_more_images():
    inside, widths = 0, {}
    for count in (300, 2400):
        for seed in range(10):
            p, observed, truth = images(count, 4.0, seed=seed)
            found = estimate(p, observed, network=0, seed=seed)
            low, high = found.interval
            inside += low <= truth.sum(axis=1).mean() <= high
            widths.setdefault(count, []).append(high - low)
            assert low < found.cardinality < high
    assert inside >= 16  # of 20; 19 are expected
    assert np.mean(widths[2400]) < 0.5 * np.mean(widths[300])


def test_intervals_cover_another_network_too():
    p, observed, _ = images(20_000, 4.0)
    alone, found = (estimate(p, observed, network=share) for share in (0, 0.1))
    assert found.cardinality == alone.cardinality
    # So many images leave hardly anything but the network: 1.96 times a tenth to either side.
    assert found.interval[1] / found.interval[0] == pytest.approx(np.exp(2 * 1.96 * 0.1), rel=0.02)
    widths = [
        one.frequency_intervals[:, 1] - one.frequency_intervals[:, 0] for one in (alone, found)
    ]
    assert (widths[1] > 2 * widths[0]).all()
    assert ((found.frequency_intervals > 0) & (found.frequency_intervals < 1)).all()
    assert estimate(p, observed).interval == found.interval  # the default


def test_one_step_per_resample_spreads_like_whole_fits():
    """The intervals take one Newton step per resample, which must be as wide as fitting anew."""
    p, observed, _ = images(600, 4.0)
    found = fit(p, observed)
    rng = np.random.default_rng(1)
    quick, whole = [], []
    for _ in range(40):
        weights = rng.multinomial(600, np.full(600, 1 / 600))
        again = np.repeat(np.arange(600), weights)
        quick.append(found.moved(weights.astype(float)).presence(p[again]).sum(axis=1).mean())
        fitted = fit(p[again], observed[again]).calibration
        whole.append(fitted.presence(p[again]).sum(axis=1).mean())
    assert np.std(quick) == pytest.approx(np.std(whole), rel=0.25)
    assert np.corrcoef(quick, whole)[0, 1] > 0.9


def test_one_image_counted_once_more_or_less_changes_nothing_by_itself():
    p, observed, _ = images(400, 3.0)
    found = fit(p, observed)
    same = found.moved(np.ones(400))
    assert same.alpha == pytest.approx(found.calibration.alpha, abs=1e-4)
    assert same.beta == pytest.approx(found.calibration.beta, abs=1e-4)


def test_the_work_is_bounded_however_many_images_there_are(monkeypatch):
    """Fits and resamples are of 10,000 images at most; every image is looked at once."""
    explained, described = [], []
    likelihood, presence = losses.random_likelihood, Calibration.presence

    def counted_likelihood(logits, observed):
        explained.append(len(logits))
        return likelihood(logits, observed)

    def counted_presence(self, probabilities, *levels):
        described.append(len(probabilities))
        return presence(self, probabilities, *levels)

    monkeypatch.setattr(losses, "random_likelihood", counted_likelihood)
    monkeypatch.setattr(Calibration, "presence", counted_presence)
    p, observed, truth = images(2 * ENOUGH, 4.0)
    found = estimate(p, observed)
    assert set(explained) == {ENOUGH}
    assert sorted(described) == [ENOUGH] * (len(described) - 1) + [2 * ENOUGH]
    assert found.cardinality == pytest.approx(truth.sum(axis=1).mean(), rel=0.1)
    assert found.interval[0] < found.cardinality < found.interval[1]


def test_of_many_images_those_with_a_label_are_used():
    """Labels of a few images among very many are all counted, and images without tell nothing."""
    p, observed, _ = images(ENOUGH + 300, 3.0)
    observed[300:] = 0
    alone = estimate(p[:300], observed[:300], network=0)
    found = estimate(p, observed, network=0)
    assert found.calibration.alpha == pytest.approx(alone.calibration.alpha, rel=1e-4)
    assert found.frequencies == pytest.approx(found.calibration.presence(p).mean(axis=0))
    assert found.interval[1] - found.interval[0] == pytest.approx(
        alone.interval[1] - alone.interval[0], rel=0.2
    )


def test_few_labels_are_not_trusted():
    p, observed, _ = images(40, 3.0)
    found = estimate(p, observed)
    assert not found.trusted
    assert found.reason.startswith("Only 40 images have an observed label")


def test_labels_of_dominant_classes_are_not_trusted_if_areas_explain_them_better():
    rng = np.random.default_rng(0)
    p, observed, _ = images(2000, 3.0, area=True)
    areas = p * np.linspace(3, 0.2, 10)
    found = estimate(p, observed, areas=areas)
    assert not found.trusted
    assert "dominant" in found.reason
    p, observed, _ = images(2000, 3.0)
    assert estimate(p, observed, areas=p * rng.gamma(1.0, size=p.shape)).trusted


def test_one_class_says_nothing():
    found = estimate(np.full((100, 1), 0.7), np.ones((100, 1)))
    assert not found.trusted


def test_is_ready_for_json():
    p, observed, _ = images(200, 3.0)
    found = estimate(p, observed).to_dict()
    assert len(found["frequencies"]) == 10
    assert found["interval"][0] <= found["cardinality"] <= found["interval"][1]
    assert found["trusted"] is True


@pytest.mark.parametrize(
    ("probabilities", "observed", "said"),
    [
        (np.zeros((3, 2)), np.zeros((3, 3)), "both must be"),
        (np.zeros(3), np.zeros(3), "both must be"),
        (np.full((3, 2), np.nan), np.ones((3, 2)), "finite"),
        (np.full((3, 2), -1.0), np.ones((3, 2)), "not negative"),
        (np.full((3, 2), 0.5), np.zeros((3, 2)), "no image has an observed label"),
    ],
)
def test_bad_arrays_are_refused(probabilities, observed, said):
    with pytest.raises(DataError, match=said):
        estimate(probabilities, observed)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_scores_give_finite_frequencies(data):
    """Zeros, ones, ties and labels that contradict the scores."""
    count, classes = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 6))
    numbers = st.sampled_from([0.0, 1e-30, 1e-6, 0.5, 1 - 1e-9, 1.0])
    rows = st.lists(numbers, min_size=classes, max_size=classes)
    p = np.array([data.draw(rows) for _ in range(count)])
    known = st.lists(st.sampled_from([-1, 0, 1]), min_size=classes, max_size=classes)
    observed = np.array([data.draw(known) for _ in range(count)])
    observed[0, 0] = 1
    found = estimate(p, observed)
    assert np.isfinite(found.frequencies).all()
    assert (found.frequencies >= 0).all()
    assert (found.frequencies <= 1).all()
    assert np.isfinite(found.interval).all()
