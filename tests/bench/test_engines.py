from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adagc.bench import engines
from adagc.bench.engines import LocalEngine, Place, _serve
from adagc.bench.failures import failure_of
from adagc.bench.jobs import make_job, plan
from adagc.bench.results import collect
from adagc.bench.work import BusyError, claimed, perform
from adagc.errors import UsageError
from adagc.training.runs import Run
from tiny import write_scenario


def test_two_workers_do_all_jobs_and_one_failure_does_not_stop_the_others(tmp_path):
    scenario = write_scenario(tmp_path / "tiny")
    good = plan(scenario, ["AN", "WAN"], tmp_path / "out", [0])
    bad = make_job(scenario.with_settings(backbone="no_such_net"), "AN", 0, tmp_path / "out")
    events = []
    LocalEngine(2).run([bad, *good], events.append)
    ends = {event.job.folder: event.kind for event in events if event.kind != "epoch"}
    assert ends == {bad.folder: "failed", good[0].folder: "finished", good[1].folder: "finished"}
    epochs = [event.epoch for event in events if event.job == good[0] and event.kind == "epoch"]
    assert epochs == [1, 2]
    found = collect("tiny", [*good, bad])
    assert [result.method for result in found.finished] == ["AN", "WAN"]
    assert "no_such_net" in found.failed["AN"][0]
    assert "no_such_net" in failure_of(bad)
    assert bad.status == "failed"
    # What is finished is small: nothing to continue from.
    assert not list(Path(good[0].folder).glob("*.ckpt"))


def test_results_say_what_the_folders_say(tiny, tmp_path):
    (job,) = plan(tiny, ["AdaGC"], tmp_path / "out", [1])
    perform(job)
    (result,) = collect("tiny", [job]).finished
    scores = json.loads((Path(job.folder) / "scores.json").read_text())
    assert {
        name: {
            which: {"epoch": at.epoch, **at.scores.to_dict()}
            for which, at in network.epochs.items()
        }
        for name, network in result.networks.items()
    } == scores["networks"]
    assert set(result.networks) == {"network", "teacher", "averaged"}
    wanted = scores["networks"]["teacher"]["best"]["mean_f1"]
    assert result.scores("teacher", "best").mean_f1 == wanted
    assert result.scores("nobody", "last") is None
    predictions, truth = result.predictions("network", "last"), result.truth()
    assert predictions.shape == truth.shape == (24, len(scores["classes"]))
    assert (
        truth.sum(axis=0).tolist() == scores["networks"]["network"]["last"]["per_class"]["support"]
    )


def test_a_finished_job_is_not_done_again(tiny, tmp_path):
    (job,) = plan(tiny, ["AN"], tmp_path / "out", [0])
    perform(job)
    before = {path: path.stat().st_mtime_ns for path in Path(job.folder).rglob("*")}
    perform(job)
    assert before == {path: path.stat().st_mtime_ns for path in Path(job.folder).rglob("*")}


def test_a_job_in_work_is_left_alone(tiny, tmp_path):
    (job,) = plan(tiny, ["AN"], tmp_path / "out", [0])
    with claimed(job), pytest.raises(BusyError, match="seed 0"):
        perform(job)
    perform(job)
    assert job.status == "finished"


def test_a_failure_is_forgotten_once_it_works(tiny, tmp_path):
    (job,) = plan(tiny, ["AN"], tmp_path / "out", [0])
    job.failure.parent.mkdir(parents=True)
    job.failure.write_text('{"error": "no more room"}')
    assert job.status == "failed"
    perform(job)
    assert job.status == "finished"
    assert not job.failure.exists()


def test_a_run_that_cannot_say_it_is_finished_keeps_what_to_go_on_from(tiny, tmp_path, monkeypatch):
    (job,) = plan(tiny, ["AN"], tmp_path / "out", [0])

    def full(self, name, value):
        if name == "bench.json":
            raise OSError(28, "No space left on device")
        write(self, name, value)

    write = Run.write_json
    monkeypatch.setattr(Run, "write_json", full)
    with pytest.raises(OSError, match="No space"):
        perform(job)
    assert job.status == "failed"
    assert "No space" in failure_of(job)
    assert list(Path(job.folder).glob("*.ckpt"))
    monkeypatch.undo()
    lines = []
    perform(job, lines.append)
    assert (job.status, lines) == ("finished", [])  # no epoch was done again
    assert not list(Path(job.folder).glob("*.ckpt"))


def test_workers_whose_bench_is_gone_leave_runs_to_be_continued(tmp_path):
    scenario = write_scenario(tmp_path / "tiny", epochs=200)
    (job,) = plan(scenario, ["AN"], tmp_path / "out", [0])
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    worker = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, Place(1), ())
    )
    worker.start()
    theirs.close()
    ours.send(job.to_dict())
    while ours.recv()[0] != "epoch":
        pass
    ours.close()
    worker.join(timeout=60)
    assert worker.exitcode == 1
    assert job.status == "started"
    assert not job.failure.exists()
    assert job.epochs_done >= 1


