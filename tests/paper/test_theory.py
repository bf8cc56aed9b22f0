from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from adagc.errors import AdagcError, UsageError
from adagc.inference import predict
from adagc.labels import simulate_random
from adagc.methods.adagc import AdaGC
from adagc.methods.assume_negative import AssumeNegative
from adagc.metrics import average_precision
from adagc.models import load_model
from adagc.paper.theory.measure import Theory, measure, propose
from adagc.paper.theory.words import sentence, table
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.observe import observe
from adagc.training.runs import Run
from conftest import make_collection
from reference import slow_theory as slow

# -- what is arithmetic ------------------------------------------------------------------------

rates = st.floats(0, 0.99)
shares = st.floats(0, 1)
classes = st.integers(1, 7).flatmap(
    lambda c: st.tuples(
        st.lists(rates, min_size=c, max_size=c), st.lists(shares, min_size=c, max_size=c)
    )
)


@given(classes)
def test_with_the_covariance_the_mean_over_classes_is_exact(given_):
    beta, clean = map(np.array, given_)
    for number, weights in ((1, 1 - beta), (2, 1 / (1 - beta))):
        said = propose(number, beta, clean[None])
        assert said.full[0] == pytest.approx(np.mean(weights * clean), rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(said.classes[0], weights * clean)


@given(classes)
def test_predictions_agree_with_the_formulas_as_the_paper_writes_them(given_):
    beta, clean = given_
    for number in (1, 2):
        said = propose(number, np.array(beta), np.array([clean]))
        full, plain = slow.predict(number, beta, clean)
        assert said.full[0] == pytest.approx(full, rel=1e-9, abs=1e-12)
        assert said.plain[0] == pytest.approx(plain, rel=1e-9, abs=1e-12)


@given(classes)
def test_both_bounds_hold_whatever_the_sign_of_the_covariance(given_):
    beta, clean = map(np.array, given_)
    low, high = (propose(number, beta, clean[None]).full[0] for number in (1, 2))
    assert low <= clean.mean() + 1e-12
    assert high >= clean.mean() - 1e-12


# -- what is an assumption, and how good it is -------------------------------------------------

levels = st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])  # few, so that there are ties
images = st.lists(st.tuples(st.booleans(), levels), min_size=1, max_size=8).filter(
    lambda rows: any(member for member, _ in rows)
)


@given(images, st.data())
def test_equal_chances_give_the_stated_mean(rows, data):
    member, scores = ([int(m) for m, _ in rows], [s for _, s in rows])
    positives = sum(member)
    kept = data.draw(st.integers(1, positives))
    mean = slow.mean_over_all_flips(member, scores, kept)
    assert mean == pytest.approx(slow.expected_ap(member, scores, kept))
    # Proposition 1 is too low, by no more than it is for a perfect ranking.
    beta = 1 - kept / positives
    said = (1 - beta) * slow.ap(member, scores)
    assert said - 1e-12 <= mean <= said + slow.allowance(beta, positives) + 1e-12


@given(st.integers(1, 7), st.integers(0, 3), st.data())
def test_a_perfect_ranking_needs_the_whole_allowance(positives, others, data):
    kept = data.draw(st.integers(1, positives))
    member = [1] * positives + [0] * others
    scores = np.linspace(1, 0, len(member)).tolist()
    beta = 1 - kept / positives
    mean = slow.mean_over_all_flips(member, scores, kept)
    assert mean == pytest.approx(1 - beta + slow.allowance(beta, positives))


@given(images, st.data())
def test_proposition_2_can_only_be_too_high(rows, data):
    member, scores = ([int(m) for m, _ in rows], [s for _, s in rows])
    places = [i for i, m in enumerate(member) if m]
    kept = set(data.draw(st.lists(st.sampled_from(places), min_size=1, unique=True)))
    noisy = [int(i in kept) for i in range(len(member))]
    said = slow.ap(member, scores) / (len(kept) / len(places))
    assert slow.ap(noisy, scores) <= said + 1e-12


