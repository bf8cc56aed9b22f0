from __future__ import annotations

import csv
import io
import json
import re
import statistics
import subprocess
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from adagc.bench.jobs import plan
from adagc.bench.results import collect
from adagc.bench.work import perform
from adagc.compare import render, tables
from adagc.errors import UsageError
from adagc.methods import register, registry
from adagc.methods.assume_negative import AssumeNegative
from adagc.metrics import METRICS
from adagc.paper import values as paper
from adagc.training.views import VIEWS
from fake_results import from_numbers, with_told
from tiny import write_scenario

# The trained network after the last epoch; numbers without a name of a network are of it.
build = partial(tables.build, view=VIEWS["network-last"])
MAP, COVERAGE = "mean_average_precision", "coverage"
SEVEN = [60.0, 5.0, 6.0, 90.0, 50.0, 55.0, 45.0]


def everything(**options):
    """All methods of the registry with three runs each, AdaGC the best of them.

    Methods that are added one day score like the first: what tests say of the others stays true.
    """
    place = {title: i if i < 22 else 0 for i, title in enumerate(registry())} | {"AdaGC": 22}
    rows = {
        title: [[value + 0.37 * i + 0.21 * seed for value in SEVEN] for seed in range(3)]
        for title, i in place.items()
    }
    return from_numbers(rows, **options)


def by_label(table):
    return {row.label: row for row in table.rows}


def test_the_papers_role_stands_beside_the_one_that_is_told_as_it_was():
    rows = by_label(tables.build(everything(), paper=paper.values("aid-random")))
    assert rows["ROLE-oracle"].paper[MAP].mean == 56.35
    assert rows["ROLE"].paper == {}
    assert all(row in registry() for name in paper.known() for row in paper.values(name).rows)


# -- the numbers --------------------------------------------------------------------------------


def test_cells_are_mean_and_unbiased_deviation_as_printed():
    cell = by_label(build(from_numbers({"AN": [60.0, 62.0, 67.0]})))["AN"].cells[MAP]
    assert cell.mean == pytest.approx(63.0)
    assert cell.deviation == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert cell.runs == 3
    alone = by_label(build(from_numbers({"AN": [SEVEN]})))["AN"].cells
    assert alone[COVERAGE] == tables.Cell(5.0, None, 1)
    assert alone[MAP].deviation is None


@pytest.mark.parametrize("scenario", paper.known())
def test_marks_of_the_papers_own_numbers(scenario):
    """Bold and italics of the paper's tables, where one of its marks is in the wrong row."""
    printed = {
        "reben-random": {
            "best": ["AdaGC"] * 5,
            "second": ["RCML", "RCML", "RCML", "LL-Ct", "ELR"],  # the paper has ELR for the mAP
        },
        "reben-dominant": {
            "best": ["AdaGC", "AdaGC", "AdaGC", "ELR", "AdaGC"],
            "second": ["WAN", "GR", "GR", "LL-R", "BoostLU + LL-Ct"],
        },
        "aid-random": {
            "best": ["AdaGC", "Dist-PU", "Dist-PU", "Dist-PU", "EPR"],
            "second": ["Dist-PU", "AdaGC", "AdaGC", "ELR", "AdaGC"],
        },
        "aid-manual": {
            "best": ["AdaGC", "Dist-PU", "Dist-PU", "Dist-PU", "AdaGC"],
            "second": ["ELR", "AdaGC", "AdaGC", "ELR", "EPR"],
        },
    }[scenario]
    theirs = paper.values(scenario).rows
    rows = {title: [[row[m.key].mean for m in METRICS.values()]] for title, row in theirs.items()}
    table = build(from_numbers(rows))
    for mark, titles in printed.items():
        for metric, title in zip([*METRICS.values()][:5], titles, strict=True):
            marked = [row.label for row in table.rows if row.cells[metric.key].mark == mark]
            assert marked == [title], (metric.heading, mark)


def test_the_paper_as_printed():
    theirs = paper.values("reben-random")
    assert theirs.rows["RCML"][MAP] == paper.Value(64.91, 0.12)
    assert theirs.rows["AdaGC"]["mean_recall"] == paper.Value(63.22, 0.10)
    assert paper.values("aid-manual").rows["LCR"][MAP] == paper.Value(66.61, 0.96)
    assert {len(paper.values(name).rows) for name in paper.known()} == {19}
    assert all(title in registry() for title in theirs.rows)
    with pytest.raises(UsageError, match=r"paper: ucm-random .*choose from reben-random, "):
        paper.values("ucm-random")


