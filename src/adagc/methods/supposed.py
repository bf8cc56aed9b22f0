"""What methods suppose about how labels came about, and which two of them show whether it holds."""

from __future__ import annotations

from collections.abc import Iterable

from adagc.errors import UsageError
from adagc.methods import outline


def opposed(titles: Iterable[str]) -> tuple[str, str] | None:
    """A method for dominant labels and one for random labels; None if these are not among them.

    Of several for random labels it is one that needs the same of the network as the other, so that
    nothing but the supposition differs.

    Args:
        titles: Titles of methods; those that are not known here, from a plug-in, are left out.
    """
    known = {}
    for title in titles:
        try:
            known[title] = outline(title)
        except UsageError:
            continue
    first = next((title for title, one in known.items() if one.supposes == "dominant"), None)
    others = [title for title, one in known.items() if one.supposes == "at random"]
    if first is None or not others:
        return None
    return first, min(others, key=lambda title: known[title].needs != known[first].needs)