@given(
    st.lists(st.booleans(), min_size=0, max_size=6),  # images above the last observed positive
    st.integers(1, 5),  # flipped positives
    st.integers(0, 50),  # images without the class between the two
)
def test_flipped_positives_at_the_end_cost_exactly_their_precisions(above, flipped, between):
    observed = [*above, True]
    noisy = [*map(int, observed), *([0] * (between + flipped))]
    truth = [*map(int, observed), *([0] * between), *([1] * flipped)]
    scores = np.linspace(1, 0, len(truth)).tolist()
    kept = sum(noisy)
    said = slow.ap(truth, scores) * (kept + flipped) / kept
    found = slow.ap(noisy, scores)
    late = [
        hits / shown
        for i, (hits, shown) in slow.precisions(truth, scores).items()
        if i >= len(observed)
    ]
    assert said - found == pytest.approx(sum(late) / kept)
    # Exact only in the limit of a long list: every such precision is at most P / (images above).
    most = flipped / kept * (kept + flipped) / (len(observed) + between + 1)
    assert 0 < said - found <= most + 1e-12


def draw_scores(rng: np.random.Generator, truth: np.ndarray, lean: float) -> np.ndarray:
    """Overlapping scores; `lean` makes them depend on how many classes an image has."""
    count = truth.sum(axis=1, keepdims=True)
    return truth * (1.2 - lean * (count - 1)) + rng.normal(size=truth.shape)


def simulated(lean: float) -> tuple[np.ndarray, ...]:
    """(C,) how far AP is above Proposition 1, its standard error, the known bias, AP*."""
    rng = np.random.default_rng(0)
    truth = rng.random((1500, 4)) < np.array([0.5, 0.4, 0.25, 0.15])
    truth[~truth.any(axis=1), 0] = True
    apart, clean = [], []
    for _ in range(60):
        scores = draw_scores(rng, truth, lean)
        observed = simulate_random(truth, rng) > 0
        beta = 1 - observed.sum(axis=0) / truth.sum(axis=0)
        clean.append(average_precision(truth, scores))
        said = propose(1, beta, clean[-1][None]).classes[0]
        apart.append(average_precision(observed, scores) - said)
    error = np.std(apart, axis=0) / np.sqrt(len(apart))
    bias = np.array([slow.allowance(1.0, count) for count in truth.sum(axis=0)])
    return np.mean(apart, axis=0), error, bias, np.mean(clean, axis=0)


def test_random_single_positives_follow_proposition_1():
    """Within four standard errors of the mean, and the bias that is known to be there."""
    apart, error, bias, clean = simulated(lean=0)
    assert (apart >= -4 * error).all()
    assert (apart <= 4 * error + bias).all()
    assert (4 * error + bias < clean / 10).all()  # the tolerance is no blank cheque


def test_random_single_positives_break_it_if_scores_depend_on_the_other_classes():
    """An image with one class never loses it: whoever ranks such images first hides the flips."""
    apart, error, bias, _ = simulated(lean=0.6)
    assert (apart > 4 * error + bias).all()


# -- a record made by hand ---------------------------------------------------------------------

CLEAN = [[0.8, 0.4], [0.2, 0.12], [0.7, 0.6]]
NOISY = [[0.5, 0.2], [0.4, 0.32], [0.3, 0.2]]
LABELS = {"true": [4, 4, 4], "flipped": [2, 3, 4], "wrong": [0, 0, 1]}


