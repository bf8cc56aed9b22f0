"""The estimator from outside: its forms of y, what it finds, and scikit-learn's tools around it."""

from __future__ import annotations

import doctest
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn")

import joblib
from sklearn.base import clone
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import adagc
from adagc import RunConfig, SinglePositiveClassifier, train
from adagc.datasets import collect
from adagc.images.array import ArrayScenes
from adagc.inference import predict
from adagc.labels import LabelTable
from adagc.methods.assume_negative import WeakAssumeNegative
from adagc.metrics.noisy import auc

QUICK = {"epochs": 6, "hidden": 32, "learning_rate": 0.005, "dropout": 0.0}
LEARNT = {**QUICK, "epochs": 20, "learning_rate": 0.01}  # until little more is to be learnt


@dataclass
class Rows:
    X: np.ndarray
    truth: np.ndarray  # (N, C) all labels
    ids: np.ndarray  # (N,) one of them each


@pytest.fixture(scope="module")
def rows() -> Rows:
    rng = np.random.default_rng(0)
    truth = rng.random((400, 5)) < 0.3
    truth[np.arange(400), rng.integers(0, 5, 400)] = True
    X = truth @ rng.normal(size=(5, 12)) + 0.3 * rng.normal(size=(400, 12))
    ids = np.array([rng.choice(np.flatnonzero(row)) for row in truth])
    return Rows(X, truth, ids)


def one_hot(ids: np.ndarray, classes: int = 5) -> np.ndarray:
    return np.eye(classes, dtype=int)[ids]


@pytest.fixture(scope="module")
def fitted(rows) -> SinglePositiveClassifier:
    return SinglePositiveClassifier(**LEARNT).fit(rows.X[:300], rows.ids[:300])


# -- what it finds -------------------------------------------------------------------------------


def test_all_labels_are_found_from_one_per_row(rows, fitted):
    truth = rows.truth[300:]
    naive = SinglePositiveClassifier("AN", **LEARNT, thresholds="half").fit(
        rows.X[:300], rows.ids[:300]
    )
    found, assumed = (model.predict(rows.X[300:]).astype(bool) for model in (fitted, naive))
    assert found.shape == truth.shape
    right, missed = found & truth, truth & ~found
    # What is not named is not taken for absent: most of the labels are found, not one per row.
    assert missed.sum() < 0.5 * (truth & ~assumed).sum()
    assert right.sum() > 1.5 * len(truth)
    assert right.sum() > 4 * (found & ~truth).sum()


def test_predict_is_predict_proba_at_the_thresholds(rows, fitted):
    probabilities = fitted.predict_proba(rows.X)
    assert probabilities.shape == (400, 5)
    np.testing.assert_array_equal(fitted.predict(rows.X), probabilities >= fitted.thresholds_)
    assert len(set(fitted.thresholds_.tolist())) > 1  # learnt, not one half
    halves = SinglePositiveClassifier(**QUICK, thresholds="half").fit(rows.X[:300], rows.ids[:300])
    assert set(halves.thresholds_.tolist()) == {0.5}


def test_completed_labels_keep_what_was_observed(rows):
    observed = one_hot(rows.ids[:300])
    observed[:20] = 0  # rows without a label are completed, too
    absent = np.flatnonzero(~rows.truth[20:300].all(axis=1)) + 20
    for row in absent[:100]:
        observed[row, np.flatnonzero(~rows.truth[row])[0]] = -1
    model = SinglePositiveClassifier(**QUICK).fit(rows.X[:300], observed)
    assert model.complete_.shape == (300, 5)
    assert set(np.unique(model.complete_)) == {0, 1}
    assert (model.complete_[observed > 0] == 1).all()
    assert (model.complete_[observed < 0] == 0).all()
    unknown = observed == 0
    np.testing.assert_array_equal(model.complete_[unknown], model.predict(rows.X[:300])[unknown])
    assert model.complete_[:20].sum() > 20


def test_frequencies_are_those_of_all_labels(rows, fitted):
    true = rows.truth.mean(axis=0)
    named = np.bincount(rows.ids, minlength=5) / 400
    assert abs(fitted.class_frequencies_ - true).mean() < abs(named - true).mean() / 2
    assert fitted.frequencies_reason_.endswith(".")


