"""The experiment on choosing by noisy labels: what a choice costs, and what is watched."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from adagc.bench.jobs import plan
from adagc.bench.packs import pack
from adagc.bench.results import collect
from adagc.bench.work import perform
from adagc.errors import AdagcError
from adagc.methods.adagc import AdaGC
from adagc.metrics import CRITERIA
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from conftest import make_collection, make_labels

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
import regret
import selection
from regret import Regret, by_case, differences, lines_of, read, regrets, table


def epochs(test, **criteria):
    """A network whose criteria are those given, or else flat."""
    flat = [0.0] * len(test)
    return {**dict.fromkeys(CRITERIA, flat), **criteria, "test": test}


def line(kind, method, seed, networks, data="aid"):
    return {"data": data, "kind": kind, "method": method, "seed": seed, "networks": networks}


def trial(method, test, seed=0, **last):
    criteria = {name.replace("_", "-"): [9.0, value] for name, value in last.items()}
    return line("trial", method, seed, {"network": epochs([0.1, test], **criteria)})


def costs(found, question, case):
    return {r.by: r.cost for r in found if (r.question, r.case) == (question, case)}


def test_the_cost_of_choosing_options_by_hand():
    lines = [
        trial("A", 0.50, auc=0.5, noisy_map=0.3, likelihood=-2.0, tempered=-1.0, rank=0.5),
        trial("A", 0.60, auc=0.6, noisy_map=0.2, likelihood=-1.0, tempered=-1.0, rank=0.9),
        trial("A", 0.70, auc=0.4, noisy_map=0.1, likelihood=-1.5, tempered=-0.5, rank=0.9),
        trial("B", 0.40, auc=0.7, noisy_map=0.9, likelihood=-0.1, tempered=-9.0, rank=0.1),
    ]
    found = regrets(lines)
    # Only the last epoch counts, and of equal values the first is chosen.
    assert costs(found, "options", "A") == pytest.approx(
        {"auc": 10, "noisy-map": 20, "likelihood": 10, "tempered": 0, "rank": 10, "blind": 10}
    )
    assert costs(found, "options", "B") == {}  # nothing to choose from
    assert costs(found, "method", "all methods") == pytest.approx(
        {"auc": 30, "noisy-map": 30, "likelihood": 30, "tempered": 0, "rank": 10, "blind": 15}
    )


def test_other_seeds_and_data_are_other_choices():
    lines = [trial("A", 0.5), trial("A", 0.6), trial("A", 0.9, seed=1), trial("A", 0.3, seed=1)]
    lines += [{**one, "data": "ucm"} for one in lines[:2]]
    found = regrets(lines)
    blind = {(r.data, r.seed): r.cost for r in found if (r.by, r.question) == ("blind", "options")}
    assert blind == pytest.approx({("aid", 0): 5, ("aid", 1): 30, ("ucm", 0): 5})


def test_the_cost_of_choosing_an_epoch_by_hand():
    networks = {
        "network": epochs([0.4, 0.7, 0.6], tempered=[-3, -1, -2], rank=[0.1, 0.2, 0.3]),
        "averaged": epochs([0.5, 0.6, 0.8], tempered=[-1, -2, -3]),
    }
    found = regrets([line("run", "AN", 0, networks)])
    assert costs(found, "epoch", "AN, network") == pytest.approx(
        {"auc": 30, "noisy-map": 30, "likelihood": 30, "tempered": 0, "rank": 10, "blind": 10}
    )
    assert costs(found, "epoch", "AN, averaged") == pytest.approx(
        {"auc": 30, "noisy-map": 30, "likelihood": 30, "tempered": 30, "rank": 30, "blind": 0}
    )
    assert {r.question for r in found} == {"epoch"}


def test_the_table_has_means_and_the_worst():
    names = [*CRITERIA, "blind"]
    found = [
        Regret("aid", "options", case, seed, by, cost)
        for case, seed, shift in (("A", 0, 0.0), ("B", 0, 1.0), ("A", 1, 2.0))
        for by, cost in zip(names, [5, 4 + shift, 3 + shift, 1 + shift, 2 + shift, 9], strict=True)
    ]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table(found).splitlines()]
    assert rows[0] == ["data", "chosen", "cases", *names]
    assert rows[2] == [
        "AID, frozen features", "options", "3",
        "5.00 (5.0)", "5.00 (6.0)", "4.00 (5.0)", "**2.00** (3.0)", "3.00 (4.0)", "9.00 (9.0)",
    ]  # fmt: skip
    assert len(rows) == 3
    cases = by_case(found, "aid", "options").splitlines()[2:]
    assert cases[0] == "| A | 5.00 | 5.00 | 4.00 | 2.00 | 3.00 | 9.00 |"
    assert "tempered loses 3.00 less than noisy-map (standard error over 2 seeds 0.00)" in (
        differences(found, "tempered", "noisy-map")
    )


def test_half_a_line_of_a_killed_process_is_dropped(tmp_path):
    path = tmp_path / "selection-aid.jsonl"
    assert read(path) == []
    path.write_text('{"a": 1}\n{"a": 2')
    assert read(path) == [{"a": 1}]
    assert path.read_text() == '{"a": 1}\n'


@pytest.mark.filterwarnings("ignore:calibration starts")
def test_watching_changes_nothing_and_sees_what_is_validated(tmp_path):
    """The same criteria as an ordinary run, for the average as well, and its test scores."""
    collection = make_collection()
    labels = make_labels(collection, tmp_path / "single.csv")
    settings = {
        "data": "array", "labels": str(labels), "backbone": "mlp", "hidden": 8, "epochs": 5,
        "batch_size": 8, "learning_rate": 0.3,
    }  # fmt: skip
    options = {"patience": 1, "minimum_warm_up": 0}
    plain = train(RunConfig(**settings, average=0.9), AdaGC(**options), collection=collection)
    method = selection.watching(AdaGC, 0.9)(**options)
    tested = []
    method.look = lambda networks: tested.append(
        {name: {k: v.clone() for k, v in one.network.state_dict().items()}
         for name, one in networks.items()}
    )  # fmt: skip
    watched = train(RunConfig(**settings), method, collection=collection)
    assert [dict(a.criteria) for a in watched.history] == [dict(a.criteria) for a in plain.history]
    assert [a.verdict for a in watched.history] == [a.verdict for a in plain.history]
    assert any(a.verdict.value == "restore" for a in plain.history)
    assert len(tested) == 5
    last = watched.model().state_dict()
    assert all(np.array_equal(tested[-1]["network"][key], last[key]) for key in last)


def test_the_cost_of_choosing_a_whole_method_by_hand():
    """At the epoch that the noisy AUC keeps, without methods that are told frequencies."""
    runs = {
        "AN": epochs([0.4, 0.7, 0.6], auc=[0.1, 0.3, 0.2], tempered=[-1, -2, -1]),
        "WAN": epochs([0.9, 0.1, 0.5], auc=[0.1, 0.2, 0.9], tempered=[-9, -9, -1]),
        "EPR": epochs([0.9, 0.9, 0.9], auc=[1, 1, 1], tempered=[0, 0, 0]),
    }
    lines = [line("run", name, 0, {"network": one}) for name, one in runs.items()]
    # AN is kept after epoch 2 with 70, WAN after epoch 3 with 50.
    assert costs(regrets(lines), "whole", "all methods, network") == pytest.approx(
        {"auc": 20, "noisy-map": 0, "likelihood": 0, "tempered": 20, "rank": 0, "blind": 10}
    )
    # A bench says which epoch it has kept, and has clean validation scores of the others.
    kept = {
        **epochs([None, 0.3, 0.9], auc=[0.1, 0.8, 0.9]),
        "kept": 2,
        "validation": [0.5, 0.2, 0.3],
    }
    found = regrets([*lines[:1], line("bench", "GR", 0, {"network": kept})])
    assert costs(found, "whole", "all methods, network")["auc"] == pytest.approx(40)
    assert costs(found, "checked", "GR, network") == pytest.approx(
        {"auc": 20, "noisy-map": 0, "likelihood": 0, "tempered": 0, "rank": 0, "blind": 20}
    )
    assert costs(found, "epoch", "GR, network") == {}
    # A run of the experiment counts before one of a bench.
    twice = regrets([line("bench", "AN", 0, {"network": kept}), *lines])
    assert costs(twice, "whole", "all methods, network")["blind"] == pytest.approx(10)


@pytest.fixture
def benched(tiny, tmp_path):
    """A finished bench of three methods, one of which sees clean labels."""
    jobs = plan(tiny, ["GT w/ BCE", "AN", "WAN"], tmp_path / "out", [0])
    for job in jobs:
        perform(job)
    return jobs


def test_finished_benches_are_read_from_folders_and_from_packs(benched, tiny, tmp_path):
    folder = tmp_path / "out" / "tiny"
    found = list(lines_of(regret.bench(folder), "demo-random"))
    assert [one["method"] for one in found] == ["AN", "WAN"]
    for one in found:
        (job,) = [job for job in benched if job.method == one["method"]]
        history, tested = job.run.history, job.run.scores.networks
        for name in ("network", "averaged"):
            epochs_ = one["networks"][name]
            assert epochs_["auc"] == pytest.approx(
                [record.criterion("auc", name) for record in history], abs=1e-5
            )
            best = tested[name].epochs["best"]
            assert epochs_["kept"] == best.epoch
            assert epochs_["test"][best.epoch - 1] == pytest.approx(
                best.scores.mean_average_precision, abs=1e-5
            )
            assert epochs_["validation"] == pytest.approx(
                [record.oracle.validation[name].mean_average_precision for record in history],
                abs=1e-5,
            )
    pack(tiny, collect("tiny", benched), tmp_path / "records" / "beyond" / "demo-random")
    assert (
        list(lines_of(regret.bench(tmp_path / "records" / "beyond" / "demo-random"), "demo-random"))
        == found
    )
    assert selection.recorded(tmp_path / "records") == found
    assert selection.recorded(tmp_path, {"demo-random": folder}) == found
    assert {one.question for one in regrets(found)} == {"whole", "checked"}


def test_the_same_run_with_other_settings_is_refused(benched, tiny, tmp_path):
    (job,) = plan(tiny.with_settings(learning_rate=0.1), ["AN"], tmp_path / "out", [0])
    perform(job)
    with pytest.raises(AdagcError, match="the same method and seed with other settings"):
        regret.bench(tmp_path / "out" / "tiny")


def test_the_command_trains_what_is_missing_on_dominant_labels(tmp_path, capsys, monkeypatch):
    words = ["selection.py", "run", "demo-dominant", "--out", str(tmp_path), "--seeds", "1",
             "--scenes", "24", "--epochs", "2", "--methods", "AN", "U0"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", [*words, "--kinds", "run"])
    selection.main()
    path = tmp_path / "selection-demo-dominant.jsonl"
    lines = read(path)
    assert [(one["kind"], one["method"]) for one in lines] == [
        ("run", "AN"),
        ("run", "Random cover"),
    ]
    for one in lines:
        assert set(one["networks"]) == {"network", "averaged"}
        assert all(len(v) == 2 for epochs_ in one["networks"].values() for v in epochs_.values())
    before = path.read_bytes()
    selection.main()  # nothing is missing any more
    assert path.read_bytes() == before
    assert "2 trainings are recorded, 0 are missing" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [words[0], "plan", *words[2:]])
    selection.main()
    told = capsys.readouterr().out
    assert "2 trainings are recorded, 2 are missing" in told  # the trials
    assert "\n2 epochs over all training images" in told
    assert "hours on one core, by what 2 trainings took" in told
    monkeypatch.setattr(sys, "argv", [words[0], "table", "--out", str(tmp_path)])
    selection.main()
    told = capsys.readouterr().out
    assert "| Demo-Dominant | method, as `--choose` does | 2 |" in told
    assert "| Demo-Dominant | epoch | 4 |" in told


def test_every_training_is_planned_once_and_known_by_its_line():
    scenario = selection.load("demo-random")
    plans = list(selection.plans(scenario, [0, 1]))
    keys = [plan.key for plan in plans]
    assert len(set(keys)) == len(keys)
    assert [plan.seed for plan in plans] == [0] * (len(plans) // 2) + [1] * (len(plans) // 2)
    runs = {plan.method for plan in plans if plan.kind == "run"}
    assert {"AN", "AdaGC"} <= runs
    assert not {"GT w/ BCE", "IUN"} & runs
    epochs_of = {(plan.method, plan.kind): plan.epochs for plan in plans}
    assert epochs_of["AN", "run"] == epochs_of["AdaGC", "trial"] == 60
    assert epochs_of["LL-R", "trial"] == 10
    written = json.loads(json.dumps(vars(plans[-2])))
    assert selection._plan(written).key == plans[-2].key