def write_run(folder: Path, *, trigger: int | None = None, **config) -> Run:
    """Two classes with β of 1/2 and 3/4, and a third one that nobody observed rightly."""
    folder.mkdir()
    config = {"method": {"title": "AN"}, "oracle": True, **config}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    labels = {
        "classes": ["forest", "water", "[reed]"], "scheme": "dominant", "hash": "0" * 64,
        "images": {"train": 9, "val": 9, "test": 9, "left_out": 0}, "observed_counts": [2, 1, 0],
    }  # fmt: skip
    (folder / "labels.json").write_text(json.dumps(labels))
    lines = []
    for epoch, (clean, noisy) in enumerate(zip(CLEAN, NOISY, strict=True), 1):
        record = {
            "clean_ap": [*clean, 0.9], "noisy_ap": [*noisy, 0.1],
            "recall": [0.5, 0.25 * epoch, 1.0], "alpha": [0.25, 0.5, 1.0],
        }  # fmt: skip
        oracle = {"validation": {"network": {}}, "labels": LABELS, "classes": {"network": record}}
        status = {} if trigger is None else {"triggered_after": trigger}
        lines.append({"epoch": epoch, "oracle": oracle, "status": status})
    write_history(folder, lines)
    return Run.open(folder)


def write_history(folder: Path, lines: list[dict]) -> None:
    (folder / "history.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def lines_of(run: Run) -> list[dict]:
    return [line.to_dict() for line in run.history]


def test_values_by_hand(tmp_path):
    theory = measure(write_run(tmp_path / "run"))
    assert theory.classes == ("forest", "water")
    assert theory.left_out == ("[reed]",)
    assert theory.wrong == 1
    np.testing.assert_allclose(theory.beta, [0.5, 0.75])
    np.testing.assert_allclose(theory.clean, [0.6, 0.16, 0.65])
    np.testing.assert_allclose(theory.noisy, [0.35, 0.36, 0.25])
    one, two = theory.propositions
    np.testing.assert_allclose(one.classes[0], [0.4, 0.1])
    np.testing.assert_allclose(one.full, [0.25, 0.065, 0.25])
    np.testing.assert_allclose(one.plain, [0.225, 0.06, 0.24375])
    np.testing.assert_allclose(two.full, [1.6, 0.44, 1.9])
    np.testing.assert_allclose(two.plain, [1.8, 0.48, 1.95])
    assert theory.nearer == (1, 2, 1)
    np.testing.assert_allclose(theory.mean_alpha, [0.375] * 3)
    np.testing.assert_allclose(theory.mean_recall, [0.375, 0.5, 0.625])
    assert (theory.peaks.noisy, theory.peaks.clean, theory.peaks.distance) == (2, 3, -1)
    assert theory.peaks.lost == pytest.approx(0.49)
    # H_4 = 25 / 12, so 13 / 36 of 1/2 and of 3/4.
    assert theory.allowance == pytest.approx(13 / 36 * 5 / 8)


def test_errors_agree_with_plain_loops(tmp_path):
    theory = measure(write_run(tmp_path / "run"))
    for number in (1, 2):
        found = theory.errors(number)
        said = [slow.predict(number, [0.5, 0.75], row) for row in CLEAN]
        noisy = [slow.mean(row) for row in NOISY]
        full = [s[0] - n for s, n in zip(said, noisy, strict=True)]
        plain = [s[1] - n for s, n in zip(said, noisy, strict=True)]
        weights = [0.5, 0.25] if number == 1 else [2, 4]
        apart = [[weights[c] * CLEAN[e][c] - NOISY[e][c] for e in range(3)] for c in range(2)]
        assert found["with_covariance"] == pytest.approx(slow.rms(full))
        assert found["without_covariance"] == pytest.approx(slow.rms(plain))
        assert found["per_class"] == pytest.approx([slow.rms(column) for column in apart])
        assert found["all_classes"] == pytest.approx(slow.rms([*apart[0], *apart[1]]))


def test_peaks_are_sought_up_to_the_trigger(tmp_path):
    theory = measure(write_run(tmp_path / "run", trigger=2))
    assert theory.trigger == 2
    assert (theory.peaks.noisy, theory.peaks.clean, theory.peaks.last) == (2, 1, 2)
    assert theory.peaks.lost == pytest.approx(0.44)
    assert not theory.peaks.whole
    assert "Up to the trigger after epoch 2" in sentence(theory)
    assert "does not test Theorem 1" in sentence(theory)
    assert "run of AN" in sentence(theory)


def test_a_late_clean_peak_is_seen_in_a_run_without_a_trigger(tmp_path):
    """The noisy mAP peaks early, the clean one long after a window that would end behind it."""
    run = write_run(tmp_path / "run")
    template = lines_of(run)[0]
    lines = []
    for epoch in range(1, 41):
        line = json.loads(json.dumps(template))
        record = line["oracle"]["classes"]["network"]
        record["clean_ap"] = [0.3 + 0.01 * min(epoch, 31), 0.3, 0.3]
        record["noisy_ap"] = [0.4 - 0.01 * abs(epoch - 6), 0.1, 0.1]
        line["epoch"] = epoch
        lines.append(line)
    write_history(run.folder, lines)
    peaks = measure(run).peaks
    assert (peaks.noisy, peaks.clean, peaks.last, peaks.whole) == (6, 31, 40, True)
    assert peaks.lost == pytest.approx(0.125)
    assert "Over all 40 epochs, the noisy mAP peaks in epoch 6 and the clean mAP in epoch 31" in (
        sentence(measure(run))
    )
    for line in lines:
        line["status"] = {"triggered_after": 11}
    write_history(run.folder, lines)
    window = measure(run).peaks
    assert (window.noisy, window.clean, window.whole) == (6, 11, False)


def test_a_run_without_a_teacher_is_judged_by_its_average(tmp_path):
    config = RunConfig(**{**vars(QUICK), "average": 0.9})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = train(config, AssumeNegative(), tmp_path / "run", collection=make_collection())
    assert measure(run).network == "averaged"
    assert measure(run, "network").network == "network"
    assert measure(quick(tmp_path / "plain")).network == "network"


def test_an_oracle_that_came_after_the_trigger_says_so(tmp_path):
    run = write_run(tmp_path / "run", trigger=1)
    write_history(run.folder, lines_of(run)[1:])
    theory = measure(run)
    assert (theory.peaks.noisy, theory.peaks.clean, theory.peaks.last) == (2, 3, 3)
    assert "Beyond the trigger after epoch 1, the noisy mAP peaks in epoch 2" in sentence(theory)
    assert "▸" not in shown(theory)  # no row is marked


def test_the_sentences_say_what_was_found(tmp_path):
    assert sentence(measure(write_run(tmp_path / "run"))) == (
        "The noisy mAP lies below the clean one in 2 of 3 epochs, and Proposition 1 is nearer to it"
        " in 2 (Proposition 2 in epoch 2): the root-mean-square error is 18.0 points for"
        " Proposition 1 and 119.6 for Proposition 2."
        " Over all 3 epochs, the noisy mAP peaks in epoch 2 and the clean mAP in epoch 3, the last"
        " one: stopping at the noisy peak is 1 epoch early and costs 49.00 points of clean mAP."
    )


def test_without_flips_both_propositions_say_the_same(tmp_path):
    run = write_run(tmp_path / "run")
    lines = lines_of(run)
    for line in lines:
        line["oracle"]["labels"] = {"true": [4, 4, 4], "flipped": [0] * 3, "wrong": [0] * 3}
        record = line["oracle"]["classes"]["network"]
        record.update(noisy_ap=record["clean_ap"], alpha=[None] * 3)
    write_history(run.folder, lines)
    theory = measure(run)
    assert theory.nearer == (None, None, None)
    assert np.isnan(theory.mean_alpha).all()
    assert np.isnan(theory.mean_recall).all()
    assert theory.errors(1)["with_covariance"] == pytest.approx(0, abs=1e-12)
    assert sentence(theory) == (
        "No validation label is missing: both propositions predict that noisy and clean mAP agree."
        " Over all 3 epochs, the noisy and the clean mAP both peak in epoch 3, the last one."
    )
    json.dumps(theory.to_dict(), allow_nan=False)
    assert "–" in shown(theory)


def test_labels_that_are_missing_in_other_classes_are_not_denied(tmp_path):
    run = write_run(tmp_path / "run")
    lines = lines_of(run)
    for line in lines:
        line["oracle"]["labels"] = {"true": [4, 4, 4], "flipped": [0, 0, 4], "wrong": [0] * 3}
    write_history(run.folder, lines)
    assert sentence(measure(run)).startswith("No validation label of these classes is missing:")


def shown(theory: Theory, width: int = 100) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table(theory))
    return console.export_text()


