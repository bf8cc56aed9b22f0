"""CONTRIBUTING's "Add a metric" done from outside: one function, one registration."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics import hamming_loss

from adagc import metrics
from adagc.bench.jobs import plan
from adagc.bench.results import Result
from adagc.bench.work import perform
from adagc.cli import main
from adagc.compare import render, tables
from adagc.console import rows_of, score_table
from adagc.errors import UsageError
from adagc.metrics import METRICS, Metric, score
from adagc.paper import values as paper
from adagc.training.runs import Run
from adagc.training.scoring import evaluate, predictions_of, truth_of
from adagc.training.views import VIEWS
from adagc.types import Scores
from fake_results import from_numbers

FIRST = Path(__file__).parent / "fixtures" / "first-format" / "finished"


def wrong_decisions(truth: np.ndarray, probabilities: np.ndarray, predicted: np.ndarray) -> float:
    return float((truth != predicted).mean())


HAMMING = Metric(
    "hamming_loss", "Ham. <loss>", 100, 3, "down", "Share of wrong decisions.", wrong_decisions, "%"
)


@pytest.fixture
def hamming():
    metrics.register(HAMMING)
    yield HAMMING
    metrics.unregister("hamming_loss")


def texts(table: tables.Table) -> dict[str, str]:
    """A table in every form that there is."""
    console = Console(width=220)
    with console.capture() as shown:
        console.print(render.terminal(table, 220))
    return {
        "terminal": shown.get(),
        "markdown": render.markdown(table),
        "latex": render.latex([table]),
        "csv": render.csv([table]),
        "json": json.dumps(render.json([table])),
    }


def test_a_bench_and_a_report_show_a_registered_metric(tiny, tmp_path, hamming, capsys):
    for job in plan(tiny, ["AN", "AdaGC"], tmp_path / "out", [0]):
        perform(job)
    arguments = ["bench", str(tmp_path / "tiny"), "--out", str(tmp_path / "out"), "--seeds", "0"]
    assert main([*arguments, "--methods", "AN", "AdaGC"]) == 0
    assert "Ham." in capsys.readouterr().out
    place = tmp_path / "out" / "tiny"
    (folder,) = (path.parent for path in (place / "an").glob("seed0-*/scores.json"))
    run = Run.open(folder)
    wanted = 100 * hamming_loss(truth_of(run), predictions_of(run)["network-last"] >= 0.5)
    assert 0 < wanted < 100
    assert f"{wanted:.3f}" in (place / "table.md").read_text()
    assert f"{wanted:.3f}" in (place / "table.tex").read_text()
    assert r"Ham. \<loss\> ↓" in (place / "table.md").read_text()
    assert r"Ham. $<$loss$>$" in (place / "table.tex").read_text()
    with (place / "table.csv").open(newline="") as file:
        (line,) = (
            line
            for line in csv.DictReader(file)
            if (line["label"], line["metric"], line["network"], line["epoch"])
            == ("AN", "hamming_loss", "network", "last")
        )
    assert float(line["mean"]) == pytest.approx(wanted)
    assert (line["unit"], line["paper_mean"]) == ("%", "")
    (table, *_) = json.loads((place / "table.json").read_text())["tables"]
    cells = [row["cells"]["hamming_loss"] for group in table["groups"] for row in group["rows"]]
    assert {cell["mark"] for cell in cells} == {"best", "second"}

    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert 'title="Share of wrong decisions."' in page
    assert "Ham. &lt;loss&gt;" in page
    assert f"{wanted:.3f}" in page
    line = json.loads((folder / "history.jsonl").read_text().splitlines()[0])
    assert 0 <= line["noisy"]["network"]["hamming_loss"] <= 1


def test_score_computes_what_is_registered_and_nothing_else(hamming):
    rng = np.random.default_rng(0)
    truth, values = rng.random((30, 5)) < 0.4, rng.random((30, 5)).astype(np.float32)
    limits = np.array([0.1, 0.3, 0.5, 0.7, 0.9], np.float32)
    scores = score(truth, values, limits)
    assert scores["hamming_loss"] == pytest.approx(hamming_loss(truth, values >= limits))
    assert scores["mean_f1"] == scores.mean_f1
    assert [*scores.summary()] == [*METRICS]
    again = Scores.from_dict(json.loads(json.dumps({"epoch": 3, **scores.to_dict()})))
    assert again.summary() == scores.summary()
    assert again.extra.keys() == {"hamming_loss"}
    metrics.unregister("hamming_loss")
    assert score(truth, values).extra == {}
    metrics.register(hamming)


def test_a_value_that_is_not_finite_is_left_out(hamming):
    metrics.register(Metric("odd", "Odd", 1, 1, "up", compute=lambda *_: float("nan")))
    try:
        assert "odd" not in score([[1]], [[0.4]]).summary()
    finally:
        metrics.unregister("odd")


def test_runs_from_before_show_a_blank(hamming, tmp_path, capsys):
    """In the table of a run, in its report, and in every form of a table of many."""
    copied = tmp_path / "run"
    shutil.copytree(FIRST, copied)
    old = json.loads((copied / "scores.json").read_text())
    assert "hamming_loss" not in old["networks"]["network"]["last"]
    console = Console(width=200)
    with console.capture() as shown:
        console.print(score_table(rows_of(Run.open(copied).scores)))
    assert "Ham." in shown.get()
    assert main(["report", str(copied)]) == 0
    page = (copied / "report.html").read_text()
    assert "Ham. &lt;loss&gt;" in page
    assert "<td></td>" in page
    assert main(["report", str(copied), "--against", str(copied)]) == 0  # nothing to put in bold
    evaluate(Run.open(copied))
    again = json.loads((copied / "scores.json").read_text())["networks"]
    assert again["network"]["last"]["hamming_loss"] > 0
    assert again["network"]["last"]["mean_f1"] == old["networks"]["network"]["last"]["mean_f1"]
    assert main(["report", str(copied)]) == 0
    assert "<td></td>" not in (copied / "report.html").read_text()


def extra_of(run: Result) -> dict[str, float]:
    return run.networks["network"].epochs["last"].scores.extra


def test_tables_without_the_value_and_beside_the_paper(hamming):
    paper._rows.cache_clear()
    metrics.unregister("hamming_loss")
    results = from_numbers({"AN": [1, 2], "WAN": [2, 3], "AdaGC": [4, 5]})
    metrics.register(hamming)
    *_, adagc = results.finished
    for run in results.finished[2:]:
        extra_of(run)["hamming_loss"] = 0.25  # AN was tested before
    view = VIEWS["network-last"]
    table = tables.build(results, view=view, paper=paper.values("aid-random"))
    for form, text in texts(table).items():
        assert "hamming" in text.lower() or "Ham." in text, form
        assert "25" in text, form
        assert "nan" not in text, form
    assert "Ham. <loss>: blank where runs were tested before" in texts(table)["markdown"].replace(
        "\\", ""
    )
    rows = {row.label: row for row in table.rows}
    assert "hamming_loss" not in rows["AN"].cells
    assert rows["WAN"].cells["hamming_loss"].mark == rows["AdaGC"].cells["hamming_loss"].mark
    assert "hamming_loss" not in rows["AN"].paper
    del extra_of(adagc)["hamming_loss"]  # a mean over fewer runs is another one
    rows = {row.label: row for row in tables.build(results, view=view).rows}
    assert "hamming_loss" not in rows["AdaGC"].cells
    assert rows["AdaGC"].cells["mean_f1"].runs == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "mean_f1"}, "'mean_f1', which is taken"),
        ({"key": "epoch"}, "'epoch', which is taken"),
        ({"key": "no name"}, "not a plain name"),
        ({"heading": "mF1"}, "heading 'mF1' is that of mean_f1"),
        ({"compute": None}, "compute="),
    ],
)
def test_what_cannot_be_registered_is_said_in_one_line(changes, message):
    given = {"key": "k", "heading": "K", "scale": 1, "decimals": 1, "better": "up"}
    given |= {"compute": wrong_decisions, **changes}
    before = [*METRICS]
    with pytest.raises(UsageError, match=message):
        metrics.register(Metric(**given))
    with pytest.raises(UsageError, match="no metric called 'mean_f1' was registered"):
        metrics.unregister("mean_f1")
    assert [*METRICS] == before
