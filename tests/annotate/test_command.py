"""The command: its first line, its last sentence, and what it refuses before it begins."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import re
import signal
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from adagc.annotate.store import Store, read_events
from adagc.cli import main
from adagc.errors import BusyError, DataError
from adagc.labels import read_labels
from adagc.web.ledger import database_of
from annotate.projects import CLASSES, Project
from annotate.served import make_images
from web.visitors import Client

ROOT = Path(__file__).resolve().parents[2]
NAMES = ", ".join(CLASSES)


@pytest.fixture
def images(tmp_path):
    make_images(tmp_path / "photos", 4)
    return tmp_path / "photos"


def start(*words: str) -> tuple[subprocess.Popen[str], str]:
    """The running command and its first line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "adagc", "annotate", *words, "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell that starts the tests in the background lets its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_address_first_then_ctrl_c_says_what_was_labelled(tmp_path, images):
    out = tmp_path / "labels.csv"
    process, address = start(str(images), "--classes", NAMES, "--out", str(out))
    try:
        port = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", address)
        assert port
        client = Client(int(port[1]))
        view = client.post("look", name="ann")
        client.post(
            "answer", name="ann", image=view["image"], kind="choose", request="one-answer",
            present=view["candidates"][:1], key=0,
        )  # fmt: skip
        second, said = start(str(images), "--classes", NAMES, "--out", str(out))
        assert "in use" in second.communicate(timeout=60)[1]
        assert (second.returncode, said) == (1, "")
        events, _ = read_events(tmp_path / "labels.sqlite")  # while the server runs
        assert [event.kind for event in events] == ["shown", "choose", "shown"]
    finally:
        process.send_signal(signal.SIGINT)
        text, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors == ""
    assert f"1 of 4 images are labelled: {out}" in " ".join(text.split())
    assert read_labels(out).images == (f"i{view['image']}",)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"photos", "labels.csv", "labels.sqlite", "labels.lock"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "IMAGES is missing"),
        (["{images}"], "--classes is missing"),
        (["{images}", "--classes", NAMES], "--out is missing"),
        (["{images}/none", "--classes", NAMES, "--out", "{tmp}/l.csv"], "none"),
        (["{images}", "--classes", "one", "--out", "{tmp}/l.csv"], "two classes"),
        (["{images}", "--classes", "{tmp}", "--out", "{tmp}/l.csv"], "is a folder"),
        (["{tmp}/old.csv", "--classes", NAMES, "--out", "{tmp}/l.csv"], "is a file: give"),
        (["{images}", "--classes", "a, a", "--out", "{tmp}/l.csv"], "'a'"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}"], "is a folder"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/x/l.csv"], "there is no folder"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.sqlite"], "end with .csv"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/old.csv"], "not the file of events"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.csv", "--port", "70000"], "--port"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.csv", "--overlap", "0"], "--overlap"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.csv", "--candidates", "10"], "--cand"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.csv", "--seed", "-1"], "--seed"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.csv", "--patience", "0"], "--patience"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.csv", "--overlap-share", "2"], "share"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.csv", "--import", "{tmp}/i"], "import"),
        (["--report", "{tmp}/l.csv", "--truth", "{tmp}/t.csv"], "--truth"),
        (["{images}", "--classes", "a;b, c", "--out", "{tmp}/l.csv", "--several"], "'a;b'"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.csv", "--json"], "--report"),
        (["{images}", "--classes", NAMES, "--out", "{tmp}/l.csv", "--host", "1.2.3"], "listen on"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_nothing_is_written(tmp_path, images, capsys, words, says):
    (tmp_path / "old.csv").write_text("image,label\ni0,forest\n")
    before = (tmp_path / "old.csv").read_bytes()
    code = main(["annotate", *(word.format(images=images, tmp=tmp_path) for word in words)])
    error = capsys.readouterr().err.strip()
    assert code in (1, 2)
    assert says in error
    assert "\n" not in error
    assert (tmp_path / "old.csv").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} <= {"old.csv", "photos"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"--classes": "forest, water"}, "--classes"),
        ({"--seed": "5"}, "--seed"),
        ({"--absent": None}, "--absent"),
    ],
)
def test_what_labels_depend_on_cannot_change(tmp_path, images, capsys, changed, says):
    out = tmp_path / "labels.csv"
    told = {"--classes": NAMES, "--out": str(out)}
    with Store(database_of(out)) as store:
        store.settle(classes=list(CLASSES), seed=0, simple=True)
    out.write_text("image,label\n")
    other = [word for pair in (told | changed).items() for word in pair if word is not None]
    assert main(["annotate", str(images), *other]) == 2
    assert says in capsys.readouterr().err


