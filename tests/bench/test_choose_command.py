"""adagc bench --choose: a method is chosen from observed labels alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from adagc.bench.jobs import plan
from adagc.bench.scenarios import load
from adagc.bench.work import perform
from adagc.choice import likelihood
from adagc.cli import main
from adagc.labels import LabelTable, write_labels
from adagc.methods import outline, titles
from adagc.training import held_out
from adagc.training.runs import Run
from conftest import make_collection, make_labels
from tiny import write_scenario

METHODS = ["AN", "Random label", "Area label"]


def own_images(folder: Path, *, truth: bool) -> None:
    """A scenario on feature maps of one's own with single labels, and clean ones if wanted."""
    collection = make_collection("images")
    maps = collection.images.gather(np.arange(len(collection.images)))
    np.save(folder / "maps.npy", np.asarray(maps, np.float32))
    split = [
        f"{collection.images.names[row]},{name}"
        for name, rows in collection.splits.items()
        for row in rows
    ]
    (folder / "split.csv").write_text("\n".join(["image,split", *split]))
    labels = make_labels(collection, folder / "single.csv")
    names = tuple(collection.images.names)
    clean = LabelTable(names, collection.classes, collection.truth.astype(np.int8), kind="multi")
    write_labels(clean, folder / "clean.csv")
    write_scenario(
        folder / "tiny", data="array", root=str(folder / "maps.npy"), scheme=None, size=None,
        labels=str(labels), truth=str(folder / "clean.csv") if truth else None,
        scenes=1500, split=str(folder / "split.csv"), backbone="linear", learning_rate=0.01,
    )  # fmt: skip


def train_all(folder: Path, out: str, methods=METHODS) -> None:
    for job in plan(load(str(folder / "tiny")), methods, folder / out):
        perform(job)


def words(folder: Path, out: str, *more: str) -> list[str]:
    return ["bench", str(folder / "tiny"), "--out", str(folder / out), "--choose", *more]


@pytest.fixture
def done(tmp_path):
    own_images(tmp_path, truth=False)
    train_all(tmp_path, "out")
    return tmp_path


def test_a_method_is_chosen_where_there_is_no_truth_at_all(done, capsys):
    assert main(words(done, "out", "--methods", *METHODS)) == 0
    told = capsys.readouterr()
    assert "no clean labels" not in told.err
    last = told.out.rstrip().splitlines()[-1]
    found = json.loads((done / "out" / "tiny" / "choice.json").read_text())
    assert last == found["sentence"]
    assert last.startswith(f"Use {found['chosen']}: it explains your labels best")
    assert found["hint"] in told.out
    assert "for Area label against Random label;" in found["hint"]
    assert found["view"] == "averaged-best"
    assert (done / "out" / "tiny" / "choice.md").read_text().rstrip().endswith(last)
    assert not (done / "out" / "tiny" / "table.md").exists()
    (row,) = [row for row in found["rows"] if row["label"] == "AN"]
    runs = [Run.open(path) for path in (done / "out" / "tiny" / "an").glob("seed?-????????")]
    assert len(runs) == 2
    kept = [held_out.of_network(run, "averaged", "best") for run in runs]
    values = [likelihood(one.probabilities, one.observed) for one in kept]
    assert row["fits"]["averaged"]["likelihood"] == pytest.approx(sum(values) / 2)
    # It is also what the history says of the epoch that was kept.
    lines = [max(run.history, key=lambda line: line.criterion("auc", "averaged")) for run in runs]
    written = [line.criterion("tempered", "averaged") for line in lines]
    assert values == pytest.approx(written, abs=1e-6)


def test_the_view_can_be_another(done, capsys):
    more = ["--methods", *METHODS, "--judge", "network-last", "--json"]
    assert main(words(done, "out", *more)) == 0
    found = json.loads(capsys.readouterr().out)["tiny"]
    assert found["view"] == "network-last"
    (run,) = (done / "out" / "tiny" / "random-label").glob("seed0-????????")
    kept = held_out.of_network(Run.open(run), "network", "last")
    assert main(words(done, "out", *more, "--seeds", "0")) == 0
    (row,) = [
        row
        for row in json.loads(capsys.readouterr().out)["tiny"]["rows"]
        if row["label"] == "Random label"
    ]
    assert row["fits"]["network"]["likelihood"] == pytest.approx(
        likelihood(kept.probabilities, kept.observed)
    )


def test_clean_labels_change_nothing_and_are_not_read(done, capsys):
    assert main(words(done, "out", "--methods", *METHODS, "--json")) == 0
    without = json.loads(capsys.readouterr().out)["tiny"]
    own_images(done, truth=True)
    train_all(done, "tested")
    scores = sorted((done / "tested").rglob("scores.json"))
    assert len(scores) == 2 * len(METHODS)
    for path in scores:  # whoever looks into them fails
        path.write_text("garbage")
        path.with_name("predictions.safetensors").write_text("garbage")
    assert main(words(done, "tested", "--methods", *METHODS, "--json")) == 0
    with_truth = json.loads(capsys.readouterr().out)["tiny"]
    for found in (without, with_truth):
        for row in found["rows"]:
            row.pop("seconds")
    assert with_truth == without


def test_methods_that_are_told_more_are_trained_only_if_they_are_named(done, capsys):
    assert main(words(done, "new", "--dry-run", "--json")) == 0
    todo = {one["run"].split(" · ")[1] for one in json.loads(capsys.readouterr().out)["to_do"]}
    assert todo == {one for one in titles() if not outline(one).needs & {"truth", "priors"}}
    assert main(words(done, "new", "--dry-run", "--json", "--methods", "EPR", "AN")) == 0
    assert len(json.loads(capsys.readouterr().out)["to_do"]) == 4


def test_a_failed_run_is_named_after_the_choice(done, capsys):
    (run,) = (done / "out" / "tiny" / "an").glob("seed0-????????")
    (run / "model.json").write_text("{}")
    assert main(words(done, "out", "--methods", *METHODS)) == 1
    told = capsys.readouterr()
    assert "Use " in told.out.rstrip().splitlines()[-1]
    assert "| AN (1 of 2 runs) |" in (done / "out" / "tiny" / "choice.md").read_text()
    assert f"{run} is damaged" in told.err


def test_a_pack_of_test_scores_is_refused(done, capsys):
    assert main(words(done, "out", "--pack", str(done / "pack"))) == 2
    assert "--pack keeps scores on clean labels" in capsys.readouterr().err
    assert not (done / "pack").exists()


def test_a_bench_without_clean_labels_names_the_way_out(done, capsys):
    arguments = [word for word in words(done, "new", "--dry-run") if word != "--choose"]
    assert main(arguments) == 0
    assert "--choose compares them by observed labels" in capsys.readouterr().err
