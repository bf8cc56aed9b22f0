"""How fast people answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

PAUSE: Final = 120.0  # seconds without an answer that count as a pause, not as work
_FEWEST: Final = 3  # answers before a rate is told


def per_hour(moments: Iterable[tuple[float, int]]) -> float | None:
    """Answers per hour of work, without pauses; None if there are too few.

    Args:
        moments: Times in seconds, in their order, and how many answers were given at each.

    >>> per_hour([(0.0, 1), (10.0, 2), (20.0, 0), (500.0, 1), (510.0, 1)])
    360.0
    """
    seconds, count = 0.0, 0
    for (before, _), (now, given) in itertools.pairwise(moments):
        if now - before < PAUSE:
            seconds += now - before
            count += given
    return 3600 * count / seconds if count >= _FEWEST and seconds > 0 else None
