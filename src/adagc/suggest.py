"""Suggestions for names that are not among the known ones: what every such error ends with."""

from __future__ import annotations

import difflib
from collections.abc import Collection

# difflib compares with every option: up to 0.3 s for this many, a minute for a million image names
_MOST_COMPARED = 5_000
_MOST_LISTED = 20


def nearest(name: str, options: Collection[str], count: int) -> list[str]:
    """The options that `name` was probably meant to be: another case first, then misspellings."""
    folded = name.casefold()
    same = [option for option in options if option.casefold() == folded]
    if same or len(options) > _MOST_COMPARED:
        return same[:count]
    return difflib.get_close_matches(name, options, n=count)


def closest(name: str, options: Collection[str]) -> str | None:
    """The one option that `name` was probably meant to be, if any is near."""
    return next(iter(nearest(name, options, 1)), None)


def hint(name: str, options: Collection[str], count: int = 1) -> str:
    """The end of an error message: `; did you mean 'x'?`, or nothing."""
    near = " or ".join(map(repr, nearest(name, options, count)))
    return near and f"; did you mean {near}?"


def hint_or_list(name: str, options: Collection[str], what: str) -> str:
    """Like `hint`, but says what there is where nothing is near: `; the classes are: a, b`."""
    more = ", ..." if len(options) > _MOST_LISTED else ""
    listed = f"; the {what} are: {', '.join(list(options)[:_MOST_LISTED])}{more}"
    return hint(name, options) or listed
