"""Suggestions of similar names, with which error messages about unknown names end."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from adagc.errors import UsageError, flag

# difflib compares with every option: 0.3 s for this many, but a minute for a million image names
_MOST_COMPARED = 5_000
_MOST_LISTED = 20


def nearest(name: str, options: Collection[str], count: int) -> list[str]:
    """Up to `count` options that `name` is probably a misspelling of.

    If some differ in case only, just these are returned.
    """
    folded = name.casefold()
    same = [option for option in options if option.casefold() == folded]
    if same or len(options) > _MOST_COMPARED:
        return same[:count]
    return difflib.get_close_matches(name, options, n=count)


def closest(name: str, options: Collection[str]) -> str | None:
    """The option that `name` is most likely a misspelling of; None if no option is similar."""
    return next(iter(nearest(name, options, 1)), None)


def hint(name: str, options: Collection[str], count: int = 1) -> str:
    """The end of an error message: `; did you mean 'x'?`, empty if no option is similar."""
    near = " or ".join(map(repr, nearest(name, options, count)))
    return near and f"; did you mean {near}?"


def hint_or_list(name: str, options: Collection[str], what: str) -> str:
    """Like `hint`, but lists the options if none is similar: `; the classes are: a, b`."""
    more = ", ..." if len(options) > _MOST_LISTED else ""
    listed = f"; the {what} are: {', '.join(list(options)[:_MOST_LISTED])}{more}"
    return hint(name, options) or listed


def holds_none(root: Path, what: str) -> UsageError:
    """What is wrong with a root that should be such a file, or a folder with one."""
    require_path("root", root)
    return UsageError(f"{root} holds no {what}: correct root, which must be one or its folder")


def require_path(option: str, path: Path | str | None) -> None:
    """Raise UsageError if an option names a file or folder that does not exist.

    Args:
        option: Name of the option as a Python identifier, or of an argument in capital letters.
        path: Its value; None means "not given" and is always accepted.
    """
    if path is None or Path(path).exists():
        return
    siblings: list[str] = []
    with suppress(OSError):
        siblings = sorted(sibling.name for sibling in Path(path).parent.iterdir())
    near = hint(Path(path).name, siblings) or "; correct the path"
    named = option if option.isupper() else flag(option)
    raise UsageError(f"{named} {path}: there is no such file or folder{near}")
