"""Runs the tests marked `system` on a machine that has Python, a shell and nothing else.

Slurm, LaTeX, a browser, git, a C compiler and real images are hidden whether they are installed or
not: the PATH leads to a temporary folder with links to what scripts of a shell use. Fails as well
if a program is found nevertheless, if a test that brings commands of its own is skipped, or if no
such test was run.

    python tests/bare.py [arguments of pytest]
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

# What the commands that tests bring along are written with; any Unix has them.
KEPT = ("sh", "cat", "env", "sed", "wc")
# Nothing asks for these by a mark, and nothing may need them.
NEVER = ("cc", "gcc", "c++", "g++", "ld", "chromium", "google-chrome", "uv")


class Watch:
    """Looks at what ran and what was hidden."""

    def __init__(self) -> None:
        self.everywhere: set[str] = set()  # tests that ask for nothing
        self.passed: set[str] = set()
        self.wrong: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        import machine  # as pytest has loaded it, after the environment was changed

        names = {*NEVER, *machine.PACKAGES}
        for item in session.items:
            marks = list(item.iter_markers("system"))
            names.update(*(mark.args for mark in marks))
            if not any(mark.args or mark.kwargs for mark in marks):
                self.everywhere.add(item.nodeid)
        found = {name: machine.find(name) for name in sorted(names)}
        self.wrong += [f"{name} is not hidden: {there}" for name, there in found.items() if there]
        if machine.DATA.exists():
            self.wrong.append(f"real images are not hidden: {machine.DATA}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        if report.skipped and report.nodeid in self.everywhere:
            self.wrong.append(f"{report.nodeid} needs nothing but was skipped: {report.longrepr}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.passed & self.everywhere:
            self.wrong.append("no test with commands of its own has passed")
        if self.wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.wrong:
            terminalreporter.write_line(f"BARE {line}", red=True)


def main(words: list[str]) -> int:
    """Run pytest with these arguments; its exit code, which is not 0 if the watch complains."""
    with tempfile.TemporaryDirectory(prefix="bare-") as folder:
        programs = Path(folder, "bin")
        programs.mkdir()
        for name in KEPT:
            there = shutil.which(name)
            if there is None:
                sys.exit(f"{name} is not on the PATH; tests write their commands with it")
            (programs / name).symlink_to(there)
        for name in [name for name in os.environ if name.startswith("SLURM")]:
            del os.environ[name]
        os.environ.update(PATH=str(programs), ADAGC_DATA=str(Path(folder, "no-images")))
        return pytest.main(["-m", "system and not slow", *words], plugins=[Watch()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
