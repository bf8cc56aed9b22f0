"""Eight annotators, a server that is killed at random moments: what was acknowledged is kept."""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from adagc.annotate.store import read_events
from adagc.labels import read_labels
from annotate.projects import answers_of, check_events, expected_labels
from web.killed import Killed
from web.visitors import Client

CLASSES = "forest, water, town, field, road, beach, rock, marsh, park"


def annotator(who: str, server: Killed, acknowledged: list, stop: float) -> None:
    """Label until nothing is left; what fails is sent again, as the page does."""
    luck = random.Random(who)

    def insist(path: str, **body) -> dict:
        while time.monotonic() < stop:
            try:
                return Client(server.port).post(path, name=who, **body)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
        raise AssertionError("the server did not come back")

    view = insist("look")
    while view["image"] is not None:
        if luck.random() < 0.1:
            view = insist("refresh", image=view["image"])
            continue
        key = luck.randrange(len(view["candidates"]))
        answer = {
            "image": view["image"], "kind": "choose", "key": key,
            "present": [view["candidates"][key]], "request": f"{luck.getrandbits(64):016x}",
        }  # fmt: skip
        image, chosen = view["image"], view["candidates"][key]
        view = insist("answer", **answer)
        if not view["notice"]:
            acknowledged.append((who, image, chosen))
        if luck.random() < 0.03 and view["undoable"]:
            view = insist("undo", request=f"{luck.getrandbits(64):016x}")
            acknowledged.append((who, view["image"], None))  # taken back


def label(folder: Path, images: int, waits: list[float]) -> None:
    np.save(folder / "images.npy", np.zeros((images, 3, 8, 8), np.uint8))
    out = folder / "labels.csv"
    words = ["annotate", str(folder / "images.npy"), "--classes", CLASSES, "--out", str(out)]
    server = Killed(words, waits)
    stop = time.monotonic() + 1500
    done = threading.Event()
    lists: dict[str, list] = {f"p{n}": [] for n in range(8)}
    failures: list[BaseException] = []

    def work(who: str) -> None:
        try:
            annotator(who, server, lists[who], stop)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in lists]
    killer = threading.Thread(target=server.run, args=(done,))
    for thread in (*threads, killer):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    killer.join()
    said = server.end()

    assert not failures, failures[:1]
    assert server.kills == len(waits), "the work was over before the last kill"
    events, settings = read_events(out.with_suffix(".sqlite"))
    check_events(events)
    kept = answers_of(events)
    names = [f"{row:05d}" for row in range(images)]
    column = settings["classes"]
    final = {}
    for who, said_yes in lists.items():
        for name, image, chosen in said_yes:
            final[names[image]] = None if chosen is None else (name, column[chosen])
        assert who in {event.annotator for event in events}
    for image, promised in final.items():
        if promised is not None:
            found = [(event.annotator, event.present[0]) for event in kept[image]]
            assert found == [promised], f"{image}: {found}, acknowledged was {promised}"
    assert len(kept) == images
    assert expected_labels(events) == labels_in(out)
    assert f"{images:,} of {images:,} images are labelled" in said


def labels_in(out: Path) -> dict[str, str]:
    table = read_labels(out)
    return {
        image: table.classes[int(row.argmax())]
        for image, row in zip(table.images, table.values, strict=True)
    }


def test_nothing_is_lost_when_the_server_is_killed(tmp_path):
    luck = random.Random(os.environ.get("ADAGC_KILLS", "5"))
    label(tmp_path, 400, [luck.uniform(0.05, 0.35) for _ in range(2)])


@pytest.mark.slow
def test_nothing_is_lost_in_5000_labels_and_20_kills(tmp_path):
    luck = random.Random(os.environ.get("ADAGC_KILLS", "6"))
    label(tmp_path, 5000, [luck.uniform(0.05, 1.2) for _ in range(20)])
