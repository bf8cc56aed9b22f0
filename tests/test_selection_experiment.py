"""The experiment on choosing by noisy labels: what a choice costs, and what is watched."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from adagc.methods.adagc import AdaGC
from adagc.metrics import CRITERIA
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from conftest import make_collection, make_labels

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
import selection
from selection import Regret, by_case, differences, read, regrets, table


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
    found = regrets([line("run", "A", 0, networks)])
    assert costs(found, "epoch", "A, network") == pytest.approx(
        {"auc": 30, "noisy-map": 30, "likelihood": 30, "tempered": 0, "rank": 10, "blind": 10}
    )
    assert costs(found, "epoch", "A, averaged") == pytest.approx(
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
