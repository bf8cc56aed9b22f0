"""The entry point of the command line.

It picks the command to run, and turns every error that a user can correct into one line on stderr
and an exit code.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from adagc._version import __version__
from adagc.atomic import no_space
from adagc.commands import (
    ablate,
    annotate,
    bench,
    budget,
    data,
    demo,
    embed,
    export,
    patches,
    predict,
    runs,
    studies,
)
from adagc.commands import complete as completing
from adagc.commands import review as reviewing
from adagc.errors import AdagcError, NoSpaceError, UsageError, shortage
from adagc.plain import use_plain_output
from adagc.suggest import hint

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

COMMANDS: dict[str, Callable[[list[str]], None]] = {
    function.__name__: function
    for function in (
        *(demo.demo, data.inspect, data.simulate, runs.train, runs.evaluate, runs.report),
        *(runs.priors, completing.complete, predict.predict, export.export),
        *(bench.bench, bench.tables, studies.tune, ablate.ablate, studies.figures, studies.theory),
        *(budget.budget, embed.embed, annotate.annotate, reviewing.review, patches.prepare),
        *(runs.methods, data.datasets, data.text),
    )
}


# Commands that continue what was interrupted, and the option that they need for it.
_CONTINUE = {"train": " with --resume"} | dict.fromkeys(
    ("bench", "ablate", "tune", "budget", "complete", "predict", "embed", "prepare"), ""
)
_HELP = ("-h", "--help", "help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process.

    Args:
        argv: The words after `adagc`; those of the process by default.

    Returns:
        0 if the command succeeded, 1 if it failed (one line on stderr says why), 2 if the command
        line itself was wrong, 130 if it was interrupted (Ctrl-C), 143 if it was ended (SIGTERM).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"]
    name = arguments[0] if arguments else "help"
    use_plain_output()
    logging.raiseExceptions = debug  # else a log line that cannot be written shows a traceback
    try:
        with _ended_by_sigterm(), _no_signal_lost():
            try:
                _run(arguments)
            finally:
                sys.stdout.flush()  # here, because an error at the end of Python has no handler
    except BrokenPipeError:  # the program that reads our output has ended, as in `| head`
        _discard_output()
        return 1
    except (KeyboardInterrupt, _SigtermError) as signalled:
        ended = isinstance(signalled, _SigtermError)
        # Python notes that Ctrl-C came while a text was executed (as some imports do), and would
        # end by that signal although we have caught it: executing another text takes the note back.
        exec("")
        text = f"{'ended by SIGTERM' if ended else 'interrupted'}{_continued(name)}"
        code = 143 if ended else 130
    except Exception as error:
        text, code = _explained(error, name)
        if debug or not text:
            raise
    else:
        return 0
    print(f"adagc {name}: {text}", file=sys.stderr)
    return code


def _run(arguments: Sequence[str]) -> None:
    """Run the command that the words name, or show the help or the version."""
    if not arguments or (arguments[0] in _HELP and len(arguments) == 1):
        print(_overview())
        return
    if arguments[0] in ("--version", "-V"):
        print(f"adagc {__version__}")
        return
    name, *rest = arguments
    if name in _HELP:  # adagc help train
        name, rest = rest[0], ["--help"]
        if name in _HELP:
            print(_overview())
            return
    if name not in COMMANDS:
        near = hint(name, COMMANDS) or "; adagc --help lists them"
        raise UsageError(f"there is no command {name!r}{near}")
    COMMANDS[name](rest)


def _explained(error: Exception, name: str) -> tuple[str, int]:
    """One line about an error, and the exit code; no line if the error is a bug in adagc."""
    if isinstance(error, OSError):
        full = no_space(error, Path(os.fsdecode(error.filename or "")))
        if full is not None and error.filename is None:
            _discard_output()
            return f"the output cannot be written ({error.strerror}): write it to another disk", 1
        error = full or error
    if isinstance(error, NoSpaceError):
        return f"{error}{_continued(name)}", error.exit_code
    if isinstance(error, AdagcError):
        return str(error), error.exit_code
    if (lack := shortage(error)) is not None:
        return f"{lack}{_continued(name)}", 1
    if isinstance(error, UnicodeEncodeError):  # a file is to be written, in UTF-8
        near = error.object[: error.end].splitlines()[-1][-40:]
        again = ", or try again with PYTHONUTF8=1" * (sys.getfilesystemencoding() != "utf-8")
        return f"the name {near!a} is not valid UTF-8: rename it{again}", 1
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}", 1
    return "", 1


def _continued(name: str) -> str:
    """The end of a message about a command that was interrupted: how to go on, if that works."""
    return f"; the same command{_CONTINUE[name]} continues" if name in _CONTINUE else ""


class _SigtermError(BaseException):
    """The process was asked to end; not an Exception, so that nothing takes it for a failure."""


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Raise an error on SIGTERM, so that temporary files are deleted and other processes end.

    One of several ranks is left to die at once: Python could not act while it waits for others.
    """
    alone = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_STEP_NUM_TASKS", "1"))) == 1
    if not alone or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise _SigtermError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def _no_signal_lost() -> Iterator[None]:
    """Send a signal again that came where Python drops errors, as while it deletes an object."""
    before = sys.unraisablehook

    def hook(dropped: UnraisableHookArgs) -> None:
        numbers = {KeyboardInterrupt: signal.SIGINT, _SigtermError: signal.SIGTERM}
        number = numbers.get(dropped.exc_type)
        if number is None:
            before(dropped)
            return
        # A little later, when the object is gone: here it would be dropped again.
        again = threading.Timer(0.05, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _discard_output() -> None:
    """Let what is left of the output go nowhere: Python would try to write it at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# The commands by what they are for, as the overview lists them.
_PURPOSES = {
    "to see what it does, and what there is": ("demo", "methods", "datasets"),
    "your data": ("annotate", "inspect", "prepare", "simulate", "embed", "text"),
    "one method on your data": ("train", "evaluate", "report", "priors", "complete", "review"),
    "a trained model on other data, or in other programs": ("predict", "export"),
    "which method, and with which options": ("bench", "tables", "tune", "budget"),
    "the paper": ("ablate", "figures", "theory"),
}


def _overview() -> str:
    """The text of `adagc --help`: one line per command, from its docstring."""
    width = max(map(len, COMMANDS))
    lines = ["adagc: from one label per remote-sensing image to a multi-label classifier"]
    lines += ["usage: adagc COMMAND [options]      adagc COMMAND --help explains a command"]
    for purpose, names in _PURPOSES.items():
        lines += ["", f"{purpose}:"]
        for name in names:
            lines.append(f"  {name:<{width}}  {(COMMANDS[name].__doc__ or '').strip()}")
    lines += ["", "Every command takes --debug to show the traceback of an error."]
    return "\n".join(lines)
