"""How far work is that takes time: bars on a terminal, and a line now and then elsewhere.

Whatever may take longer than a second opens a `meter` and tells it what is done. Where stderr is a
terminal, the meters that are open are bars; elsewhere a command writes lines about them
(`write_lines`), at most one per half minute. A process that works for another one sends its meters
there (`sent_to`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

PATIENCE = 1.0  # seconds of work before it is shown at all
EVERY = 30.0  # seconds from one line to the next
LONGEST = 300.0  # seconds after which there is a line even between two marks
_BETWEEN = 0.1  # seconds from one change of a bar to the next

Item = TypeVar("Item")


class Meter:
    """How far one piece of work is; made by `meter`.

    Args:
        what: Name of the work, in a few words.
        total: Amount of work, in any unit; 0 if it is not known yet.
        unit: Name of this unit, if the amount done is worth telling, such as "images".
        marks: Whether `mark` says what is worth a line.
        nested: Whether it is a part of other work that has a meter.
    """

    def __init__(self, what: str, total: float, *, unit: str, marks: bool, nested: bool) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.marks, self.nested = marks, nested
        self.done = 0.0
        self.note = ""  # what else there is to say; cut where the terminal is too narrow
        self.lines = 0  # number of lines that were written about it
        self.began = time.monotonic()
        self._changed = 0.0
        self._samples = deque([(self.began, 0.0)])  # (time, done) over the last half of the time

    @property
    def due(self) -> bool:
        """Whether enough time has passed to show a change; a quick loop may ask before a call."""
        return time.monotonic() - self._changed >= _BETWEEN

    @property
    def lasting(self) -> bool:
        """Whether it has lasted long enough to be shown."""
        return self.marks or time.monotonic() - self.began >= PATIENCE

    @property
    def share(self) -> float:
        """The share of the work that is done, from 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def left(self) -> str:
        """The time left in words, at the speed of the last half of the time so far; or empty."""
        (since, before), now = self._samples[0], time.monotonic()
        unknown = self.done <= before or now - since < PATIENCE / 2
        if unknown or self.done >= self.total:
            return ""
        last = self._samples[-1][0]
        speed = (self.done - before) / max(last - since, 1e-9)
        seconds = max(0.0, (self.total - self.done) / speed - (now - last))
        return f"{seconds:.0f} s left" if seconds < 10 else f"{duration(seconds)} left"

    def begin_at(self, done: float) -> None:
        """Say that the work begins now, with this much done, which tells nothing of the speed."""
        self.done = done
        self._samples = deque([(time.monotonic(), done)])

    def advance(self, count: float = 1) -> None:
        """Say that this much more is done."""
        self.update(self.done + count)

    def update(self, done: float, *, total: float | None = None, note: str | None = None) -> None:
        """Say how much is done in all; None leaves the total or the note as it is."""
        self._set(done, total, note)
        if self.due or self.done >= self.total:
            self._changed = time.monotonic()
            _show(self)

    def mark(self, text: str, *, always: bool = False) -> None:
        """Tell something that is worth a line, if enough time has passed since the last one.

        The first one and the one at the end of the work always get a line, and so does one that is
        marked with `always`.
        """
        _display().marked(self, text, always)

    def _set(self, done: float, total: float | None, note: str | None) -> None:
        self.done = done
        self.total = self.total if total is None else total
        self.note = self.note if note is None else note
        now, samples = time.monotonic(), self._samples
        if now - samples[-1][0] >= _BETWEEN or done >= self.total:
            samples.append((now, done))
        middle = (self.began + now) / 2
        while len(samples) > 2 and samples[1][0] <= middle:
            samples.popleft()


@contextmanager
def meter(what: str, total: float = 0, *, unit: str = "", marks: bool = False) -> Iterator[Meter]:
    """Show how far some work is, as long as it lasts.

    Args:
        what: Name of the work, in a few words: "decoding images".
        total: Amount of work, in any unit; it may be told later.
        unit: Name of this unit, if the amount done is worth telling, such as "images".
        marks: Whether `Meter.mark` says what is worth a line. Such work is long: it is shown from
            its beginning.
    """
    opened = Meter(what, total, unit=unit, marks=marks, nested=bool(_open))
    _open.append(opened)
    # Work that says nothing for a while is shown, too; inside other work that is shown already.
    alarm = threading.Timer(PATIENCE, _show, [opened])
    alarm.daemon = True
    if not opened.nested and first_process() and isinstance(_display(), _Bars | _Lines):
        alarm.start()
    try:
        yield opened
    finally:
        alarm.cancel()
        with _lock:
            _open.remove(opened)
            _display().closed(opened)


def tracked(items: Collection[Item], what: str, *, unit: str = "") -> Iterator[Item]:
    """The items, one after the other, with a meter of how many of them are done."""
    with meter(what, len(items), unit=unit) as opened:
        for item in items:
            yield item
            opened.advance()


@contextmanager
def sent_to(receiver: Callable[[Meter], None] | None) -> Iterator[None]:
    """Hand every change of a meter to a function instead of showing it; None drops them."""
    global _given
    before, _given = _given, _nothing if receiver is None else _Sent(receiver)
    try:
        yield
    finally:
        _given = before


def in_words() -> str:
    """What takes time at this moment and how far it is: "predicting, 40 %"; empty if nothing."""
    with _lock:
        opened = next(iter(_open), None)
    return "" if opened is None else ", ".join(filter(None, (opened.what, _amount(opened))))


