"""Whatever is wrong with a scene, there is one line, and nothing is left behind."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adagc.cli import main
from adagc.prediction import inputs
from adagc.windows.grid import share
from planted import write_scene


@pytest.mark.parametrize("suffix", [".tif", ".csv"])
def test_bytes_that_are_cut_or_changed(tmp_path, model, monkeypatch, suffix):
    monkeypatch.setattr(inputs, "share", lambda *a, **k: share(*a, **{**k, "most": 3 * 24 * 24}))
    values = np.random.default_rng(0).random((3, 64, 64)).astype(np.float32)
    scene = write_scene(
        tmp_path / "scene.tif", values, tiled=True, blockxsize=16, blockysize=16,
        compress="deflate",
    )  # fmt: skip
    sound = scene.read_bytes()
    out = tmp_path / "new" / f"out{suffix}"
    codes = set()

    @settings(
        max_examples=40, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(0, len(sound)), st.lists(st.integers(0, len(sound) - 1), max_size=20))
    def attempt(end: int, flips: list[int]) -> None:
        content = bytearray(sound)
        for place in flips:
            content[place] ^= 0x55
        scene.write_bytes(content[: end if not flips else len(sound)])
        before = sorted(tmp_path.rglob("*"))
        told, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(said):
            code = main(["predict", str(model), str(scene), "--out", str(out)])
        codes.add(code)
        errors = [line for line in said.getvalue().splitlines() if line.startswith("adagc ")]
        assert "Traceback" not in said.getvalue()
        assert code in (0, 1)
        assert len(errors) == code
        if code == 0:
            assert out.exists()
            out.unlink()
            out.parent.rmdir()
        assert sorted(tmp_path.rglob("*")) == before

    attempt()
    assert codes == {0, 1}
