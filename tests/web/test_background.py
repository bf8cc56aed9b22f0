"""Work beside the server: what it says arrives, and it never outlives who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from adagc.web.background import Background


def count(to: int):
    yield from range(to)


def fall():
    yield "first"
    os._exit(3)


def sit():
    yield os.getpid()
    time.sleep(1000)


def said(work, *told) -> list:
    """Everything that some work says before it ends."""
    found, ended = [], threading.Event()
    Background(work, told, found.append, ended.set).start()
    assert ended.wait(120)
    return found


def test_everything_arrives_in_order_and_the_end_is_told():
    assert said(count, 100) == list(range(100))


def test_work_that_is_ended_from_outside_ends():
    assert said(fall) == ["first"]


PARENT = """
import time
from adagc.web.background import Background
from web.test_background import sit

if __name__ == "__main__":
    Background(sit, (), lambda number: print(number, flush=True)).start()
    time.sleep(1000)
"""


def test_work_ends_when_its_parent_is_killed(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    paths = [str(Path(__file__).parents[1]), *sys.path]
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait(60)
    end = time.monotonic() + 60
    while Path(f"/proc/{child}/stat").exists() and not _is_dead(child):
        assert time.monotonic() < end, "it goes on"
        time.sleep(0.05)
    parent.stdout.close()


def _is_dead(process: int) -> bool:
    """Whether it has ended and only waits for somebody to ask for its result."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
