"""Shares and cells with data, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adagc.windows.blend import cells
from adagc.windows.grid import Grid
from adagc.windows.pixels import known_cells, known_pixels, own_cells, shares


@settings(deadline=None)
@given(
    st.integers(1, 20), st.integers(1, 20), st.integers(1, 6), st.integers(1, 6),
    st.integers(1, 3), st.integers(1, 5), st.integers(0, 99),
)  # fmt: skip
def test_shares_and_cells(height, width, window, stride, together, cell, seed):
    stride = min(stride, window)
    grid = Grid(height, width, (window, window), (stride, stride), (together, together))
    scene = np.random.default_rng(seed).random((height, width)) < 0.3
    found = np.zeros((cells(height, cell), cells(width, cell)), dtype=bool)
    for block in range(grid.blocks):
        top, left, tall, wide = grid.box(block)
        known = scene[top : top + tall, left : left + wide]
        for (y, x), share in zip(grid.places(block), shares(grid, block, known), strict=True):
            inside = scene[y : y + window, x : x + window]
            assert share == pytest.approx(inside.sum() / window**2)
        rows, columns = own_cells(grid, block, cell)
        found[rows.start : rows.stop, columns.start : columns.stop] |= known_cells(
            grid, block, cell, known
        )
    slow = np.zeros_like(found)
    for y, x in zip(*np.nonzero(scene), strict=True):
        slow[y // cell, x // cell] = True
    np.testing.assert_array_equal(found, slow)


def test_a_pixel_is_known_if_any_band_has_a_value():
    values = np.array([[[1, np.nan, np.nan]], [[2, 5, np.nan]]], dtype=np.float32)
    np.testing.assert_array_equal(known_pixels(values), [[True, True, False]])
    assert known_pixels(np.ones((2, 3, 3))) is None
    assert known_pixels(np.zeros((2, 3, 3), dtype=np.uint8)) is None


def test_without_missing_values_only_the_part_beyond_the_scene_is_unknown():
    grid = Grid(6, 8, (8, 8), (8, 8))
    assert shares(grid, 0, None).tolist() == [6 / 8]
    assert known_cells(grid, 0, 4, None).all()
