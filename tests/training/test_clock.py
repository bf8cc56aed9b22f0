"""CPU time: what the processor spent on a run, also over interruptions and ranks."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from adagc import ranks
from adagc.methods.assume_negative import AssumeNegative
from adagc.testing.processes import in_ranks
from adagc.training import checkpoint
from adagc.training.clock import cpu_seconds, of_all_ranks
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.folders import DiskFolder
from adagc.training.records import ModelRecord
from adagc.training.runs import Run
from conftest import make_collection

CONFIG = RunConfig(data="array", scheme="random", epochs=3, batch_size=8)
BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_work_counts_and_waiting_does_not():
    before = cpu_seconds()
    time.sleep(0.2)
    assert cpu_seconds() - before < 0.1
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert cpu_seconds() - before >= 0.09


def test_processes_that_a_run_starts_count():
    before, own = cpu_seconds(), time.process_time()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert time.process_time() - own < 0.2
    assert cpu_seconds() - before >= 0.29


def test_a_gpu_has_no_cpu_time():
    assert of_all_ranks(1.0, torch.device("cuda")) is None
    assert of_all_ranks(1.0, torch.device("cpu")) == 1.0


def test_a_run_that_had_to_wait_costs_no_more(tmp_path):
    """What waits here could be another program that has the processor."""
    waited = []

    def wait(progress, losses):
        waited.append(time.sleep(0.05))

    run = train(
        CONFIG, AssumeNegative(), tmp_path / "run", collection=make_collection(), on_step=wait
    )
    made = run.made
    assert made.training_seconds > 0.05 * len(waited)
    assert 0 < made.cpu_seconds < made.training_seconds - 0.03 * len(waited)


class _StopError(Exception):
    pass


def _interrupted(folder: Path) -> float:
    """Train until the end of the second epoch; the CPU time of what is on disk by then."""

    def stop(line):
        if line.epoch == 2:
            raise _StopError

    with pytest.raises(_StopError):
        train(CONFIG, AssumeNegative(), folder, collection=make_collection(), on_epoch=stop)
    return checkpoint.load(folder / "last.ckpt")["cpu_seconds"]


def test_time_before_an_interruption_counts(tmp_path):
    spent = _interrupted(tmp_path / "run")
    assert spent > 0
    state = checkpoint.load(tmp_path / "run" / "last.ckpt")
    checkpoint.save(DiskFolder(tmp_path / "run"), "last.ckpt", {**state, "cpu_seconds": 1000.0})
    run = train(
        CONFIG, AssumeNegative(), tmp_path / "run", collection=make_collection(), resume=True
    )
    assert 1000 < run.made.cpu_seconds < 1100


def test_a_run_that_an_older_version_began_does_not_know_its_cpu_time(tmp_path):
    _interrupted(tmp_path / "run")
    state = checkpoint.load(tmp_path / "run" / "last.ckpt")
    del state["cpu_seconds"]
    checkpoint.save(DiskFolder(tmp_path / "run"), "last.ckpt", state)
    run = train(
        CONFIG, AssumeNegative(), tmp_path / "run", collection=make_collection(), resume=True
    )
    assert run.made.cpu_seconds is None
    assert run.made.training_seconds > 0
    assert Run.open(run.folder).made == run.made


def test_the_record_without_it_can_be_read():
    made = ModelRecord("AN", {"network": 1}, 2, 3.0, {}, cpu_seconds=4.5)
    assert ModelRecord.from_dict(made.to_dict()).cpu_seconds == 4.5
    old = {key: value for key, value in made.to_dict().items() if key != "cpu_seconds"}
    assert ModelRecord.from_dict(old).cpu_seconds is None


def _add(out: str) -> None:
    torch.distributed.init_process_group("gloo")
    total = of_all_ranks(1.0 + ranks.rank(), torch.device("cpu"))
    (Path(out) / str(ranks.rank())).write_text(str(total))
    torch.distributed.destroy_process_group()


def test_the_time_of_all_ranks_is_added(tmp_path):
    in_ranks(_add, str(tmp_path))
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["3.0", "3.0"]
