"""Run folders that were written before files had a format number: they open, report and resume."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from adagc.bench.jobs import Job
from adagc.bench.results import collect
from adagc.cli import main
from adagc.compare import tables
from adagc.errors import UsageError
from adagc.methods.adagc import AdaGC
from adagc.training.config import RunConfig
from adagc.training.experiment import config_of, train
from adagc.training.runs import Run
from adagc.training.views import VIEWS
from adagc.types import NetworkRole

FIXTURES = Path(__file__).parents[1] / "fixtures" / "first-format"


@pytest.fixture
def finished(tmp_path) -> Run:
    return Run.open(shutil.copytree(FIXTURES / "finished", tmp_path / "finished"))


def test_the_fixtures_are_of_the_first_format():
    for folder in FIXTURES.iterdir():
        lines = (folder / "history.jsonl").read_text().splitlines()
        assert not any("format" in json.loads(line) for line in lines)
        assert "format" not in json.loads((folder / "labels.json").read_text())
    assert "format" not in json.loads((FIXTURES / "finished" / "scores.json").read_text())


def test_everything_in_it_can_be_read(finished):
    assert finished.finished
    assert [line.epoch for line in finished.history] == [1, 2, 3, 4, 5, 6]
    last = finished.history[-1]
    assert last.noisy_of(NetworkRole.TEACHER) == last.noisy["teacher"]
    assert last.clean_of(NetworkRole.AVERAGE) == last.oracle.validation["averaged"]
    assert last.deployed == "network"
    assert (last.status["triggered_after"], last.verdict.value) == (4, "continue")
    assert finished.history[3].verdict.value == "restore"
    raw = finished.read_json("scores.json")["networks"]["network"]["last"]
    assert finished.scores.final.to_dict() == {k: v for k, v in raw.items() if k != "epoch"}
    titles = {name: one.title for name, one in finished.scores.networks.items()}
    assert titles == {"network": "student", "teacher": "teacher", "averaged": "averaged"}
    assert finished.made.best_epoch == {"network": 1, "teacher": 2, "averaged": 2}
    assert finished.labels.images.train == 24
    assert finished.labels.flip_rates.wrong == 0
    assert finished.settings.method == "AdaGC"
    assert not finished.model().training


def test_it_is_evaluated_again(finished, capsys):
    before = finished.read_json("scores.json")
    assert main(["evaluate", str(finished.folder)]) == 0
    told = capsys.readouterr().out
    assert "student, last (6)" in told
    assert "teacher, best (2)" in told
    after = finished.read_json("scores.json")
    assert after["format"] == 1
    for name, choices in before["networks"].items():
        for which, scores in choices.items():
            again = after["networks"][name][which]
            assert again["epoch"] == scores["epoch"]
            wanted = pytest.approx(scores["mean_average_precision"], rel=1e-5)
            assert again["mean_average_precision"] == wanted


@pytest.mark.parametrize("name", ["finished", "interrupted"])
def test_it_has_a_report(name, tmp_path, capsys):
    folder = shutil.copytree(FIXTURES / name, tmp_path / name)
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert str(folder / "report.html") in capsys.readouterr().out
    assert "AdaGC" in page
    assert ">student</" in page
    if name == "finished":
        assert "Warm-up ended after epoch <strong>4</strong>, and calibration began" in page
        assert "best in epoch <strong>2</strong>: training went back there" in page
    else:
        assert "Still in warm-up, not triggered yet" in page


def test_the_theory_is_checked_on_it(finished, capsys):
    assert main(["theory", str(finished.folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["network"], told["trigger"]) == ("teacher", 4)
    assert [epoch["epoch"] for epoch in told["epochs"]] == [1, 2, 3, 4, 5, 6]


def test_it_has_a_row_in_tables(finished):
    job = Job("tiny", "AdaGC", "AdaGC", {}, {"seed": 0}, str(finished.folder))
    finished.write_json("bench.json", job.to_dict())
    results = collect("tiny", [job])
    assert not results.failed
    table = tables.build(results, view=VIEWS["network-last"])
    assert table.clock == "time"  # CPU time was not measured then
    assert [row.label for row in table.rows] == ["AdaGC", "AdaGC (teacher)"]
    key = "mean_average_precision"
    for row, name in zip(table.rows, ("network", "teacher"), strict=True):
        wanted = finished.read_json("scores.json")["networks"][name]["last"][key]
        assert row.cells[key].mean == pytest.approx(100 * wanted)


@pytest.mark.parametrize("asked", ["noisy-map", RunConfig.select])
def test_it_goes_on_where_it_was_interrupted(tmp_path, asked):
    folder = shutil.copytree(FIXTURES / "interrupted", tmp_path / "run")
    begun = (folder / "history.jsonl").read_bytes()
    method = AdaGC(patience=2, minimum_warm_up=0, force_trigger=0.6)
    config = config_of(Run.open(folder))
    assert config.select == "noisy-map" != RunConfig.select
    # A command line that says nothing of the criterion, as when the run was started, asks for what
    # is the default now.
    config = replace(config, select=asked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = train(config, method, folder, resume=True)
    assert run.settings.select == "noisy-map"
    assert run.made.best_epoch == Run.open(FIXTURES / "finished").made.best_epoch
    for name, best in run.made.best_epoch.items():
        values = [line.criterion("noisy-map", name) for line in run.history]
        assert best == 1 + values.index(max(values))
    assert (folder / "history.jsonl").read_bytes().startswith(begun)
    whole = Run.open(FIXTURES / "finished")
    assert [line.epoch for line in run.history] == [1, 2, 3, 4, 5, 6]
    assert [line.verdict for line in run.history] == [line.verdict for line in whole.history]
    assert all(
        dict(line.status).items() >= dict(before.status).items()
        for line, before in zip(run.history, whole.history, strict=True)
    )
    assert [line.roles for line in run.history] == [line.roles for line in whole.history]
    names = sorted(path.name for path in whole.path("weights").iterdir())
    assert sorted(path.name for path in run.path("weights").iterdir()) == names
    for name in ("model.safetensors", *(f"weights/{name}" for name in names)):
        # Other machines round differently.
        torch.testing.assert_close(
            load_file(run.path(name)), load_file(whole.path(name)), rtol=1e-5, atol=1e-6
        )


def test_it_cannot_go_on_by_another_criterion(tmp_path):
    folder = shutil.copytree(FIXTURES / "interrupted", tmp_path / "run")
    method = AdaGC(patience=2, minimum_warm_up=0, force_trigger=0.6)
    config = replace(config_of(Run.open(folder)), select="rank")
    with pytest.raises(UsageError, match="started with select = 'noisy-map', now it is 'rank'"):
        train(config, method, folder, resume=True)
