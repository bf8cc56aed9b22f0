"""Class frequencies of a run: estimated by a pilot, counted in clean labels, or from a file."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from adagc.bench.jobs import make_job
from adagc.bench.work import perform
from adagc.choice import likelihood
from adagc.cli import main
from adagc.datasets.collection import Collection
from adagc.errors import AdagcError, UnsuitedError, UsageError
from adagc.methods import find
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.large_loss import LargeLossRejection
from adagc.methods.pilot import Pilot
from adagc.priors import estimate
from adagc.progress import sent_to
from adagc.report.remarks import remarks
from adagc.training import pilot as pilot_module
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run
from adagc.types import Verdict
from conftest import SPAWN, make_collection, make_labels, make_progress
from tiny import write_scenario


def collection() -> Collection:
    """Embeddings of 80 training, 120 validation and 40 test images."""
    made = make_collection("embeddings", count=240)
    splits = {"train": range(80), "val": range(80, 200), "test": range(200, 240)}
    return dataclasses.replace(made, splits={name: np.array(rows) for name, rows in splits.items()})


def config(folder: Path, **settings) -> RunConfig:
    labels = folder / "labels.csv"
    if not labels.exists():
        make_labels(collection(), labels)
    usual = {
        "epochs": 4, "batch_size": 16, "learning_rate": 0.01, "hidden": 8, "dropout": 0.2,
        "accelerator": "cpu", "oracle": False,
    }  # fmt: skip
    return RunConfig(**{"labels": str(labels), **usual, **settings})


def learned(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.path("model.safetensors"))


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def timeless(run: Run) -> dict:
    """priors.json without the clock."""
    values = run.read_json("priors.json")
    return {name: value for name, value in values.items() if "seconds" not in name}


class EnoughError(Exception):
    """Raised to end a run early."""


@pytest.fixture
def no_pilot(monkeypatch):
    """Any pilot is a failure."""

    def refuse(*args, **kwargs):
        raise AssertionError("a pilot was trained")

    return lambda: monkeypatch.setattr(pilot_module, "Pilot", refuse)


# -- the wire: from validation predictions to the number that a method computes with --------------


def test_what_the_pilot_predicts_for_validation_images_reaches_the_method(tmp_path, monkeypatch):
    pilots, tasks = [], []

    class Watched(Pilot):
        def __init__(self, **options):
            super().__init__(**options)
            self.seen = []
            pilots.append(self)

        def see_validation(self, probabilities, observed, progress):
            self.seen.append((probabilities.numpy().copy(), observed.numpy().copy()))
            super().see_validation(probabilities, observed, progress)

        def setup(self, network, task):
            tasks.append(task)
            super().setup(network, task)

    class Spy(LargeLossRejection):
        def setup(self, network, task):
            tasks.append(task)
            super().setup(network, task)

    monkeypatch.setattr(pilot_module, "Pilot", Watched)
    data = collection()
    method = Spy()
    run = train(config(tmp_path), method, tmp_path / "run", collection=data)
    (pilot,) = pilots
    values = [likelihood(*seen) for seen in pilot.seen]
    best = int(np.argmax(values))
    wanted = estimate(*pilot.seen[best])
    record = run.priors
    assert (record.source, record.best_epoch, record.epochs) == ("estimated", best + 1, 4)
    assert record.frequencies == pytest.approx(wanted.frequencies.tolist())
    assert record.cardinality == pytest.approx(wanted.cardinality)
    assert record.interval == pytest.approx(wanted.interval)
    assert (record.trusted, record.reason) == (wanted.trusted, wanted.reason)
    assert (record.images, record.classes) == (120, data.classes)
    of_pilot, of_method = tasks
    assert of_pilot.truth is of_pilot.priors is of_pilot.text is None
    assert of_method.priors.tolist() == pytest.approx(record.frequencies)
    assert method.last_share == pytest.approx((wanted.cardinality - 1) / 4)
    assert method.last_share != pytest.approx(0.1)
    assert pilot.watched(run.model()) is pilot.average.network  # the average is judged


def test_a_method_that_needs_frequencies_trains_without_any_clean_labels(tmp_path):
    blind = dataclasses.replace(collection(), truth=None)
    run = train(config(tmp_path), find("EPR")(), tmp_path / "run", collection=blind)
    assert run.finished
    assert run.priors.source == "estimated"
    assert run.settings["priors"] == "estimated"
    assert remarks(run) == [
        "EPR is given label frequencies that were estimated from observed labels."
    ]


def test_shuffled_clean_labels_give_the_same_estimate(tmp_path, permuted_truth):
    data = collection()
    other = permuted_truth(data)
    assert not np.array_equal(other.truth, data.truth)
    blind = dataclasses.replace(data, truth=None)
    runs = [
        train(config(tmp_path), find("Dist-PU")(), tmp_path / name, collection=one)
        for name, one in (("one", data), ("two", other), ("three", blind))
    ]
    first, *others = (timeless(run) for run in runs)
    assert all(found == first for found in others)
    assert all(same(learned(runs[0]), learned(run)) for run in runs[1:])
    told = train(
        config(tmp_path, priors="truth"), find("Dist-PU")(), tmp_path / "told", collection=data
    )
    assert not same(learned(told), learned(runs[0]))  # it matters what a method is told


@pytest.mark.parametrize(
    ("title", "settings"),
    [
        ("AN", {}),
        ("LL-R", {"priors": "published"}),
        ("LL-R", {"priors": "truth"}),
        ("EPR", {"priors": "published"}),
        ("ROLE-oracle", {}),
    ],
)
def test_no_pilot_where_nothing_is_to_be_estimated(tmp_path, no_pilot, title, settings):
    no_pilot()
    data = collection()
    method = find(title)()
    run = train(config(tmp_path, **settings), method, tmp_path / "run", collection=data)
    true = data.truth[data.splits["train"]].mean(axis=0)
    if title in ("EPR", "ROLE-oracle") or settings.get("priors") == "truth":
        assert run.priors.source == "truth"
        assert run.priors.frequencies == pytest.approx(true.tolist())
        assert run.priors.seconds == 0
        assert "is told the true label frequencies" in remarks(run)[0]
    else:
        assert run.priors is None
        assert remarks(run) == []
    if title == "LL-R":
        told = settings["priors"] == "truth"
        assert method.last_share == pytest.approx((true.sum() - 1) / 4 if told else 0.1)
    assert run.made.cpu_seconds is not None  # of what was told nothing is counted


def test_the_published_number_is_recorded_as_it_always_was(tmp_path):
    made = train(
        config(tmp_path, priors="published", epochs=1), find("LL-R")(), tmp_path / "run",
        collection=collection(),
    )  # fmt: skip
    assert made.settings.options["final"] == 0.1
    # A run of an earlier version, which knew no such setting, is continued as it was begun.
    text = made.path("config.yaml").read_text().replace("priors: published\n", "")
    assert "priors" not in text
    made.path("config.yaml").write_text(text)
    again = train(
        config(tmp_path, epochs=1), find("LL-R")(), tmp_path / "run", collection=collection(),
        resume=True,
    )  # fmt: skip
    assert again.priors is None
    old = Run.open(tmp_path / "run")
    assert remarks(old) == []


def test_clean_labels_that_are_asked_for_and_missing_are_said(tmp_path):
    blind = dataclasses.replace(collection(), truth=None)
    for title in ("LL-R", "EPR", "ROLE-oracle"):
        with pytest.raises(UnsuitedError, match=f"{title} needs true class frequencies.*--priors"):
            train(
                config(tmp_path, priors="truth"), find(title)(), tmp_path / "run", collection=blind
            )
    assert not (tmp_path / "run").exists()


# -- when a pilot stops ---------------------------------------------------------------------------


def test_a_pilot_stops_after_patience_or_after_all_its_epochs(monkeypatch):
    monkeypatch.setattr("adagc.methods.pilot.likelihood", lambda scores, seen: float(scores[0, 0]))

    def stops(values: list[float], **options) -> int:
        pilot, seen = Pilot(**options), torch.eye(4, dtype=torch.int8)
        for epoch, value in enumerate(values, start=1):
            scores = torch.full((4, 4), value)
            progress = make_progress(epoch, 40)
            assert pilot.wants_validation(progress)
            assert not pilot.reviews(progress)
            pilot.see_validation(scores, seen, progress)
            if pilot.end_epoch(None, progress) is Verdict.STOP:
                assert pilot.epochs == epoch
                assert pilot.best_epoch == 1 + int(np.argmax(values[:epoch]))
                assert pilot.best[0][0, 0] == np.float32(values[pilot.best_epoch - 1])
                return epoch
        raise AssertionError("it never stopped")

    rising = [-0.5 + 0.01 * i for i in range(40)]
    assert stops(rising, most=13) == 13
    assert stops([0.1, 0.2, 0.3, *[0.0] * 20], most=13) == 3 + 5
    assert stops([0.1, 0.2, 0.3, *[0.0] * 20], most=13, patience=2) == 3 + 2


@pytest.mark.parametrize(("epochs", "most"), [(3, 3), (12, 10), (30, 10), (60, 20)])
def test_a_pilot_takes_at_most_a_third_of_a_run_and_ten_epochs_of_a_short_one(
    tmp_path, monkeypatch, epochs, most
):
    asked = []

    def note(**options):
        asked.append(options)
        raise EnoughError

    monkeypatch.setattr(pilot_module, "Pilot", note)
    with pytest.raises(EnoughError):
        train(config(tmp_path, epochs=epochs), find("EPR")(), collection=collection())
    assert asked == [{"most": most}]


def test_a_pilot_says_how_far_it_is(tmp_path, monkeypatch):
    """Step by step: four epochs of five batches of 16 of 80 images."""
    monkeypatch.setattr("adagc.progress.PATIENCE", 0.0)
    monkeypatch.setattr("adagc.progress._BETWEEN", 0.0)
    said = []
    with sent_to(lambda meter: said.append((meter.what, meter.done, meter.total))):
        train(config(tmp_path), find("EPR")(), tmp_path / "run", collection=collection())
    steps = [(done, total) for what, done, total in said if what.startswith("estimating how")]
    assert steps
    assert all(total == 20 for _, total in steps)
    assert sorted(steps) == steps
    assert steps[-1][0] <= 20


def test_a_method_that_stops_ends_its_run(tmp_path):
    class Short(AssumeNegative):
        def end_epoch(self, scores, progress):
            return Verdict.STOP if progress.epoch == 2 else Verdict.CONTINUE

    data = collection()
    run = train(config(tmp_path, epochs=5), Short(), tmp_path / "run", collection=data)
    assert [line.verdict.value for line in run.history] == ["continue", "stop"]
    whole = train(config(tmp_path, epochs=2), AssumeNegative(), tmp_path / "two", collection=data)
    assert same(learned(run), learned(whole))
    names = sorted(path.name for path in run.path("validation").iterdir())
    assert names == ["network-best.safetensors", "network-last.safetensors"]


# -- interruptions --------------------------------------------------------------------------------


def _work(folder: str, moment: str | None) -> None:
    """Train in this process, which kills itself at a moment."""
    torch.set_num_threads(1)
    place = Path(folder)

    def die(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "in the pilot":
        pilot_module.estimate = die
    elif moment == "right after the pilot":
        pilot_module.informed = die
        from adagc.training import experiment

        original, calls = experiment.informed, []

        def second(*args):  # the first call is before the folder is made
            calls.append(args)
            return die() if len(calls) == 2 else original(*args)

        experiment.informed = second
    on_epoch = die if moment == "after an epoch" else None
    train(
        config(place), find("LL-R")(), place / "run", collection=collection(), resume=True,
        on_epoch=on_epoch,
    )  # fmt: skip


def test_killed_in_or_after_the_pilot_a_run_ends_as_if_nothing_had_happened(
    tmp_path, no_pilot, monkeypatch
):
    config(tmp_path)  # writes the labels
    whole = train(config(tmp_path), find("LL-R")(), tmp_path / "whole", collection=collection())
    run = Run(tmp_path / "run")

    def killed(moment: str) -> None:
        process = SPAWN.Process(target=_work, args=(str(tmp_path), moment))
        process.start()
        process.join(120)
        assert process.exitcode == -signal.SIGKILL

    killed("in the pilot")
    assert run.exists("config.yaml")
    assert not run.exists("priors.json")  # nothing half-written
    assert not run.begun
    killed("right after the pilot")
    assert timeless(run) == timeless(whole)
    written = run.path("priors.json").read_bytes()
    assert not run.begun
    no_pilot()  # from here on the estimate is read
    killed("after an epoch")
    assert run.begun
    done = train(config(tmp_path), find("LL-R")(), run.folder, collection=collection(), resume=True)
    assert run.path("priors.json").read_bytes() == written
    assert same(learned(done), learned(whole))


def test_other_labels_before_the_first_epoch_need_another_estimate(tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise EnoughError

    data, out = collection(), tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("adagc.training.experiment.fit", stop)
        with pytest.raises(EnoughError):
            train(config(tmp_path), find("EPR")(), out, collection=data)
    first = Run(out).priors
    other = make_labels(data, tmp_path / "other.csv", seed=5)
    run = train(
        config(tmp_path, labels=str(other)), find("EPR")(), out, collection=data, resume=True
    )
    assert run.priors.key != first.key
    assert run.priors.frequencies != first.frequencies


def test_a_damaged_estimate_is_named(tmp_path):
    run = train(config(tmp_path), find("EPR")(), tmp_path / "run", collection=collection())
    run.path("priors.json").write_text("{")
    with pytest.raises(AdagcError, match=r"priors\.json is damaged .*delete it"):
        _ = Run(run.folder).priors
    run.path("priors.json").write_text(json.dumps({"classes": ["a"], "frequencies": [2]}))
    with pytest.raises(AdagcError, match=r"priors\.json is damaged .*from 0 to 1.*delete it"):
        _ = Run(run.folder).priors


# -- what it costs, and sharing it ----------------------------------------------------------------


def test_the_pilot_is_part_of_what_a_run_costs(tmp_path, monkeypatch):
    run = train(config(tmp_path), find("EPR")(), tmp_path / "run", collection=collection())
    own = sum(line.seconds for line in run.history)
    assert run.priors.seconds > 0
    assert run.made.training_seconds == pytest.approx(own + run.priors.seconds, abs=0.02)
    assert run.made.cpu_seconds >= run.priors.cpu_seconds > 0


def test_methods_of_a_bench_share_the_pilot_of_a_seed(tmp_path, monkeypatch):
    made = []

    class Counted(Pilot):
        def __init__(self, **options):
            super().__init__(**options)
            made.append(self)

    monkeypatch.setattr(pilot_module, "Pilot", Counted)
    scenario = write_scenario(tmp_path / "tiny")
    jobs = [
        make_job(scenario, title, seed, tmp_path / "runs")
        for seed in (0, 1)
        for title in ("EPR", "LL-R", "BoostLU + LL-Ct")
    ]
    for job in jobs:
        assert job.knows == "estimated"
        perform(job)
    assert len(made) == 2
    records = [job.run.priors for job in jobs]
    assert records[0] == records[1] == records[2]
    assert records[3] == records[4] == records[5] != records[0]
    for job, record in zip(jobs, records, strict=True):
        assert job.run.made.training_seconds > record.seconds > 0
    # A shared file that cannot be read is made again.
    for path in jobs[0].pilots.glob("*.json"):
        path.write_text("{")
    again = make_job(scenario, "Dist-PU", 0, tmp_path / "runs")
    perform(again)
    assert len(made) == 3
    assert again.run.priors.frequencies == records[0].frequencies


# -- what cannot be trusted -----------------------------------------------------------------------


def test_an_estimate_that_cannot_be_trusted_is_said_in_one_line(tmp_path, caplog):
    scenario = write_scenario(tmp_path / "tiny", scheme="dominant", epochs=1, scenes=160)
    with caplog.at_level(logging.WARNING):
        run = train(scenario.config(0), find("LL-R")(), tmp_path / "run")
    assert run.finished
    assert not run.priors.trusted
    (line,) = [text for text in caplog.messages if "cannot be trusted" in text]
    assert line.startswith("LL-R goes on with an estimate of ")
    assert "dominant classes" in line
    assert "\n" not in line


# -- files ----------------------------------------------------------------------------------------


def write(path: Path, **values) -> str:
    path.write_text(json.dumps(values))
    return str(path)


def test_frequencies_can_be_read_from_a_file(tmp_path, no_pilot, capsys):
    data = collection()
    first = train(config(tmp_path), find("Random label")(), tmp_path / "rl", collection=data)
    assert main(["priors", str(first.folder), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    no_pilot()
    # Another order of the classes means the same.
    mixed = {
        **printed,
        "classes": printed["classes"][::-1],
        "frequencies": printed["frequencies"][::-1],
    }
    file = write(tmp_path / "p.json", **mixed)
    method = find("Dist-PU")()
    run = train(config(tmp_path, priors=file), method, tmp_path / "run", collection=data)
    assert method.pi.tolist() == pytest.approx(printed["frequencies"])
    assert run.priors.source == "estimated"
    assert run.made.cpu_seconds is not None
    # priors.json of a run is such a file, too; one that does not say what it is counts as told.
    own = str(run.path("priors.json"))
    again = train(config(tmp_path, priors=own), find("EPR")(), tmp_path / "two", collection=data)
    assert again.priors.frequencies == run.priors.frequencies
    plain = write(tmp_path / "q.json", classes=list(data.classes), frequencies=[0.5] * 4)
    told = train(config(tmp_path, priors=plain), find("EPR")(), tmp_path / "three", collection=data)
    assert told.priors.source == "file"
    assert "is told the true" in remarks(told)[0]


def test_a_file_that_changed_does_not_continue_a_run(tmp_path):
    data = collection()
    values = {"classes": list(data.classes), "frequencies": [0.5] * 4}
    file = write(tmp_path / "p.json", **values)
    settings = config(tmp_path, priors=file)

    def stop(line):
        raise EnoughError

    def begin(resume: bool = False, on_epoch=stop) -> Run:
        return train(
            settings, find("EPR")(), tmp_path / "run", collection=data, resume=resume,
            on_epoch=on_epoch,
        )  # fmt: skip

    with pytest.raises(EnoughError):
        begin()
    write(tmp_path / "p.json", **{**values, "frequencies": [0.4] * 4})
    with pytest.raises(UsageError, match=r"content of priors .* has changed"):
        begin(resume=True)
    write(tmp_path / "p.json", **values)
    assert begin(resume=True, on_epoch=None).finished


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", r"--priors .*p\.json cannot be read .*give priors\.json of a run"),
        ('{"classes": ["a"]}', r"--priors .*p\.json is damaged \('frequencies' is missing\): give"),
        ('{"classes": ["a"], "frequencies": [0.2, 0.3]}', r"2 frequencies of 1 classes\): give"),
        ('{"classes": ["a"], "frequencies": [0.2]}', r"has the class 'a': give frequencies of"),
        ("[1]", r"not values by name\): give"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, content, said):
    (tmp_path / "p.json").write_text(content)
    settings = config(tmp_path, priors=str(tmp_path / "p.json"))
    with pytest.raises(UsageError, match=said) as caught:
        train(settings, find("EPR")(), tmp_path / "run", collection=collection())
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("title", ["EPR", "AN"])
def test_a_word_that_is_mistyped_gets_a_hint(tmp_path, title):
    with pytest.raises(UsageError, match=r"neither a file nor one of .*did you mean 'estimated'\?"):
        train(
            config(tmp_path, priors="estimatd"), find(title)(), tmp_path / "run",
            collection=collection(),
        )  # fmt: skip
    assert not (tmp_path / "run").exists()
