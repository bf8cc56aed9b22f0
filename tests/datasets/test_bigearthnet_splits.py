"""The published splits of reBEN: their sizes, and what is said of a copy that lacks some."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from adagc.cli import main
from adagc.datasets.bigearthnet import splits
from adagc.datasets.bigearthnet.generate import generate
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.datasets.bigearthnet.patches import Patches
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.datasets.bigearthnet.splits import PUBLISHED, splits_of
from adagc.datasets.dividing import SplitRule
from adagc.errors import DataError


def patches(sizes: tuple[int, int, int], cloudy: int = 0) -> Patches:
    count = sum(sizes) + cloudy
    split = np.repeat(np.array([0, 1, 2, 0], np.int8), (*sizes, cloudy))
    flags = np.repeat(np.array([0, 1], np.uint8), (count - cloudy, cloudy))
    return Patches(("",) * count, ("",) * count, split, np.ones((count, 19), np.bool_), flags)


def test_the_published_sizes():
    assert PUBLISHED == {"train": 237_871, "val": 122_342, "test": 119_825}
    found = splits_of(patches((237_871, 122_342, 119_825)), SplitRule(), 2)
    assert found.warning is None
    assert found.sentence == (
        "published splits of all patches of reBEN: 237,871 train, 122,342 val, 119,825 test"
        " (2 : 1 : 1)"
    )
    # Those under clouds are no part of the published sizes.
    found = splits_of(patches((237_871, 122_342, 119_825), cloudy=500), SplitRule(), 2)
    assert found.warning is None
    assert "238,371 train" in found.sentence


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((237_870, 122_342, 119_825), "here are 1 fewer train;"),
        ((249_000, 122_342, 119_820), "here are 11,129 more train, 5 fewer test;"),
        ((6, 0, 3), "here are 237,865 fewer train, 122,342 fewer val, 119,822 fewer test;"),
    ],
)
def test_another_copy_says_how_it_differs(sizes, said):
    found = splits_of(patches(sizes), SplitRule(), 2)
    assert found.warning is not None
    assert said in found.warning
    assert "237,871 train, 122,342 val, 119,825 test" in found.warning
    assert "all patches of reBEN" not in found.sentence


def test_all_patches_in_other_splits_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"237,872 train, .* instead of 237,871 train, .* --split"):
        splits_of(patches((237_872, 122_341, 119_825)), SplitRule(), 2)


def test_version_1_and_splits_of_one_s_own_are_not_compared(tmp_path):
    small = patches((6, 3, 3))
    assert splits_of(small, SplitRule(), 1).warning is None
    named = Patches(tuple("abcdefghijkl"), small.radar, small.split, small.labels, small.flags)
    (tmp_path / "own.csv").write_text("image,split\na,train\nb,val\nc,test\n")
    found = splits_of(named, SplitRule(tmp_path / "own.csv"), 2)
    assert (found.warning, found.sentence) == (
        None, "splits of own.csv: 1 train, 1 val, 1 test (1 : 1 : 1)",
    )  # fmt: skip


@pytest.fixture
def forms(tmp_path):
    """A copy with 12 patches in both forms, and one of which a patch was lost."""
    made = generate(tmp_path / "tree", 12, cloudy=0)
    prepare(made.root, tmp_path / "store")
    shutil.copytree(made.root, tmp_path / "less")
    shutil.rmtree(next((tmp_path / "less" / "BigEarthNet-S2").glob(f"*/{made.names[0]}")))
    return tmp_path


def test_every_form_is_compared_when_it_is_opened(forms, monkeypatch):
    monkeypatch.setattr(splits, "PUBLISHED", {"train": 6, "val": 3, "test": 3})
    monkeypatch.setattr(splits, "WHOLE", 12)
    for form in ("tree", "store"):
        data = bigearthnet_collection(forms / form)
        assert any("of all patches of reBEN" in note for note in data.notes)
        assert not any("not the whole" in note for note in data.notes)
    data = bigearthnet_collection(forms / "less")
    assert any("here are 1 fewer train;" in note for note in data.notes)
    monkeypatch.setattr(splits, "PUBLISHED", {"train": 5, "val": 4, "test": 3})
    for form in ("tree", "store"):
        with pytest.raises(DataError, match="names all 12 patches of reBEN, but puts 6 train"):
            bigearthnet_collection(forms / form)


def test_a_part_of_the_copy_is_a_warning_wherever_it_is_used(forms, capsys):
    tiny = ["--backbone", "test_resnet", "--epochs", "1", "--batch-size", "4", "--report", "false"]
    words = ["train", "--data", "bigearthnet", "--root", str(forms / "store"), "--scheme", "random"]
    run = ["--out", str(forms / "run"), "--method", "AN", "--absent", "skip", "--weights", "none"]
    assert main([*words, *tiny, *run]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: this is not the whole reBEN" in said
    assert "published splits: 6 train, 3 val, 3 test (2 : 1 : 1)" in said
    for form in ("tree", "store"):
        assert main(["inspect", str(forms / form)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "warning: this is not the whole reBEN" in said
        assert said.count("not the whole reBEN") == 1
        assert main(["inspect", str(forms / form), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert any("not the whole reBEN" in warning for warning in found["warnings"])
