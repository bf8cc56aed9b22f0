"""`adagc budget` from the scenario to table, sentence, figure and JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adagc.bench.scenarios import load
from adagc.budget.plan import make_plan
from adagc.cli import main
from adagc.errors import UsageError
from adagc.training.inputs import open_configured
from adagc.training.settings import DataSettings

pytest.importorskip("matplotlib", reason="needs matplotlib")


@pytest.fixture
def scenario(tmp_path):
    """Embeddings of 300 images with clean labels, and a scenario on them."""
    rng = np.random.default_rng(0)
    truth = rng.random((300, 4)) < 0.35
    truth[np.arange(300), np.arange(300) % 4] = True
    vectors = truth @ rng.normal(size=(4, 8)) + 0.5 * rng.normal(size=(300, 8))
    np.save(tmp_path / "x.npy", vectors.astype(np.float32))
    lines = [",".join([f"{i:05d}", *map(str, row.astype(int))]) for i, row in enumerate(truth)]
    (tmp_path / "truth.csv").write_text("image,a,b,c,d\n" + "\n".join(lines) + "\n")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(
        f"data: array\nroot: {tmp_path / 'x.npy'}\ntruth: {tmp_path / 'truth.csv'}\n"
        "scheme: random\nbackbone: linear\nepochs: 3\nlearning_rate: 0.02\naccelerator: cpu\n"
        "bench: {seeds: [0, 1]}\n"
    )
    return folder


def plan_of(folder, tmp_path, **options):
    loaded = load(str(folder))
    data = open_configured(DataSettings.of(loaded.config(0)))
    return make_plan(loaded, data, tmp_path / "runs", **{"method": "AN", **options}), data


def test_a_plan_has_what_the_same_price_buys(scenario, tmp_path):
    plan, _ = plan_of(scenario, tmp_path, cost=4.0, shares=(0.5, 1.0))
    assert sorted(plan.single) == [0.5, 1.0]
    assert sorted(plan.full) == [0.125, 0.25, 1.0]
    by_share = {job.settings["share"]: job for jobs in plan.full.values() for job in jobs}
    # As many steps for fewer images.
    assert {share: job.settings["epochs"] for share, job in by_share.items()} == {
        0.125: 24, 0.25: 12, 1.0: 3
    }  # fmt: skip
    assert {job.seed for job in plan.jobs} == {0, 1}
    assert len({job.folder for job in plan.jobs}) == len(plan.jobs) == 10
    assert all(job.settings["scheme"] == "random" for job in plan.jobs)


def test_the_price_is_measured_unless_it_is_named(scenario, tmp_path):
    plan, data = plan_of(scenario, tmp_path, shares=(0.5, 1.0))
    expected = data.truth[data.splits["train"]].sum(axis=1).mean()
    assert plan.cost == plan.cardinality == pytest.approx(expected)
    assert plan.measured
    assert not plan_of(scenario, tmp_path, cost=3.0, shares=(0.5, 1.0))[0].measured


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shares": (0.01, 1.0)}, "choose larger shares"),
        ({"shares": (1.0,)}, "two different numbers"),
        ({"shares": (0.5, 1.5)}, "shares must be"),
        ({"cost": 0.5}, "cost must be at least 1"),
        ({"method": "GT w/ BCE"}, "sees all labels"),
    ],
)
def test_plans_that_answer_nothing_are_refused(scenario, tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        plan_of(scenario, tmp_path, **options)


def test_it_needs_clean_labels_and_says_so(scenario, tmp_path, capsys):
    text = (scenario / "scenario.yaml").read_text().splitlines()
    rows = (tmp_path / "truth.csv").read_text().splitlines()
    (tmp_path / "labels.csv").write_text(
        "image,label\n" + "\n".join(f"{row.split(',')[0]},a" for row in rows[1:]) + "\n"
    )
    changed = [line for line in text if not line.startswith(("truth", "scheme"))]
    (scenario / "scenario.yaml").write_text(
        "\n".join([*changed, f"labels: {tmp_path / 'labels.csv'}"])
    )
    assert main(["budget", str(scenario), "--out", str(tmp_path / "runs")]) == 2
    assert "no clean labels" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_the_command_answers_and_goes_on_where_it_stopped(scenario, tmp_path, capsys):
    out = tmp_path / "runs"
    command = ["budget", str(scenario), "--out", str(out), "--method", "AN", "--cost", "3",
               "--shares", "0.3", "1", "--workers", "1"]  # fmt: skip
    assert main([*command, "--dry-run"]) == 0
    assert "10 to do" in capsys.readouterr().out
    assert main(command) == 0
    shown = capsys.readouterr()
    place = out / "mine" / "budget"
    assert {path.name for path in place.iterdir()} == {
        "budget.json", "budget.md", "budget.pdf", "budget.png"
    }  # fmt: skip
    told = json.loads((place / "budget.json").read_text())
    assert told["cost"] == 3
    assert told["seeds"] == [0, 1]
    assert told["curves"]["one label"]["images"] == [54, 180]
    assert told["curves"]["all labels"]["images"] == [18, 60, 180]
    # The numbers are those of the runs.
    (last,) = [row for row in told["rows"] if row["images"] == 180]
    assert last["single"]["mean"] == pytest.approx(
        np.mean([values[-1] for values in told["curves"]["one label"]["mAP"]])
    )
    assert told["sentence"] in " ".join(shown.out.split())
    assert told["sentence"].startswith(("The curves ", "The two ways to label "))
    assert main([*command, "--dry-run"]) == 0
    assert "0 to do" in capsys.readouterr().out
    # Finished runs are read again: nothing is trained, and the answer is the same.
    before = (place / "budget.json").read_text()
    assert main(command) == 0
    assert (place / "budget.json").read_text() == before
