"""--select on the command line: what chooses the epoch of a run, and the options of a method."""

from __future__ import annotations

import json

import pytest

from adagc.cli import main
from adagc.training.runs import Run
from tiny import TINY, write_scenario


@pytest.mark.parametrize("select", ["auc", "likelihood", "tempered"])
def test_train_keeps_the_epoch_that_is_asked_for(tmp_path, capsys, select):
    given = {**TINY, "epochs": 6, "learning_rate": 0.02, "select": select}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    arguments = [
        "train",
        "--method",
        "AN",
        "--out",
        str(tmp_path / "run"),
        "--report",
        "false",
        *words,
    ]
    assert main(arguments) == 0
    run = Run.open(tmp_path / "run")
    assert run.settings.select == select
    for name in ("network", "averaged"):
        best = max(run.history, key=lambda line: line.criterion(select, name))
        assert run.scores.networks[name].epochs["best"].epoch == best.epoch


@pytest.mark.parametrize("select", ["auc", "tempered"])
def test_tune_compares_options_by_what_is_asked_for(tmp_path, capsys, select):
    write_scenario(tmp_path / "tiny", epochs=1)
    words = ["--methods", "ELR", "--trials", "2", "--select", select, "--json"]
    assert main(["tune", str(tmp_path / "tiny"), "--out", str(tmp_path / "out"), *words]) == 0
    (study,) = json.loads(capsys.readouterr().out)["studies"]
    assert study["select"] == select
    runs = [Run.open(path.parent) for path in (tmp_path / "out").rglob("history.jsonl")]
    values = sorted(run.history[-1].criterion(select) for run in runs)
    assert sorted(trial["score"] for trial in study["trials"]) == pytest.approx(values)


def test_the_noisy_auc_is_what_chooses_by_default(capsys):
    for command in ("train", "tune"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        about = " ".join(capsys.readouterr().out.split()).split(" --select ")[1]
        assert "(default: auc)" in about.split(" --workers ")[0].split(" --seed ")[0], command
