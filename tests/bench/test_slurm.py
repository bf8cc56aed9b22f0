"""Jobs on a real Slurm of one node, interrupted as clusters do it, end as on this machine."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import submitit
from slurm_cluster import TOOLS, cluster

from adagc.bench.engines import Event, LocalEngine
from adagc.bench.failures import failure_of, note_failure
from adagc.bench.jobs import Job, make_job, plan
from adagc.bench.slurm.engine import SlurmEngine
from adagc.bench.slurm.task import SlurmTask, key_of
from adagc.bench.work import claimed, perform
from adagc.errors import AdagcError, MissingExtraError, UsageError
from tiny import write_scenario


@pytest.fixture
def slurm(monkeypatch):
    """The environment of a fresh cluster."""
    if os.geteuid() != 0:
        pytest.skip("a private Slurm needs root: its daemons start jobs for users")
    with cluster(cpus=2) as variables, giving_up_after(300):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


@contextmanager
def giving_up_after(seconds: int) -> Iterator[None]:
    """An engine waits as long as Slurm has a job, a test does not."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def engine_for(out: Path, **options) -> SlurmEngine:
    return SlurmEngine(out, **{"minutes": 10, "cpus": 1, "interval": 0.2, **options})


def call(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def ids(out: Path) -> dict[str, str]:
    return json.loads((out / "slurm" / "jobs.json").read_text())


def at_once(slurm_id: str, *words: str) -> None:
    """A command of Slurm that ends a job, without the seconds of grace that Slurm gives it."""
    raw = call("squeue", "--noheader", "--format=%A", f"--jobs={slurm_id}").strip()
    found = [line.split()[0] for line in call("scontrol", "listpids", raw).splitlines()[1:]]
    call(*words, slurm_id)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def lines_of(job: Job) -> list[str]:
    return (Path(job.folder) / "history.jsonl").read_text().splitlines()


def without_times(line: str) -> dict[str, object]:
    return {key: value for key, value in json.loads(line).items() if "seconds" not in key}


class Listener:
    """Notes all events and does something about the first of a run from a certain epoch on."""

    def __init__(self, *todo: tuple[Job, int, Callable[[], None]]) -> None:
        self.events: list[Event] = []
        self.todo = list(todo)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        for entry in list(self.todo):
            job, epoch, act = entry
            if event.job == job and event.epoch >= epoch:
                self.todo.remove(entry)
                act()

    def ends(self) -> dict[str, str]:
        kinds = ("finished", "failed", "busy")
        return {event.job.folder: event.kind for event in self.events if event.kind in kinds}

    def text(self, job: Job) -> str:
        (event,) = [event for event in self.events if event.job == job and event.text]
        return event.text


def lose_patience() -> None:
    raise KeyboardInterrupt


@pytest.mark.system(*TOOLS)
def test_jobs_interrupted_on_a_cluster_end_as_on_this_machine(slurm, tmp_path, caplog):
    scenario = write_scenario(tmp_path / "tiny", epochs=30)
    there, here = tmp_path / "there", tmp_path / "here"
    late, killed, cancelled = plan(scenario, ["AdaGC", "AN", "WAN"], there, [0])
    bad = make_job(scenario.with_settings(backbone="no_such_net"), "AN", 0, there)
    jobs = [late, bad, killed, cancelled]  # two Slurm jobs
    options = {"runs_per_job": 2, "partition": "main", "memory": "500MB"}

    with pytest.raises(KeyboardInterrupt):
        engine_for(there, **options).run(jobs, Listener((late, 1, lose_patience)))
    assert "squeue" in caplog.text
    submitted = ids(there)
    assert submitted[key_of(late)] == submitted[key_of(bad)] != submitted[key_of(killed)]

    before: dict[str, list[str]] = {}

    def once(job: Job, act: Callable[[str], object]) -> tuple[Job, int, Callable[[], None]]:
        def do() -> None:
            before[job.folder] = lines_of(job)
            act(submitted[key_of(job)])

        return job, 3, do

    again = Listener(
        once(late, lambda slurm_id: call("scancel", "--signal=USR2", slurm_id)),  # time is up
        once(killed, lambda slurm_id: at_once(slurm_id, "scontrol", "requeue")),  # a node dies
        once(cancelled, lambda slurm_id: at_once(slurm_id, "scancel")),
    )
    engine_for(there, **options).run(jobs, again)
    assert ids(there) == submitted  # the second call took over what the first had submitted
    assert again.ends() == {
        late.folder: "finished",
        bad.folder: "failed",
        killed.folder: "finished",
        cancelled.folder: "failed",
    }, {event.job.name: event.text for event in again.events if event.text}
    assert "no_such_net" in again.text(bad)
    assert f"{submitted[key_of(cancelled)]} (CANCELLED)" in again.text(cancelled)
    assert Path(again.text(cancelled).rpartition(" ")[2]).is_file()  # the log
    assert failure_of(cancelled) == again.text(cancelled)
    for job in (late, killed):
        assert "Restarts=0" not in call("scontrol", "show", "job", submitted[key_of(job)])
        # Lines hold times of the clock: equal lines are the same epochs, not epochs done twice.
        assert 3 <= len(before[job.folder]) < 30
        # Only the last one seen may have been done again, if its checkpoint was still to follow,
        # and then with the same numbers.
        seen, now = before[job.folder], lines_of(job)[: len(before[job.folder])]
        assert now[:-1] == seen[:-1]
        assert without_times(now[-1]) == without_times(seen[-1])

    local = LocalEngine(1)
    local.cores = local.cores[:1]  # as many as a Slurm job has: sums depend on it
    local.run(plan(scenario, ["AdaGC", "AN"], here, [0]), Listener())
    files = sorted(path.relative_to(here) for path in here.rglob("*.safetensors"))
    # Model and predictions; weights and held-out predictions of three and two networks, twice; and
    # the estimates that AdaGC remembers.
    assert len(files) == 2 * 2 + 2 * (6 + 4) + 1
    for path in [*files, *(path.relative_to(here) for path in here.rglob("scores.json"))]:
        assert (here / path).read_bytes() == (there / path).read_bytes(), path

    last = Listener()
    engine_for(there).run([late, killed], last)
    assert set(last.ends().values()) == {"finished"}
    assert ids(there) == submitted
    queue = call("squeue", "--noheader", "--array", "--states=all", "--format=%i").split()
    assert sorted(queue) == sorted(set(submitted.values()))


# -- without a cluster: commands that answer what a test tells them to ------------------------


class Commands:
    """`sbatch` counts from job 7 on; `squeue` gives one answer after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("submitted", "asked"):
            (folder / name).touch()
        self._write("srun", "exit 1")
        self.say("")  # nothing is queued: the real squeue, if there is one, is not asked
        self._write("sbatch", (
            f'cat "$1" > {folder}/script; env > {folder}/environment; echo >> {folder}/submitted\n'
            f'echo "Submitted batch job $((6 + $(wc -l < {folder}/submitted)))"'
        ))  # fmt: skip

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def say(self, *answers: str) -> None:
        """What squeue says; the last for ever. An exclamation mark is no answer."""
        (self.folder / "asked").write_text("")
        (self.folder / "answers").write_text("".join(f"{answer}\n" for answer in answers))
        self._write("squeue", (
            f"cd {self.folder}; echo >> asked; n=$(wc -l < asked); all=$(wc -l < answers)\n"
            'line=$(sed -n "$((n < all ? n : all))p" answers); test "$line" != ! && echo "$line"'
        ))  # fmt: skip

    def refuse(self, words: str) -> None:
        self._write("sbatch", f"echo '{words}' >&2; exit 1")

    @property
    def submitted(self) -> int:
        return (self.folder / "submitted").read_text().count("\n")

    @property
    def asked(self) -> int:
        return (self.folder / "asked").read_text().count("\n")


@pytest.fixture
def commands(tmp_path, monkeypatch) -> Commands:
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return Commands(folder)


@pytest.fixture
def job(tiny, tmp_path) -> Job:
    return plan(tiny, ["AN"], tmp_path / "out", [0])[0]


@pytest.mark.system
def test_a_job_is_given_up_only_when_slurm_says_so_three_times_in_a_row(commands, job, tmp_path):
    lost = "7|NODE_FAIL|None"
    commands.say(
        "!", "7|PENDING|Resources", lost, lost, "7|PENDING|BeginTime", lost, "!", lost, lost
    )
    listener = Listener()
    engine_for(tmp_path / "out", interval=0).run([job], listener)
    assert commands.asked == 9
    assert listener.ends() == {job.folder: "failed"}
    log = tmp_path / "out" / "slurm" / "7_0_log.out"
    assert listener.text(job) == f"Slurm ended job 7 (NODE_FAIL) before it was done: see {log}"
    assert job.status == "failed"


@pytest.mark.system
def test_a_job_that_slurm_has_forgotten_is_given_up_too(commands, job, tmp_path):
    commands.say("8|RUNNING|None")
    listener = Listener()
    engine_for(tmp_path / "out", interval=0).run([job], listener)
    assert "left the queue" in listener.text(job)


@pytest.mark.system
def test_only_what_is_not_in_the_queue_is_submitted(commands, job, tiny, tmp_path):
    out = tmp_path / "out"
    (other,) = plan(tiny, ["WAN"], out, [0])
    commands.say("7|RUNNING|None")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            engine_for(out).run([job], Listener((job, 0, lose_patience)))
    assert commands.submitted == 1

    commands.say("7|RUNNING|None", "7|RUNNING|None", "8|RUNNING|None")
    listener = Listener((job, 0, lambda: perform(job)), (other, 0, lambda: perform(other)))
    engine_for(out, interval=0).run([job, other, job], listener)  # one of them twice
    assert commands.submitted == 2
    assert ids(out) == {key_of(job): "7", key_of(other): "8"}
    assert [event.kind for event in listener.events if event.job == other] == [
        "started", "epoch", "finished",
    ]  # fmt: skip
    assert set(listener.ends().values()) == {"finished"}


@pytest.mark.system
def test_a_run_that_failed_is_submitted_again_while_its_slurm_job_does_others(
    commands, job, tmp_path
):
    commands.say("7|RUNNING|None")
    engine = engine_for(tmp_path / "out", interval=0)
    listener = Listener((job, 0, lambda: note_failure(job, AdagcError("no luck"))))
    engine.run([job], listener)
    assert listener.text(job) == "no luck"
    listener = Listener((job, 0, lambda: perform(job)))
    commands.say("7|RUNNING|None", "8|RUNNING|None")
    engine.run([job], listener)
    assert commands.submitted == 2
    assert listener.ends() == {job.folder: "finished"}


@pytest.mark.system
def test_nothing_is_submitted_while_slurm_does_not_say_what_it_has(commands, job, tmp_path):
    commands.say("7|RUNNING|None")
    engine = engine_for(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        engine.run([job], Listener((job, 0, lose_patience)))
    commands.say("!")
    with pytest.raises(AdagcError, match="squeue does not answer"):
        engine.run([job], Listener())
    assert commands.submitted == 1


@pytest.mark.system
def test_another_process_at_the_run_is_no_failure(commands, job, tmp_path):
    commands.say("7|COMPLETED|None")
    engine = engine_for(tmp_path / "out", interval=0)
    engine.folder.mkdir(parents=True)
    with claimed(job):
        ends = SlurmTask([job.to_dict()], 1, 1)()
    said = submitit.SlurmJob(engine.folder, "7").paths.result_pickle
    said.write_bytes(pickle.dumps(("success", ends)))
    listener = Listener()
    engine.run([job], listener)
    assert listener.ends() == {job.folder: "busy"}
    assert job.status == "missing"


@pytest.mark.system
def test_a_job_that_is_held_is_told_of_once(commands, job, tmp_path, caplog):
    held = "7|PENDING|launch_failed_requeued_held"
    commands.say(held, held, held, "7|RUNNING|None")
    engine_for(tmp_path / "out", interval=0).run([job], Listener((job, 0, lambda: perform(job))))
    assert caplog.text.count("scontrol release 7") == 1


@pytest.mark.system
def test_options_reach_sbatch(commands, tiny, tmp_path, monkeypatch):
    jobs = plan(tiny, ["AN", "WAN", "AdaGC"], tmp_path / "out", [0])
    commands.say("7_0|RUNNING|None")
    monkeypatch.setenv("SLURM_JOB_ID", "3")  # submitted from inside another job
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "64")
    monkeypatch.setenv("SLURM_CONF", "/etc/somewhere")
    engine = SlurmEngine(
        tmp_path / "out", partition="gpu", minutes=30, cpus=6, gpus=1, memory="16GB", parallel=2,
        extra={"slurm_qos": "high", "mail-type": "END", "exclusive": True, "setup": "module load"},
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        engine.run(jobs, Listener((jobs[0], 0, lose_patience)))
    lines = (commands.folder / "script").read_text().splitlines()
    for option in (
        "partition=gpu", "time=30", "cpus-per-task=6", "gpus-per-node=1", "mem=16GB", "qos=high",
        "mail-type=END", "exclusive", "requeue", "array=0-2%2", "signal=USR2@90",
        f"job-name={engine.name}",
    ):  # fmt: skip
        assert f"#SBATCH --{option}" in lines
    assert "module load" in lines
    (command,) = [line for line in lines if line.startswith("srun")]
    assert "--cpus-per-task=6" in command
    assert sys.executable in command
    environment = (commands.folder / "environment").read_text()
    assert "SLURM_CPUS_PER_TASK" not in environment
    assert "SLURM_CONF=/etc/somewhere" in environment
    assert os.environ["SLURM_CPUS_PER_TASK"] == "64"
    assert len(ids(tmp_path / "out")) == 3


@pytest.mark.system
def test_what_cannot_work_is_said_in_one_line(commands, job, tmp_path, monkeypatch):
    commands.refuse("sbatch: error: invalid partition specified: nowhere")
    with pytest.raises(UsageError, match="invalid partition specified: nowhere"):
        engine_for(tmp_path / "out").run([job], Listener())
    (commands.folder / "sbatch").unlink()
    monkeypatch.setenv("PATH", str(commands.folder))
    with pytest.raises(AdagcError, match="sbatch is not on the PATH"):
        engine_for(tmp_path / "out").run([job], Listener())
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MissingExtraError, match=r"submitit.*adagc\[slurm\]"):
        engine_for(tmp_path / "out").run([job], Listener())
    for wrong in ("minutes", "cpus", "runs_per_job", "parallel"):
        with pytest.raises(UsageError, match=f"--{wrong.replace('_', '-')} must be at least 1"):
            engine_for(tmp_path / "out", **{wrong: 0})


@pytest.mark.system
def test_modules_that_register_methods_travel_with_the_job(commands, job, tmp_path, monkeypatch):
    monkeypatch.setattr("adagc.plugins.modules", lambda: ("my_methods",))
    commands.say("7|RUNNING|None")
    with pytest.raises(KeyboardInterrupt):
        engine_for(tmp_path / "out").run([job], Listener((job, 0, lose_patience)))
    (sent,) = (tmp_path / "out" / "slurm").glob("*submitted.pkl")
    assert pickle.loads(sent.read_bytes()).function.modules == ("my_methods",)
    with pytest.raises(UsageError, match="plug-in 'my_methods' cannot be imported"):
        SlurmTask([job.to_dict()], 1, 1, ("my_methods",))()


# -- what happens inside a Slurm job -----------------------------------------------------------


def test_a_task_does_all_its_runs_and_after_a_requeue_those_that_are_left(tiny, tmp_path):
    good, held = plan(tiny, ["AN", "WAN"], tmp_path, [0])
    bad = make_job(tiny.with_settings(backbone="no_such_net"), "AN", 0, tmp_path)
    jobs = [bad, good, held]
    task = SlurmTask([job.to_dict() for job in jobs], 1, 1)
    with claimed(held):
        ends = task()
    assert [ends[key_of(job)] for job in jobs] == ["failed", "finished", "busy"]
    travelled = pickle.loads(pickle.dumps(task.checkpoint()))
    assert travelled.result() == {key_of(held): "finished"}
    assert held.status == "finished"


def test_runs_side_by_side_outlive_the_warning_before_a_requeue(tiny, tmp_path):
    good = plan(tiny, ["AN", "WAN"], tmp_path / "out", [0])
    bad = make_job(tiny.with_settings(backbone="no_such_net"), "AN", 0, tmp_path / "out")
    done = threading.Event()
    warned = set()

    def warn() -> None:  # all processes of the job, as some clusters do
        while not done.wait(0.1):
            for child in multiprocessing.active_children():
                child.terminate()
                warned.add(child.pid)

    warner = threading.Thread(target=warn)
    warner.start()
    try:
        ends = SlurmTask([job.to_dict() for job in (*good, bad)], 2, 2)()
    finally:
        done.set()
        warner.join()
    assert ends == {**{key_of(job): "finished" for job in good}, key_of(bad): "failed"}
    assert len(warned) == 2


def test_runs_that_run_out_of_time_for_good_say_so(tiny, tmp_path, monkeypatch):
    done, first, second = plan(tiny, ["AN", "WAN", "AdaGC"], tmp_path, [0])
    perform(done)

    def time_is_up(*_: object, **__: object) -> None:
        raise submitit.core.utils.UncompletedJobError(
            "Job not requeued because: timed-out too many times."
        )

    monkeypatch.setattr("adagc.bench.work.train", time_is_up)
    with pytest.raises(submitit.core.utils.UncompletedJobError):
        SlurmTask([job.to_dict() for job in (done, first, second)], 1, 1)()
    assert done.status == "finished"
    for job in (first, second):
        assert "--minutes" in failure_of(job)