def test_a_killed_worker_fails_its_job_alone_and_the_job_goes_on_next_time(tmp_path):
    scenario = write_scenario(tmp_path / "tiny", epochs=400)
    (long,) = plan(scenario, ["AN"], tmp_path / "out", [0])
    (short,) = plan(scenario.with_settings(epochs=2), ["AN"], tmp_path / "out", [0])
    events = []

    def tell(event):
        events.append(event)
        if event.kind == "epoch" and event.job == long and event.epoch == 3:
            _kill_children()

    LocalEngine(1).run([long, short], tell)
    ends = {event.job.folder: event for event in events if event.kind in ("finished", "failed")}
    assert ends[long.folder].kind == "failed"
    assert "SIGKILL" in ends[long.folder].text
    assert ends[short.folder].kind == "finished"
    assert 3 <= long.epochs_done < 400


def _kill_children():
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in map(int, children):
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(child, signal.SIGKILL)


def test_workers_share_the_cores_without_overlap():
    engine = LocalEngine(2)
    engine.cores, engine.threads, engine.gpus = list(range(8)), 8, []
    assert engine.place(0) == Place(4, (0, 1, 2, 3))
    assert engine.place(1) == Place(4, (4, 5, 6, 7))
    engine.workers = 16
    assert [engine.place(i).cores for i in (0, 7, 8)] == [(0,), (7,), (0,)]
    engine.gpus = ["3", "5"]
    assert [engine.place(i).gpu for i in range(3)] == ["3", "5", "3"]
    with pytest.raises(UsageError):
        LocalEngine(0)


@pytest.mark.parametrize(
    ("asked", "workers", "wanted"),
    [
        (None, None, (8, Place(1, (7,)))),
        (None, 1, (1, Place(8, tuple(range(8))))),
        ("2", None, (2, Place(1))),
        ("1", 1, (1, Place(1))),
        ("6", 2, (2, Place(3))),
        ("1", 4, (4, Place(1))),  # as many workers as were asked for have a thread each
        ("64", 2, (2, Place(4, (4, 5, 6, 7)))),
        ("4,2", 1, (1, Place(4))),  # threads of nested loops follow
        ("many", 1, (1, Place(8, tuple(range(8))))),
        ("0", 1, (1, Place(8, tuple(range(8))))),
    ],
)
def test_all_workers_together_have_as_many_threads_as_are_allowed(
    monkeypatch, asked, workers, wanted
):
    monkeypatch.setattr(engines, "_cores", lambda: list(range(8)))
    monkeypatch.setattr(engines, "_gpus", list)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    engine = LocalEngine(workers)
    assert (engine.workers, engine.place(engine.workers - 1)) == wanted


def test_a_bench_stays_on_the_cores_that_it_may_use(tiny, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (job,) = plan(tiny, ["AN"], tmp_path / "out", [0])
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        engine = LocalEngine()
        engine.run([job], lambda event: None)
    finally:
        os.sched_setaffinity(0, before)
    assert engine.workers == 1
    environment = json.loads((Path(job.folder) / "environment.json").read_text())
    assert environment["threads"] == 1


def test_the_bench_killed_at_any_moment_ends_as_if_it_had_not_been(tmp_path):
    write_scenario(tmp_path / "tiny", epochs=6)
    words = ["bench", str(tmp_path / "tiny"), "--methods", "AN", "AdaGC", "--seeds", "0",
             "--workers", "1"]  # fmt: skip
    command = [sys.executable, "-m", "adagc", *words]
    whole = [*command, "--out", str(tmp_path / "whole")]
    subprocess.run(whole, check=True, capture_output=True)
    broken = [*command, "--out", str(tmp_path / "broken")]
    for lines in (8,):  # AN has its six epochs, AdaGC two
        process = subprocess.Popen(broken, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)  # fmt: skip
        while _epochs(tmp_path / "broken") < lines and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(broken, check=True, capture_output=True)
    tables = [json.loads((tmp_path / name / "tiny" / "table.json").read_text())
              for name in ("whole", "broken")]  # fmt: skip
    assert _without_times(tables[0]) == _without_times(tables[1])
    weights = sorted(path.relative_to(tmp_path / "whole")
                     for path in (tmp_path / "whole").rglob("weights/*"))  # fmt: skip
    assert len(weights) >= 4
    for path in weights:
        assert (tmp_path / "whole" / path).read_bytes() == (tmp_path / "broken" / path).read_bytes()


def _epochs(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("history.jsonl"))


def _without_times(value):
    if isinstance(value, dict):
        return {
            key: _without_times(inner)
            for key, inner in value.items()
            if "seconds" not in key
            and key not in ("sentence", "cheapest", "gap", "cost", "fastest", "runs")
        }
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value
