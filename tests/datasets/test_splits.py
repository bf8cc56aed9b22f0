from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adagc.datasets.splits import block_split, stratified_split
from adagc.errors import UsageError

SHARES = st.sampled_from(
    [
        {"train": 0.6, "val": 0.2, "test": 0.2},
        {"train": 0.75, "val": 0.25},
        {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4},
        {"all": 1.0, "none": 0.0},
        {"x": 1 / 3, "y": 1 / 3, "z": 1 / 3},
    ]
)


@given(st.lists(st.integers(0, 6), max_size=80), SHARES, st.integers(0, 5))
def test_parts_are_exact_and_every_group_is_spread(
    groups: list[int], shares: dict[str, float], seed: int
) -> None:
    parts = stratified_split(groups, shares, seed)
    together = np.concatenate([*parts.values()])
    assert sorted(together.tolist()) == list(range(len(groups)))  # disjoint and complete
    assert list(parts) == list(shares)
    for name, share in shares.items():
        assert abs(len(parts[name]) - len(groups) * share) < 1
        assert (np.diff(parts[name]) > 0).all()
    sizes = Counter(groups)
    for rows in parts.values():
        inside = Counter(groups[row] for row in rows)
        for group, size in sizes.items():
            quota = Fraction(size * len(rows), len(groups))
            assert int(quota) <= inside[group] <= int(quota) + 1


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.integers(0, 99))
def test_seed_decides(groups: list[str], seed: int) -> None:
    shares = {"train": 0.7, "val": 0.3}
    first, second = (stratified_split(groups, shares, seed) for _ in range(2))
    for name in shares:
        np.testing.assert_array_equal(first[name], second[name])


def test_seeds_differ_and_rows_are_mixed() -> None:
    groups = ["a"] * 100
    shares = {"train": 0.5, "val": 0.5}
    one, two = (stratified_split(groups, shares, seed)["val"] for seed in (0, 1))
    assert not np.array_equal(one, two)
    assert 20 < one.mean() < 80  # not the first or the last half
    assert one.dtype == np.int64


def test_published_sizes() -> None:
    groups = np.repeat(np.arange(30), 80)
    parts = stratified_split(groups, {"train": 0.75, "val": 0.25}, 3)
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 1800, "val": 600}
    assert (np.bincount(groups[parts["val"]]) == 20).all()


@pytest.mark.parametrize("shares", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}])
def test_refuses_bad_shares(shares: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="sum to 1"):
        stratified_split([1, 2], shares, 0)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), SHARES, st.integers(0, 5))
def test_blocks_stay_whole_and_parts_come_close_to_their_shares(
    blocks: list[int], shares: dict[str, float], seed: int
) -> None:
    parts = block_split(blocks, shares, seed)
    assert list(parts) == list(shares)
    together = np.concatenate([*parts.values()])
    assert sorted(together.tolist()) == list(range(len(blocks)))  # disjoint and complete
    inside = [{blocks[row] for row in rows} for rows in parts.values()]
    assert sum(map(len, inside)) == len(set(blocks))  # no block is in two parts
    largest = max(Counter(blocks).values())
    for name, share in shares.items():
        assert abs(len(parts[name]) - len(blocks) * share) <= largest + 1e-9
        assert (np.diff(parts[name]) > 0).all()
    again = block_split(blocks, shares, seed)
    assert all((again[name] == parts[name]).all() for name in shares)


def test_other_seeds_deal_other_blocks() -> None:
    blocks = np.repeat(np.arange(40), 5)
    shares = {"train": 0.6, "val": 0.2, "test": 0.2}
    tests = [tuple(block_split(blocks, shares, seed)["test"]) for seed in range(5)]
    assert len(set(tests)) == 5
    assert all(len(rows) == 40 for rows in tests)


def test_uneven_blocks_are_dealt_out_well() -> None:
    sizes = np.random.default_rng(0).integers(1, 60, 50)
    blocks = np.repeat(np.arange(50), sizes)
    shares = {"train": 0.6, "val": 0.2, "test": 0.2}
    parts = block_split(blocks, shares, 0)
    for name, share in shares.items():
        assert abs(len(parts[name]) / len(blocks) - share) < 0.01


def test_shares_of_blocks_are_checked() -> None:
    with pytest.raises(UsageError, match="sum to 1"):
        block_split(["a"], {"train": 0.5}, 0)
