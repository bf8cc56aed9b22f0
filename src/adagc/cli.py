"""The entry point of the command line.

It picks the command to run, and turns every error that a user can correct into one line on stderr
and an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from adagc._version import __version__
from adagc.commands import bench, data, runs, studies
from adagc.errors import AdagcError, UsageError
from adagc.suggest import hint

COMMANDS: dict[str, Callable[[list[str]], None]] = {
    function.__name__: function
    for function in (
        *(runs.demo, data.inspect, data.simulate, runs.train, runs.evaluate, runs.report),
        *(bench.bench, studies.tune, bench.ablate, studies.figures, studies.theory),
        *(runs.methods, data.datasets, data.text),
    )
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process.

    Args:
        argv: The words after `adagc`; those of the process by default.

    Returns:
        0 if the command succeeded, 1 if it failed (one line on stderr says why), 2 if the command
        line itself was wrong.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments[0] in ("--version", "-V"):
        print(f"adagc {__version__}")
        return 0
    name, *rest = arguments
    try:
        if name not in COMMANDS:
            near = hint(name, COMMANDS) or "; adagc --help lists them"
            raise UsageError(f"there is no command {name!r}{near}")
        COMMANDS[name](rest)
    except AdagcError as error:
        if debug:
            raise
        print(f"adagc {name}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the program that reads our output has ended, as in `| head`
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        # Commands that continue an interrupted job, and the option they need for it.
        resumable = {"train": " with --resume", "bench": "", "ablate": "", "tune": ""}
        remedy = f"; the same command{resumable[name]} continues" if name in resumable else ""
        print(f"adagc {name}: interrupted{remedy}", file=sys.stderr)
        return 1
    except OSError as error:
        if debug:
            raise
        place = f"{error.filename}: " if error.filename else ""
        print(f"adagc {name}: {place}{error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _overview() -> str:
    """The text of `adagc --help`: one line per command, from its docstring."""
    width = max(map(len, COMMANDS))
    lines = [
        "adagc: from one label per remote-sensing image to a multi-label classifier",
        "",
        "usage: adagc COMMAND [options]      adagc COMMAND --help explains a command",
        "",
        *(f"  {name:<{width}}  {(run.__doc__ or '').strip()}" for name, run in COMMANDS.items()),
        "",
        "Every command takes --debug to show the traceback of an error.",
    ]
    return "\n".join(lines)