@given(
    means=st.lists(st.integers(0, 6).map(float), min_size=2, max_size=9),
    metric=st.sampled_from([*METRICS.values()]),
)
def test_marks_are_shared_by_ties(means, metric):
    sign = 1 if metric.better == "up" else -1
    for mean, mark in zip(means, tables.marks(means, metric), strict=True):
        better = {other for other in means if sign * other > sign * mean}
        assert mark == {0: "best", 1: "second"}.get(len(better), "")


def test_marks_use_what_rounding_hides_and_leave_out_clean_labels():
    rows = {"GT w/ BCE": [90.0], "AN": [60.001], "WAN": [60.002], "EPR": [59.0]}
    found = by_label(build(from_numbers(rows)))
    assert [found[label].cells[MAP].mark for label in rows] == ["", "second", "best", ""]
    # Coverage is better where it is lower.
    assert [found[label].cells[COVERAGE].mark for label in rows] == ["", "second", "", "best"]
    lonely = by_label(build(from_numbers({"IUN": [80.0], "AN": [60.0]})))
    assert lonely["AN"].cells[MAP].mark == ""


# -- rows and groups ----------------------------------------------------------------------------


# As in the paper, with the methods that it discusses or builds on but leaves out.
FAMILIES = {
    "Ground-truth training": ["GT w/ BCE", "IUN"],
    "Baseline methods": ["AN", "AN-LS", "WAN", "EPR"],
    "General label noise methods": ["ELR", "LL-Cp", "LL-Ct", "LL-R", "BoostLU + LL-Ct"],
    "PUL methods": ["Dist-PU"],
    "SPML methods": ["ROLE", "ROLE-oracle", "GR", "LAC", "MIME"],
    "RS-specific methods": ["RCML", "LCR"],
    "Left out by the paper": ["ASL", "EM", "EM+APL"],
    "Proposed": ["AdaGC"],
}


def test_the_methods_of_the_paper_have_their_places_whatever_the_order_of_the_plan():
    known = [title for titles in FAMILIES.values() for title in titles]
    table = build(from_numbers({title: [50.0] for title in reversed(known)}))
    found = {group.name: [row.label for row in group.rows] for group in table.groups}
    assert list(found.items()) == list(FAMILIES.items())


def test_every_method_has_a_row():
    table = build(from_numbers({title: [50.0] for title in reversed(registry())}))
    assert {row.method for row in table.rows} == set(registry())


def test_a_method_from_outside_stands_under_its_own_heading_or_among_others(monkeypatch):
    monkeypatch.setattr("adagc.methods._registered", {})
    add = {"X": {}, "Y": {"family": "Baseline methods"}, "Z": {"family": "New ideas"}}
    for title, more in add.items():
        register(
            type(title, (AssumeNegative,), {"title": title, "family": "Other methods", **more})
        )
    rows = {title: [50.0] for title in ("Z", "X", "AdaGC", "Y", "AN")}
    table = build(from_numbers(rows))
    # In the order of the registry, in which those from outside come last.
    groups = {group.name: [row.label for row in group.rows] for group in table.groups}
    assert groups == {
        "Baseline methods": ["AN", "Y"],
        "Proposed": ["AdaGC"],
        "Other methods": ["X"],
        "New ideas": ["Z"],
    }
    assert next(iter(groups)) == "Baseline methods"
    assert [*groups][-1] == "New ideas"


def test_variants_are_one_group_in_the_order_of_the_plan():
    labels = {"without Mixup": "AdaGC", "AdaGC": "AdaGC", "T + S'": "AdaGC"}
    table = build(
        from_numbers({label: [50.0] for label in labels}, methods=labels),
        paper=paper.values("aid-random"),
    )
    assert [group.name for group in table.groups] == [""]
    assert [row.label for row in table.rows] == list(labels)
    # The paper's row is of the method as it is, not of its variants.
    assert [bool(row.paper) for row in table.rows] == [False, True, False]


def test_footnotes():
    found = by_label(build(everything()))
    marked = {label: row.footnote for label, row in found.items() if row.footnote}
    assert marked == {
        "GT w/ BCE": "†",
        "IUN": "†",
        **dict.fromkeys(["EPR", "Dist-PU", "ROLE-oracle"], "ᵃ"),
    }
    notes = build(everything()).notes
    assert any(note.startswith("ᵃ") and "label frequencies" in note for note in notes)
    assert any(note.startswith("†") and "clean labels" in note for note in notes)
    assert not any(note[0] in "ᵃ†" for note in build(from_numbers({"AN": [1.0]})).notes)


