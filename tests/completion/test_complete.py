"""Completed labels: what was observed stays, every entry once, no clean label used."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import adagc
from adagc.cli import main
from adagc.completion import complete, folds
from adagc.completion.quality import curve, judge
from adagc.datasets import collect
from adagc.datasets.collection import Collection
from adagc.images.array import ArrayScenes
from adagc.labels import LabelTable, read_labels, write_labels
from adagc.methods import DEFAULT, find
from adagc.report import write_report
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run
from full_disk import FullDisk

CLASSES = ("bare", "field", "house", "road", "tree", "water")


def made(count: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings that show their classes through some noise, and the classes."""
    rng = np.random.default_rng(5)
    truth = rng.random((count, len(CLASSES))) < np.array([0.2, 0.4, 0.5, 0.3, 0.6, 0.3])
    truth[~truth.any(axis=1), 0] = True
    shown = np.concatenate([truth * 2.0 - 1, rng.normal(size=(count, 6))], axis=1)
    return (shown + rng.normal(scale=0.5, size=shown.shape)).astype(np.float32), truth


def config(place, **more) -> RunConfig:
    return RunConfig(
        data="array", root=str(place / "values.npy"), truth=str(place / "truth.csv"),
        scheme="random", epochs=8, batch_size=32, learning_rate=0.02, backbone="linear",
        accelerator="cpu", oracle=False, **more,
    )  # fmt: skip


def fitted(place, count: int, method: str = "AN") -> Run:
    """A run on so many images, a fifth of which are held out."""
    values, truth = made(count)
    np.save(place / "values.npy", values)
    names = tuple(f"{i:05d}" for i in range(len(values)))
    write_labels(LabelTable(names, CLASSES, truth.astype(np.int8)), place / "truth.csv")
    return train(config(place), find(method)(), place / "run")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Run:
    return fitted(tmp_path_factory.mktemp("complete"), 1000)


@pytest.fixture
def run(trained, tmp_path) -> Run:
    """A copy that a test may write to."""
    shutil.copytree(trained.folder, tmp_path / "run")
    return Run.open(tmp_path / "run")


def opened(run: Run) -> Collection:
    from adagc.training.inputs import config_of, open_configured

    return open_configured(config_of(run))


def rows_of(path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def one_line(capsys, text: str) -> None:
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line.startswith("adagc complete:")]
    assert len(lines) == 1, printed.err
    assert text in lines[0]
    assert "Traceback" not in printed.err


def test_every_image_and_class_once_and_observed_labels_stay(run, tmp_path):
    assert main(["complete", str(run.folder), "--out", str(tmp_path / "out.csv")]) == 0
    rows = rows_of(tmp_path / "out.csv")
    table = read_labels(run.path("labels.csv"))
    split = dict(csv.reader(run.path("split.csv").open()))
    wanted = {name for name, part in split.items() if part in ("train", "val")}
    seen = Counter((row["image"], row["class"]) for row in rows)
    assert set(seen) == {(name, kind) for name in wanted for kind in CLASSES}
    assert set(seen.values()) == {1}
    observed = {
        (name, kind)
        for name, values in zip(table.images, table.values, strict=True)
        for kind, value in zip(table.classes, values, strict=True)
        if value > 0
    }
    for row in rows:
        key = row["image"], row["class"]
        assert (row["source"] == "observed") == (key in observed)
        assert key not in observed or row["decision"] == "present"
        assert 0 <= float(row["probability"]) <= 1
        meaning = {"recovered": "present", "absent": "absent", "unsure": "unsure"}
        assert row["source"] == "observed" or row["decision"] == meaning[row["source"]]
        assert row["sample"] == ("in-sample" if row["part"] == "train" else "held-out")
        assert row["part"] == split[row["image"]]
    kept = json.loads(run.path("completion.json").read_text())
    assert kept["counts"] == dict(Counter(row["source"] for row in rows))
    assert sum(kept["counts"].values()) == len(rows) == kept["images"] * len(CLASSES)
    assert kept["counts"]["observed"] == len(observed)


