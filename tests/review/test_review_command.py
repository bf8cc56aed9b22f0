"""The command, end to end on trained runs: what it asks, keeps, refuses, and how it ends."""

from __future__ import annotations

import http.client
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from adagc.cli import main
from adagc.labels import LabelTable, read_labels, write_labels
from adagc.review.record import read_record
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run
from review.reviews import check_events, check_file, values_of
from web.killed import Killed
from web.visitors import Client

CLASSES = ("forest", "town", "water")


def make_folder(place, count: int = 24) -> None:
    """Pictures of different sizes whose colours are their classes, and a label for each."""
    (place / "photos").mkdir(parents=True)
    luck = np.random.default_rng(2)
    lines = ["image,label"]
    for n in range(count):
        shown = luck.permutation(3)[:2]
        pixels = luck.integers(0, 60, (20, 24 + n, 3), dtype=np.uint8)
        pixels[:10, :, shown[0]] += 150
        pixels[10:, :, shown[1]] += 150
        Image.fromarray(pixels).save(place / "photos" / f"p{n:02d}.png")
        lines.append(f"p{n:02d}.png,{CLASSES[shown[0]]}")
    (place / "labels.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Run:
    """A run on a folder of pictures."""
    place = tmp_path_factory.mktemp("review")
    make_folder(place)
    config = RunConfig(
        root=str(place / "photos"), labels=str(place / "labels.csv"), size=64, epochs=1,
        batch_size=8, backbone="test_resnet", weights="none", accelerator="cpu",
        cache=str(place / "cache"),
    )  # fmt: skip
    return train(config, "AN", place / "run")


def test_a_network_with_a_single_position_has_no_evidence(tmp_path):
    make_folder(tmp_path)
    config = RunConfig(
        root=str(tmp_path / "photos"), labels=str(tmp_path / "labels.csv"), size=16, epochs=1,
        batch_size=8, backbone="test_resnet", weights="none", accelerator="cpu",
        cache=str(tmp_path / "cache"),
    )  # fmt: skip
    run = train(config, "AN", tmp_path / "run")
    command = Command(str(run.folder), "--out", str(tmp_path / "l.csv"), "--least", "0.01")
    try:
        about = command.about("ready", "mute")
        assert not about["model"]
        view = command.client.post("look", name="ann")
        path = f"/api/evidence/{view['image']}/{view['questions'][0]['label']}"
        assert command.client.send("GET", path)[0] == 503
    finally:
        assert command.end()[0] == 0


def check_against(before: LabelTable, out, record) -> None:
    """The file holds the labels of the run under their own names, and the answers that count."""
    table = LabelTable(before.images, before.classes, before.values, "multi", before.meta)
    assert all(name.endswith(".png") for name in before.images), "images are called without it"
    answers = [replace(each, image=f"{each.image}.png") for each in record.answers]
    check_file(out, table, answers)


class Command:
    """The running command."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "adagc", "review", *words, "--no-browser"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # A shell that starts the tests in the background lets its children ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        port = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", self.address)
        self.client = Client(int(port[1])) if port else None

    def about(self, *wanted: str) -> dict:
        """What the page knows as soon as all of this is true."""
        for _ in range(1200):
            told = json.loads(self.client.send("GET", "/api/project")[2])
            assert not told["failed"]
            if all(told[name] for name in wanted):
                return told
            time.sleep(0.1)
        raise AssertionError(f"{wanted} did not come: {told}")

    def end(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def test_from_a_run_to_labels_that_training_takes(tmp_path, photos, capsys):
    out = tmp_path / "reviewed.csv"
    words = (str(photos.folder), "--out", str(out), "--count", "5", "--least", "0.01")
    command = Command(*words)
    try:
        about = command.about("ready")
        assert sorted(about["classes"]) == sorted(CLASSES)
        table = read_labels(out)  # before the first answer
        assert table.images == read_labels(photos.path("labels.csv")).images
        view = command.client.post("look", name="ann")
        assert view["total"] == 5
        status, headers, picture = command.client.send("GET", f"/api/picture/{view['image']}/0")
        assert status == 200
        # the file itself, not the square that the network sees
        assert Image.open(BytesIO(picture)).size[1] == 20
        for number, question in enumerate(view["questions"]):
            view = command.client.post(
                "answer", name="ann", image=view["image"], label=question["label"],
                value=1 if number == 0 else -1, request=f"request-{number}",
            )  # fmt: skip
        command.about("model")
        label = view["questions"][0]["label"]
        status, headers, _ = command.client.send("GET", f"/api/evidence/{view['image']}/{label}")
        assert (status, headers["content-type"]) == (200, "image/png")
        second = Command(*words)
        assert second.client is None
        assert "in use" in second.process.communicate(timeout=60)[1]
        command.client.post("next", name="ann", image=view["image"], request="request-9")
    finally:
        code, said, errors = command.end()
    assert code == 0, errors
    assert f"1 of 5 images are reviewed: {out}" in " ".join(said.split())
    record = read_record(out)
    check_events(record.events)
    before = read_labels(photos.path("labels.csv"))
    check_against(before, out, record)
    after = read_labels(out)
    assert (after.values == 1).sum() == (before.values == 1).sum() + 1
    assert (after.values == -1).sum() == len(view["questions"]) - 1
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"reviewed.csv", "reviewed.sqlite", "reviewed.lock"}

    again = Command(*words)  # goes on without waiting for the model
    try:
        view = again.client.post("look", name="ann")
        assert (view["finished"], view["total"]) == (1, 5)
    finally:
        again.end()
    more = Command(*words, "--count", "8")
    try:
        more.about("ready")
        assert more.client.post("look", name="ann")["total"] == 8
        assert [one.image for one in read_record(out).plan][:5] == [o.image for o in record.plan]
    finally:
        more.end()
    assert main(["review", *words, "--least", "0.3"]) == 2
    assert "--least 0.01" in capsys.readouterr().err
    assert main(["review", "--report", str(out)]) == 0
    assert "of suggested classes are there" in capsys.readouterr().out
    assert main(["review", "--report", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 1
    trained = [
        "train", str(photos.folder.parent / "photos"), "--labels", str(out), "--out",
        str(tmp_path / "again"), "--size", "16", "--epochs", "1", "--backbone", "test_resnet",
        "--weights", "none", "--method", "AN", "--cache", str(tmp_path / "cache"),
    ]  # fmt: skip
    assert main(trained) == 0
    kept = read_labels(tmp_path / "again" / "labels.csv")
    np.testing.assert_array_equal(kept.values, after.values)


def test_other_images_are_asked_about_and_kept_alone(tmp_path, photos):
    make_folder(tmp_path, 6)
    out = tmp_path / "reviewed.csv"
    command = Command(
        str(photos.folder), str(tmp_path / "photos"), "--out", str(out), "--least", "0.01"
    )
    try:
        command.about("ready", "model")
        view = command.client.post("look", name="ann")
        assert view["marked"] == []
        assert (view["total"], len(view["questions"])) == (6, 3)
        label = view["questions"][0]["label"]
        assert command.client.send("GET", f"/api/evidence/{view['image']}/{label}")[0] == 200
        command.client.post(
            "answer", name="ann", image=view["image"], label=label, value=1, request="request-1"
        )
    finally:
        command.end()
    table = read_labels(out)
    assert table.images == (f"p{view['image']:02d}",)
    assert table.values.tolist() == [[int(c == label) for c in range(3)]]


def test_a_killed_command_has_lost_nothing(tmp_path, photos):
    out, luck = tmp_path / "reviewed.csv", random.Random(7)
    words = [
        "review", str(photos.folder), "--out", str(out), "--count", "12", "--least", "0.01",
        "--part", "all",
    ]  # fmt: skip
    server = Killed(words, [])
    for _ in range(1200):
        try:
            if Client(server.port).post("look", name="ann"):
                break
        except AssertionError:  # 503: the model is loading
            time.sleep(0.1)
    server.waits = [0.4, 0.3]
    done = threading.Event()
    killer = threading.Thread(target=server.run, args=(done,))
    killer.start()
    stop = time.monotonic() + 300
    promised: dict[str, dict[int, int]] = {}

    def insist(path: str, **body) -> dict:
        while time.monotonic() < stop:
            try:
                return Client(server.port).post(path, name="ann", **body)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
        raise AssertionError("the server did not come back")

    view = insist("look")
    try:
        while view["image"] is not None:
            image, mine = view["image"], {}
            for question in view["questions"]:
                value = luck.choice([1, -1, 0])
                request = f"{luck.getrandbits(64):016x}"
                view = insist("answer", image=image, label=question["label"], value=value,
                              request=request)  # fmt: skip
                mine[question["label"]] = value
                time.sleep(0.05)
            promised[image] = mine
            view = insist("next", image=image, request=f"{luck.getrandbits(64):016x}")
    finally:
        done.set()
        killer.join()
        said = server.end()
    assert server.kills == 2, "the work was over before the last kill"
    record = read_record(out)
    check_events(record.events)
    names = [f"p{n:02d}" for n in range(24)]
    said_ = {
        names.index(image): {record.classes.index(label): value for label, value in of.items()}
        for image, of in values_of(record.events).items()
    }
    assert said_ == promised
    before = read_labels(photos.path("labels.csv"))
    check_against(before, out, record)
    assert "12 of 12 images are reviewed" in said


def test_blind_mode_is_measured(tmp_path, photos, capsys):
    out = tmp_path / "blind.csv"
    command = Command(
        str(photos.folder), "--out", str(out), "--blind", "0.5", "--least", "0.01", "--count", "6"
    )
    try:
        assert command.about("ready")["blind"]
        view = command.client.post("look", name="ann")
        while view["image"] is not None:
            image = view["image"]
            for n, question in enumerate(view["questions"]):
                assert question["percent"] is None
                command.client.post(
                    "answer", name="ann", image=image, label=question["label"],
                    value=1 - 2 * (n % 2), request=f"request-{image}-{n}",
                )  # fmt: skip
            view = command.client.post("next", name="ann", image=image, request=f"request-{image}")
    finally:
        command.end()
    assert main(["review", "--report", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["precision"]
    plan = [each.blind for one in read_record(out).plan for each in one.questions]
    assert told["random"]["count"] == sum(plan) > 0
    assert told["suggested"]["count"] == len(plan) - sum(plan)


def embeddings(place) -> Run:
    luck = np.random.default_rng(0)
    np.save(place / "values.npy", luck.normal(size=(30, 8)).astype(np.float32))
    values = np.eye(3, dtype=np.int8)[luck.integers(0, 3, 30)]
    names = tuple(f"{n:05d}" for n in range(30))
    write_labels(LabelTable(names, CLASSES, values, "single"), place / "labels.csv")
    config = RunConfig(
        data="array", root=str(place / "values.npy"), labels=str(place / "labels.csv"), epochs=1,
        backbone="linear", accelerator="cpu",
    )  # fmt: skip
    return train(config, "AN", place / "run")


def test_a_run_on_embeddings_is_refused_with_the_remedy(tmp_path, capsys):
    run = embeddings(tmp_path)
    assert main(["review", str(run.folder), "--out", str(tmp_path / "x.csv"), "--no-browser"]) == 1
    said = capsys.readouterr()
    assert "embeddings, of which there is nothing to see: review a run that was" in said.err
    assert said.err.strip().count("\n") == 0
    assert said.out == ""
    assert not list(tmp_path.glob("x.*"))


def test_where_there_is_nothing_to_ask_the_command_ends_and_says_so(tmp_path, photos):
    command = Command(str(photos.folder), "--out", str(tmp_path / "x.csv"), "--least", "1")
    _, err = command.process.communicate(timeout=120)
    assert command.process.returncode == 1
    assert "give a smaller --least" in err.strip().splitlines()[-1]
    assert not list(tmp_path.glob("x.csv"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "RUN is missing"),
        (["{run}"], "--out is missing"),
        (["{run}/none", "--out", "{tmp}/x.csv"], "none"),
        (["{tmp}", "--out", "{tmp}/x.csv"], "is not a run folder"),
        (["{run}", "{tmp}/none", "--out", "{tmp}/x.csv"], "none"),
        (["{run}", "{tmp}", "--out", "{tmp}/x.csv", "--part", "val"], "leave out --part"),
        (["{run}", "{tmp}", "--out", "{tmp}/x.csv", "--folds", "5"], "--folds"),
        (["{run}", "--out", "{tmp}/x.csv", "--folds", "1"], "--folds"),
        (["{run}", "--out", "{tmp}"], "is a folder"),
        (["{run}", "--out", "{tmp}/x/x.csv"], "there is no folder"),
        (["{run}", "--out", "{tmp}/x.sqlite"], "end with .csv"),
        (["{run}", "--out", "{tmp}/old.csv"], "not the file of events"),
        (["{run}", "--out", "{tmp}/x.csv", "--blind", "1"], "--blind"),
        (["{run}", "--out", "{tmp}/x.csv", "--count", "0"], "--count"),
        (["{run}", "--out", "{tmp}/x.csv", "--least", "2"], "--least"),
        (["{run}", "--out", "{tmp}/x.csv", "--most", "0"], "--most"),
        (["{run}", "--out", "{tmp}/x.csv", "--patience", "0"], "--patience"),
        (["{run}", "--out", "{tmp}/x.csv", "--seed", "-1"], "--seed"),
        (["{run}", "--out", "{tmp}/x.csv", "--root", "{tmp}/none"], "none"),
        (["{run}", "--out", "{tmp}/x.csv", "--order", "best"], "informative"),
        (["{run}", "--out", "{tmp}/x.csv", "--threshold", "90"], "--threshold"),
        (["{run}", "--out", "{tmp}/x.csv", "--json"], "--report"),
        (["{run}", "--out", "{tmp}/x.csv", "--port", "70000"], "--port"),
        (["--report", "{tmp}/none.csv"], "no such file"),
        (["{run}", "--report", "{tmp}/none.csv"], "no run"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(tmp_path, photos, capsys, words, says):
    (tmp_path / "old.csv").write_text("image,label\ni0,forest\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    code = main(["review", *(word.format(run=photos.folder, tmp=tmp_path) for word in words)])
    error = capsys.readouterr().err.strip()
    assert code in (1, 2)
    assert says in error
    assert "\n" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_decides_what_is_asked_reaches_the_completion(tmp_path, photos, monkeypatch):
    from adagc import completion

    asked = {}

    def complete(run, **options):
        asked.update(options)
        raise ValueError("that is all")

    monkeypatch.setattr(completion, "complete", complete)
    words = ["--out", str(tmp_path / "x.csv"), "--folds", "3", "--part", "train", "--no-browser"]
    with pytest.raises(ValueError, match="that is all"):
        main(["review", str(photos.folder), *words, "--debug"])
    assert (asked["folds"], asked["part"], asked["images"]) == (3, "train", None)


def test_answers_about_another_run_are_not_mixed(tmp_path, photos, capsys):
    out = tmp_path / "x.csv"
    command = Command(str(photos.folder), "--out", str(out), "--least", "0.01", "--count", "3")
    try:
        command.about("ready")
    finally:
        command.end()
    other = tmp_path / "run"
    shutil.copytree(photos.folder, other)
    (other / "history.jsonl").write_bytes(photos.path("history.jsonl").read_bytes() + b"\n")
    words = ["--out", str(out), "--least", "0.01", "--count", "3"]
    assert main(["review", str(other), *words]) == 2
    assert "answers about another run" in capsys.readouterr().err