def test_the_table_shows_some_epochs_and_the_notes(tmp_path):
    text = shown(measure(write_run(tmp_path / "run")))
    row = next(line for line in text.splitlines() if "noisy peak" in line)
    wanted = "2 noisy peak 16.0 36.0 6.5 6.0 44.0 48.0 37.5 50.0 2"
    assert " ".join(row.split()) == wanted
    notes = " ".join(text.split())
    assert "Over 2 of 3 classes" in notes
    assert "[reed]" in notes
    assert "1 observed positive is wrong" in notes
    long = stretch(tmp_path / "long", 70)
    text = shown(long, width=80)
    assert "…" not in text
    rows = [line for line in text.splitlines() if line[:3].strip().isdigit() and line[0] == " "]
    assert 6 <= len(rows) <= 9
    assert any("noisy peak" in line for line in rows)
    assert any("clean peak" in line for line in rows)
    assert any(line.lstrip().startswith("▸52 ") for line in text.splitlines())
    assert "▸: calibration starts" in text


def stretch(folder: Path, epochs: int) -> Theory:
    """A long run with a trigger: three phases, made by hand."""
    run = write_run(folder)
    template = lines_of(run)[0]
    lines = []
    for epoch in range(1, epochs + 1):
        line = json.loads(json.dumps(template))
        top = 0.6 * np.exp(-(((epoch - 17) / 40) ** 2))
        record = line["oracle"]["classes"]["network"]
        record["clean_ap"] = [top + 0.1, top, 0.5]
        share = 1 / (1 + np.exp(-(epoch - 30) / 4))
        record["noisy_ap"] = [(1 + share) * 0.5 * (top + 0.1), (0.25 + 0.5 * share) * top, 0.1]
        record["recall"] = [epoch / epochs, 0.5, 1]
        record["alpha"] = [0.6 * epoch / epochs, 0.2, 1]
        line["epoch"], line["status"] = epoch, {"triggered_after": 52}
        lines.append(line)
    write_history(folder, lines)
    return measure(run)


