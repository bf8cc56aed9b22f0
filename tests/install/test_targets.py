"""The targets of the Makefile are those that the documents and CI name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from machine import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, flags=re.MULTILINE))


def named(text: str) -> set[str]:
    """Targets that a text calls: `make x` as code, or at the start of a line or of a step."""
    return set(re.findall(r"(?:^|`|run: |echo \")make ([a-z][\w-]+)", text, flags=re.MULTILINE))


def test_help_describes_every_target():
    assert named(MAKEFILE) == TARGETS - {"help"}
    declared = MAKEFILE.partition(".PHONY:")[2].partition("\n")[0].split()
    assert set(declared) == TARGETS


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", ".github/workflows/ci.yml"])
def test_pages_name_targets_that_exist(page):
    found = named((ROOT / page).read_text(encoding="utf-8"))
    assert found
    assert found <= TARGETS


def test_ci_runs_everything_with_and_without_the_programs_of_this_machine():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    calls = [line.removeprefix("make ") for line in lines if line.startswith("make ")]
    assert calls == ["system-deps", "check", "test", "test-bare", "test-wheel"]
    jobs = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "bash .ci/run" in jobs
    assert "make test-lowest" in jobs


def test_what_skipped_tests_ask_for_is_what_system_deps_installs():
    (installed,) = re.findall(r"^DEBIAN := (.*)$", MAKEFILE, flags=re.MULTILINE)
    assert set(" ".join(PACKAGES.values()).split()) == set(installed.split())
