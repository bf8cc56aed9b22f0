from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from adagc.errors import AdagcError, UsageError
from adagc.inference import predict
from adagc.methods.assume_negative import AssumeNegative, LabelSmoothing
from adagc.methods.base import Method
from adagc.methods.rcml import RCML
from adagc.training import checkpoint
from adagc.training import scoring as testing
from adagc.training.config import RunConfig
from adagc.training.experiment import evaluate, options_of, predictions_of, train
from adagc.training.folders import DiskFolder
from adagc.training.runs import Run
from conftest import make_collection, make_labels

CONFIG = {"method": {"title": "AN", "weight": 3.0}, "epochs": 4, "seed": 0, "cache": None}


@pytest.fixture
def setting(tmp_path):
    """A finished run of one epoch and what it was made from."""
    collection = make_collection()
    labels = make_labels(collection, tmp_path / "labels.csv")
    config = RunConfig(
        labels=str(labels), epochs=1, batch_size=8, hidden=8, accelerator="cpu", oracle=False
    )
    run = train(config, AssumeNegative(), tmp_path / "run", collection=collection)
    return run, config, collection


def one_line(caught: pytest.ExceptionInfo[AdagcError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_new_run_writes_its_settings_and_environment(tmp_path):
    run = Run.start(tmp_path / "deep" / "run", CONFIG, resume=False)
    assert Run.open(run.folder).config == CONFIG
    environment = run.read_json("environment.json")
    assert environment["packages"]["torch"] == torch.__version__
    # What decides how sums are rounded, so that a reader can tell why a seed gives another run.
    assert environment["threads"] == torch.get_num_threads()
    assert environment["processes"] == 1
    assert all(isinstance(environment[name], str) for name in ("processor", "instructions"))
    assert not run.finished
    assert run.history == []


def test_an_existing_run_is_refused_without_resume(tmp_path):
    Run.start(tmp_path, CONFIG, resume=False)
    with pytest.raises(UsageError, match="--resume") as caught:
        Run.start(tmp_path, CONFIG, resume=False)
    assert str(tmp_path) in one_line(caught)


def test_a_folder_with_other_things_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    for resume in (False, True):
        with pytest.raises(UsageError, match="not empty"):
            Run.start(tmp_path, CONFIG, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_killed_while_starting_can_be_started_again(tmp_path):
    (tmp_path / "environment.json").write_text("{}")
    (tmp_path / ".config.yaml.123.tmp").write_text("half")
    assert Run.start(tmp_path, CONFIG, resume=False).config == CONFIG


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epochs": 5}, "epochs = 4, now it is 5"),
        ({"seed": 1}, "seed = 0, now it is 1"),
        ({"method": {"title": "AN", "weight": 5.0}}, "method.weight = 3.0, now it is 5.0"),
        ({"method": {"title": "WAN", "a": 1}}, "method.title = 'AN', now it is 'WAN'"),
        ({"new": 1}, "new = None, now it is 1"),
    ],
)
def test_changed_settings_are_refused_by_name(tmp_path, change, named):
    Run.start(tmp_path, CONFIG, resume=False)
    with pytest.raises(UsageError) as caught:
        Run.start(tmp_path, {**CONFIG, **change}, resume=True)
    assert named in one_line(caught)


def test_a_setting_that_came_later_had_its_default(tmp_path):
    """A run of an earlier version is continued as if it had known the setting or option."""
    quick = {"epochs": 1, "batch_size": 8, "hidden": 8, "backbone": "mlp", "weights": "none"}
    config = RunConfig(scheme="random", accelerator="cpu", oracle=False, **quick)

    def again(method: Method, **changes) -> None:
        changed = dataclasses.replace(config, **changes)
        train(changed, method, tmp_path, resume=True, collection=make_collection())

    again(RCML())
    path = tmp_path / "config.yaml"
    older = yaml.safe_load(path.read_text())
    del older["optimiser"], older["head_epochs"], older["method"]["features"]
    path.write_text(yaml.safe_dump(older))
    again(RCML())
    with pytest.raises(UsageError, match="optimiser = 'adam', now it is 'sgd'"):
        again(RCML(), optimiser="sgd")
    with pytest.raises(UsageError, match=r"method\.features = 'pooled', now it is 'whole'"):
        again(RCML(features="whole"))


def test_what_does_not_change_the_result_may_change(tmp_path):
    Run.start(tmp_path, CONFIG, resume=False)
    changed = {**CONFIG, "cache": "elsewhere", "accelerator": "cuda"}
    assert Run.start(tmp_path, changed, resume=True).config == CONFIG


def test_files_may_move_but_not_change(tmp_path):
    config = {**CONFIG, "truth": "here/truth.csv", "text": None}
    Run.start(tmp_path, config, resume=False, contents={"truth": "abc"})
    moved = {**config, "truth": "there/truth.csv"}
    Run.start(tmp_path, moved, resume=True, contents={"truth": "abc"})
    (tmp_path / "last.ckpt").touch()  # an epoch is finished
    with pytest.raises(UsageError, match=r"the content of truth .* has changed") as caught:
        Run.start(tmp_path, moved, resume=True, contents={"truth": "def"})
    assert "there/truth.csv" in one_line(caught)
    assert "restore it, or train anew with another --out" in one_line(caught)
    # Nothing was noted of this one.
    with pytest.raises(UsageError, match="text = None, now it is 'words'"):
        Run.start(tmp_path, {**config, "text": "words"}, resume=True, contents={"text": "1"})


def test_before_the_first_epoch_is_finished_data_may_still_be_mended(tmp_path):
    Run.start(tmp_path, CONFIG, resume=False, contents={"root": "with NaN"})
    Run.start(tmp_path, CONFIG, resume=True, contents={"root": "mended"})
    assert Run.open(tmp_path).inputs == {"root": "mended"}
    (tmp_path / "last.ckpt").touch()
    Run.start(tmp_path, CONFIG, resume=True, contents={"root": "mended"})
    with pytest.raises(UsageError, match="the content of root has changed"):
        Run.start(tmp_path, CONFIG, resume=True, contents={"root": "with NaN"})


def test_not_a_run_folder(tmp_path):
    with pytest.raises(AdagcError, match="not a run folder"):
        Run.open(tmp_path)


@pytest.mark.parametrize("content", [b"", b"a: [1", b"- a\n- b\n", b"\xff\xfe\x00"])
def test_damaged_settings_give_one_line(tmp_path, content):
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(AdagcError, match=r"config\.yaml is damaged") as caught:
        _ = Run.open(tmp_path).config
    one_line(caught)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe"])
def test_damaged_json_gives_one_line(tmp_path, content):
    (tmp_path / "scores.json").write_bytes(content)
    with pytest.raises(AdagcError, match=r"scores\.json is damaged") as caught:
        Run(tmp_path).read_json("scores.json")
    one_line(caught)
    with pytest.raises(AdagcError, match=r"has no model\.json"):
        Run(tmp_path).read_json("model.json")


def test_history_forgives_the_line_of_a_kill_and_nothing_else(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"epoch": 1}\n{"epoch": 2, "los')
    assert [line.epoch for line in Run(tmp_path).history] == [1]
    path.write_text('{"epoch": 1}\n{"epoch"\n{"epoch": 3}\n')
    with pytest.raises(AdagcError, match=r"history\.jsonl, line 2, is damaged") as caught:
        _ = Run(tmp_path).history
    one_line(caught)


# -- checkpoints -----------------------------------------------------------------------------


def test_a_checkpoint_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    folder = DiskFolder(tmp_path)
    checkpoint.save(folder, "last.ckpt", {"epoch": 1})

    def half(state, target):
        target.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint.torch, "save", half)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(folder, "last.ckpt", {"epoch": 2})
    assert checkpoint.load(tmp_path / "last.ckpt") == {"epoch": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


class Evil:
    def __reduce__(self):
        return print, ("run!",)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "code"])