def test_probabilities_are_those_of_the_deployed_network(run):
    from adagc.inference import predict

    found = adagc.complete(run.folder, part="val")
    collection = opened(run)
    place = {name: i for i, name in enumerate(collection.images.names)}
    rows = np.array([place[name] for name in found.images])
    np.testing.assert_allclose(found.probability, predict(run.model(), collection.images, rows))
    assert set(found.parts) == {"val"}


def test_enough_missing_labels_are_recovered_and_they_are_right(tmp_path):
    run = fitted(tmp_path, 1000, DEFAULT)
    found = complete(run, part="val")
    assert found.quality is not None
    assert found.quality.precision > 0.8
    # Of 200 held-out labels little is certain, and nine of ten calibrations must agree.
    assert found.quality.recall > 0.25
    assert found.quality.absent_right > 0.9
    surer, laxer = (complete(run, part="val", precision=value) for value in (0.9, 0.6))
    assert surer.counts["recovered"] < found.counts["recovered"] < laxer.counts["recovered"]
    assert surer.quality.precision > laxer.quality.precision > 0.8
    assert laxer.quality.recall > 0.7
    doubt = complete(run, part="val", absence=0.5)
    assert doubt.counts["absent"] > found.counts["absent"]
    assert doubt.counts["recovered"] == found.counts["recovered"]


def test_with_more_held_out_labels_more_is_recovered(tmp_path):
    run = fitted(tmp_path, 4000, DEFAULT)
    found, surer = complete(run, part="val"), complete(run, part="val", precision=0.95)
    assert found.quality.precision > 0.8
    assert found.quality.recall > 0.5
    assert 0 < surer.counts["recovered"] < found.counts["recovered"]
    assert surer.quality.precision > found.quality.precision


def test_scores_that_are_far_too_low_are_completed_with_more_care(run):
    """Those of AN, which takes what was not observed for absent."""
    found, laxer = complete(run, part="val"), complete(run, part="val", precision=0.6)
    assert found.quality.precision > 0.9
    assert found.quality.recall > 0.15
    assert laxer.quality.precision > 0.9
    assert laxer.quality.recall > 0.5


def test_no_clean_label_decides(run):
    collection = opened(run)
    first = complete(run, collection=collection)
    shuffled = replace(collection, truth=np.random.default_rng(1).permutation(collection.truth))
    second = complete(run, collection=shuffled, other_data=True)
    np.testing.assert_array_equal(first.decision, second.decision)
    np.testing.assert_array_equal(first.presence, second.presence)
    assert first.quality != second.quality  # they are judged by them
    third = complete(run, collection=replace(collection, truth=None, known=None), other_data=True)
    np.testing.assert_array_equal(first.decision, third.decision)
    assert third.quality is None


def test_what_was_seen_to_be_absent_stays_absent(trained, tmp_path):
    values, truth = made()
    names = tuple(f"{i:05d}" for i in range(len(values)))
    observed = np.zeros(truth.shape, dtype=np.int8)
    observed[np.arange(len(truth)), truth.argmax(axis=1)] = 1
    observed[~truth[:, 5], 5] = -1
    collection = collect(ArrayScenes(values, names), labels=LabelTable(names, CLASSES, observed))
    settings = RunConfig(epochs=2, backbone="linear", accelerator="cpu", oracle=False)
    one = train(settings, find("AN")(), collection=collection)  # a run in memory
    found = complete(one, collection=collection)
    place = {name: i for i, name in enumerate(names)}
    known = observed[[place[name] for name in found.images]]
    assert (known < 0).any()
    np.testing.assert_array_equal(found.decision[known != 0], known[known != 0])
    assert set(found.sources[known != 0]) == {"observed"}


def test_parts_of_a_run(run):
    split = Counter(part for _, part in csv.reader(run.path("split.csv").open()))
    every = complete(run, part="all")
    assert Counter(every.parts) == {part: split[part] for part in ("train", "val", "test")}
    assert {s for s, p in zip(every.samples, every.parts, strict=True) if p == "test"} == {
        "held-out"
    }
    assert len(complete(run, part="test").images) == split["test"]


