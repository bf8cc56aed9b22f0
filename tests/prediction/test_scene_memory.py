"""A scene of 20,000 x 20,000 x 14 values, 11 GB, in less than 2 GB of memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "windows.py"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_scene(tmp_path, monkeypatch):
    pytest.importorskip("rasterio", reason="rasterio is not installed")
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    from windows import write_scene

    largest = {}
    for side in (2_500, 20_000):
        scene = write_scene(tmp_path / f"{side}.tif", side, sparse=True)
        done = subprocess.run(
            [sys.executable, str(BENCHMARK), "--child", str(scene), "means",
             str(tmp_path / f"map-{side}.tif")],
            capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        _, windows, largest[side] = map(float, done.stdout.split())
        assert windows == (-(-side // 120)) ** 2
    assert largest[20_000] < 2
    # Two blocks and the cache of GDAL, whatever the size.
    assert largest[20_000] < largest[2_500] + 0.2
