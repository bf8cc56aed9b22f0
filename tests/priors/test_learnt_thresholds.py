"""Thresholds without clean labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_priors import images

from adagc import losses
from adagc.priors import thresholds
from adagc.priors.calibration import ENOUGH, fit
from adagc.priors.levels import presence_with_levels
from adagc.priors.thresholds import f1_cuts, pooled_cuts, share_cuts
from reference.slow_thresholds import slow_f1_cut, slow_levels, slow_pooled


def f1(truth, decided):
    both = (truth & decided).sum(axis=0)
    return float(np.mean(2 * both / np.maximum(truth.sum(axis=0) + decided.sum(axis=0), 1)))


def slow(p, observed, rule):
    """Class by class, every distinct score as the last one that counts."""
    presence = fit(p, observed).calibration.presence(p)
    found = []
    for c in range(p.shape[1]):
        best, cut = -np.inf, None
        for score in np.unique(p[:, c]):
            chosen = p[:, c] >= score
            if rule == "shares":
                merit = -abs(chosen.sum() - presence[:, c].sum())
            else:
                merit = 2 * presence[chosen, c].sum() / (chosen.sum() + presence[:, c].sum())
            if merit > best:
                best, cut = merit, score
        found.append(p[:, c] >= cut)
    return np.stack(found, axis=1)


@pytest.mark.parametrize("rule", ["expected-f1", "shares"])
@pytest.mark.parametrize("decimals", [2, 15])  # with and without ties
def test_decides_like_trying_every_score(rule, decimals):
    p, observed, _ = images(300, 3.0)
    p = p.round(decimals)
    limits = thresholds(p, observed, rule)
    assert ((p >= limits) == slow(p, observed, rule)).mean() > 0.999


@pytest.mark.parametrize("rule", ["pooled-f1", "expected-f1", "shares"])
def test_scores_that_are_far_too_low_are_made_up_for(rule):
    p, observed, truth = images(2000, 4.0)
    low = 0.2 * p**2
    half = f1(truth > 0, low >= 0.5)
    found = f1(truth > 0, low >= thresholds(low, observed, rule))
    best = f1(truth > 0, p >= 0.5)
    assert half < 0.1
    assert found > 0.93 * best


def test_expected_f1_is_the_better_rule_where_images_are_unclear():
    p, observed, truth = images(4000, 1.5)
    values = {
        rule: f1(truth > 0, p >= thresholds(p, observed, rule)) for rule in ("expected-f1", "half")
    }
    assert values["expected-f1"] > values["half"]


def test_the_cut_of_four_images_by_hand():
    """F1 to be expected: 2/3, 3/4, 4/5 and 2/3 if the first one, two, three, four are predicted."""
    scores = np.array([[0.5], [0.9], [0.1], [0.6]])
    presence = np.array([[0.5], [1.0], [0.0], [0.5]])
    assert f1_cuts(scores, presence).tolist() == pytest.approx([0.3])
    assert share_cuts(scores, presence).tolist() == pytest.approx([0.55])  # two images


def test_a_rare_class_is_cut_close_to_where_all_classes_are_by_hand():
    """Class 0 is in 75 images above 0.6, class 1 in one above 0.2; together best cut is at 0.5."""
    scores = np.full((100, 2), 0.1)
    scores[:75, 0], scores[75:, 0], scores[0, 1] = 0.8, 0.4, 0.3
    presence = np.zeros((100, 2))
    presence[:75, 0], presence[0, 1] = 1, 1
    assert f1_cuts(scores, presence).tolist() == pytest.approx([0.6, 0.2])
    found = pooled_cuts(scores, presence)
    assert found[0] == pytest.approx(0.6**0.75 * 0.6**0.25)
    assert found[1] == pytest.approx(0.2 ** (1 / 26) * 0.6 ** (25 / 26))


@pytest.mark.parametrize("decimals", [1, 15])
def test_pooled_cuts_are_those_of_plain_loops(decimals):
    p, observed, _ = images(120, 3.0, classes=4)
    p = p.round(decimals)
    presence = presence_with_levels(p, observed)
    assert pooled_cuts(p, presence) == pytest.approx(slow_pooled(p, presence))
    assert f1_cuts(p, presence) == pytest.approx(
        [slow_f1_cut(p[:, c], presence[:, c]) for c in range(4)]
    )
    assert thresholds(p, observed).tolist() == pooled_cuts(p, presence).tolist()


def test_levels_are_those_that_sums_over_all_label_sets_find_most_probable():
    p, observed, _ = images(60, 2.0, classes=3)
    p[:, 1] *= 0.2
    observed[0] = [1, 0, -1]
    observed[1] = 0
    assert presence_with_levels(p, observed) == pytest.approx(slow_levels(p, observed), abs=1e-3)


def test_a_class_that_is_underrated_everywhere_is_expected_as_often_as_it_is_there():
    p, observed, truth = images(2000, 4.0)
    p[:, 2] *= 0.15
    frequency = truth[:, 2].mean()
    alike = fit(p, observed).calibration.presence(p)[:, 2].mean()
    levelled = presence_with_levels(p, observed)[:, 2].mean()
    assert levelled == pytest.approx(frequency, rel=0.1)
    assert alike < 0.5 * frequency


@pytest.mark.parametrize("seed", range(3))
def test_pooled_is_the_better_rule_where_classes_have_levels_of_their_own(seed):
    p, observed, truth = images(600, 3.0, seed=seed)
    odds = p / (1 - p) * np.exp(1.5 * np.random.default_rng(seed).standard_normal(10))
    p = odds / (1 + odds)
    pooled, plain = (
        f1(truth > 0, p >= thresholds(p, observed, rule)) for rule in ("pooled-f1", "expected-f1")
    )
    assert pooled > plain + 0.01


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_any_scores_give_thresholds_between_those_of_the_class_and_of_all(data):
    """Zeros, ones, ties and labels that contradict the scores."""
    classes = data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    p = rng.choice([0.0, 1e-30, 1e-6, 0.3, 0.5, 1 - 1e-9, 1.0], size=(60, classes))
    observed = rng.choice([-1, 0, 1], size=(60, classes))
    observed[:50, 0] = 1
    found = thresholds(p, observed)
    presence = presence_with_levels(p, observed)
    own = f1_cuts(p, presence)
    every = f1_cuts(p.reshape(-1, 1), presence.reshape(-1, 1))
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert (found >= np.minimum(own, every) * (1 - 1e-9)).all()
    assert (found <= np.maximum(np.maximum(own, every), 1e-12) * (1 + 1e-9)).all()


@given(st.permutations(range(10)), st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_the_order_of_classes_and_images_means_nothing(order, seed):
    p, observed, _ = images(200, 3.0, seed=seed)
    found = thresholds(p, observed)
    assert thresholds(p[:, order], observed[:, order]) == pytest.approx(found[order], rel=1e-3)
    assert thresholds(p[::-1], observed[::-1]) == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize("rule", ["pooled-f1", "expected-f1"])
def test_more_images_than_enough_say_the_same_with_no_more_work(rule, monkeypatch):
    p, observed, _ = images(2 * ENOUGH, 3.0)
    few = thresholds(p[:ENOUGH], observed[:ENOUGH], rule)
    explained, likelihood = [], losses.random_likelihood

    def counted(logits, seen):
        explained.append(len(logits))
        return likelihood(logits, seen)

    monkeypatch.setattr(losses, "random_likelihood", counted)
    changed = (p >= thresholds(p, observed, rule)) != (p >= few)
    assert changed.mean() < 0.01
    assert set(explained) == {ENOUGH}


def test_few_labels_change_nothing():
    p, observed, _ = images(49, 3.0)
    assert thresholds(p, observed).tolist() == [0.5] * 10
    p, observed, _ = images(50, 3.0)
    assert thresholds(p, observed).tolist() != [0.5] * 10
    assert thresholds(p, observed, "half").tolist() == [0.5] * 10


def test_a_class_that_is_never_present_is_never_predicted_by_its_share():
    p, observed, _ = images(400, 6.0)
    p[:, 9] = 1e-9
    observed[observed[:, 9] > 0, 0] = 1
    observed[:, 9] = 0
    limits = thresholds(p, observed, "shares")
    assert np.isfinite(limits).all()
    assert not (p[:, 9] >= limits[9]).any()
    assert (thresholds(p, observed, "expected-f1") > 0).all()
    # Nothing is known of it, so what all classes have in common decides.
    assert not (p[:, 9] >= thresholds(p, observed)[9]).any()
