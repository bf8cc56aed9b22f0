"""Thresholds without clean labels."""

from __future__ import annotations

import numpy as np
import pytest
from test_priors import images

from adagc.priors import thresholds
from adagc.priors.calibration import fit


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


@pytest.mark.parametrize("rule", ["expected-f1", "shares"])
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
    assert (thresholds(p, observed) > 0).all()
