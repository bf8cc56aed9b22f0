"""README.md and docs/results say what the committed records say, to the last number."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
import bought
import fidelity
import pages
from records import DATA, Pack
from study import Study, made_together


@pytest.fixture(scope="module")
def built() -> dict[Path, str]:
    return dict(pages.pages())


def test_every_page_is_what_its_template_and_the_records_give(built):
    differing = [path.name for path, text in built.items() if path.read_text("utf-8") != text]
    assert not differing, "the records or a template have changed: run make pages"


def test_no_page_is_written_by_hand(built):
    results = set(pages.RESULTS.glob("*.md"))
    assert results == built.keys() - {pages.README}


def test_the_page_of_review_quotes_the_record():
    text = (pages.ROOT / "docs" / "review.md").read_text(encoding="utf-8")
    assert bought.sentence() in " ".join(text.split())


def test_a_number_that_is_typed_into_a_template_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("{# Settings: 0.999 #}\nMomentum 0.999, `0.1`, {{ 1.5 | one }}, five, 1,280.\n")
    pages.check_numbers(page)
    for typed, unit in (("67.3", ""), ("40", " %"), ("-0.5", ""), ("1,234.5", "")):
        page.write_text(f"{{# Settings: 0.999 #}}\nAdaGC has {typed}{unit} here.\n")
        with pytest.raises(ValueError, match=f"page.md has numbers without a record: {typed}$"):
            pages.check_numbers(page)


def test_a_changed_record_changes_the_page(built, monkeypatch):
    lines = fidelity.recorded()
    lines[0]["networks"]["network"]["last"]["mean_average_precision"] += 0.01
    monkeypatch.setattr(fidelity, "recorded", lambda: lines)
    page = pages.RESULTS / "fidelity.md"
    assert dict(pages.pages(page.name))[page] != built[page]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a  b\nc", "a b c"),
        ("- a\n  b\n- c", "- a b\n- c"),
        ("1. a\nb\n2. c", "1. a b\n2. c"),
        ("a, after epoch\n40. b", "a, after epoch 40. b"),
        ("- after epoch\n  40. b", "- after epoch 40. b"),
        ("| a |\n|---|", "| a |\n|---|"),
        ("> a\n> b", "> a\n> b"),
        ("a\nb\n\n```\nx\ny\n```\n\nc", "a b\n\n```\nx\ny\n```\n\nc"),
    ],
)
def test_paragraphs_and_lists_are_wrapped_anew(text, shown):
    assert pages.reflowed(text) == shown
    assert pages.reflowed("- " + "word " * 60).splitlines()[1].startswith("  word")


# -- the record of experiments/fidelity.py ----------------------------------------------------


def test_every_variant_has_its_five_seeds_with_the_options_it_names():
    for title, variant, options in fidelity.VARIANTS:
        own = fidelity.of(title, variant)
        assert [run["seed"] for run in own] == [0, 1, 2, 3, 4]
        for run in own:
            assert options.items() <= run["options"].items()
            assert run["settings"]["epochs"] == 40
            assert run["environment"]["threads"] == 1


@pytest.mark.parametrize("name", fidelity.THEOREM)
def test_theorem_1_was_tested_over_whole_runs(name):
    runs = [run for run in fidelity.recorded() if run["scenario"] == name and "peaks" in run]
    assert len(runs) == fidelity.THEOREM[name]
    for run in runs:
        assert all(peaks["last"] == run["settings"]["epochs"] for peaks in run["peaks"].values())


# -- the records of ablations -----------------------------------------------------------------


def raw(study: str, row: str, name: str) -> list[dict]:
    """A file of every run of a row, by seed, read without adagc; of a history its last line."""
    with zipfile.ZipFile(DATA / "ablations" / "aid-features" / study / f"{row}.zip") as file:
        paths = sorted(path for path in file.namelist() if path.endswith(name))
        assert len(paths) == 3
        texts = [file.read(path) for path in paths]
    return [json.loads(text.splitlines()[-1] if "jsonl" in name else text) for text in texts]


@pytest.fixture(scope="module")
def triggers() -> Study:
    return Study("aid-features", "trigger")


@pytest.mark.parametrize(
    ("view", "network"), [("student", "network"), ("teacher", "teacher"), (None, "teacher")]
)
def test_a_study_shows_the_network_it_names_after_the_last_epoch(triggers, view, network):
    last = [run["networks"][network]["last"] for run in raw("trigger", "adaptive", "scores.json")]
    scores = [[100 * one[key] for key in ("mean_average_precision", "mean_f1")] for one in last]
    mean, deviation = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=1)
    shown = [f"{m:.1f} ({d:.1f})" for m, d in zip(mean, deviation, strict=True)]
    assert triggers.scores("adaptive", view or "teacher") == " / ".join(shown)
    assert triggers.mean("adaptive", "mF1", view) == pytest.approx(mean[1])
    assert list(triggers.per_seed("adaptive", view=view)) == [10, 11, 12]


def test_differences_are_taken_seed_by_seed(triggers):
    one, other = (
        [
            run["networks"]["network"]["last"]["mean_f1"]
            for run in raw("trigger", row, "scores.json")
        ]
        for row in ("after-epoch-6", "adaptive")
    )
    gaps = 100 * (np.array(one) - np.array(other))
    assert triggers.gaps("after epoch 6", "adaptive", "mF1", "student") == pytest.approx(gaps)
    found = triggers.gap("after epoch 6", "adaptive", "mF1", "student")
    assert found == pytest.approx(gaps.mean())


def test_the_table_of_a_study_has_the_students_first(triggers):
    _, _, *rows = triggers.table().splitlines()
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [
        *triggers.variants,
        *(f"{label} (teacher)" for label in triggers.variants),
    ]
    for row, label in zip(rows, 2 * triggers.variants, strict=True):
        view = "teacher" if "(teacher)" in row else "student"
        assert f"{triggers.mean(label, view=view):.2f}" in row.split(" | ")[1]


def test_added_labels_are_those_of_the_last_epoch():
    study = Study("aid-features", "pseudo-labels")
    last = [line["oracle"]["pseudo_labels"] for line in raw(study.name, "s-raw", "history.jsonl")]
    assert study.added("S'") == pytest.approx(np.mean([one["added_per_image"] for one in last]))
    assert study.right("S'") == pytest.approx(100 * np.mean([one["precision"] for one in last]))
    quality = 100 * np.mean([one["mean_average_precision"] for one in last])
    assert study.pseudo_map("S'") == study.pseudo_map("S'", 40) == pytest.approx(quality)
    assert study.pseudo_map("S'", 25) != study.pseudo_map("S'")


def test_all_labels_but_one_per_image_are_missing(triggers):
    images = np.array(raw("trigger", "adaptive", "labels.json")[0]["flip_rates"]["cardinality"])
    assert triggers.missing == pytest.approx(images @ np.arange(len(images)) / images.sum() - 1)


def test_a_run_that_studies_share_is_counted_once(triggers):
    both = made_together(triggers, Study("aid-features", "pseudo-labels"))
    assert both.startswith("24 runs, ")  # 4 and 5 variants, one of them in both; three seeds
    assert triggers.made.startswith("12 runs, ")


# What the page says in words, as (scenario, study, one, other, views).
BOTH = ("student", "teacher")
BETTER_ON_EVERY_SEED = [
    ("demo-dominant", "trigger", "adaptive", "after epoch 9", BOTH),
    ("demo-dominant", "trigger", "adaptive", "after epoch 17", ("teacher",)),
    ("demo-random", "trigger", "adaptive", "after epoch 17", ("teacher",)),
    ("demo-random", "trigger", "adaptive", "after epoch 26", ("teacher",)),
    ("demo-dominant", "pseudo-labels", "T + S", "T", ("teacher",)),
    ("demo-dominant", "pseudo-labels", "T + S", "T + S'", ("teacher",)),
    ("demo-random-180", "pseudo-labels", "T + S", "T", BOTH),
    ("demo-random-180", "pseudo-labels", "T + S", "T + S'", BOTH),
    ("demo-random-180", "pseudo-labels", "T + S", "S", BOTH),
    ("demo-random", "mixup", "without Mixup", "with Mixup", ("teacher",)),
    ("demo-dominant", "mixup", "without Mixup", "with Mixup", ("teacher",)),
    ("aid-features", "trigger", "after epoch 17", "adaptive", ("teacher",)),
    ("aid-features", "pseudo-labels", "T + S", "S", BOTH),
    ("aid-features", "pseudo-labels", "T", "T + S'", BOTH),
    ("aid-features", "mixup", "without Mixup", "with Mixup", BOTH),
]
LEVEL = [
    ("demo-dominant", "trigger", "adaptive", "after epoch 17", ("student",)),
    ("demo-dominant", "trigger", "adaptive", "after epoch 26", BOTH),
    ("demo-random", "trigger", "adaptive", "after epoch 9", BOTH),
    ("demo-random", "trigger", "adaptive", "after epoch 17", ("student",)),
    ("demo-random", "trigger", "adaptive", "after epoch 26", ("student",)),
    ("demo-dominant", "pseudo-labels", "T + S", "S", ("teacher",)),
    ("demo-random", "pseudo-labels", "T + S", "T", ("teacher",)),
    ("demo-random", "pseudo-labels", "T + S", "T + S'", ("teacher",)),
]


@pytest.mark.parametrize(
    ("claim", "level"),
    [*((claim, False) for claim in BETTER_ON_EVERY_SEED), *((claim, True) for claim in LEVEL)],
    ids=lambda value: ", ".join(value[:4]) if isinstance(value, tuple) else "level" * value,
)
def test_what_the_page_says_of_every_seed_is_so(claim, level):
    scenario, study, one, other, views = claim
    for view in views:
        gaps = Study(scenario, study).gaps(one, other, view=view)
        assert len(gaps) == 3
        assert min(gaps) < 0 < max(gaps) if level else min(gaps) > 0


@pytest.mark.parametrize(
    ("bench", "scenario"),
    [
        ("demo-random", "demo-random"),
        ("demo-dominant", "demo-dominant"),
        ("aid-features-tuned", "aid-features"),
    ],
)
def test_the_averaged_network_of_an_is_the_teacher_before_the_trigger(bench, scenario):
    averaged = {run.seed: run.run.history for run in Pack(bench).results.of("AN")}
    for run in Study(scenario, "trigger").results.of("adaptive"):
        until = run.run.history[-1].status["triggered_after"]
        for one, other in zip(averaged[run.seed][:until], run.run.history[:until], strict=True):
            assert one.oracle.validation["averaged"] == other.oracle.validation["teacher"]


def test_the_paper_s_values_stand_beside_the_same_share_of_the_training(triggers):
    for study, epochs in ((Study("demo-random", "trigger"), (9, 17, 26)), (triggers, (6, 11, 17))):
        printed = [study.printed(f"after epoch {epoch}") for epoch in epochs]
        on_reben = study.scenario.name == "demo-random"  # the paper has no ablations on AID
        assert printed == (["65.78", "65.87", "63.18"] if on_reben else ["", "", ""])
    dominant = Study("demo-dominant", "trigger")
    assert dominant.printed_gap("after epoch 9", "adaptive", "mF1") == pytest.approx(58.58 - 58.78)
    assert "| 65.78 / 64.06 |" in Study("demo-random", "trigger").beside(dominant)


def test_the_peak_of_a_network_and_how_far_it_has_fallen(monkeypatch):
    pack = Pack("demo-random")
    runs = [[1.0, 3.0, 2.0, 0.0], [5.0, 4.0, 6.0, 6.0]]
    monkeypatch.setattr(pack, "_validation", lambda label, network: runs)
    assert pack.peaks("AN") == [2, 3]
    assert [pack.fallen("AN", epoch) for epoch in (1, 2, 3, 4)] == [0, 0.5, 0.5, 1.5]
