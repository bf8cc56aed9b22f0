"""The bare machine hides what it says, and tests cannot slip past it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.system  # brings the commands that are hidden

GOOD = """
import pytest, shutil, subprocess

@pytest.mark.system
def test_of_commands_of_its_own(tmp_path, monkeypatch):
    assert shutil.which("pdflatex") is None
    (tmp_path / "pdflatex").write_text("#!/bin/sh\\necho made up")
    (tmp_path / "pdflatex").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert subprocess.check_output(["pdflatex"]) == b"made up\\n"

@pytest.mark.system("pdflatex", "sinfo")
def test_of_programs():
    assert subprocess.check_output(["pdflatex"]) == b"installed\\n"

@pytest.mark.system(data="AID_multilabel")
def test_of_images():
    from machine import DATA
    assert (DATA / "AID_multilabel").is_dir()
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Runs tests where pdflatex, sinfo (as a daemon in sbin) and images of AID are installed."""
    for folder, name in (("bin", "pdflatex"), ("sbin", "sinfo")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("#!/bin/sh\necho installed\n")
        (tmp_path / folder / name).chmod(0o755)
    (tmp_path / "data" / "AID_multilabel").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers\nmarkers =\n system\n slow\n"
    )
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "ADAGC_DATA": str(tmp_path / "data"),
        "PYTHONPATH": str(HERE),
    }

    def run(text: str, *program: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(text)
        words = [*program, "-rs", "-p", "machine", "-p", "no:cacheprovider", str(tmp_path)]
        return subprocess.run(
            [sys.executable, *words],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


BARE = (str(HERE / "bare.py"),)
ALL = ("-m", "pytest")


def test_what_is_installed_is_hidden_and_the_rest_runs(suite):
    told = suite(GOOD, *BARE)
    assert told.returncode == 0, told.stdout
    assert "1 passed, 2 skipped" in told.stdout
    assert "pdflatex is not installed: apt-get install texlive-latex-base" in told.stdout
    assert "set ADAGC_DATA to the folder with real images" in told.stdout
    # The two that are skipped there find their programs and images where these are.
    told = suite(GOOD, *ALL, "-k", "programs or images")
    assert "2 passed" in told.stdout, told.stdout


def test_nothing_slips_past_it(suite):
    told = suite(
        GOOD
        + """
@pytest.mark.system
def test_that_fails():
    assert False

@pytest.mark.system
def test_that_gives_up():
    pytest.skip("no squeue")

@pytest.mark.system
@pytest.mark.skip(reason="later")
def test_that_never_runs():
    pass

@pytest.mark.system("sh")
def test_of_what_stays():
    pass
""",
        *BARE,
    )
    assert told.returncode == 1
    assert "1 failed" in told.stdout
    complaints = [line for line in told.stdout.splitlines() if line.startswith("BARE")]
    assert len(complaints) == 3
    for words in ("sh is not hidden", "gives_up needs nothing but", "never_runs needs nothing but"):
        assert sum(words in line for line in complaints) == 1


def test_a_complaint_is_enough_to_fail(suite):
    gives_up = '@pytest.mark.system\ndef test_it():\n    pytest.skip("no squeue")\n'
    told = suite(f"{GOOD}\n{gives_up}", *BARE)
    assert told.returncode == 1
    assert "1 passed, 3 skipped" in told.stdout


def test_a_run_without_tests_that_bring_their_commands_proves_nothing(suite):
    only = "import pytest\n@pytest.mark.system('pdflatex')\ndef test_it(): pass"
    told = suite(only, *BARE)
    assert told.returncode == 1
    assert "no test with commands of its own has passed" in told.stdout


def test_a_test_has_to_say_that_it_touches_a_program(suite):
    acts = (
        "subprocess.run(['pdflatex'])",
        "subprocess.run('pdflatex', shell=True)",
        "shutil.which('pdflatex')",
        "os.system('pdflatex')",
        "os.posix_spawnp('pdflatex', ['pdflatex'], os.environ)",
    )
    free = ("subprocess.run([sys.executable, '--version'])", "shutil.which('git')")
    head = "import os, pytest, shutil, subprocess, sys\n"
    touching = [f"def test_{i}():\n    {act}\n" for i, act in enumerate(acts)]
    others = [f"def test_free_{i}():\n    {act}\n" for i, act in enumerate(free)]
    told = suite("\n".join([head, *touching, *others]), *ALL)
    assert told.returncode == 1
    assert "2 failed, 5 passed, 5 errors" in told.stdout  # of two kinds no program is found
    assert told.stdout.count("mark it with @pytest.mark.system") >= 5
    marked = [f"@pytest.mark.system\n{test}" for test in touching]
    assert suite("\n".join([head, *marked, *others]), *ALL).returncode == 0


def test_what_is_not_declared_is_hidden_on_any_machine(suite):
    """Also from processes that a test starts, and from fixtures that several tests share."""
    head = """
import pytest, shutil, subprocess, sys

LOOK = "import shutil; print(shutil.which('pdflatex'))"

@pytest.fixture(scope="module")
def found():
    return subprocess.check_output([sys.executable, "-c", LOOK], text=True).strip()

"""
    hidden = "def test_it(found):\n    assert found == 'None'\n"
    there = "def test_it(found):\n    assert found.endswith('pdflatex')\n"
    assert "1 passed" in suite(head + hidden, *ALL).stdout
    assert "1 passed" in suite(f"{head}@pytest.mark.system\n{there}", *ALL).stdout
