"""What a user can do something about.

Every message is one line that names the thing and the remedy; the command line prints it as it is
and exits with the class's code. Anything else that escapes is a bug in adagc and keeps its
traceback.
"""

from __future__ import annotations

import math


class AdagcError(Exception):
    """Bad input or a failed job: one clear line, exit code 1."""

    exit_code = 1


class UsageError(AdagcError):
    """The command itself is wrong (unknown option, missing argument): exit code 2."""

    exit_code = 2


class LabelFileError(AdagcError):
    """A label file that cannot be used as it is; names file, line and remedy."""


class DataError(AdagcError):
    """Images that cannot be found, read or brought together."""


class TrainingError(AdagcError):
    """Training had to stop; what was trained so far is kept."""


class UnsuitedError(AdagcError):
    """A method needs what this data does not have; others may do without."""


class MissingExtraError(AdagcError):
    """An optional dependency is not installed; the message holds the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: run  pip install 'adagc[{extra}]'")


def check_range(
    option: str, value: float | None, low: float, high: float = math.inf, *, below: bool = False
) -> None:
    """Refuse an option outside low ... high (`below`: high itself too); None passes."""
    if value is None:
        return
    good = low <= value < high if below else low <= value <= high
    if good:  # NaN is not
        return
    if high == math.inf:
        wanted = f"at least {low:g}"
    else:
        wanted = f"at least {low:g} and {'below' if below else 'at most'} {high:g}"
    raise UsageError(f"--{option.replace('_', '-')} must be {wanted}, not {value}")
