"""A method's shortlist: short trainings decide how a run goes on, by held-out observed labels."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from adagc.choice import TIE, likelihood
from adagc.errors import AdagcError
from adagc.methods.auto import Auto
from adagc.methods.pilot import Pilot
from adagc.models import load_model
from adagc.progress import sent_to
from adagc.training import shortlist as shortlist_module
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.observe import observe
from adagc.training.runs import Run
from conftest import SPAWN
from tiny import write_scenario

HEADS = {"cover": "areas", "random": "linear"}


def scenario(folder: Path, **settings):
    """Scenes of 32 x 32 pixels, which the network sees at 4 x 4 positions."""
    return write_scenario(folder / "tiny", scenes=40, size=32, **settings)


def learned(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.path("model.safetensors"))


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def timeless(run: Run) -> dict:
    """shortlist.json without the clock."""
    values = run.read_json("shortlist.json")
    return {name: value for name, value in values.items() if "seconds" not in name}


@pytest.mark.parametrize(("lead", "taken"), [(0.02, "cover"), (0.04, "random")])
def test_of_those_that_tie_the_first_is_taken(tmp_path, monkeypatch, lead, taken):
    original = Pilot.see_validation

    def favoured(self, probabilities, observed, progress):
        original(self, probabilities, observed, progress)
        self.best_value = -1.25 + (lead if self.annotator == "random" else 0)

    monkeypatch.setattr(Pilot, "see_validation", favoured)
    run = train(scenario(tmp_path, epochs=1).config(0), Auto(), tmp_path / "run")
    assert run.shortlist.taken == taken
    said = Auto.story(run.history[-1].status, went_back=False).sentence
    assert ("(a tie)" if taken == "cover" else "(0.04 likelier per label)") in said


@pytest.mark.parametrize("better", ["cover", "random"])
def test_a_run_goes_on_as_what_explains_held_out_labels_best(tmp_path, monkeypatch, better):
    original = Pilot.see_validation

    def favoured(self, probabilities, observed, progress):
        original(self, probabilities, observed, progress)
        self.best_value = -1.25 if self.annotator == better else -1.5

    monkeypatch.setattr(Pilot, "see_validation", favoured)
    run = train(scenario(tmp_path).config(0), Auto(), tmp_path / "run")
    assert run.shortlist.taken == better
    assert run.shortlist.lead == pytest.approx(0.25)
    status = run.history[-1].status
    assert (status["annotator"], status["annotator_lead"]) == (better, 0.25)
    assert load_model(run.folder).spec.head.kind == HEADS[better]
    assert run.model().spec.head.kind == HEADS[better]
    assert "(0.25 likelier per label)" in Auto.story(status, went_back=False).sentence


def test_what_pilots_predict_for_validation_images_decides(tmp_path, monkeypatch):
    seen: dict[str, list] = {}
    original = Pilot.see_validation

    def watched(self, probabilities, observed, progress):
        seen.setdefault(self.annotator, []).append((probabilities.clone(), observed.clone()))
        original(self, probabilities, observed, progress)

    monkeypatch.setattr(Pilot, "see_validation", watched)
    config = scenario(tmp_path).config(0)
    run = train(config, Auto(), tmp_path / "run")
    record = run.shortlist
    wanted = {
        name: max(likelihood(scores.numpy(), labels.numpy()) for scores, labels in epochs)
        for name, epochs in seen.items()
    }
    assert dict(record.likelihoods) == pytest.approx(wanted)
    tied = wanted["random"] - wanted["cover"] <= TIE
    assert record.taken == ("cover" if tied else "random")
    assert dict(record.epochs) == dict.fromkeys(HEADS, 2)  # a run of two epochs has no more
    validation = open_configured(config).splits["val"]
    assert record.images == len(validation) == len(seen["cover"][0][1])


@pytest.mark.parametrize(("epochs", "most"), [(3, 3), (12, 8), (32, 8), (60, 15)])
def test_trials_take_a_quarter_of_a_run_and_eight_epochs_of_a_short_one(epochs, most, tmp_path):
    config = scenario(tmp_path).config(0)
    asked = {}

    class EnoughError(Exception):
        """Ends the run."""

    class Spy(Auto):
        def shortlist(self, task):
            asked.update(super().shortlist(dataclasses.replace(task, epochs=epochs)))
            raise EnoughError

    with pytest.raises(EnoughError):
        train(config, Spy())
    assert {name: pilot.most for name, pilot in asked.items()} == {"cover": most, "random": most}
    assert [pilot.annotator for pilot in asked.values()] == list(asked)


def test_the_rest_of_the_run_is_the_one_without_a_trial(tmp_path, monkeypatch):
    """The trial leaves no trace but its choice: weights are those of a run told the same."""
    config = scenario(tmp_path).config(0)
    tried = train(config, Auto(), tmp_path / "tried")
    taken = tried.shortlist.taken

    class Told(Auto):
        def shortlist(self, task):
            return {}

        def check(self, task):
            super().check(task)
            self._assume(taken)

    told = train(config, Told(), tmp_path / "told")
    assert told.shortlist is None
    assert same(learned(tried), learned(told))


def test_shuffled_clean_labels_change_nothing(tmp_path, permuted_truth):
    config = scenario(tmp_path, oracle=False).config(0)
    data = open_configured(config)
    labels = observe(data, labels=None, scheme="random", label_seed=0, share=1.0).table
    config = dataclasses.replace(config, scheme=None)
    runs = [
        train(config, Auto(), tmp_path / name, collection=one, labels=labels)
        for name, one in (("one", data), ("two", permuted_truth(data)))
    ]
    first, second = (timeless(run) for run in runs)
    assert first == second
    assert same(learned(runs[0]), learned(runs[1]))


def test_nothing_is_tried_on_coarse_maps(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("something was tried")

    monkeypatch.setattr(shortlist_module, "_compare", refuse)
    coarse = write_scenario(tmp_path / "coarse", size=16)
    run = train(coarse.config(0), Auto(), tmp_path / "run")  # 2 x 2 positions
    assert run.shortlist is None
    assert run.history[-1].status["annotator"] == "random"


def test_trials_are_part_of_what_a_run_costs_and_show_how_far_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("adagc.progress.PATIENCE", 0.0)
    monkeypatch.setattr("adagc.progress._BETWEEN", 0.0)
    said = []
    with sent_to(lambda meter: said.append((meter.what, meter.done, meter.total))):
        run = train(scenario(tmp_path).config(0), Auto(), tmp_path / "run")
    own = sum(line.seconds for line in run.history)
    assert run.shortlist.seconds > 0
    assert run.made.training_seconds == pytest.approx(own + run.shortlist.seconds, abs=0.02)
    assert run.made.cpu_seconds > run.shortlist.cpu_seconds > 0
    assert {what for what, _, _ in said} >= {"trying cover", "trying random"}


# -- interruptions --------------------------------------------------------------------------------


def _work(folder: str, moment: str) -> None:
    """Train in this process, which kills itself at a moment."""
    torch.set_num_threads(1)
    place = Path(folder)

    def die(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "between two trials":
        original = Pilot.setup
        made = []

        def second(self, *args):
            made.append(self)
            return die() if len(made) == 2 else original(self, *args)

        Pilot.setup = second
    elif moment == "right after the trials":
        Auto.take = die
    on_epoch = die if moment == "after an epoch" else None
    config = scenario(place).config(0)
    train(config, Auto(), place / "run", resume=True, on_epoch=on_epoch)


def test_killed_in_or_after_the_trials_a_run_ends_as_if_nothing_had_happened(tmp_path, monkeypatch):
    config = scenario(tmp_path).config(0)
    whole = train(config, Auto(), tmp_path / "whole")
    run = Run(tmp_path / "run")

    def killed(moment: str) -> None:
        process = SPAWN.Process(target=_work, args=(str(tmp_path), moment))
        process.start()
        process.join(120)
        assert process.exitcode == -signal.SIGKILL

    killed("between two trials")
    assert run.exists("config.yaml")
    assert not run.exists("shortlist.json")  # nothing half-written
    killed("right after the trials")
    assert timeless(run) == timeless(whole)
    written = run.path("shortlist.json").read_bytes()

    def refuse(*args, **kwargs):
        raise AssertionError("something was tried again")

    monkeypatch.setattr(shortlist_module, "_compare", refuse)
    killed("after an epoch")
    done = train(config, Auto(), run.folder, resume=True)
    assert run.path("shortlist.json").read_bytes() == written
    assert same(learned(done), learned(whole))


def test_a_damaged_result_is_named(tmp_path):
    run = train(scenario(tmp_path, epochs=1).config(0), Auto(), tmp_path / "run")
    values = run.read_json("shortlist.json")
    run.path("shortlist.json").write_text("{")
    with pytest.raises(AdagcError, match=r"shortlist\.json is damaged .*delete it"):
        _ = Run(run.folder).shortlist
    run.write_json("shortlist.json", {**values, "taken": "neither"})
    with pytest.raises(AdagcError, match=r"shortlist\.json is damaged .*neither.*delete it"):
        _ = Run(run.folder).shortlist
    assert np.isfinite(list(values["likelihoods"].values())).all()
