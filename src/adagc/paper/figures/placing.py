"""Labels next to points, none on top of another: the same points give the same places."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bounds = tuple[float, float, float, float]  # left, bottom, right, top

_DISTANCES = (3.0, 7.0, 12.0, 18.0, 26.0, 36.0, 48.0, 62.0, 80.0)
_DIRECTIONS = 16
_ROUNDS = 12
_PAD = 1.5  # between labels
# What is worse than what. A step away from the point costs its length, a large one more.
_OUTSIDE, _OVER_LABEL, _OVER_POINT, _CROSSED, _ASTRAY, _OVER_LINE = 1e6, 1e4, 2e3, 60.0, 25.0, 2.0
_FAR = 20.0


def place(points: Array, sizes: Array, bounds: Bounds, lines: Array | None = None) -> Array:
    """(N, 2) centres of labels of these sizes for (N, 2) points, all in the same unit.

    Every label in turn takes the cheapest place around its point, given the others, until none
    wants to move. Where that ends depends on whose turn is first: several orders are tried.

    Args:
        points: Where the points lie.
        sizes: (N, 2) width and height of the labels.
        bounds: The room there is.
        lines: (M, 2) places along lines that had better be seen.
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
        """Centres, when every label is content."""
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
        """What all labels together cost."""
        everyone = np.ones(len(centres), bool)
        cost = 0.0
        for i in range(len(centres)):
            others = everyone.copy()
            others[i] = False
            cost += float(self.costs(centres[i : i + 1], i, centres, others)[0])
        return cost

    def costs(self, tried: Array, i: int, centres: Array, others: NDArray[np.bool_]) -> Array:
        """(K,) what it costs to put label i at each of (K, 2) centres."""
        left, bottom, right, top = self.bounds
        point, half = self.points[i], self.sizes[i] / 2
        low, high = tried - half, tried + half
        outside = (low < [left, bottom]).any(axis=1) | (high > [right, top]).any(axis=1)
        covered = _inside(tried, centres[others], half + self.sizes[others] / 2 + _PAD)
        hidden = _inside(tried, self.points, half + 2 * _PAD)
        dimmed = _inside(tried, self.lines, half)
        ends = np.clip(point, low, high)  # where a line from the point would end
        crossed = self._crossed(ends, i, centres, others)
        away = np.linalg.norm(ends - point, axis=1)
        rest = np.delete(self.points, i, axis=0)
        near = np.clip(rest, low[:, None], high[:, None])
        # A name that is closer to another point than to its own would be read as that one's.
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
        """How much of the others lies under lines from point i to these ends."""
        point, half = self.points[i], self.sizes[others] / 2
        rest = np.delete(self.points, i, axis=0)
        found = np.zeros(len(ends))
        for share in (0.2, 0.4, 0.6, 0.8, 1.0):
            along = point + share * (ends - point)
            found += _inside(along, centres[others], half) + _inside(along, rest, 2 * _PAD)
        starts = self.points[others]
        theirs = np.clip(starts, centres[others] - half, centres[others] + half)
        found += _meet(point, ends, starts, theirs).sum(axis=1)
        return found


def _around(point: Array, size: Array) -> Array:
    """Centres around a point, nearest first, to its right first."""
    # Right, up, down, ...: the places a reader expects come before the others.
    turns = [(step + 1) // 2 * (-1) ** step for step in range(_DIRECTIONS)]
    angles = 2 * math.pi / _DIRECTIONS * np.array(turns)
    ways = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # The box touches the circle with its nearest side, not with its centre.
    corners = np.clip(ways * math.sqrt(2), -1, 1) * size / 2
    found: Array = point + np.array(_DISTANCES)[:, None, None] * ways + corners
    return found.reshape(-1, 2)


def _inside(tried: Array, of: Array, reach: Array | float) -> Array:
    """(K,) how many of these places are within reach of each tried one, in both directions."""
    found: Array = (np.abs(tried[:, None] - of) < reach).all(axis=2).sum(axis=1).astype(float)
    return found


def _meet(start: Array, ends: Array, starts: Array, theirs: Array) -> NDArray[np.bool_]:
    """(K, J) whether the line from start to an end crosses the one from starts to theirs."""

    def side(a: Array, b: Array, c: Array) -> Array:
        """On which side of the line from a to b a place c lies."""
        along, aside = b - a, c - a
        turn: Array = np.sign(along[..., 0] * aside[..., 1] - along[..., 1] * aside[..., 0])
        return turn

    end = ends[:, None]
    apart: NDArray[np.bool_] = side(start, end, starts) * side(start, end, theirs) < 0
    both: NDArray[np.bool_] = apart & (side(starts, theirs, start) * side(starts, theirs, end) < 0)
    return both
