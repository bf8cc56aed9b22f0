"""Folders with links of all kinds, and names of images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adagc.datasets.folder import folder_collection
from adagc.datasets.inspect.look import inspect
from adagc.errors import DataError
from adagc.images.scan import find_images, image_names
from fakes import picture


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for i in range(6):
        picture(tmp_path / "images" / "abc"[i // 2] / f"{i}.png", seed=i, side=(40, 40))
    picture(tmp_path / "elsewhere" / "e.png", seed=7, side=(40, 40))
    return tmp_path / "images"


OWN = ("a/0.png", "a/1.png", "b/2.png", "b/3.png", "c/4.png", "c/5.png")


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("a/up", ".."),  # to the folder that holds this one
        ("loop", "."),
        ("a/self", "."),
        ("out", "../.."),  # above the images, which holds other pictures too
        ("0", "b"),  # sorted before the folder itself
        ("itself", "itself"),
        ("nowhere", "missing"),
    ],
)
def test_a_directory_is_searched_once(link: str, target: str, root: Path) -> None:
    (root / link).symlink_to(target)
    assert find_images(root) == OWN
    assert len(inspect(root).images.names) == 6
    assert len(folder_collection(root).images) == 6


def test_many_links_to_each_other(root: Path) -> None:
    for one in "abc":
        for other in "abc":
            (root / one / f"to-{other}").symlink_to(f"../{other}")
    assert find_images(root) == OWN


def test_links_to_another_place_are_followed_once(root: Path) -> None:
    (root / "second").symlink_to("../elsewhere")
    (root / "first").symlink_to("../elsewhere")
    assert find_images(root) == (*OWN, "first/e.png")
    assert find_images(root, ["a", "second", "first"]) == (*OWN[:2], "second/e.png")


def test_the_folder_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("images")
    assert find_images(tmp_path / "link") == OWN


def test_a_link_to_a_file_is_an_image(root: Path) -> None:
    (root / "d.png").symlink_to("a/0.png")
    assert find_images(root) == (*OWN, "d.png")
    assert inspect(root).images.duplicates == (("a/0.png", "d.png"),)


def test_a_broken_link_is_an_unreadable_image(root: Path) -> None:
    (root / "gone.png").symlink_to("nowhere.png")
    (root / "round.png").symlink_to("round.png")
    assert list(inspect(root).images.unreadable) == ["gone.png", "round.png"]
    with pytest.raises(DataError, match=r"2 of 8 images cannot be read \(gone\.png, round\.png\)"):
        folder_collection(root)
    data = folder_collection(root, skip_unreadable=True)
    assert len(data.images) == 6
    picture(root / "nowhere.png", seed=9, side=(40, 40))
    assert len(folder_collection(root, skip_unreadable=True).images) == 8


def test_a_pipe_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe.png")
    (root / "link.png").symlink_to("pipe.png")
    (root / "device.png").symlink_to("/dev/zero")
    assert find_images(root) == OWN


def test_a_file_is_not_called_a_missing_folder(root: Path) -> None:
    for use in (find_images, inspect, folder_collection):
        with pytest.raises(DataError, match="is a file, not a folder"):
            use(root / "a" / "0.png")
        with pytest.raises(DataError, match="no such folder"):
            use(root / "z")


def test_names_differ_whatever_the_files_are_called() -> None:
    files = ("a.jpg", "a.png", "a.png.png", "b.png", "c.tif.tif")
    names = image_names(files)
    assert names == ("a.jpg", "a.png", "a.png.png", "b", "c.tif")
    assert len(set(names)) == len(files)