def test_a_damaged_checkpoint_gives_one_line(tmp_path, damage, capsys):
    path = tmp_path / "last.ckpt"
    torch.save({"epoch": Evil() if damage == "code" else torch.rand(99)}, path)
    content = {"empty": b"", "text": b"hello", "cut": path.read_bytes()[:300]}.get(damage)
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AdagcError, match=r"last\.ckpt cannot be read as a checkpoint") as caught:
        checkpoint.load(path)
    one_line(caught)
    # Without the file --resume would refuse the run, whose history goes on from it.
    assert "restore the file, or train anew with another --out" in str(caught.value)
    assert "run!" not in capsys.readouterr().out


def test_a_checkpoint_of_something_else_gives_one_line(setting):
    run, config, collection = setting
    for state in ({}, {"network": {}}, [1, 2]):
        torch.save(state, run.path("last.ckpt"))
        with pytest.raises(AdagcError, match=r"last\.ckpt does not fit this run") as caught:
            train(config, AssumeNegative(), run.folder, resume=True, collection=collection)
        one_line(caught)


# -- through train ---------------------------------------------------------------------------


def test_a_run_folder_is_complete(setting):
    run, _, _ = setting
    names = {path.name for path in run.folder.iterdir()}
    wanted = {
        "config.yaml", "environment.json", "labels.json", "labels.csv", "history.jsonl",
        "last.ckpt", "model.safetensors", "model.json", "scores.json",
        "predictions.safetensors", "weights",
    }  # fmt: skip
    assert wanted <= names
    assert not [name for name in names if name.endswith(".tmp")]
    assert run.finished
    labels = run.read_json("labels.json")
    assert len(labels["hash"]) == 64
    assert labels["images"] == {
        "train": 24, "val": 16, "test": 24, "left_out": 0, "train_clean": 24, "val_clean": 16,
        "test_clean": 24, "test_labelled": 0,
    }  # fmt: skip
    assert run.config["method"] == {"title": "AN"}
    assert run.config["epochs"] == 1