def test_a_run_that_was_told_by_an_option_is_marked():
    plain = from_numbers({"AN": [1.0, 2.0], "LL-R": [3.0, 3.0], "RCML": [2.0, 2.0]})
    table = tables.build(with_told(plain, "LL-R", "final", "largest"))
    assert {label: row.footnote for label, row in by_label(table).items()} == {
        "AN": "", "LL-R": "ᵃ", "RCML": "",
    }  # fmt: skip
    note = next(note for note in table.notes if note.startswith("LL-R"))
    assert "options final and largest" in note
    assert "noisy validation labels" in note
    assert "LL-Rᵃ" in render.markdown(table)
    assert not any("told" in note for note in tables.build(plain).notes)


def test_rows_say_what_is_missing():
    results = from_numbers(
        {"AN": [60.0, 61.0], "WAN": [], "GR": [], "LAC": [62.0, 63.0, 64.0]},
        planned=3,
        failed={"AN": ["seed 2: out of memory"], "WAN": ["seed 0: no such file", "seed 1: other"]},
    )
    begun = next(job.folder for job in results.jobs if job.label == "GR")
    found = by_label(build(results))
    assert {label: row.state for label, row in found.items()} == {
        "AN": "2 of 3 runs",
        "WAN": "failed: seed 0: no such file",
        "GR": "not run",
        "LAC": "",
    }
    assert (found["AN"].finished, found["AN"].planned, found["WAN"].cells) == (2, 3, {})
    assert any("Failed runs of AN: seed 2: out of memory" in n for n in build(results).notes)
    started = replace(results, statuses={begun: "started"})
    assert by_label(build(started))["GR"].state == "not finished"
    blind = replace(results, finished=tuple(replace(r, networks={}) for r in results.finished))
    assert by_label(build(blind))["LAC"].state == "no clean labels to test with"
    assert (
        by_label(build(results, view=VIEWS["averaged-last"]))["LAC"].state == "no averaged network"
    )


def test_student_and_teacher_of_real_runs(tmp_path):
    scenario = write_scenario(tmp_path / "tiny", {"seeds": [0]})
    jobs = plan(scenario, ["AN", "AdaGC"], tmp_path / "out")
    for job in jobs:
        perform(job)
    results = collect("tiny", jobs)
    (run,) = results.of("AdaGC")
    for choice in ("last", "best"):
        table = build(results, view=VIEWS[f"network-{choice}"])
        assert [row.label for row in table.rows] == ["AN", "AdaGC", "AdaGC (teacher)"]
        for row, network in zip(table.rows[1:], ("network", "teacher"), strict=True):
            wanted = run.scores(network, choice).mean_average_precision * 100
            assert row.cells[MAP].mean == pytest.approx(wanted)
        assert any("AdaGC is the student, which is deployed" in note for note in table.notes)
        assert table.rows[2].cells[MAP].mark == ""  # the same runs again take no place
        assert all(row.cells[MAP].mark for row in table.rows[:2])
    # The default view shows averages.
    averaged = by_label(tables.build(results))
    wanted = run.scores("averaged", "last").mean_f1 * 100
    assert averaged["AdaGC"].cells["mean_f1"].mean == pytest.approx(wanted)
    # In the few steps of these runs the teacher is the same average: it gets no row of its own.
    assert run.scores("teacher", "last").mean_f1 * 100 == pytest.approx(wanted)
    assert list(averaged) == ["AN", "AdaGC"]
    assert tables.build(results).clock == "CPU time"
    (an,) = results.of("AN")
    assert averaged["AN"].seconds == an.cpu_seconds == an.run.made.cpu_seconds > 0


def test_what_a_method_says_of_its_runs_stands_below_the_table():
    results = from_numbers({"AN": [50.0, 51.0], "AdaGC": [60.0, 61.0, 62.0]})
    assert not any("by force" in note for note in tables.build(results).notes)
    forced = [
        replace(run, remark="it began by force") if run.method == "AdaGC" and run.seed else run
        for run in results.finished
    ]
    notes = tables.build(replace(results, finished=tuple(forced))).notes
    assert notes.count("AdaGC, 2 of 3 runs: it began by force.") == 1


def test_a_teacher_stands_in_for_an_average_that_is_not_there():
    results = from_numbers(
        {"AN": [50.0], "AdaGC": [60.0]}, networks={"AdaGC": {"teacher": [[61.0] * 7]}}
    )
    found = by_label(build(results, view=VIEWS["averaged-last"]))
    assert list(found) == ["AN", "AdaGC (teacher)"]
    assert found["AdaGC (teacher)"].cells[MAP].mean == pytest.approx(61.0)
    assert found["AN"].state == "no averaged network"


