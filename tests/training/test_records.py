"""Records come back from their files, and a file that cannot be read is named with the remedy."""

from __future__ import annotations

import ast
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import adagc
from adagc.bench.jobs import Job
from adagc.bench.results import collect
from adagc.errors import AdagcError
from adagc.labels import flip_rates
from adagc.methods.adagc import AdaGC
from adagc.metrics import score
from adagc.report import write_report
from adagc.training import records
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.folders import DiskFolder
from adagc.training.history import History
from adagc.training.records import (
    FORMAT,
    ClassCounts,
    ClassScores,
    EpochRecord,
    ImageCounts,
    LabelSummary,
    ModelRecord,
    NamedRole,
    NewerFormatError,
    OracleRecord,
    PseudoLabelQuality,
    RunSettings,
    Summary,
)
from adagc.training.runs import Run
from adagc.types import NetworkRole, Verdict
from conftest import make_collection

TRUTH = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)
SCORES = score(TRUTH, np.array([[0.9, 0.2], [0.1, 0.7], [0.4, 0.6]], np.float32))
STUDENT = NamedRole(NetworkRole.DEPLOYED, "student")
LINE = EpochRecord(
    epoch=3,
    losses={"total": 0.5},
    noisy={"network": Summary(SCORES.summary())},
    criteria={"network": {"noisy-map": 0.3, "tempered": -1.5}},
    roles={"network": STUDENT},
    learning_rate=0.01,
    oracle=OracleRecord(
        validation={"network": Summary(SCORES.summary())},
        labels=ClassCounts((2, 2), (1, 0), (0, 0)),
        classes={"network": ClassScores((0.5, None), (None, 0.25), (1.0, 0.0), (None, None))},
        pseudo_labels=PseudoLabelQuality(0.1, 0.2, 0.3, 0.24, 1.5),
    ),
    verdict=Verdict.KEEP,
    status={"stage": "first"},
    train_seconds=1.0,
    seconds=2.0,
)
MODEL = ModelRecord("AN", {"network": 2}, 3, 1.5, {"network": STUDENT})
LAST = records.TestedEpoch(3, SCORES)
TESTED = records.TestedNetwork(NetworkRole.DEPLOYED, "student", {"last": LAST})
TEST = records.TestRecord("test", 3, (0.5, 0.5), ("a", "b"), "AN", {"network": TESTED})
LABELS = LabelSummary(
    hash="abc",
    classes=("a", "b"),
    images=ImageCounts(3, 2, 1, 0),
    observed_counts=(2, 1),
    flip_rates=flip_rates(TRUTH, np.array([[1, 0], [0, 1], [1, 0]], np.int8)),
    meta={"scheme": "random", "seed": "4"},
)


def test_lines_from_before_the_criteria_have_two_of_them():
    values = {name: value for name, value in LINE.to_dict().items() if name != "criteria"}
    line = EpochRecord.from_dict(values)
    assert line.criterion("noisy-map") == SCORES.mean_average_precision
    assert line.criterion("rank") == 1 - SCORES.ranking_loss
    assert math.isnan(line.criterion("tempered"))
    assert LINE.criterion("tempered") == LINE.criterion("tempered", "network") == -1.5
    assert math.isnan(LINE.criterion("tempered", "another"))


def test_settings_from_before_a_setting_say_what_it_was():
    assert RunSettings.from_dict({"method": "AN", "epochs": 3}).select == "noisy-map"
    assert RunSettings.from_dict({"method": "AN", "select": "rank"}).select == "rank"


@pytest.mark.parametrize("record", [LINE, MODEL, TEST, LABELS], ids=lambda one: type(one).__name__)
def test_what_is_written_comes_back(record):
    written = json.loads(json.dumps(record.to_dict(), allow_nan=False))
    assert written["format"] == FORMAT
    again = type(record).from_dict(written)
    assert json.loads(json.dumps(again.to_dict())) == written
    if record in (LINE, MODEL):  # the others hold arrays
        assert again == record


