"""What grows with the number of patches, and what must not: on an index without pixels."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    "patches", [2_000, pytest.param(549_488, marks=pytest.mark.slow)], ids=["small", "full"]
)
def test_nothing_grows_per_epoch(tmp_path, monkeypatch, patches):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from reben_volume import in_child, large_index

    found = in_child("epochs", large_index(tmp_path / "store", patches))
    assert (found["patches"], found["training"]) == (patches, patches // 2)
    # Two rows of 32-bit numbers, one per class.
    assert found["bytes_per_image"] <= 19 * 4 * 2
    # MB: a number per image and class would be 21 on all patches. The first epochs make what every
    # epoch needs: tables of the second stage, snapshots.
    resident = found["resident"]
    assert len(resident) == 5
    assert resident[-1] - resident[2] < 2
    assert resident[2] - resident[0] < 150


@pytest.mark.slow
def test_starting_takes_seconds_and_little_memory(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from reben_volume import FULL, in_child, large_index

    found = in_child("start-up", large_index(tmp_path / "store"))
    assert found["patches"] == FULL == 549_488
    assert found["seconds"] < 5
    assert found["peak"] < 600