def test_a_dictionary_of_everything_is_strict_json(tmp_path):
    found = json.loads(json.dumps(measure(write_run(tmp_path / "run")).to_dict(), allow_nan=False))
    assert found["peaks"] == {
        "noisy": 2, "clean": 3, "last": 3, "lost": 0.49, "whole": True, "distance": -1,
    }  # fmt: skip
    second = found["epochs"][1]
    assert second["proposition_2"] == {"with_covariance": 0.44, "without_covariance": 0.48}
    assert second["nearer"] == 2
    assert found["errors"]["1"]["per_class"][0] == pytest.approx(
        slow.rms([0.4 - 0.5, 0.1 - 0.4, 0.35 - 0.3]), abs=1e-6
    )


# -- what cannot be measured -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "oracle", "remedy"),
    [
        ({"oracle": False}, None, "--oracle true"),
        ({}, None, "--truth FILE"),
        ({}, {}, "--truth FILE"),
        ({}, {"validation": {"network": {}}}, "train it again"),
    ],
)
def test_a_run_without_a_record_gets_a_remedy(tmp_path, config, oracle, remedy):
    run = write_run(tmp_path / "run", **config)
    lines = [{"epoch": 1, "status": {}, **({} if oracle is None else {"oracle": oracle})}]
    write_history(run.folder, lines)
    with pytest.raises(AdagcError, match=remedy) as caught:
        measure(run)
    assert "\n" not in str(caught.value)