@pytest.mark.parametrize("record", [LINE, MODEL, TEST, LABELS], ids=lambda one: type(one).__name__)
def test_a_newer_format_is_refused(record):
    with pytest.raises(NewerFormatError, match=r"newer adagc \(format 7\): update adagc"):
        type(record).from_dict({**record.to_dict(), "format": 7})


def test_a_class_without_a_value_and_a_metric_that_was_unknown():
    again = LabelSummary.from_dict(LABELS.to_dict())
    np.testing.assert_array_equal(again.flip_rates.beta, LABELS.flip_rates.beta)
    assert (again.scheme, again.seed) == ("random", "4")
    assert np.isnan(Summary({"mean_f1": 0.5}).mean_average_precision)
    assert Summary({"mean_f1": 0.5}).mean_f1 == 0.5


def test_classes_share_a_threshold_or_have_their_own():
    assert TEST.to_dict()["threshold"] == TEST.threshold == 0.5
    assert not TEST.own_thresholds
    for limits, one in (((0.5, 0.25), None), ((0.4, 0.4), 0.4)):
        own = replace(TEST, thresholds=limits)
        assert (own.threshold, own.own_thresholds) == (one, True)
        written = json.loads(json.dumps(own.to_dict()))
        assert "threshold" not in written
        assert records.TestRecord.from_dict(written).thresholds == limits
    first = {**TEST.to_dict(), "threshold": 0.4, "format": 0}
    assert records.TestRecord.from_dict(first).thresholds == (0.4, 0.4)


def test_words_of_a_label_file_do_not_replace_ours():
    told = LabelSummary.from_dict({**LABELS.to_dict(), "note": "by hand"})
    assert told.meta == {"scheme": "random", "seed": "4", "note": "by hand"}
    sly = LabelSummary(
        "abc", ("a",), ImageCounts(1, 1, 1, 0), (1,), meta={"hash": "x", "format": "9"}
    )
    assert sly.to_dict()["hash"] == "abc"
    assert sly.to_dict()["format"] == FORMAT


def test_the_first_format_has_roles_by_name():
    named = ["network", "teacher", "averaged"], ["network", "peer"]
    lines = [{"epoch": 1, "noisy": {name: {} for name in names}} for names in named]
    with_teacher, plain = (EpochRecord.from_dict(line).roles for line in lines)
    assert with_teacher == {
        "network": STUDENT,
        "teacher": NamedRole(NetworkRole.TEACHER, "teacher"),
        "averaged": NamedRole(NetworkRole.AVERAGE, "averaged"),
    }
    assert plain == {
        "network": NamedRole(NetworkRole.DEPLOYED, "network"),
        "peer": NamedRole(NetworkRole.OTHER, "peer"),
    }


def test_settings_know_the_method_apart():
    told = RunSettings.from_dict(
        {"method": {"title": "AN", "weight": 2}, "epochs": 3, "data": None}
    )
    assert (told.method, dict(told.options), told.epochs, told.data) == ("AN", {"weight": 2}, 3, "")
    assert told["nothing"] is None
    assert told.oracle
    assert RunSettings.from_dict({"method": "AN"}).method == "AN"


# -- files -----------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path) -> Run:
    config = RunConfig(scheme="random", epochs=2, batch_size=8, hidden=8, accelerator="cpu")
    method = AdaGC(trigger_epoch=1)
    return train(config, method, tmp_path / "run", collection=make_collection())


def edit(run: Run, name: str, **changes) -> None:
    values = run.read_json(name)
    (values["extra"] if name == "model.json" else values).update(changes)
    run.write_json(name, values)


READERS = {
    "scores.json": lambda run: run.scores,
    "labels.json": lambda run: run.labels,
    "model.json": lambda run: run.made,
}


