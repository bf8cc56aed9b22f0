"""README.md and docs/results say what the committed records say, to the last number."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
import fidelity
import pages


@pytest.fixture(scope="module")
def built() -> dict[Path, str]:
    return dict(pages.pages())


def test_every_page_is_what_its_template_and_the_records_give(built):
    differing = [path.name for path, text in built.items() if path.read_text("utf-8") != text]
    assert not differing, "the records or a template have changed: run make pages"


def test_no_page_is_written_by_hand(built):
    results = {path for path in pages.RESULTS.glob("*.md") if path.name not in pages.BY_HAND}
    assert results == built.keys() - {pages.README}


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
    assert dict(pages.pages())[page] != built[page]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a  b\nc", "a b c"),
        ("- a\n  b\n- c", "- a b\n- c"),
        ("1. a\nb\n2. c", "1. a b\n2. c"),
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
