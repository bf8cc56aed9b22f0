"""Suggestions for names that are not among the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Collection

# difflib compares with every option: up to 0.3 s for this many, a minute for a million image names
_MOST_COMPARED = 5_000


def closest(name: str, options: Collection[str]) -> str | None:
    """The option that `name` was probably meant to be: another case first, then a misspelling."""
    folded = name.casefold()
    for option in options:
        if option.casefold() == folded:
            return option
    if len(options) > _MOST_COMPARED:
        return None
    return next(iter(difflib.get_close_matches(name, options, n=1)), None)


def hint(name: str, options: Collection[str]) -> str:
    """The end of an error message: `; did you mean 'x'?`, or nothing."""
    option = closest(name, options)
    return "" if option is None else f"; did you mean {option!r}?"


def hint_class(name: str, classes: Collection[str]) -> str:
    """Like `hint`, but lists the classes where none is near: there are few of them."""
    few = ", ".join(list(classes)[:20]) + (", ..." if len(classes) > 20 else "")
    return hint(name, classes) or f"; the classes are: {few}"
