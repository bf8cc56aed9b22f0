"""Pictures are made once as long as they are kept, and not all are kept."""

from __future__ import annotations

import numpy as np
import pytest

from adagc.images.array import ArrayScenes
from adagc.web import shown


@pytest.fixture
def made(monkeypatch):
    """Rows of which a picture was made, in their order."""
    rows: list[int] = []
    original = shown.picture
    monkeypatch.setattr(
        shown,
        "picture",
        lambda images, row, *a, **k: rows.append(row) or original(images, row, *a, **k),
    )
    return rows


def test_the_last_pictures_that_were_looked_at_are_kept(made, monkeypatch):
    monkeypatch.setattr(shown, "_KEPT", 3)
    scenes = ArrayScenes(np.zeros((6, 3, 8, 8), np.uint8))
    pictures = shown.Pictures(scenes, None)
    for row in (0, 1, 2, 0, 3, 0, 1):  # 1 is the one that nobody has looked at for longest
        pictures.of(row, 0)
    assert made == [0, 1, 2, 3, 1]


def test_each_way_to_show_an_image_is_a_picture_of_its_own(made):
    luck = np.random.default_rng(0)
    scenes = ArrayScenes(luck.integers(0, 60, (2, 3, 8, 8), dtype=np.uint8))
    pictures = shown.Pictures(scenes, None)
    ways = [{}, {"whole": True}, {"alone": True}, {"whole": True, "alone": True}]
    found = [pictures.of(0, 0, **way).data for way in ways * 2]
    assert made == [0] * 4
    assert found[:4] == found[4:]
    assert found[0] != found[2]