def test_a_run_without_epochs_is_to_be_continued(tmp_path):
    run = write_run(tmp_path / "run")
    run.path("history.jsonl").unlink()
    with pytest.raises(AdagcError, match="--resume"):
        measure(run.folder)


def test_no_folder_no_network_no_class(tmp_path):
    with pytest.raises(AdagcError, match="not a run folder"):
        measure(tmp_path)
    run = write_run(tmp_path / "run")
    with pytest.raises(UsageError, match=r"no network 'teacher'; the networks are: network"):
        measure(run, "teacher")
    lines = lines_of(run)
    for line in lines:
        line["oracle"]["labels"]["flipped"] = line["oracle"]["labels"]["true"]
    write_history(run.folder, lines)
    with pytest.raises(AdagcError, match="no class has an observed positive"):
        measure(run)


# -- real runs ---------------------------------------------------------------------------------

TINY = RunConfig(
    data="synthetic", scenes=24, size=16, scheme="random", backbone="test_resnet", weights="none",
    epochs=3, batch_size=8, absent="skip", average=0.9, accelerator="cpu",
)  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Run:
    return train(TINY, AdaGC(trigger_epoch=2), tmp_path_factory.mktemp("theory") / "run")


def test_a_real_run_end_to_end(tiny):
    theory = measure(tiny)
    assert theory.network == "teacher"
    assert theory.title == "AdaGC"
    assert theory.scheme == "random"
    assert theory.epochs == (1, 2, 3)
    assert theory.trigger == 2
    # Every image has known truth and no simulated label is wrong, so that the noisy mAP is the
    # one training saw.
    told = [line.noisy["teacher"].mean_average_precision for line in tiny.history]
    np.testing.assert_allclose(theory.noisy, told, atol=1e-5)
    assert (theory.noisy_ap <= theory.clean_ap / (1 - theory.beta) + 2e-5).all()
    assert set(tiny.history[0].oracle.classes) == {"network", "teacher", "averaged"}


def test_the_record_of_a_real_run_agrees_with_its_slow_twin(tiny):
    """From the saved network, the images and the label file alone."""
    collection = open_configured(TINY)
    labels = str(tiny.path("labels.csv"))
    observed = observe(collection, labels=labels, scheme=None, label_seed=0)
    values = predict(load_model(tiny.folder), collection.images, observed.val)
    truth, seen = collection.truth[observed.val], observed.values[observed.val]
    wanted = slow.compare(truth.tolist(), seen.tolist(), values.tolist())
    counts = slow.count(truth, seen)
    theory = measure(tiny, "network")
    judged = [t > f for t, f in zip(counts["true"], counts["flipped"], strict=True)]
    assert sum(judged) > 1
    assert theory.classes == tuple(np.array(collection.classes)[judged])
    beta = np.array(counts["flipped"]) / np.maximum(counts["true"], 1)
    np.testing.assert_allclose(theory.beta, beta[judged])
    for name in ("clean_ap", "noisy_ap", "recall", "alpha"):
        np.testing.assert_allclose(
            getattr(theory, name)[-1], np.array(wanted[name])[judged], atol=2e-5
        )


class InterruptedRunError(Exception):
    pass


def stop_after(epoch: int):
    def listen(line):
        if line.epoch == epoch:
            raise InterruptedRunError

    return listen


QUICK = RunConfig(
    scheme="random", epochs=4, batch_size=8, learning_rate=0.02, hidden=8, backbone="mlp",
    weights="none", accelerator="cpu",
)  # fmt: skip


