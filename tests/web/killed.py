"""A command that serves a page, killed at random moments and started again."""

from __future__ import annotations

import subprocess
import sys
import threading


class Killed:
    """The command, which is killed and started again under another port.

    Args:
        words: The command and what follows it.
        waits: Seconds until each kill, from the moment on at which the server answers.
    """

    def __init__(self, words: list[str], waits: list[float]) -> None:
        self.command = [sys.executable, "-m", "adagc", *words, "--no-browser"]
        self.waits, self.kills, self.port = waits, 0, 0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline()
        assert address.startswith("http://127.0.0.1:"), address
        self.port = int(address.strip().rstrip("/").rpartition(":")[2])

    def run(self, done: threading.Event) -> None:
        for wait in self.waits:
            if done.wait(wait):
                break
            self.process.kill()
            self.process.wait()
            self.kills += 1
            self.start()
        done.wait()

    def end(self) -> str:
        """What the command says when it is asked to end."""
        self.process.terminate()
        text, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 143
        return text