def write_lines(say: Callable[[str], None]) -> None:
    """Say how far work is with this function where stderr is no terminal; nothing is said before.

    A program that imports adagc is so not disturbed by lines that it did not ask for.
    """
    global _lines
    _lines = _Lines(say)


@lru_cache(maxsize=1)
def terminal() -> Console:
    """The stderr of this process; bars and log lines must share it, or they overwrite another."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)


def is_shown() -> bool:
    """Whether stderr is a terminal on which a bar can move.

    Rich may be told to take a file for a terminal, so that it has colours (FORCE_COLOR).
    """
    console = terminal()
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


def duration(seconds: float | None) -> str:
    """A time with a unit that suits its length; empty for None.

    >>> duration(8.4), duration(75), duration(600), duration(9000)
    ('8.4 s', '75 s', '10 min', '2.5 h')
    """
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


# -- ways to show meters -------------------------------------------------------------------------


class _Display(Protocol):
    def changed(self, opened: Meter) -> None: ...
    def marked(self, opened: Meter, text: str, always: bool) -> None: ...
    def closed(self, opened: Meter) -> None: ...


class _Bars:
    """A bar for every meter that has lasted long enough; it disappears when the work is done."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[Meter, TaskID] = {}

    def changed(self, opened: Meter) -> None:
        if opened not in self._tasks:
            if not opened.lasting:
                return
            if self._progress is None:
                self._progress = _make_bars()
                self._progress.start()
            self._tasks[opened] = self._progress.add_task(opened.what, total=None, meter=opened)
        assert self._progress is not None
        self._progress.update(
            self._tasks[opened], completed=opened.done, total=opened.total or None
        )

    def marked(self, opened: Meter, text: str, always: bool) -> None:
        pass

    def closed(self, opened: Meter) -> None:
        if opened not in self._tasks or self._progress is None:
            return
        self._progress.remove_task(self._tasks.pop(opened))
        if not self._tasks:
            self._progress.stop()
            self._progress = None


class _Lines:
    """A line now and then."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last = float("-inf")  # when the last line was written

    def changed(self, opened: Meter) -> None:
        now = time.monotonic()
        silent = now - max(self._last, opened.began)
        first = opened.lines == 0 and not opened.nested and opened.lasting
        due = silent >= LONGEST if opened.marks else first or silent >= EVERY
        if due and (opened.done < opened.total or not opened.total):
            self._write(opened, opened.note)

    def marked(self, opened: Meter, text: str, always: bool) -> None:
        first, last = opened.lines == 0, opened.done >= opened.total
        if first or last or always or time.monotonic() - self._last >= EVERY:
            self._write(opened, text)

    def closed(self, opened: Meter) -> None:
        if opened.lines and not opened.marks:
            self._say(f"{opened.what}: done in {duration(time.monotonic() - opened.began)}")

    def _write(self, opened: Meter, text: str) -> None:
        opened.lines += 1
        self._last = time.monotonic()
        said = ", ".join(filter(None, (text or _amount(opened), opened.left)))
        self._say(f"{opened.what}: {said}" if said else f"{opened.what} ...")


class _Sent:
    """Hands changes to a function."""

    def __init__(self, receiver: Callable[[Meter], None]) -> None:
        self._receiver = receiver

    def changed(self, opened: Meter) -> None:
        if opened.lasting:
            self._receiver(opened)

    def marked(self, opened: Meter, text: str, always: bool) -> None:
        pass

    def closed(self, opened: Meter) -> None:
        pass


_open: list[Meter] = []  # from the outermost to the innermost
_lock = threading.RLock()
_bars, _nothing = _Bars(), _Sent(lambda opened: None)
_lines: _Display = _nothing
_given: _Display | None = None


def _display() -> _Display:
    """How the meters of this process are shown now."""
    if _given is not None:
        return _given
    ranks = sys.modules.get("adagc.ranks")  # importing it would import torch
    if ranks is not None and ranks.rank() != 0:
        return _nothing  # the first of several processes shows the work of all
    return _bars if is_shown() else _lines


def _show(opened: Meter) -> None:
    with _lock:  # a bar of a meter that was closed at this moment would stay for ever
        if opened in _open:
            _display().changed(opened)


def first_process() -> bool:
    """Whether this is the only process or the first of several, before torch knows of them."""
    return os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"


def _amount(opened: Meter) -> str:
    if opened.unit:
        return f"{opened.done:,.0f} of {opened.total:,.0f} {opened.unit}"
    return f"{100 * opened.share:.0f} %" if opened.total else ""


def _make_bars() -> Progress:
    """Bars whose note is cut where the terminal is too narrow, never the bar or the time left."""
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Told(ProgressColumn):
        """A text that is asked of the meter at every refresh."""

        def __init__(self, ask: Callable[[Meter], str], column: Column) -> None:
            self._ask = ask
            super().__init__(column)

        def render(self, task: Any) -> Text:
            return Text(self._ask(task.fields["meter"]))

    def fixed(width: int) -> Column:
        return Column(no_wrap=True, min_width=width)

    return Progress(
        TextColumn("{task.description}", style="bold", markup=False, table_column=fixed(1)),
        BarColumn(bar_width=16, table_column=fixed(16)),
        Told(lambda one: f"{100 * one.share:3.0f} %" if one.total else "", fixed(5)),
        Told(lambda one: one.left, fixed(9)),
        Told(
            lambda one: one.note or (_amount(one) if one.unit else ""),
            Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        console=terminal(),
        transient=True,
        expand=True,
        refresh_per_second=5,
    )