def test_other_images(run, tmp_path, capsys):
    values, _ = made(40)
    np.save(tmp_path / "new.npy", values)
    words = ["complete", str(run.folder), "--images", str(tmp_path / "new.npy")]
    assert main([*words, "--out", str(tmp_path / "out.csv")]) == 0
    rows = rows_of(tmp_path / "out.csv")
    assert len(rows) == 40 * len(CLASSES)
    assert {row["part"] for row in rows} == {"new"}
    assert "observed" not in {row["source"] for row in rows}
    assert not run.exists("completion.json")  # it is about images of the run
    np.save(tmp_path / "new.npy", values[:, :5])
    capsys.readouterr()
    assert main([*words, "--out", str(tmp_path / "out.csv")]) == 1
    one_line(capsys, "use images as in training")
    assert main([*words, "--part", "val"]) == 2
    one_line(capsys, "leave out --part")


def test_wide_is_a_label_file_that_can_be_trained_on(run, tmp_path):
    path = tmp_path / "wide.csv"
    assert main(["complete", str(run.folder), "--out", str(path), "--wide"]) == 0
    table = read_labels(path)
    found = complete(run)
    assert table.images == found.images
    assert table.classes == CLASSES
    np.testing.assert_array_equal(table.values, found.decision)


def test_json_has_the_form_of_coco(run, tmp_path):
    path = tmp_path / "out.json"
    assert main(["complete", str(run.folder), "--out", str(path)]) == 0
    content, found = json.loads(path.read_text()), complete(run)
    names = {one["id"]: one["file_name"] for one in content["images"]}
    kinds = {one["id"]: one["name"] for one in content["categories"]}
    said = {}
    for key, decision in (("annotations", 1), ("unsure", 0), ("absent", -1)):
        for one in content[key]:
            said[names[one["image_id"]], kinds[one["category_id"]]] = decision
    assert (
        len(said) == len(found) == sum(len(content[k]) for k in ("annotations", "unsure", "absent"))
    )
    for i, name in enumerate(found.images):
        assert [said[name, kind] for kind in CLASSES] == found.decision[i].tolist()
    assert "estimated from the observed labels" in content["info"]["decided_by"]


