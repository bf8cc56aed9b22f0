"""What a run notes about the machine, also where there is little to note."""

from __future__ import annotations

import pytest

from adagc.training.environment import environment


@pytest.mark.system
def test_without_git_a_run_has_no_commit(tmp_path, monkeypatch):
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\necho abc1234-dirty\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment()["git"] == "abc1234-dirty"
    git.write_text("#!/bin/sh\necho not a git repository >&2; exit 128\n")
    assert environment()["git"] is None
    git.unlink()
    assert environment()["git"] is None