def test_it_is_the_training_of_adagc(rows):
    """The same numbers as `adagc.train` with the same seed, method and split."""
    model = SinglePositiveClassifier("WAN", **QUICK, random_state=3).fit(rows.X, rows.ids)
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    images = ArrayScenes(rows.X.astype(np.float32))
    table = LabelTable(images.names, tuple("01234"), one_hot(rows.ids))
    collection = collect(images, labels=table, seed=seed, test_share=0.0)
    run = train(RunConfig(data="array", seed=seed, **QUICK), WeakAssumeNegative(),
                collection=collection, labels=table)  # fmt: skip
    expected = predict(run.model(), images, np.arange(400))
    np.testing.assert_array_equal(model.predict_proba(rows.X), expected)


def test_the_example_in_the_documentation_runs():
    from adagc.estimator import classifier

    found = doctest.testmod(classifier)
    assert found.attempted > 5
    assert found.failed == 0


# -- forms of y ----------------------------------------------------------------------------------


def test_ids_text_and_one_hot_say_the_same(rows):
    X, ids = rows.X[:150], rows.ids[:150]
    words = np.array(["bare", "crops", "forest", "urban", "water"])
    fits = [
        SinglePositiveClassifier(**QUICK).fit(X, y)
        for y in (ids, words[ids], one_hot(ids), one_hot(ids).astype(bool), one_hot(ids) * 1.0)
    ]
    first = fits[0].predict_proba(X)
    for other in fits[1:]:
        np.testing.assert_array_equal(other.predict_proba(X), first)
    assert fits[0].classes_.tolist() == [0, 1, 2, 3, 4]
    assert fits[1].classes_.tolist() == words.tolist()
    assert fits[2].classes_.tolist() == [0, 1, 2, 3, 4]


def test_names_of_columns_are_the_classes(rows):
    pandas = pytest.importorskip("pandas")
    y = pandas.DataFrame(one_hot(rows.ids[:100]), columns=list("vwxyz"))
    assert SinglePositiveClassifier(**QUICK).fit(rows.X[:100], y).classes_.tolist() == list("vwxyz")


def test_absent_labels_and_several_positives_are_used(rows):
    X, y = rows.X[:150], one_hot(rows.ids[:150])
    several = np.where(rows.truth[:150], 1, y)
    three = np.where(rows.truth[:150], y, -1)
    plain, more, less = (
        SinglePositiveClassifier("Random label", **QUICK).fit(X, v).predict_proba(X)
        for v in (y, several, three)
    )
    assert not np.array_equal(plain, more)
    assert less.mean() < plain.mean()


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.full((40, 3), 2), "only +1 (seen), 0 (not known) and -1"),
        (np.ones((40, 3, 2)), "3 axes|dim 3"),
        (np.ones(40), "single class"),
        (np.zeros((40, 3)), "positive label"),
    ],
)
def test_a_useless_y_is_refused_in_one_line(y, words):
    with pytest.raises(ValueError, match="|".join(map(_escaped, words.split("|")))):
        SinglePositiveClassifier(epochs=1).fit(np.random.default_rng(0).normal(size=(40, 4)), y)


def _escaped(text: str) -> str:
    import re

    return re.escape(text)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "AdaGd"}, "did you mean.*AdaGC"),
        ({"options": {"patiense": 3}}, "patience"),
        ({"options": {"patience": "long"}}, "patience must be a whole number"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"validation_share": 1.0}, "validation_share must be above 0"),
        ({"thresholds": "best"}, "thresholds must be pooled-f1, expected-f1"),
        ({"method": "GT w/ BCE"}, "needs"),
    ],
)
def test_a_bad_parameter_is_named_when_fitting(rows, settings, words):
    model = SinglePositiveClassifier(**settings)  # not yet: the constructor only stores
    with pytest.raises(ValueError, match=words) as caught:
        model.fit(rows.X[:60], rows.ids[:60])
    assert isinstance(caught.value, adagc.AdagcError)
    assert "\n" not in str(caught.value)


# -- score ---------------------------------------------------------------------------------------


def test_score_of_all_labels_is_the_mean_average_precision(rows, fitted):
    X, truth = rows.X[300:], rows.truth[300:]
    expected = average_precision_score(truth, fitted.predict_proba(X), average="macro")
    assert fitted.score(X, truth) == pytest.approx(expected)