def test_parquet(run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    assert main(["complete", str(run.folder), "--out", str(tmp_path / "out.parquet")]) == 0
    table = parquet.read_table(tmp_path / "out.parquet")
    found = complete(run)
    assert table["decision"].to_pylist() == found.decisions.ravel().tolist()
    assert b"estimated" in table.schema.metadata[b"decided_by"]


def test_thresholds_decide_instead(run, tmp_path, capsys):
    half = complete(run, thresholds="half")
    unknown = half.observed == 0
    np.testing.assert_array_equal(
        half.decision[unknown], np.where(half.probability >= 0.5, 1, -1)[unknown]
    )
    assert half.counts["unsure"] == 0
    stored = complete(run, thresholds="estimated")
    limits = run.model().thresholds.numpy()
    assert (limits < 0.5).all()
    np.testing.assert_array_equal(
        stored.decision[unknown], np.where(stored.probability >= limits, 1, -1)[unknown]
    )
    assert "estimated from observed labels" in stored.rule
    given = tmp_path / "mine.json"
    given.write_text(json.dumps(dict.fromkeys(CLASSES, 1.0)))
    assert complete(run, thresholds=str(given)).counts["recovered"] == 0
    words = ["complete", str(run.folder), "--out", str(tmp_path / "o.csv"), "--thresholds", "half"]
    assert main([*words, "--precision", "0.9"]) == 2
    one_line(capsys, "leave one of them out")


def test_few_labels_tell_nothing_of_how_sure_a_label_is(tmp_path, caplog):
    values, truth = made(120)
    names = tuple(f"{i:05d}" for i in range(len(values)))
    table = LabelTable(names, CLASSES, truth.astype(np.int8))
    collection = collect(ArrayScenes(values, names), truth=table)
    settings = RunConfig(scheme="random", epochs=1, backbone="linear", accelerator="cpu")
    one = train(settings, find("AN")(), collection=collection)
    found = complete(one, collection=collection)
    assert found.presence is None
    assert found.counts["unsure"] == 0
    said = " ".join(found.notes)
    held = len(collection.splits["val"])
    assert f"told from {held} labelled images that the network was not trained on" in said
    assert "thresholds decide" in said
    assert "presence" not in found.table().columns
    # There are enough training images, and the remedy that is named works.
    assert "--folds 5 --part train" in said
    honest = complete(one, folds=5, part="train", collection=collection)
    assert honest.presence is not None
    assert "thresholds decide" not in " ".join(honest.notes)


def test_out_of_fold(run, tmp_path, monkeypatch):
    calls = []
    original = folds.train

    def counted(settings, method, **more):
        if len(calls) == 2:
            calls.append("killed")
            raise KeyboardInterrupt
        rows = more["collection"].splits["train"]
        calls.append(set(rows.tolist()))
        return original(settings, method, **more)

    monkeypatch.setattr(folds, "train", counted)
    words = ["complete", str(run.folder), "--folds", "4", "--out", str(tmp_path / "out.csv")]
    assert main(words) == 130
    assert not (tmp_path / "out.csv").exists()
    assert sorted(path.name for path in run.path("folds-4").iterdir()) == [
        "1.safetensors", "2.safetensors",
    ]  # fmt: skip
    # The same command goes on where it was interrupted.
    assert main(words) == 0
    assert len(calls) == 5
    rows = rows_of(tmp_path / "out.csv")
    assert {row["sample"] for row in rows if row["part"] == "train"} == {"out-of-fold"}
    trained_on = [call for call in calls if call != "killed"]
    every = set.union(*trained_on)
    left_out = [every - rows for rows in trained_on]
    assert sum(map(len, left_out)) == len(every)  # every image is left out once
    assert set.union(*left_out) == every
    # A third call trains nothing, and a damaged fold is made again with the same result.
    first = complete(run, folds=4)
    run.path("folds-4/3.safetensors").write_bytes(b"nothing")
    second = complete(run, folds=4)
    assert len(calls) == 6
    np.testing.assert_array_equal(first.probability, second.probability)
    inside = complete(run)
    of = np.array(inside.parts) == "train"
    assert not np.allclose(first.probability[of], inside.probability[of], atol=1e-3)
    np.testing.assert_array_equal(first.probability[~of], inside.probability[~of])


def test_folds_have_their_share_of_every_class():
    observed = np.eye(3, dtype=np.int8)[np.repeat([0, 1, 2], [50, 31, 19])]
    found = folds.assign(observed, 5, seed=3)
    for c in range(3):
        counts = np.bincount(found[observed[:, c] > 0], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert (found != folds.assign(observed, 5, seed=4)).any()


def test_judged_by_counting():
    rng = np.random.default_rng(2)
    presence = np.round(rng.random((30, 4)), 1)  # with ties
    truth = rng.random((30, 4)) < presence
    observed = np.where(rng.random((30, 4)) < 0.2, 1, 0)
    decision = np.where(presence > 0.7, 1, np.where(presence < 0.2, -1, 0)).astype(np.int8)
    found = judge(presence, decision, observed, truth)
    entries = [
        (presence[i, c], decision[i, c], truth[i, c])
        for i in range(30) for c in range(4) if not observed[i, c]
    ]  # fmt: skip
    missing = sum(t for _, _, t in entries)
    taken = [t for _, d, t in entries if d > 0]
    assert found.missing == missing
    assert found.recovered == len(taken)
    assert found.precision == pytest.approx(sum(taken) / len(taken))
    assert found.recall == pytest.approx(sum(taken) / missing)
    assert found.unsure == sum(d == 0 for _, d, _ in entries)
    points = []
    for cut in sorted({p for p, _, _ in entries}, reverse=True):
        right = [t for p, _, t in entries if p >= cut]
        points.append((sum(right) / len(right), sum(right) / missing))
    assert found.precision_at_recall == pytest.approx(next(p for p, r in points if r >= 0.5))
    assert found.recall_at_precision == pytest.approx(max(r for p, r in points if p >= 0.8))
    at = found.confidence.index(60)
    right = [t for p, _, t in entries if p >= 0.6]
    assert found.precisions[at] == pytest.approx(sum(right) / len(right))
    empty = judge(presence, decision, observed, np.zeros_like(truth))
    assert empty.recall is None
    assert empty.precision_at_recall is None
    assert [len(part) for part in curve(presence[0], np.zeros(4, dtype=bool))] == [0, 0]


def test_the_report_shows_it(run):
    page = write_report(run).read_text()
    assert "Completed labels" not in page
    assert main(["complete", str(run.folder), "--out", str(run.folder.parent / "o.csv")]) == 0
    page = write_report(run).read_text()
    assert "Completed labels" in page
    assert "Recovered labels by confidence" in page
    assert "No clean label was used to decide." in page
    assert "confidence 95" in page
    run.path("completion.json").write_text("{}")
    with pytest.raises(adagc.AdagcError, match=r"completion\.json is damaged.*adagc complete"):
        write_report(run)


def test_a_figure(run, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    words = ["complete", str(run.folder), "--out", str(tmp_path / "o.csv")]
    assert main([*words, "--figure", str(tmp_path / "f" / "curve.png")]) == 0
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == ["curve.pdf", "curve.png"]


def test_it_prints_what_it_did(run, tmp_path, capsys):
    assert main(["complete", str(run.folder), "--out", str(tmp_path / "o.csv")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "of missing labels" not in text or "recovered labels are right" in text
    assert "Decided by: at least 0.8 of recovered labels right" in text
    assert "confidence precision recall" in text
    words = ["complete", str(run.folder), "--out", str(tmp_path / "o.csv"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["quality"]["recovered"] > 0


def test_bad_words(run, tmp_path, capsys):
    good = ["complete", str(run.folder), "--out"]
    for words, code, text in (
        ([*good, "out.xlsx"], 2, "cannot be written"),
        ([*good, "o.csv", "--precision", "1"], 2, "--precision must be at least 0 and below 1"),
        ([*good, "o.csv", "--folds", "1"], 2, "--folds must be at least 2"),
        ([*good, "o.csv", "--folds", "5", "--part", "val"], 2, "leave it out"),
        ([*good, "o.csv", "--thresholds", "nosuch.csv"], 2, "no such file"),
        (["complete", str(tmp_path / "no"), "--out", "o.csv"], 2, "does not exist"),
        ([*good, "o.gpkg"], 2, "these have none"),
    ):
        assert main(words) == code, words
        one_line(capsys, text)
    run.path("model.json").unlink()
    assert main([*good, str(tmp_path / "o.csv")]) == 1
    one_line(capsys, "is not finished")
    assert not (tmp_path / "o.csv").exists()


def test_a_full_disk_and_a_folder_that_may_not_be_written(run, tmp_path, monkeypatch, capsys):
    words = ["complete", str(run.folder), "--out", str(tmp_path / "out.csv")]
    disk = FullDisk(monkeypatch, "out.csv")
    assert main(words) == 1
    one_line(capsys, "out.csv cannot be written: it needs")
    disk.free()
    assert not list(tmp_path.glob("*out.csv*"))
    assert not run.exists("completion.json")

    def refuse(self, name, value):
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(Run, "write_json", refuse)
    assert main(words) == 0  # what was asked for is there
    assert "completion.json was not written" in capsys.readouterr().err
    assert (tmp_path / "out.csv").exists()


def test_other_data_than_the_runs_is_refused(run, tmp_path, capsys):
    values, _ = made()
    root = tmp_path / "values.npy"
    np.save(root, values + 1)
    words = ["complete", str(run.folder), "--out", str(tmp_path / "o.csv"), "--root", str(root)]
    assert main(words) == 1
    one_line(capsys, "are not those that")
    assert main([*words, "--other-data"]) == 0