# -- how it looks -------------------------------------------------------------------------------


def printed(table, width=100):
    console = Console(width=width, record=True, file=io.StringIO(), color_system="truecolor")
    console.print(render.terminal(table))
    return console.export_text(clear=False), console.export_text(styles=True)


def test_the_terminal_shows_everything_in_100_columns():
    results = everything(
        networks={"AdaGC": {"teacher": [[value + 9 for value in SEVEN]] * 3}},
        failed={"AN": ["seed 7: boom"]},
    )
    table = build(
        results,
        title="Demo",
        paper=paper.values("reben-random"),
        paper_note="reBEN, 237,871 patches, ResNet-34",
    )
    text, styled = printed(table)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    lines = [line.strip() for line in text.splitlines()]
    boost, student, teacher = (
        re.sub(" +", " ", line)
        for line in lines
        if line.startswith(("BoostLU", "AdaGC ")) and "±" in line
    )
    # 60 + 10 * 0.37 + 0.21 and its deviation, ...; the paper's mAP; a minute
    assert boost == (
        "BoostLU + LL-Ct 63.9±0.2 8.91±0.21 9.9±0.2 93.9±0.2 53.9±0.2 58.9±0.2 48.9±0.2 61.8 61 s"
    )
    assert student.endswith(" 67.8 61 s")
    assert "69.0±0.0" in teacher
    assert "General label noise" in text
    assert "Table III (reBEN-Random), made with reBEN, 237,871 patches, ResNet-34" in " ".join(
        text.split()
    )
    assert "\x1b[1m68.4" in styled  # AdaGC is best
    assert "\x1b[3m" in styled
    alone, _ = printed(build(results, title="[red]Demo[/]"))
    assert "values are not from these runs" not in alone
    assert "[red]Demo[/]" in alone


def test_a_single_run_has_room_for_all_decimals_and_failures_are_told():
    table = build(from_numbers({"AN": [SEVEN], "WAN": []}, planned=1,
                                      failed={"WAN": ["seed 0: no such file"]}))  # fmt: skip
    text, _ = printed(table)
    assert "After a name" not in text
    partly = printed(build(from_numbers({"AN": [60.0, 61.0]}, planned=3)))[0]
    assert re.search(r"AN 2/3 +60.5±0.7", partly)
    assert "After a name: runs with results / planned runs." in partly
    assert re.search(r"AN +60.00 +5.000 +6.00", text)
    assert re.search(r"WAN +failed", text)
    assert "WAN failed: seed 0: no such file" in text


def test_markdown():
    results = from_numbers(
        {"EPR": [60.0, 62.0], "AN": [70.0, 70.0], "WAN": []},
        planned=2,
        failed={"WAN": ["seed 0: a | b"]},
    )
    text = render.markdown(build(results, paper=paper.values("aid-random")))
    lines = text.splitlines()
    widths = {line.count("|") - line.count("\\|") for line in lines if line.startswith("|")}
    assert widths == {13}
    assert "| EPRᵃ | *61.00* (1.41) | **61.000** (1.414) |" in text
    assert "| AN | **70.00** (0.00) | *70.000* (0.000) |" in text
    assert "| 68.38 | 69.82 | 81.11 | 60 s |" in text  # the paper's EPR
    assert "| paper's mAP | paper's mF1 | paper's mRec |" in text
    assert r"| WAN | failed: seed 0: a \| b |" in text
    assert "The paper's values are not from these runs, but from its Table V (AID-Random)." in text


def test_csv_and_json_hold_the_same_unrounded_numbers():
    results = everything()
    both = [
        build(results, paper=paper.values("reben-random")),
        build(from_numbers({"WAN": []}, planned=2), view=VIEWS["network-best"]),
    ]
    lines = list(csv.DictReader(io.StringIO(render.csv(both))))
    assert len(lines) == 7 * (len(registry()) + 1)
    found = next(x for x in lines if (x["label"], x["metric"]) == ("RCML", MAP))
    (cell,) = (row.cells[MAP] for row in both[0].rows if row.label == "RCML")
    assert float(found["mean"]) == pytest.approx(cell.mean, rel=1e-9)
    assert float(found["deviation"]) == pytest.approx(statistics.stdev([0, 0.21, 0.42]), rel=1e-9)
    kept = ("group", "network", "epoch", "unit", "runs", "paper_mean", "paper_deviation")
    assert [found[key] for key in kept] == [
        "RS-specific methods", "network", "last", "%", "3", "64.91", "0.12",
    ]  # fmt: skip
    assert {x["mark"] for x in lines if x["metric"] == MAP} == {"best", "second", ""}
    assert [x["mean"] for x in lines if x["epoch"] == "best"] == [""] * 7
    plain = json.loads(json.dumps(render.json(both)))
    rows = {row["label"]: row for group in plain[0]["groups"] for row in group["rows"]}
    assert rows["RCML"]["cells"][MAP]["mean"] == cell.mean
    assert rows["RCML"]["paper"]["coverage"] == {"mean": 4.585, "deviation": 0.005}
    assert plain[1]["groups"][0]["rows"][0]["state"] == "not run"


