"""A run that makes no sense any more says so: weights, loss, predictions, history, checkpoint."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch

from adagc.errors import AdagcError, TrainingError
from adagc.images.array import ArrayScenes
from adagc.methods.assume_negative import AssumeNegative
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.health import Watch, check_weights
from adagc.training.runs import Run
from adagc.types import Progress
from conftest import make_classifier, make_collection

AT = Progress(epoch=3, epochs=9, step=12, steps_per_epoch=4)


def start(folder, *, epochs=3, method=None, resume=False, collection=None, **settings) -> Run:
    config = RunConfig(
        scheme="random", epochs=epochs, batch_size=8, hidden=8, accelerator="cpu", **settings
    )
    collection = collection or make_collection()
    return train(config, method or AssumeNegative(), folder, resume=resume, collection=collection)


class Exploding(AssumeNegative):
    """Weights become infinite in the last step of the second epoch, after its loss was checked."""

    def after_step(self, network):
        super().after_step(network)
        self.taken = getattr(self, "taken", 0) + 1
        if self.taken == 6:
            with torch.no_grad():
                next(network.parameters())[0, 0] = float("inf")


def test_weights_that_are_not_finite_end_the_run_by_name(tmp_path):
    with pytest.raises(TrainingError) as caught:
        start(tmp_path / "run", method=Exploding())
    assert str(caught.value) == (
        "the weights of network are not finite after epoch 2, step 3: start a new run with a lower"
        " --learning-rate, or with --clip 1"
    )
    run = Run.open(tmp_path / "run")
    assert [line.epoch for line in run.history] == [1]  # the last good epoch
    assert not run.finished
    # The same call goes on from there, if what was wrong was the machine.
    whole = start(tmp_path / "whole", method=AssumeNegative())
    again = start(tmp_path / "run", resume=True)
    assert again.read_json("scores.json") == whole.read_json("scores.json")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_every_weight_and_statistic_counts(value):
    network = make_classifier()
    twin = copy.deepcopy(network)
    check_weights({"network": network, "averaged": twin}, AT)
    for tensor in twin.state_dict().values():
        before = tensor.clone()
        tensor.view(-1)[-1] = value
        with pytest.raises(TrainingError, match="of averaged are not finite after epoch 3, step 4"):
            check_weights({"network": network, "averaged": twin}, AT)
        tensor.copy_(before)
    check_weights({"averaged": twin}, AT)


@pytest.mark.parametrize("rate", [1e30, 1e38])
def test_a_learning_rate_that_is_much_too_large_is_one_line_with_the_remedy(tmp_path, rate):
    with pytest.raises(TrainingError, match=r"epoch 1, step \d.*lower --learning-rate") as caught:
        start(tmp_path / "run", learning_rate=rate)
    assert "\n" not in str(caught.value)
    assert not Run.open(tmp_path / "run").finished


def test_a_loss_that_runs_away_is_a_warning(tmp_path, caplog):
    start(tmp_path / "run", learning_rate=1e6)
    (text,) = [record.getMessage() for record in caplog.records if record.name.endswith("health")]
    assert "after epoch 1: if this is not what you expect, start a new run with a lower" in text
    caplog.clear()
    start(tmp_path / "good", learning_rate=1e-3)
    assert not [record for record in caplog.records if record.name.endswith("health")]


def test_what_the_watch_looks_at(caplog):
    spread = {"network": np.float32([[0.1, 0.5], [0.1, 0.6]])}
    flat = {"network": spread["network"], "averaged": np.float32([[0.1, 0.5], [0.1, 0.5]])}
    Watch().look(9e3, spread, AT)
    Watch().look(1.0, {"network": np.float32([[0.1, 0.5]])}, AT)  # of one image nothing is known
    assert caplog.text == ""
    watch = Watch()
    watch.look(2e4, spread, AT)
    watch.look(2e4, spread, AT)  # once is enough
    Watch().look(1.0, flat, AT)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("the loss is 2e+04 after epoch 3")
    assert second.startswith("averaged predicts the same for all 2 validation images after epoch 3")


def test_validation_images_whose_predictions_are_not_finite_are_named(tmp_path):
    good = make_collection()
    values = good.images.gather(np.arange(64)) / 1000
    values[good.splits["val"][[2, 5]]] = 3e38  # finite, but not when divided by the deviation
    bad = copy.copy(good)
    object.__setattr__(bad, "images", ArrayScenes(values))
    with pytest.raises(
        AdagcError, match=r"2 validation images .* after epoch 1, step 3 \(00026, 000"
    ):
        start(tmp_path / "run", collection=bad)


# -- the history and the checkpoint belong together ------------------------------------------


def lines(run: Run) -> list[str]:
    return run.path("history.jsonl").read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("change", "count"),
    [
        (lambda content: [], 0),
        (lambda content: content[:2], 2),
        (lambda content: content[1:], 2),
        (lambda content: [content[0], *content], 4),  # two processes wrote it
        (lambda content: [content[0], content[2], content[1]], 3),
    ],
    ids=["empty", "shortened", "beheaded", "doubled", "shuffled"],
)
def test_a_history_that_does_not_fit_the_checkpoint_is_refused(tmp_path, change, count):
    run = start(tmp_path / "run")
    run.path("history.jsonl").write_text("".join(change(lines(run))))
    before = run.path("history.jsonl").read_text(), run.path("last.ckpt").read_bytes()
    with pytest.raises(TrainingError) as caught:
        start(tmp_path / "run", resume=True)
    assert str(caught.value) == (
        f"{run.path('history.jsonl')} does not have one line for each of the 3 epochs of last.ckpt,"
        f" but {count} lines: restore the file, or train anew with another --out"
    )
    assert (run.path("history.jsonl").read_text(), run.path("last.ckpt").read_bytes()) == before


def test_a_lost_history_is_refused(tmp_path):
    run = start(tmp_path / "run")
    run.path("history.jsonl").unlink()
    with pytest.raises(TrainingError, match=r"one line for each of the 3 epochs .* but 0 lines"):
        start(tmp_path / "run", resume=True)


def test_a_lost_checkpoint_is_refused(tmp_path):
    run = start(tmp_path / "run")
    run.path("last.ckpt").unlink()
    with pytest.raises(
        TrainingError, match=r"has 3 epochs, but there is no last\.ckpt to continue"
    ):
        start(tmp_path / "run", resume=True)
    # Killed between the first line and the first checkpoint: there is nothing to lose.
    run.path("history.jsonl").write_text(lines(run)[0])
    run.path("model.json").unlink()
    assert [line.epoch for line in start(tmp_path / "run", resume=True).history] == [1, 2, 3]


def test_lines_after_the_checkpoint_are_repeated(tmp_path):
    run = start(tmp_path / "run")
    wanted = [json.loads(line)["losses"] for line in lines(run)]
    state = torch.load(run.path("last.ckpt"), weights_only=True)
    assert state["epoch"] == 3
    longer = [*lines(run), lines(run)[-1].replace('"epoch": 3', '"epoch": 4'), '{"epo']
    run.path("history.jsonl").write_text("".join(longer))
    start(tmp_path / "run", resume=True)
    assert [json.loads(line)["losses"] for line in lines(run)] == wanted
