"""Vertical lines in charts with a word each, set so that no word lies on another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adagc.report.html import esc

_CHARACTER = 7.2  # mean width of a character of these words, on a phone
_GAP = 5.0  # between a line and its word, and between two words
_ROW = 13.0  # height of a row of words


@dataclass(frozen=True)
class Moment:
    """A vertical line with a word at its top."""

    at: float  # epoch
    text: str
    strong: bool = False  # drawn solid instead of dotted


@dataclass(frozen=True)
class Place:
    """Where a word stands: its row from the top, and what it occupies there."""

    row: int
    left: float
    right: float
    after: bool  # to the right of its line

    def overlaps(self, other: Place) -> bool:
        """Whether two words lie on one another."""
        return self.row == other.row and self.left < other.right and other.left < self.right


def places(
    moments: Sequence[Moment], at: Sequence[float], left: float, right: float
) -> list[Place]:
    """A place for each word between two borders, where it covers no other word and few lines.

    Solid lines come first, as they have the word of most interest: it stands above all others.

    Args:
        moments: The lines.
        at: Where each stands, in the coordinates of the chart.
        left: Where words may begin.
        right: Where words must have ended.
    """
    found: dict[int, Place] = {}
    for one in sorted(range(len(moments)), key=lambda i: (not moments[i].strong, at[i])):
        width = _CHARACTER * len(moments[one].text)
        tried = []
        for row in range(len(moments) + 1):
            for after in (True, False):
                start = at[one] + _GAP if after else at[one] - _GAP - width
                place = Place(row, start, start + width, after)
                if any(place.overlaps(other) for other in found.values()):
                    continue
                outside = max(0.0, left - place.left, place.right - right)
                crossed = sum(place.left - 1 < x < place.right + 1 for x in at)
                # Words of dotted lines leave the first row free, which is above the chart.
                odd = row if moments[one].strong else abs(row - 1)
                tried.append((outside, crossed, odd, not after, place))
        found[one] = min(tried, key=lambda option: option[:4])[-1]
    return [found[i] for i in range(len(moments))]


def draw(
    moments: Sequence[Moment],
    at: Sequence[float],
    *,
    borders: tuple[float, float],
    top: float,
    bottom: float,
) -> str:
    """The lines and their words as SVG.

    Args:
        moments: The lines.
        at: Where each stands.
        borders: Where words begin and end at the most.
        top: Where the first row of words stands.
        bottom: Where lines end.
    """
    lines, words = [], []  # words come last, so that no line is drawn through them
    for moment, x, place in zip(moments, at, places(moments, at, *borders), strict=True):
        base = top + _ROW * place.row
        lines.append(
            f'<path class="moment{" strong" if moment.strong else ""}"'
            f' d="M{x} {base - 8:.1f}V{bottom}"/>'
        )
        words.append(
            f'<text class="moment" x="{x + _GAP if place.after else x - _GAP:.1f}" y="{base:.1f}"'
            f' text-anchor="{"start" if place.after else "end"}">{esc(moment.text)}</text>'
        )
    return "".join(lines + words)
