"""What people see of the images of a run: the files themselves, where they are still there."""

from __future__ import annotations

import numpy as np
from PIL import Image

from adagc import progress
from adagc.datasets.registry import open_collection
from adagc.images.array import ArrayScenes
from adagc.web.images import originals


def make_files(folder) -> None:
    (folder / "a").mkdir(parents=True)
    for n, name in enumerate(("a/x.png", "a/y.png", "z.png")):
        pixels = np.full((20, 30 + n, 3), 40 * (n + 1), np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "labels.csv").write_text("image,label\nx,one\ny,two\nz,one\n")


def test_files_are_seen_in_their_own_size_under_the_names_of_training(tmp_path):
    make_files(tmp_path / "images")
    labels = tmp_path / "images" / "labels.csv"
    opened = open_collection(
        "folder", tmp_path / "images", labels=str(labels), size=8, cache=str(tmp_path / "cache")
    )
    assert opened.images.shape == (3, 8, 8)
    found = originals(opened.images, tmp_path / "images")
    assert found.names == opened.images.names
    for row in range(3):
        image = found.gather(np.array([row]))[0]
        assert image.shape == (3, 20, 30 + row)
        assert (image == opened.images.gather(np.array([row]))[0, 0, 0, 0]).all()


def test_where_the_files_are_gone_the_decoded_copy_is_seen(tmp_path):
    make_files(tmp_path / "images")
    opened = open_collection(
        "folder", tmp_path / "images", labels=str(tmp_path / "images" / "labels.csv"), size=8,
        cache=str(tmp_path / "cache"),
    )  # fmt: skip
    assert originals(opened.images, tmp_path / "elsewhere") is opened.images
    scenes = ArrayScenes(np.zeros((2, 3, 4, 4), np.uint8))
    assert originals(scenes, tmp_path / "images") is scenes


def test_what_takes_time_is_said_in_words():
    assert progress.in_words() == ""
    with progress.meter("predicting", 5) as opened:
        opened.advance(2)
        assert progress.in_words() == "predicting, 40 %"
        with progress.meter("reading", 3, unit="images"):
            assert progress.in_words() == "predicting, 40 %"
    with progress.meter("decoding", 8, unit="images") as opened:
        opened.advance(3)
        assert progress.in_words() == "decoding, 3 of 8 images"
