"""docs/results/fidelity.md says what its record says."""

from __future__ import annotations

import runpy
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "results" / "fidelity.md").read_text(encoding="utf-8")
SCRIPT = runpy.run_path(str(ROOT / "experiments" / "fidelity.py"))


def test_the_page_has_the_tables_of_the_record(capsys):
    SCRIPT["table"]()
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) > 30
    missing = [line for line in lines if line not in PAGE.splitlines()]
    assert not missing


def test_every_variant_has_its_five_seeds_with_the_options_it_names():
    runs = SCRIPT["recorded"]()
    for title, variant, options in SCRIPT["VARIANTS"]:
        own = [run for run in runs if (run["method"], run["variant"]) == (title, variant)]
        assert [run["seed"] for run in own] == [0, 1, 2, 3, 4]
        for run in own:
            assert options.items() <= run["options"].items()
            assert run["settings"]["epochs"] == 40
            assert run["environment"]["threads"] == 1


def differences(one: tuple[str, str], other: tuple[str, str], network: str) -> list[float]:
    """Seed by seed, in points of mAP at the last epoch."""
    values = [
        [
            100 * run["networks"][network]["last"]["mean_average_precision"]
            for run in SCRIPT["recorded"]()
            if (run["method"], run["variant"]) == variant
        ]
        for variant in (one, other)
    ]
    return [a - b for a, b in zip(*values, strict=True)]


def test_the_differences_that_the_page_quotes():
    text = " ".join(PAGE.split())
    rcml = differences(("RCML", "bandwidth 10,000"), ("RCML", "median bandwidth"), "averaged")
    assert f"better on every seed (by {min(rcml):.1f} to {max(rcml):.1f})" in text
    names = ("weighting of the paper", "weighting of the code")
    weights = differences(*(("Dist-PU", name) for name in names), "network")
    assert f"better on every seed, by {min(weights):.1f} to {max(weights):.1f} mAP" in text
    gains = []
    for more in ("", ", untuned"):
        starts = (("ELR", f"binary, start {start}{more}") for start in ("0.5", "0"))
        gains.append(statistics.mean(differences(*starts, "network")))
    assert f"by {gains[0]:.1f} mAP with the tuned options and by {gains[1]:.1f}" in text


def test_the_peaks_that_the_pages_quote():
    peaks = [run["peaks"]["averaged"] for run in SCRIPT["recorded"]() if "peaks" in run]
    apart = [peak["distance"] for peak in peaks]
    lost = [100 * peak["lost"] for peak in peaks]
    text = " ".join(PAGE.split())
    assert f"{min(map(abs, apart))} to {max(map(abs, apart))} epochs apart" in text
    assert (len(apart), sum(d < 0 for d in apart), sum(d > 0 for d in apart)) == (11, 7, 3)
    costs = f"costs {min(lost):.1f} to {max(lost):.1f} points of clean validation mAP"
    assert f"{costs}, {statistics.mean(lost):.1f} in the mean" in text
    demo = " ".join((ROOT / "docs" / "results" / "demo.md").read_text(encoding="utf-8").split())
    costs = [", ".join(f"{value:.1f}" for value in part) for part in (lost[5:8], lost[8:])]
    assert f"costs {costs[0]} and {costs[1]} points of clean mAP" in demo
    sides = [f"{abs(d)} {'before' if d < 0 else 'after'}" for d in apart[5:]]
    said = "12 epochs before, 18 after and 14 after the clean one"
    assert said.replace(" epochs", "") in f"{sides[0]}, {sides[1]} and {sides[2]} the clean one"
    assert said in demo
    assert f"{sides[3]}, {sides[4]} and {sides[5]} it (dominant)" in demo


@pytest.mark.parametrize("name", SCRIPT["THEOREM"])
def test_theorem_1_was_tested_over_whole_runs(name):
    runs = [run for run in SCRIPT["recorded"]() if run["scenario"] == name and "peaks" in run]
    assert len(runs) == SCRIPT["THEOREM"][name]
    for run in runs:
        assert all(peaks["last"] == run["settings"]["epochs"] for peaks in run["peaks"].values())
