"""The errors that a user can correct.

Every message is one line that names what is wrong and how to correct it. The command line prints
this line and exits with the exit code of the class. Any other exception is a bug in adagc and is
shown with its traceback.
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Iterable


class AdagcError(Exception):
    """The base of all errors that a user can correct: bad input or a failed job, exit code 1.

    Example:
        >>> from adagc import AdagcError, Run
        >>> try:
        ...     Run.open("nowhere")
        ... except AdagcError as error:
        ...     print(error)
        nowhere does not exist: give the folder of a run
    """

    exit_code = 1


class UsageError(AdagcError):
    """The command itself is wrong (unknown option, missing argument): exit code 2."""

    exit_code = 2


class LabelFileError(AdagcError):
    """A label file that cannot be used; the message names the file, the line and the remedy."""


class DataError(AdagcError):
    """Images or other data that cannot be found, read or combined into one data set."""


class TrainingError(AdagcError):
    """Training had to stop; the checkpoints that were written so far are kept."""


class NoSpaceError(AdagcError):
    """A file does not fit on the disk; the message says how much space it needs."""


class BusyError(AdagcError):
    """Another process is working on the same thing; the message says which."""


class UnsuitedError(AdagcError):
    """A method needs something that this data does not have; other methods may still work."""


class MissingExtraError(AdagcError):
    """An optional dependency is not installed; the message gives the command that installs it.

    Args:
        what: The missing library or feature, as the message should call it.
        extra: The extra of adagc that installs it, such as `text`.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: run  pip install 'adagc[{extra}]'")


def shortage(error: BaseException) -> str | None:
    """One line about a resource that the machine has too little of; None for any other error."""
    text = str(error)
    torch_memory = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in text
    if isinstance(error, MemoryError) or torch_memory or _has_code(error, errno.ENOMEM):
        # numpy says "Unable to allocate 1.2 GiB for", torch "tried to allocate 123 bytes".
        amount = re.search(r"allocate (\d[\d.]* \w+)", text)
        needed = f" ({amount[1]} more are needed)" if amount else ""
        return f"not enough memory{needed}: close other programs, or work on less at a time"
    if _has_code(error, errno.EMFILE, errno.ENFILE):
        return "too many files are open: raise the limit (ulimit -n)"
    if _has_code(error, errno.EAGAIN) or "can't start new thread" in text:
        return "the system starts no more processes or threads: end others, or raise ulimit -u"
    if isinstance(error, RecursionError):
        return "a file is nested too deeply to be read: simplify it"
    return None


def _has_code(error: BaseException, *codes: int) -> bool:
    return isinstance(error, OSError) and error.errno in codes


def flag(option: str) -> str:
    """An option as help and messages write it: --split-seed for split_seed."""
    return f"--{option.replace('_', '-')}"


NAMED = 20  # so many bands are named where a reader wants all; feature maps have a thousand


def examples(names: Iterable[str], count: int = 3) -> str:
    """The first few names for a message, with dots if there are more: "a, b, c, ..."."""
    listed = list(names)
    return ", ".join(listed[:count]) + (", ..." if len(listed) > count else "")


def check_range(
    option: str, value: float | None, low: float, high: float = math.inf, *, below: bool = False
) -> None:
    """Raise UsageError if the value of an option is outside its range.

    Args:
        option: Name of the option as a Python identifier; the message writes it as --name.
        value: The value to check; None means "not given" and is always accepted.
        low: The lowest allowed value.
        high: The highest allowed value.
        below: The value must be below `high`, not equal to it.
    """
    if value is None:
        return
    good = low <= value < high if below else low <= value <= high
    if good:  # comparisons with NaN are false, so NaN is refused
        return
    if high == math.inf:
        wanted = f"at least {low:g}"
    else:
        wanted = f"at least {low:g} and {'below' if below else 'at most'} {high:g}"
    raise UsageError(f"{flag(option)} must be {wanted}, not {value}")
