"""A progress bar that appears on a terminal if the work takes more than a second."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

PATIENCE = 1.0  # seconds before a bar appears


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr, if stderr is a terminal.

    Args:
        what: Text before the bar.
        total: Number of items to do.

    Yields:
        A function to call with the number of items that were done since the last call.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    began = time.monotonic()

    def advance(done: int) -> None:
        bar.update(task, advance=done)
        if not bar.live.is_started and time.monotonic() - began > PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