def test_files_carry_the_format_and_the_roles(run):
    lines = [json.loads(line) for line in run.path("history.jsonl").read_text().splitlines()]
    roles = {
        "network": {"role": "deployed", "title": "student"},
        "teacher": {"role": "teacher", "title": "teacher"},
    }
    for file in (*lines, run.read_json("scores.json"), run.read_json("model.json")["extra"]):
        assert (file["format"], file["roles"]) == (FORMAT, roles)
    assert run.read_json("labels.json")["format"] == FORMAT
    assert [line.to_dict() for line in run.history] == lines


@pytest.mark.parametrize("name", READERS)
def test_a_newer_file_is_not_called_damaged(run, name):
    edit(run, name, format=7)
    with pytest.raises(NewerFormatError) as caught:
        READERS[name](run)
    assert str(caught.value) == (
        f"{run.path(name)} was written by a newer adagc (format 7): update adagc"
    )


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("change", [{"format": "x"}, {"best_epoch": 3, "classes": 3}])
def test_a_damaged_file_is_named_with_a_remedy(run, name, change):
    edit(run, name, **change)
    with pytest.raises(AdagcError, match=rf"{name} is damaged .*: run ") as caught:
        READERS[name](run)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, NewerFormatError)


def readers_of_history(run: Run) -> dict:
    """Everyone who reads history.jsonl."""
    return {
        "run": lambda: run.history,
        "report": lambda: write_report(run),
        "resume": lambda: History(DiskFolder(run.folder), keep=2),
    }


@pytest.mark.parametrize("reader", ["run", "report", "resume"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"epoch": 1}\n{"epoch"\n{"epoch": 3}\n', "line 2, is damaged .*remove that line"),
        ('{"epoch": 1}\n{"losses": {}}\n', "line 2, is damaged .*'epoch' is missing"),
        ('{"epoch": 1}\n[]\n', "line 2, is damaged"),
        ('{"epoch": 1}\ngarbage\n', "line 2, is damaged"),
        ('{"epoch": 1, "format": 7}\n', r"line 1, was written by a newer adagc \(format 7\)"),
    ],
)
def test_all_readers_of_a_history_have_one_tolerance(run, reader, text, message):
    run.path("history.jsonl").write_text(text)
    with pytest.raises(AdagcError, match=rf"history\.jsonl, {message}") as caught:
        readers_of_history(run)[reader]()
    assert "\n" not in str(caught.value)
    assert run.path("history.jsonl").read_text() == text


@pytest.mark.parametrize("reader", ["run", "report", "resume"])
def test_a_line_that_was_cut_off_is_dropped(run, reader):
    whole = run.path("history.jsonl").read_text()
    run.path("history.jsonl").write_text(whole + whole[:99])
    readers_of_history(run)[reader]()
    assert len(run.history) == 2
    if reader == "resume":
        assert run.path("history.jsonl").read_text() == whole


def test_a_table_does_not_call_a_newer_run_damaged(run):
    job = Job("tiny", "AdaGC", "AdaGC", {}, {"seed": 0}, str(run.folder))
    run.write_json("bench.json", job.to_dict())
    assert collect("tiny", [job]).finished
    edit(run, "scores.json", format=7)
    (told,) = collect("tiny", [job]).failed["AdaGC"]
    assert "newer adagc (format 7): update adagc" in told
    assert "damaged" not in told
    assert "delete" not in told


def test_only_the_records_know_the_keys():
    """A key that is read anywhere else would be missed when the format changes."""
    own = {
        "training_seconds",
        "cpu_seconds",
        "train_seconds",
        "observed_counts",
        "left_out",
        "flip_rates",
    }
    own |= {"noisy", "noisy_ap", "clean_ap", "pseudo_labels", "added_per_image", "mean_cardinality"}
    home = Path(records.__path__[0])
    read = set()
    for path in Path(adagc.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                read |= {(path.name, node.slice.value)} if home not in path.parents else set()
    assert not {(file, key) for file, key in read if key in own}