def test_train_refuses_a_changed_method_option(setting, tmp_path):
    _, config, collection = setting
    out = tmp_path / "smooth"
    train(config, LabelSmoothing(smoothing=0.1), out, collection=collection)
    with pytest.raises(UsageError, match=r"method\.smoothing = 0\.1, now it is 0\.2"):
        train(config, LabelSmoothing(smoothing=0.2), out, resume=True, collection=collection)
    with pytest.raises(UsageError, match="already holds a run"):
        train(config, LabelSmoothing(smoothing=0.1), out, collection=collection)


def test_train_refuses_a_label_file_that_changed_under_it(setting):
    run, config, collection = setting
    make_labels(collection, run.folder.parent / "labels.csv", seed=5)
    with pytest.raises(UsageError, match="other labels"):
        train(config, AssumeNegative(), run.folder, resume=True, collection=collection)


def test_resuming_a_finished_run_changes_nothing(setting):
    run, config, collection = setting
    before = run.path("history.jsonl").read_bytes()
    weights = load_file(run.path("model.safetensors"))
    scores = run.read_json("scores.json")
    train(config, AssumeNegative(), run.folder, resume=True, collection=collection)
    assert run.path("history.jsonl").read_bytes() == before
    # Not the bytes of the file, whose header safetensors writes in any order.
    again = load_file(run.path("model.safetensors"))
    assert all(torch.equal(again[name], value) for name, value in weights.items())
    assert run.read_json("scores.json") == scores


def test_damaged_weights_give_one_line(setting):
    run, _, collection = setting
    path = next(run.path("weights").glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(AdagcError, match=path.name) as caught:
        evaluate(run, collection=collection)
    one_line(caught)


def test_an_unfinished_run_is_not_evaluated(tmp_path, setting):
    _, config, collection = setting
    run = Run.start(tmp_path / "new", {**dataclasses.asdict(config)}, resume=False)
    with pytest.raises(AdagcError, match="not finished"):
        evaluate(run, collection=collection)


def test_saved_predictions_are_those_that_were_scored(setting):
    run, _, collection = setting
    predictions = predictions_of(run)
    assert set(predictions) == {"network-last", "network-best"}
    assert predictions["network-last"].shape == (24, 4)
    again = evaluate(run, collection=collection)
    assert json.loads(json.dumps(again.to_dict())) == run.read_json("scores.json")
    np.testing.assert_array_equal(predictions_of(run)["network-last"], predictions["network-last"])
    with pytest.raises(AdagcError, match="no predictions"):
        predictions_of(run, "val")


def test_predictions_are_saved_right_however_they_lie_in_memory(setting, monkeypatch):
    """Heads that compute class by class give columns that are contiguous, not rows."""
    run, _, collection = setting
    before = predictions_of(run)["network-last"]
    monkeypatch.setattr(
        testing, "predict", lambda *words, **more: np.asfortranarray(predict(*words, **more))
    )
    evaluate(run, collection=collection)
    np.testing.assert_array_equal(predictions_of(run)["network-last"], before)


def test_options_are_read_back_from_the_signature():
    assert options_of(AssumeNegative()) == {}
    assert options_of(LabelSmoothing(smoothing=0.3)) == {"smoothing": 0.3}
