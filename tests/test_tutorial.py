"""docs/tutorial.md, run as it stands: its program and commands, and somebody who presses keys."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adagc.cli import main
from adagc.labels import LabelTable, read_labels
from adagc.training.runs import Run
from web.visitors import Client

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
PROGRAMS = [text for kind, text in BLOCKS if kind == "python"]
COMMANDS = [
    shlex.split(line)
    for kind, text in BLOCKS
    if not kind
    for line in text.splitlines()
    if line.startswith("adagc ")
]


def serve(words: list[str], work: Callable[[Client], None]) -> None:
    """Run a command that serves a page, and let somebody work there."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words, "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline()
        work(Client(int(address.strip().rstrip("/").rpartition(":")[2])))
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 143


class Eyes:
    """Somebody who sees what is in an image."""

    def __init__(self, truth: LabelTable) -> None:
        self.truth = truth
        self.luck = np.random.default_rng(0)

    def sees(self, image: int, name: str) -> bool:
        # The number of an image on the pages is its row: names are in their order.
        return bool(self.truth.values[image, self.truth.classes.index(name)] > 0)

    def label(self, client: Client) -> None:
        """One key per image: any of the classes on offer that are there."""
        classes = json.loads(client.send("GET", "/api/project")[2])["classes"]
        view = client.post("look", name="ann")
        while view["image"] is not None:
            offered = view["candidates"]
            seen = [n for n, each in enumerate(offered) if self.sees(view["image"], classes[each])]
            assert seen, "all four classes are on offer"
            key = int(self.luck.choice(seen))
            view = client.post(
                "answer", name="ann", image=view["image"], kind="choose", key=key,
                present=[offered[key]], request=f"request-{view['image']}",
            )  # fmt: skip

    def review(self, client: Client) -> None:
        """Yes or no to every class that is asked about."""
        for _ in range(600):
            about = json.loads(client.send("GET", "/api/project")[2])
            if about["ready"]:
                break
            time.sleep(0.1)
        view = client.post("look", name="ann")
        while view["image"] is not None:
            image = view["image"]
            for question in view["questions"]:
                there = self.sees(image, about["classes"][question["label"]])
                client.post(
                    "answer", name="ann", image=image, label=question["label"],
                    value=1 if there else -1, request=f"request-{image}-{question['label']}",
                )  # fmt: skip
            view = client.post("next", name="ann", image=image, request=f"request-{image}")


def test_the_tutorial_leads_to_a_map(tmp_path, monkeypatch, capsys):
    rasterio = pytest.importorskip("rasterio", reason="the page installs the extra geo")
    pytest.importorskip("fastapi", reason="the page installs the extra web")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    assert len(PROGRAMS) == 1
    subprocess.run([sys.executable, "-c", PROGRAMS[0]], check=True)
    truth = read_labels("truth.csv", classes=Path("classes.txt").read_text().split())
    eyes = Eyes(truth)
    said = {}
    for words in COMMANDS:
        serving = words[1] in ("annotate", "review") and "--report" not in words
        if serving:
            serve(words, eyes.label if words[1] == "annotate" else eyes.review)
        else:
            assert main(words[1:]) == 0, words
        out = capsys.readouterr().out
        said[" ".join(words[1:3])] = out
    assert [words[1] for words in COMMANDS] == [
        "annotate", "annotate", "train", "complete", "review", "review", "train", "predict"
    ]  # fmt: skip

    # one label per image, then more; none is wrong, as nobody has erred
    first, second = read_labels("labels.csv"), read_labels("reviewed.csv")
    for table in (first, second):
        true = truth.values[[truth.images.index(name) for name in table.images]]
        columns = [truth.classes.index(name) for name in table.classes]
        assert (table.values * (2 * true[:, columns] - 1) >= 0).all()
    assert len(first) == len(truth)
    assert ((first.values != 0).sum(axis=1) == 1).all()
    told = (second.values != 0).sum() - (first.values != 0).sum()
    assert told >= 40, "every image in the review was asked about"
    assert "260 answers on 260 images" in said["annotate --report"]
    assert "40 of 40 images are reviewed" in said["review --report"]
    scores = [Run.open(f"runs/{name}").scores.final for name in ("first", "second")]
    assert all(score is not None for score in scores)
    # a network that has learnt nothing has an mAP of about half
    assert scores[1].mean_average_precision > 0.8

    with rasterio.open("map.tif") as file:
        assert set(file.descriptions) == set(truth.classes)
        assert file.crs.to_epsg() == 32632
        shown = file.read(file.descriptions.index("water") + 1)
    with rasterio.open("scene.tif") as file:
        scene = file.read()
    water = scene[3] < 400  # water is black in the near infrared, and nothing else is
    step = scene.shape[1] // shown.shape[0]
    covered = water.reshape(shown.shape[0], step, shown.shape[1], step).mean(axis=(1, 3))
    assert shown[covered == 1].mean() > shown[covered == 0].mean() + 0.2
