"""Blending against its definition; weights add up to one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adagc.windows.blend import blended, cells, spans, tent
from adagc.windows.grid import Grid
from reference.slow_blend import slow_blend

grids = st.builds(
    Grid,
    st.integers(1, 17),
    st.integers(1, 17),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)


def whole(grid: Grid, cell: int, vectors: np.ndarray) -> np.ndarray:
    return np.stack(list(blended(grid, cell, vectors.shape[2], lambda i: vectors[i])))


def drawn(grid: Grid, seed: int, classes: int = 2, missing: float = 0.2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    vectors = rng.random((len(grid.tops), len(grid.lefts), classes), dtype=np.float32)
    vectors[rng.random(vectors.shape[:2]) < missing] = np.nan
    return vectors


@settings(deadline=None)
@given(grids, st.integers(1, 6), st.integers(0, 99))
def test_a_map_is_that_of_the_definition(grid, cell, seed):
    vectors = drawn(grid, seed)
    slow = slow_blend(grid.height, grid.width, grid.window, grid.stride, vectors, cell)
    np.testing.assert_allclose(whole(grid, cell, vectors), slow, rtol=1e-6)


@settings(deadline=None)
@given(grids, st.integers(1, 6), st.floats(0, 1, width=32))
def test_a_constant_field_stays_constant(grid, cell, value):
    vectors = np.full((len(grid.tops), len(grid.lefts), 1), value, dtype=np.float32)
    found = whole(grid, cell, vectors)
    assert found.shape == (cells(grid.height, cell), cells(grid.width, cell), 1)
    covered = ~np.isnan(found)
    assert (found[covered] == np.float32(value)).all()
    if grid.stride[0] <= grid.window[0] and grid.stride[1] <= grid.window[1]:
        assert covered.all()


def test_without_overlap_a_cell_is_its_window():
    grid = Grid(12, 16, (4, 4), (4, 4))
    vectors = drawn(grid, 3)
    np.testing.assert_array_equal(whole(grid, 4, vectors), vectors)


def test_weights_are_largest_in_the_middle_and_nowhere_zero():
    assert tent(5).tolist() == [1, 3, 5, 3, 1]
    assert tent(4).tolist() == [1, 3, 3, 1]
    first, weights = spans(np.array([0, 3]), 4, 6, 2)
    assert first.tolist() == [0, 1]
    # The second window covers pixels 3 to 6 of 6: its last one is beyond the scene.
    assert weights[0].tolist() == [4, 4]
    assert weights[1].tolist() == [1, 6]


def test_every_row_of_windows_is_asked_for_once_and_in_order():
    grid, asked = Grid(40, 8, (8, 8), (4, 4)), []

    def row(number: int) -> np.ndarray:
        asked.append(number)
        return np.zeros((len(grid.lefts), 1), dtype=np.float32)

    assert len(list(blended(grid, 3, 1, row))) == 14
    assert asked == list(range(len(grid.tops)))


@pytest.mark.parametrize("cell", [1, 3])
def test_where_no_window_has_data_there_is_none(cell):
    grid = Grid(9, 9, (3, 3), (3, 3))
    vectors = drawn(grid, 0, missing=0)
    vectors[1, 1] = np.nan
    empty = np.isnan(whole(grid, cell, vectors)[..., 0])
    assert empty.sum() == (3 // cell) ** 2
    assert empty[3 // cell : 6 // cell, 3 // cell : 6 // cell].all()
