"""Long work beside the server: a child process, and a thread that hands on what it says.

In a process of its own, because a thread that imports or computes keeps the others from running,
and with them the page.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any


class Background:
    """Work that has not begun; `start` returns at once. It ends with this process at the latest.

    Args:
        work: A function at the top of a module; what it yields is sent, one by one.
        told: Its arguments, which are sent to the child process.
        hear: Called with everything that it yields, in a thread.
        end: Called when it has ended, by itself or from outside.
    """

    def __init__(
        self,
        work: Callable[..., Iterable[Any]],
        told: tuple[Any, ...],
        hear: Callable[[Any], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        # Threads of libraries do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._heard, self._end_of_child = context.Pipe(duplex=False)
        self._child = context.Process(
            target=_perform, args=(self._end_of_child, work, told), daemon=True
        )
        self._hear, self._end = hear, end

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        self._child.start()
        self._end_of_child.close()  # or its end would not be heard
        with suppress(EOFError, OSError):
            while True:
                self._hear(self._heard.recv())
        self._end()


def _perform(line: Connection, work: Callable[..., Iterable[Any]], told: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(os, "nice"):
        os.nice(10)  # whoever labels comes first
    threading.Thread(target=_follow, daemon=True).start()
    with suppress(BrokenPipeError):  # the parent has ended
        for each in work(*told):
            line.send(each)


def _follow() -> None:
    """End when the parent is gone, also if it was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
