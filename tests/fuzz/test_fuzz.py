"""Whatever people feed it, a command ends with 0, 1 or 2, says one line, and leaves no mess.

The suite tries a fixed sample; `make fuzz` tries 10,000 others and says what was tried. With
ADAGC_FUZZ_ONLY=complete all of them are for that command, and several may be named with commas.
"""

from __future__ import annotations

import collections
import contextlib
import io
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adagc import demo
from adagc.cli import COMMANDS, main
from adagc.datasets.bigearthnet.generate import generate
from adagc.labels import LabelTable, write_labels
from adagc.methods import find
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.web.serve import Server
from conftest import make_collection
from fuzz.worlds import PATCHES, World, worlds

COUNT = int(os.environ.get("ADAGC_FUZZ", "150"))
LIMIT = 30.0  # seconds for one command: anything longer hangs


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run on an array beside it, to be copied and damaged."""
    place = tmp_path_factory.mktemp("fuzz")
    collection = make_collection()
    np.save(place / "values.npy", collection.images.gather(np.arange(64)))
    truth = LabelTable(
        collection.images.names, collection.classes, collection.truth.astype(np.int8)
    )
    write_labels(truth, place / "truth.csv")
    config = RunConfig(
        data="array", root=str(place / "values.npy"), truth=str(place / "truth.csv"),
        scheme="random", epochs=1, backbone="mlp", hidden=4,
    )  # fmt: skip
    train(config, find("AN")(), place / "run")
    generate(place / PATCHES, 4, cloudy=1)
    return place / "run"


tried: collections.Counter[str] = collections.Counter()


def test_no_input_brings_a_command_down(run, monkeypatch):
    monkeypatch.setenv("ADAGC_CACHE", str(run.parent / "cache"))
    # A folder that a demo can have is a right answer, and the whole demo would take minutes.
    for name, value in (("scenes", 30), ("epochs", 1)):
        monkeypatch.setitem(demo.SETTINGS, name, value)

    # Everything is opened, the port too, but nobody comes to label.
    monkeypatch.setattr(Server, "run", lambda server, ready: server._socket.close())

    @settings(
        max_examples=COUNT,
        deadline=None,
        database=None,
        derandomize="ADAGC_FUZZ" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        world = data.draw(worlds(run))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            world.write(Path(), run)
            check(world)

    attempt()
    codes = collections.Counter(key.rpartition(" ")[2] for key in tried)
    if COUNT >= 1000 and "ADAGC_FUZZ_ONLY" not in os.environ:  # a smaller sample may miss one
        assert {key.partition(" ")[0] for key in tried} == set(COMMANDS)
    assert {"0", "1", "2"} <= codes.keys()  # it reaches deep enough to succeed, fail and refuse
    if "ADAGC_FUZZ" in os.environ:
        print(f"\n{sum(tried.values()):,} inputs:")
        for key, count in sorted(tried.items()):
            print(f"{count:7,}  {key}")


def clock() -> float:
    """Seconds, without those in which this thread was ready and other processes had the machine.

    Linux counts them; elsewhere, and if it does not, this is the clock on the wall.
    """
    try:
        waited = int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        waited = 0.0
    return time.monotonic() - waited


def check(world: World) -> None:
    """Run the command of this world and check how it ends."""
    before = listing()
    out, err = io.StringIO(), io.StringIO()
    began = clock()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), quiet():
        code = main(world.command)
    tried[f"{world.command[0]} {code}"] += 1
    said = err.getvalue()
    assert code in (0, 1, 2), said
    assert clock() - began < LIMIT
    assert "Traceback" not in said
    # Notes may come before it, but the last line is the error, and there is only one.
    errors = [line for line in said.splitlines() if line.startswith("adagc ")]
    assert len(errors) == (code != 0), said
    new = {name for name in listing() - before if not name.startswith("cache")}
    assert not [name for name in new if name.endswith(".tmp")], new
    if code == 2:
        assert not new, (said, new)
    if code == 1 and world.command[0] == "train":
        begun = Path("new/config.yaml").exists()  # it can be continued
        assert begun or not new, (said, new)
    elif code == 1:
        assert not new, (said, new)


def listing() -> set[str]:
    """Every file and folder here."""
    return {
        str(Path(place) / name)
        for place, folders, files in os.walk(".")
        for name in (*folders, *files)
    }


@contextlib.contextmanager
def quiet():
    """Warnings are shown by the command line itself; afterwards as they were."""
    with warnings.catch_warnings():
        yield