def test_the_report_measures_the_labels(tmp_path, capsys):
    project = Project(tmp_path, 30)
    while project.desk.look("ann").image is not None:
        project.clock.now += 5
        project.choose("ann", seconds=4.0)
    project.store.settle(classes=list(CLASSES))
    project.close()
    assert main(["annotate", "--report", str(project.out)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "30 images" in text
    assert all(name in text for name in CLASSES)
    assert main(["annotate", "--report", str(tmp_path / "labels.sqlite"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == 30
    assert main(["annotate", "--report", str(tmp_path / "nothing.csv")]) == 1
    assert "no such file" in capsys.readouterr().err


def test_files_that_are_not_ours(tmp_path):
    (tmp_path / "text.sqlite").write_text("no database" * 100)
    with pytest.raises(DataError, match="not a file of adagc annotate"):
        read_events(tmp_path / "text.sqlite")
    with pytest.raises(DataError, match="not a file of adagc annotate"):
        Store(tmp_path / "text.sqlite")
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE events (number)")
    other.commit()
    other.close()
    with pytest.raises(DataError, match="not a file of adagc annotate"):
        Store(tmp_path / "other.sqlite")
    with Store(tmp_path / "new.sqlite"):
        pass
    newer = sqlite3.connect(tmp_path / "new.sqlite")
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(DataError, match="newer adagc"):
        read_events(tmp_path / "new.sqlite")


def test_one_process_writes(tmp_path):
    with Store(tmp_path / "x.sqlite"), pytest.raises(BusyError, match="in use"):
        Store(tmp_path / "x.sqlite")
    with Store(tmp_path / "x.sqlite") as again:
        assert again.events() == []


def test_a_new_label_is_one_line_more_and_not_the_whole_file(tmp_path, monkeypatch):
    project = Project(tmp_path, 200)
    whole = []
    monkeypatch.setattr(
        "adagc.annotate.label_file.write_bytes", lambda path, content: whole.append(len(content))
    )
    sizes = [project.out.stat().st_size]
    for _ in range(100):
        project.choose("ann")
        sizes.append(project.out.stat().st_size)
    assert whole == []
    assert all(5 < after - before < 20 for before, after in itertools.pairwise(sizes))
    project.desk.undo("ann")
    assert len(whole) == 1
    project.close()


def test_a_torn_last_line_is_mended_at_the_next_start(tmp_path):
    project = Project(tmp_path, 5)
    project.choose("ann")
    project.choose("ann")
    whole = project.out.read_bytes()
    project.out.write_bytes(whole[:-3])
    project.restart()
    assert project.out.read_bytes() == whole
    project.close()


def test_a_folder_of_100000_files_is_not_looked_into(tmp_path, monkeypatch):
    """What the start reads does not grow with the number of images."""
    from adagc.web import images as module

    make_images(tmp_path / "photos", 50)
    looked = []
    original = module.peek
    monkeypatch.setattr(module, "peek", lambda *a, **k: looked.append(a) or original(*a, **k))
    monkeypatch.setattr(module, "read_image", lambda *a, **k: looked.append(a))
    assert len(module.open_images(tmp_path / "photos")) == 50
    assert len(looked) == 1


def test_images_are_read_as_they_are(tmp_path):
    from PIL import Image

    from adagc.web.images import open_images

    luck = np.random.default_rng(0)
    wide = luck.integers(0, 255, (20, 30, 3), dtype=np.uint8)
    tall = luck.integers(0, 255, (40, 10, 3), dtype=np.uint8)
    Image.fromarray(wide).save(tmp_path / "a.png")
    Image.fromarray(tall).save(tmp_path / "b.png")
    Image.fromarray(tall[:, :, 0]).save(tmp_path / "c.png")
    found = open_images(tmp_path)
    assert found.names == ("a", "b", "c")
    np.testing.assert_array_equal(found.gather(np.array([0]))[0], np.moveaxis(wide, -1, 0))
    np.testing.assert_array_equal(found.gather(np.array([1]))[0], np.moveaxis(tall, -1, 0))
    assert found.gather(np.array([0, 1])).shape == (2, 3, 10, 10)
    with pytest.raises(DataError, match="1 bands where other images have 3"):
        found.gather(np.array([2]))


def test_embeddings_are_nothing_to_look_at(tmp_path):
    from adagc.web.images import open_images

    np.save(tmp_path / "x.npy", np.zeros((3, 8), np.float32))
    with pytest.raises(DataError, match="embeddings"):
        open_images(tmp_path / "x.npy")


def _needed(names: list[str]) -> set[str]:
    """The packages that installing these brings along, without extras."""
    found: set[str] = set()
    while names:
        name = re.split(r"[^A-Za-z0-9._-]", names.pop())[0].lower().replace("_", "-")
        if not name or name in found or name == "adagc":
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system or an older Python
        found.add(name)
        names += [each for each in requires if "extra ==" not in each]
    return found


def test_the_extra_brings_at_most_15_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = _needed(list(project["dependencies"]))
    web = _needed(list(project["optional-dependencies"]["web"]))
    assert {"fastapi", "uvicorn", "starlette", "pydantic"} <= web
    assert len(web - core) <= 15, sorted(web - core)
