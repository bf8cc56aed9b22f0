"""Places labels next to points without overlaps; the same points always give the same places."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bounds = tuple[float, float, float, float]  # left, bottom, right, top

_DISTANCES = (3.0, 7.0, 12.0, 18.0, 26.0, 36.0, 48.0, 62.0, 80.0)  # that are tried, from a point
_DIRECTIONS = 16  # that are tried around a point
_ROUNDS = 12  # at most
_PAD = 1.5  # smallest space between labels
# Costs of a label that is outside of the bounds, over another label, over a point, whose line
# crosses something, that is nearer to another point, or that is over a line. In addition a label
# costs its distance to the point, and more than that for distances of the order of _FAR.
_OUTSIDE, _OVER_LABEL, _OVER_POINT, _CROSSED, _ASTRAY, _OVER_LINE = 1e6, 1e4, 2e3, 60.0, 25.0, 2.0
_FAR = 20.0


def place(points: Array, sizes: Array, bounds: Bounds, lines: Array | None = None) -> Array:
    """(N, 2) centres of the labels of N points. All lengths have the same unit.

    One label after the other moves to the place around its point with the lowest cost, given the
    places of the others, until no label moves any more. The result depends on the order of the
    labels, so several orders are tried and the best result is returned.

    Args:
        points: (N, 2) positions of the points.
        sizes: (N, 2) widths and heights of the labels.
        bounds: The area in which labels must lie.
        lines: (M, 2) positions along lines that labels should not cover.
    """
    if not len(points):
        return points.copy()
    task = _Task(points, sizes, bounds, np.zeros((0, 2)) if lines is None else lines)
    x, y = points.T
    crowd = np.linalg.norm(points[:, None] - points, axis=2).sum(axis=1)
    orders = [np.argsort(key, kind="stable") for key in (crowd, -crowd, x, y)]
    tried = [task.settle(order) for order in orders]
    return min(tried, key=task.total)


@dataclass(frozen=True)
class _Task:
    points: Array
    sizes: Array
    bounds: Bounds
    lines: Array

    def settle(self, order: NDArray[np.intp]) -> Array:
        """Centres of the labels when none moves any more, if they move in this order."""
        centres = self.points.copy()
        placed = np.zeros(len(centres), bool)
        for _ in range(_ROUNDS):
            before = centres.copy()
            for i in order:
                tried = _around(self.points[i], self.sizes[i])
                others = placed.copy()
                others[i] = False
                centres[i] = tried[int(np.argmin(self.costs(tried, i, centres, others)))]
                placed[i] = True
            if np.array_equal(before, centres):
                break
        return centres

    def total(self, centres: Array) -> float:
        """The cost of all labels together."""
        everyone = np.ones(len(centres), bool)
        cost = 0.0
        for i in range(len(centres)):
            others = everyone.copy()
            others[i] = False
            cost += float(self.costs(centres[i : i + 1], i, centres, others)[0])
        return cost

    def costs(self, tried: Array, i: int, centres: Array, others: NDArray[np.bool_]) -> Array:
        """(K,) the costs of putting label i at each of the (K, 2) centres in `tried`.

        Only those labels count for which `others` is true; they are at `centres`.
        """
        left, bottom, right, top = self.bounds
        point, half = self.points[i], self.sizes[i] / 2
        low, high = tried - half, tried + half
        outside = (low < [left, bottom]).any(axis=1) | (high > [right, top]).any(axis=1)
        covered = _inside(tried, centres[others], half + self.sizes[others] / 2 + _PAD)
        hidden = _inside(tried, self.points, half + 2 * _PAD)
        dimmed = _inside(tried, self.lines, half)
        ends = np.clip(point, low, high)  # where a line from the point meets the label
        crossed = self._crossed(ends, i, centres, others)
        away = np.linalg.norm(ends - point, axis=1)
        rest = np.delete(self.points, i, axis=0)
        near = np.clip(rest, low[:, None], high[:, None])
        # A label that is closer to another point than to its own would be read as the other's.
        astray = (np.linalg.norm(near - rest, axis=2) < away[:, None] + _PAD).sum(axis=1)
        total: Array = (
            _OUTSIDE * outside
            + _OVER_LABEL * covered
            + _OVER_POINT * hidden
            + _OVER_LINE * dimmed
            + _CROSSED * crossed
            + _ASTRAY * astray
            + away * (1 + away / _FAR)
        )
        return total

    def _crossed(self, ends: Array, i: int, centres: Array, others: NDArray[np.bool_]) -> Array:
        """(K,) how much lines from point i to these ends cross of other labels, points and lines.

        The lines are compared with labels and points at five positions each.
        """
        point, half = self.points[i], self.sizes[others] / 2
        rest = np.delete(self.points, i, axis=0)
        crossings = np.zeros(len(ends))
        for share in (0.2, 0.4, 0.6, 0.8, 1.0):
            along = point + share * (ends - point)
            crossings += _inside(along, centres[others], half) + _inside(along, rest, 2 * _PAD)
        starts = self.points[others]
        other_ends = np.clip(starts, centres[others] - half, centres[others] + half)
        crossings += _meet(point, ends, starts, other_ends).sum(axis=1)
        return crossings


def _around(point: Array, size: Array) -> Array:
    """(K, 2) possible centres of a label around a point: nearest first, to the right first."""
    # First to the right, then alternately above and below it: of places with equal costs the first
    # is taken, and this is where readers expect a label.
    turns = [(step + 1) // 2 * (-1) ** step for step in range(_DIRECTIONS)]
    angles = 2 * math.pi / _DIRECTIONS * np.array(turns)
    ways = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # The distance is that of the label's nearest side or corner, not that of its centre.
    corners = np.clip(ways * math.sqrt(2), -1, 1) * size / 2
    centres: Array = point + np.array(_DISTANCES)[:, None, None] * ways + corners
    return centres.reshape(-1, 2)


def _inside(tried: Array, of: Array, reach: Array | float) -> Array:
    """(K,) how many positions in `of` are less than `reach` from each tried one in x and y."""
    counts: Array = (np.abs(tried[:, None] - of) < reach).all(axis=2).sum(axis=1).astype(float)
    return counts


def _meet(start: Array, ends: Array, starts: Array, other_ends: Array) -> NDArray[np.bool_]:
    """(K, J) whether the line from start to an end crosses that from starts[j] to other_ends[j]."""

    def side(a: Array, b: Array, c: Array) -> Array:
        """1, 0 or -1: the side of the line from a to b on which c lies."""
        along, aside = b - a, c - a
        turn: Array = np.sign(along[..., 0] * aside[..., 1] - along[..., 1] * aside[..., 0])
        return turn

    end = ends[:, None]
    apart: NDArray[np.bool_] = side(start, end, starts) * side(start, end, other_ends) < 0
    both: NDArray[np.bool_] = apart & (
        side(starts, other_ends, start) * side(starts, other_ends, end) < 0
    )
    return both