def test_score_of_single_labels_is_the_auc_of_observed_ones(rows, fitted):
    X, ids = rows.X[300:], rows.ids[300:]
    expected = auc(one_hot(ids), fitted.predict_proba(X))
    assert fitted.score(X, ids) == fitted.score(X, one_hot(ids)) == pytest.approx(expected)
    assert fitted.score(X, ids) != pytest.approx(fitted.score(X, rows.truth[300:]))


def test_score_refuses_classes_it_has_not_seen(rows, fitted):
    with pytest.raises(ValueError, match="class 7"):
        fitted.score(rows.X[:5], [0, 1, 2, 3, 7])
    with pytest.raises(ValueError, match="4 columns for 5 classes"):
        fitted.score(rows.X[:5], rows.truth[:5, :4])


# -- scikit-learn's tools ------------------------------------------------------------------------


def test_a_pipeline_is_fitted_and_cloned(rows):
    pipeline = make_pipeline(StandardScaler(), SinglePositiveClassifier(**LEARNT))
    scores = [
        clone(pipeline).fit(rows.X[:300], rows.ids[:300]).score(rows.X[300:], rows.truth[300:])
        for _ in range(2)
    ]
    assert scores[0] == scores[1] > 0.9


def test_a_grid_search_chooses_by_single_labels(rows):
    search = GridSearchCV(
        SinglePositiveClassifier(**QUICK),
        {"method": ["AN", "Auto"], "epochs": [1, 6]},
        cv=2,
    ).fit(rows.X[:200], rows.ids[:200])
    assert search.best_params_["epochs"] == 6
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.predict(rows.X).shape == (400, 5)


def test_scorers_of_scikit_learn_take_it(rows):
    search = GridSearchCV(
        SinglePositiveClassifier("AN", **QUICK), {"hidden": np.array([4, 8])}, cv=2,
        scoring="average_precision",
    ).fit(rows.X[:200], rows.truth[:200])  # fmt: skip
    assert 0 < search.best_score_ <= 1


def test_a_stored_estimator_predicts_the_same_in_another_process(rows, fitted, tmp_path):
    joblib.dump(fitted, tmp_path / "model.joblib")
    np.save(tmp_path / "X.npy", rows.X)
    assert b"torch" not in (tmp_path / "model.joblib").read_bytes()  # bytes and arrays only
    code = (
        "import sys, joblib, numpy as np; p = sys.argv[1];"
        "m = joblib.load(p + '/model.joblib');"
        "np.save(p + '/out.npy', m.predict_proba(np.load(p + '/X.npy')))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), fitted.predict_proba(rows.X))


# -- everything else -----------------------------------------------------------------------------


def test_seeds_decide(rows):
    X, ids = rows.X[:100], rows.ids[:100]
    first, again, other = (
        SinglePositiveClassifier(**QUICK, random_state=seed).fit(X, ids).predict_proba(X)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_images_and_missing_values_are_taken(rows):
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 3, 60)
    images = rng.integers(0, 50, size=(60, 3, 8, 8)).astype(np.uint8)
    images[np.arange(60), ids] += 150
    model = SinglePositiveClassifier(backbone="mlp", **LEARNT).fit(images, ids)
    assert (model.predict_proba(images).argmax(axis=1) == ids).mean() > 0.9
    X = rows.X[:100].copy()
    X[::7, 3] = np.nan
    assert np.isfinite(
        SinglePositiveClassifier(**QUICK).fit(X, rows.ids[:100]).predict_proba(X)
    ).all()


def test_nothing_is_written_and_nothing_said(rows, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    SinglePositiveClassifier(**QUICK).fit(rows.X[:80], rows.ids[:80])
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().out == ""
    SinglePositiveClassifier(**{**QUICK, "epochs": 2}, verbose=1).fit(rows.X[:80], rows.ids[:80])
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1 of 2", "epoch 2 of 2"]


def test_without_scikit_learn_the_message_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import importlib.util as u; old = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'sklearn' else old(name, *a)\n"
        "import adagc\n"
        "try:\n    adagc.SinglePositiveClassifier\n"
        "except adagc.AdagcError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == (
        "scikit-learn is not installed: run  pip install 'adagc[sklearn]'"
    )
