"""Windows cover the scene, end with it, and are in exactly one block."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adagc.windows.grid import Grid, share, starts
from reference.slow_blend import slow_starts

sides = st.integers(1, 60)


@given(sides, st.integers(1, 20), st.integers(1, 25))
def test_starts_are_those_of_the_definition(length, window, stride):
    assert starts(length, window, stride).tolist() == slow_starts(length, window, stride)


@given(sides, sides, st.integers(1, 20), st.integers(1, 20), st.data())
def test_windows_cover_every_pixel_and_stay_in_the_scene(height, width, window, stride, data):
    stride = min(stride, window)
    down, across = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    grid = Grid(height, width, (window, window), (stride, stride), (down, across))
    seen = np.zeros((height, width), dtype=int)
    places = np.concatenate([grid.places(block) for block in range(grid.blocks)])
    for top, left in places:
        assert top + window <= height or (top == 0 and window > height)
        assert left + window <= width or (left == 0 and window > width)
        seen[top : top + window, left : left + window] += 1
    assert seen.min() >= 1
    assert len(places) == grid.windows == len({tuple(place) for place in places.tolist()})


@given(sides, sides, st.integers(1, 12), st.integers(1, 12), st.integers(1, 4))
def test_a_block_reads_what_its_windows_need(height, width, window, stride, together):
    grid = Grid(height, width, (window, window), (stride, stride), (together, together))
    for block in range(grid.blocks):
        top, left, tall, wide = grid.box(block)
        places = grid.places(block)
        assert (top, left) == tuple(places.min(axis=0))
        assert (top + tall, left + wide) == tuple(
            np.minimum(places.max(axis=0) + window, (height, width))
        )
        assert len(places) == grid.count(block)


def test_blocks_hold_no_more_values_than_allowed():
    for across in (False, True):
        grid = share(20_000, 20_000, (120, 120), (60, 60), bands=14, across=across)
        for block in (0, grid.blocks // 2, grid.blocks - 1):
            _, _, height, width = grid.box(block)
            assert 14 * height * width <= (4 if across else 1) * (1 << 25)
        assert (grid.shape[1] == 1) == across
    # A window is read whole, however large it is.
    large = share(9000, 9000, (4000, 4000), (4000, 4000), bands=14, across=True)
    assert large.together == (1, 1)