# -- LaTeX --------------------------------------------------------------------------------------

NASTY = "50 % of A&B_c #1 {x} $y$ ~ ^ \\ `q` <a|b> λ = 0.5 γ′ ± Łódź naïve 日本 ö ß --x ---y … ᵃ†"


def test_latex_is_ascii_and_escaped():
    spelt = render.escape(NASTY)
    assert spelt.isascii()
    for wanted in (
        r"50 \% of A\&B\_c \#1 \{x\} \$y\$",
        r"$\lambda$",
        r"na\"{i}ve",
        r"\"{o}",
        "-{}-x",
    ):
        assert wanted in spelt
    assert render.escape("日") == "?"
    assert render.escape("﹛％﹜") == r"\{\%\}"  # small and wide forms are plain signs to NFKD


@given(st.text(max_size=30))
def test_latex_never_holds_what_pdflatex_cannot_read(text):
    spelt = render.escape(text)
    assert spelt.isascii()
    assert spelt.isprintable()
    assert not re.search(r"(?<!\\)[&%#_]", spelt)
    bare = spelt.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")


def test_latex_marks_and_groups():
    text = render.latex([build(everything(), paper=paper.values("reben-random"))])
    assert text.count(r"\begin{table*}") == 1
    assert r"\documentclass" not in text
    assert r"\emph{RS-specific methods}" in text
    assert r"AdaGC & \textbf{68.35} (0.21)" in text
    assert r"EPR\textsuperscript{a} & " in text
    assert r"\multicolumn{3}{c}{the paper's}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "(0.21)" in line]
    assert {line.count("&") for line in rows} == {11}


@pytest.mark.system("pdflatex")
def test_latex_compiles(tmp_path):
    rows = {NASTY: [60.0, 61.0], "T + S'": [SEVEN, SEVEN], "none": []}
    variants = from_numbers(
        rows,
        planned=3,
        methods=dict.fromkeys(rows, "AdaGC"),
        failed={"none": [NASTY], "T + S'": ["seed 2: adagc train --resume"]},
    )
    both = [
        build(everything(), title="Demo", paper=paper.values("aid-random"), paper_note="x"),
        build(variants, title=NASTY),
    ]
    (tmp_path / "table.tex").write_text(render.latex(both, document=True), encoding="ascii")
    # The tables alone, in a document of another's.
    (tmp_path / "part.tex").write_text(render.latex(both), encoding="ascii")
    (tmp_path / "own.tex").write_text(
        "\\documentclass[twocolumn]{article}\\usepackage{booktabs,graphicx}\n"
        "\\begin{document}\\input{part}\\end{document}\n"
    )
    for name in ("table", "own"):
        done = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout
        assert "Missing character" not in (tmp_path / f"{name}.log").read_text(errors="replace")
        assert (tmp_path / f"{name}.pdf").stat().st_size > 10_000


def test_classes_that_no_test_image_contains_are_noted_below_the_table():
    remark = "mAP is the mean over 3 of 4 classes: no tested image contains urban."
    results = from_numbers({"AN": [60.0, 61.0], "WAN": [62.0, 63.0]})
    assert not any("classes" in note for note in tables.build(results).notes)
    every = replace(results, finished=tuple(replace(r, caveat=remark) for r in results.finished))
    table = tables.build(every)
    assert remark in table.notes
    assert remark in render.markdown(table)
    assert "mean over 3 of 4 classes" in render.latex([table])
    one = replace(every, finished=(every.finished[0], *results.finished[1:]))
    assert f"In 1 of 4 runs {remark}" in tables.build(one).notes


def test_the_remark_comes_from_the_files_of_a_run(tmp_path):
    """Of 24 scenes the rarest of 19 classes are on none."""
    scenario = write_scenario(tmp_path / "tiny", bench={"seeds": [0]}, scenes=6, epochs=1)
    jobs = plan(scenario, ["AN"], tmp_path / "runs")
    perform(jobs[0])
    results = collect(scenario.name, jobs)
    (found,) = results.finished
    assert found.caveat.startswith("mAP is the mean over ")
    assert found.caveat in tables.build(results).notes
