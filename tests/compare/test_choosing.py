"""Choosing a method by held-out observed labels: ranks, ties, who may be chosen, and the words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adagc.bench.results import Result, Results
from adagc.choice import likelihood
from adagc.compare import choosing_outputs
from adagc.compare.choosing import choose
from adagc.errors import AdagcError
from adagc.metrics import CRITERIA
from adagc.training import held_out
from adagc.training.folders import MemoryFolder
from adagc.training.records import EpochRecord, NamedRole, Summary
from adagc.training.runs import Run
from adagc.training.views import VIEWS
from adagc.types import NetworkRole
from fake_results import make_job, with_told

IMAGES, CLASSES = 200, 5
ROLES = {
    "network": NamedRole(NetworkRole.DEPLOYED, "network"),
    "averaged": NamedRole(NetworkRole.AVERAGE, "averaged"),
}


def labels_of(seed, images=IMAGES):
    """The logits from which the labels of a seed are drawn, and these labels."""
    logits = 2 * np.random.default_rng(0).normal(size=(images, CLASSES))
    noise = np.random.default_rng([1, seed]).gumbel(size=logits.shape)
    return logits, np.eye(CLASSES, dtype=np.int8)[(logits + noise).argmax(axis=1)]


def make(quality, *, seeds=3, networks=("network", "averaged"), images=IMAGES, **methods):
    """Rows whose predictions see what labels are drawn from as clearly as `quality` says."""
    jobs, finished = [], []
    for label, clear in quality.items():
        method = methods.get(label, label)
        for seed in range(seeds):
            logits, observed = labels_of(seed, images)
            noise = np.random.default_rng([2, seed]).normal(size=logits.shape)
            files = MemoryFolder({})
            blank = {name: Summary({}) for name in networks}
            line = EpochRecord(epoch=1, noisy=blank, roles={name: ROLES[name] for name in networks})
            files.content["history.jsonl"] = (json.dumps(line.to_dict()) + "\n").encode()
            for name in networks:
                for which in ("best", "last"):
                    # After the last epoch, and without an average, a network sees less.
                    less = (0.5 if which == "last" else 1) * (0.7 if name == "network" else 1)
                    shown = logits + noise / (clear * less)
                    values = np.exp(shown - shown.max(axis=1, keepdims=True)).astype(np.float32)
                    held_out.save(files, held_out.HeldOut(name, which, values, observed))
            jobs.append(make_job(label, seed, method, Path("x")))
            finished.append(Result(label, method, seed, Run(files), 60.0, {}))
    return Results("tiny", tuple(jobs), tuple(finished))


def test_rows_are_ranked_by_the_likelihood_of_their_kept_network():
    results = make({"AN": 0.05, "AdaGC": 1.0, "WAN": 0.3})
    found = choose(results)
    assert [row.label for row in found.rows] == ["AdaGC", "WAN", "AN"]
    for row in found.rows:
        for word, fit in row.fits.items():
            values = []
            for run in results.of(row.label):
                kept = held_out.of_network(run.run, word, "best")
                values.append(likelihood(kept.probabilities, kept.observed))
            assert fit.likelihood == pytest.approx(np.mean(values))
            assert fit.error == pytest.approx(np.std(values, ddof=1) / 3**0.5)
            assert fit.runs == 3
        assert set(row.fits) == {"averaged", "network"}
    best = found.rows[0]
    assert best.gap is None
    for row in found.rows[1:]:
        apart = best.fits["averaged"].likelihood - row.fits["averaged"].likelihood
        assert row.gap.mean == pytest.approx(apart)
        assert 0 < row.gap.half < apart
        assert row.gap.comparisons in (1, 3)
    assert (found.chosen, found.ties, found.seeds, found.images) == ("AdaGC", (), 3, IMAGES)
    assert found.sentence == "Use AdaGC: it explains your labels best."


def test_close_rows_are_ties_and_so_are_those_that_seeds_turn_round():
    close = choose(make({"AN": 1.0, "AdaGC": 0.98, "WAN": 0.1}, images=2000))
    (tie,) = close.ties
    assert {close.chosen, tie} == {"AN", "AdaGC"}
    assert close.sentence == f"Use {close.chosen}: it explains your labels best; {tie} is a tie."
    marked = {row.label: row.tie for row in close.rows}
    assert marked == {close.chosen: False, tie: True, "WAN": False}
    # With few images even a larger difference may be luck.
    few = choose(make({"AN": 1.0, "WAN": 0.5}, images=12))
    assert few.rows[1].gap.mean > 0.03
    assert few.ties == ("WAN",)
    several = choose(make({"AN": 1.0, "AdaGC": 1.0, "WAN": 1.0}))
    assert several.sentence.endswith(f"; {several.ties[0]} and {several.ties[1]} are ties.")


@pytest.mark.parametrize("name", VIEWS)
def test_one_view_is_ranked(name):
    view = VIEWS[name]
    found = choose(make({"AN": 0.2, "AdaGC": 1.0}), view)
    network, _, which = name.partition("-")
    run = make({"AN": 0.2, "AdaGC": 1.0}, seeds=1).of("AdaGC")[0].run
    kept = held_out.of_network(run, network, which)
    one_seed = choose(make({"AN": 0.2, "AdaGC": 1.0}, seeds=1), view)
    fit = one_seed.rows[0].fits[network]
    assert fit.likelihood == pytest.approx(likelihood(kept.probabilities, kept.observed))
    assert fit.auc == pytest.approx(CRITERIA["auc"].compute(kept.observed, kept.probabilities))
    assert fit.error is None
    assert found.to_dict()["view"] == name


def test_with_one_seed_the_sentence_says_so():
    found = choose(make({"AN": 0.2, "AdaGC": 1.0}, seeds=1))
    assert found.sentence == (
        "Use AdaGC: it explains your labels best (with one seed; another may change this:"
        " try --seeds 0 1 2)."
    )


def test_who_is_told_more_is_ranked_and_marked_but_not_chosen():
    results = make({"GT w/ BCE": 2.0, "EPR": 1.5, "AN": 0.3, "LL-R": 0.2})
    results = with_told(results, "LL-R", "rate")
    results = replace(
        results,
        jobs=(*results.jobs, make_job("WAN", 0)),
        failed={"WAN": ["seed 0: out of memory"]},
    )
    found = choose(results)
    marks = {row.label: row.footnote for row in found.rows}
    assert marks == {"GT w/ BCE": "†", "EPR": "ᵃ", "AN": "", "LL-R": "ᵃ", "WAN": ""}
    assert found.chosen == ""
    assert "only AN has kept" in found.sentence
    assert "(WAN: failed: seed 0: out of memory)" in found.sentence
    found = choose(make({"GT w/ BCE": 2.0, "EPR": 1.5, "AN": 0.3, "WAN": 0.1}))
    assert [row.label for row in found.rows] == ["GT w/ BCE", "EPR", "AN", "WAN"]
    assert (found.chosen, found.compared) == ("AN", 2)
    assert found.rows[0].gap.mean < 0  # AN explains labels less well
    text = choosing_outputs.markdown(found)
    assert "† trains with clean labels, and is not chosen." in text
    assert "ᵃ is told the true label frequencies" in text


def test_the_hint_compares_what_supposes_dominant_with_what_supposes_random_labels():
    rows = {"Random label": 1.0, "Area label": 1.0, "Random cover": 0.3}
    found = choose(make(rows))
    assert found.hint.startswith("Labels look like those of dominant classes rather")
    assert "for Area label against Random cover;" in found.hint  # they need the same of a network
    assert "3 runs of each" in found.hint
    del rows["Random cover"]
    assert "for Area label against Random label;" in choose(make(rows)).hint
    back = choose(make({"Random cover": 1.0, "Area label": 0.3}))
    assert back.hint.startswith("Labels look like random ones")
    assert choosing_outputs.markdown(back).rstrip().endswith(back.sentence)
    assert back.hint in choosing_outputs.markdown(back)
    assert choose(make({"Random cover": 1.0, "AN": 0.3})).hint == ""


def test_runs_without_such_a_network_or_without_predictions_say_so():
    found = choose(make({"AN": 0.2, "WAN": 1.0}, networks=("network",)))
    assert {row.state for row in found.rows} == {"no averaged network"}
    assert found.chosen == ""
    assert choose(
        make({"AN": 0.2, "WAN": 1.0}, networks=("network",)), VIEWS["network-best"]
    ).chosen
    results = make({"AN": 0.2, "WAN": 1.0, "GR": 0.5})
    for run in results.of("GR"):
        del run.run.files.content["validation/averaged-best.safetensors"]
    found = choose(results)
    assert found.chosen == "WAN"
    (row,) = [row for row in found.rows if row.label == "GR"]
    assert "kept no predictions for validation images" in row.state
    assert row is found.rows[-1]


def test_unequal_images_or_labels_are_refused():
    one, other = make({"AN": 0.2}), make({"WAN": 1.0}, images=IMAGES + 1)
    mixed = Results("tiny", (*one.jobs, *other.jobs), (*one.finished, *other.finished))
    with pytest.raises(AdagcError, match="other validation images or labels"):
        choose(mixed)
    results = make({"AN": 0.2, "WAN": 1.0})
    run = results.of("WAN")[1].run
    kept = held_out.of_network(run, "averaged", "best")
    held_out.save(run.files, replace(kept, observed=np.roll(kept.observed, 1, axis=0)))
    with pytest.raises(AdagcError, match=r"AN, seed 1, and WAN, seed 1, have other validation"):
        choose(results)


def test_files_have_all_numbers(tmp_path):
    found = choose(make({"AN": 0.2, "WAN": 1.0}), title="My [data]")
    choosing_outputs.write(found, tmp_path / "tiny")
    told = json.loads((tmp_path / "tiny" / "choice.json").read_text())
    assert told["chosen"] == "WAN"
    assert told["tie_below"] == 0.03
    assert told["sentence"] == found.sentence
    assert told["rows"][1]["gap"]["mean"] == pytest.approx(found.rows[1].gap.mean)
    fit = found.rows[0].fits["averaged"]
    assert told["rows"][0]["fits"]["averaged"]["likelihood"] == pytest.approx(fit.likelihood)
    lines = (tmp_path / "tiny" / "choice.md").read_text().splitlines()
    assert lines[0] == "**My [data]: how well methods explain observed labels**"
    assert lines[2].startswith("|  | averaged network | trained network | behind | noisy AUC |")
    assert lines[4].startswith(f"| WAN | {fit.likelihood:.3f} ± {fit.error:.3f} | ")
    assert lines[-1] == found.sentence
