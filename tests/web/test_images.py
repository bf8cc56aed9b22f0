"""What can be looked at: folders, arrays, and BigEarthNet in any form, with all its bands."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from adagc.datasets.bigearthnet.generate import generate
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.datasets.registry import open_collection
from adagc.errors import UsageError
from adagc.web.images import open_images
from adagc.web.pictures import composites, picture

pytest.importorskip("lmdb", reason="BigEarthNet takes the extra reben")


@pytest.fixture(scope="module")
def reben(tmp_path_factory):
    place = tmp_path_factory.mktemp("reben")
    generate(place / "files", 6, cloudy=0)
    for form in ("memmap", "lmdb"):
        prepare(place / "files", place / form, form=form)
    return place


@pytest.mark.parametrize("form", ["files", "memmap", "lmdb"])
def test_patches_of_bigearthnet_are_seen_whole(reben, form):
    found = open_images(reben / form)
    trained = open_collection("bigearthnet", reben / form)
    assert found.names == trained.images.names, "labels of them are found again by training"
    assert len(found) == 6
    assert found.shape == (14, 120, 120)
    shown = composites(found)
    assert {"true colour", "colour infrared", "radar"} <= {each.name for each in shown}
    assert picture(found, 3, shown[0]).media_type == "image/png"
    row = np.array([3])
    np.testing.assert_array_equal(found.gather(row), trained.images.gather(row))


def test_some_bands_of_bigearthnet(reben):
    found = open_images(reben / "memmap", bands=("B04", "B03", "B02"))
    assert found.bands == ("B04", "B03", "B02")


def test_a_file_that_is_no_array_is_told(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(UsageError, match=r"a\.png is a file: give the folder"):
        open_images(tmp_path / "a.png")