def quick(out: Path, *, oracle: bool = True, resume: bool = False, on_epoch=None) -> Run:
    config = RunConfig(**{**vars(QUICK), "oracle": oracle})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(
            config, AssumeNegative(), out, resume=resume,
            collection=make_collection(), on_epoch=on_epoch,
        )  # fmt: skip


def test_a_continued_run_has_the_same_record(tmp_path):
    whole = quick(tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        quick(tmp_path / "parts", on_epoch=stop_after(2))
    assert measure(tmp_path / "parts").epochs == (1, 2)
    parts = quick(tmp_path / "parts", resume=True)
    assert [line.oracle for line in parts.history] == [line.oracle for line in whole.history]
    assert measure(parts).to_dict() == measure(whole).to_dict()


def test_an_oracle_that_came_later_is_enough(tmp_path):
    with pytest.raises(InterruptedRunError):
        quick(tmp_path / "run", oracle=False, on_epoch=stop_after(2))
    with pytest.raises(AdagcError, match="--oracle true"):
        measure(tmp_path / "run")
    run = quick(tmp_path / "run", oracle=True, resume=True)
    theory = measure(run)
    assert theory.epochs == (3, 4)
    whole = measure(quick(tmp_path / "whole"))
    np.testing.assert_array_equal(theory.beta, whole.beta)
    np.testing.assert_array_equal(theory.noisy, whole.noisy[2:])


# -- the picture -------------------------------------------------------------------------------


def test_the_figure_shows_what_was_measured(tmp_path):
    from adagc.paper.canvas import PAGE, save
    from adagc.paper.theory.figure import draw

    theory = stretch(tmp_path / "run", 60)
    made = draw(theory)
    assert made.get_size_inches()[0] == pytest.approx(PAGE)
    maps, per_class, assumption = made.axes
    lines = {line.get_label(): line for line in maps.get_lines()}
    one, two = theory.propositions
    for label, values in {
        "clean mAP": theory.clean,
        "noisy mAP": theory.noisy,
        "Proposition 1": one.full,
        "Proposition 1 without Cov": one.plain,
        f"Proposition 2 (off the scale, up to {100 * two.full.max():.0f})": two.full,
        "Proposition 2 without Cov": two.plain,
    }.items():
        np.testing.assert_allclose(lines[label].get_ydata(), 100 * values)
        assert lines[label].is_dashed() == label.endswith("without Cov")
    (legend,) = made.legends
    assert 0 <= legend.get_window_extent().x0 < legend.get_window_extent().x1 <= made.bbox.x1
    assert list(lines["peaks"].get_xdata()) == [theory.peaks.clean]
    assert list(lines["_noisy peak"].get_xdata()) == [theory.peaks.noisy]
    assert any(list(line.get_xdata()) == [52, 52] for line in maps.get_lines())
    points = {line.get_label(): line for line in per_class.get_lines()}
    i = theory.epochs.index(theory.peaks.clean)
    np.testing.assert_allclose(points["Proposition 1"].get_xdata(), 100 * one.classes[i])
    np.testing.assert_allclose(points["Proposition 1"].get_ydata(), 100 * theory.noisy_ap[i])
    shares = {line.get_label(): line for line in assumption.get_lines()}
    np.testing.assert_allclose(shares["of the unobserved (α)"].get_ydata(), 100 * theory.mean_alpha)
    assert all(path.stat().st_size > 1000 for path in save(made, tmp_path / "theory"))


def test_a_figure_of_one_epoch_and_no_flips(tmp_path):
    from adagc.paper.theory.figure import draw

    run = write_run(tmp_path / "run")
    line = lines_of(run)[0]
    line["oracle"]["labels"] = {"true": [4, 4, 4], "flipped": [0] * 3, "wrong": [0] * 3}
    write_history(run.folder, [line])
    made = draw(measure(run))
    made.canvas.draw()
    assert len(made.axes) == 3
    maps, _, assumption = made.axes
    assert all(float(at).is_integer() for axes in (maps, assumption) for at in axes.get_xticks())
