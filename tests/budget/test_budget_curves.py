"""Learning curves compared at the same price: interpolation, intervals, crossings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adagc.budget.curves import Curve, Estimate, crossings, rows


def curve(images, *seeds) -> Curve:
    return Curve(np.array(images, float), np.array(seeds, float))


def test_curves_are_interpolated_in_the_logarithm_and_not_continued():
    one = curve([100, 400], [10, 30])
    values = one.at(np.array([100.0, 200.0, 400.0, 50.0, 1000.0]))[0]
    np.testing.assert_allclose(values[:3], [10, 20, 30])
    assert np.isnan(values[3:]).all()
    # A fifth of an image more or less is no other number of images.
    np.testing.assert_allclose(one.at(np.array([99.8]))[0], [10])


def test_reaching_is_the_inverse_of_the_mean_curve():
    one = curve([100, 200, 400], [10, 20, 30], [14, 24, 34])
    assert one.reaching(12) == pytest.approx(100)
    assert one.reaching(27) == pytest.approx(np.sqrt(200 * 400))
    assert one.reaching(11.9) is None
    assert one.reaching(32.1) is None


def test_reaching_takes_the_fewest_images_where_more_were_worse():
    assert curve([100, 200, 400], [10, 30, 20]).reaching(30) == pytest.approx(200)


def test_estimates_are_students():
    values = np.array([1.0, 2.0, 4.0])
    found = Estimate.of(values)
    half = 4.30265 * values.std(ddof=1) / np.sqrt(3)  # t of two degrees of freedom
    assert found.mean == pytest.approx(7 / 3)
    assert found.half == pytest.approx(half, rel=1e-4)
    assert not found.sure
    assert Estimate.of(np.array([3.0])) == Estimate(3.0, None)
    assert not Estimate.of(np.array([3.0])).sure  # one seed makes nothing certain


def test_rows_compare_what_the_same_price_buys():
    single = curve([400, 800], [50, 60], [52, 64])
    full = curve([100, 200, 800], [40, 61, 70], [42, 63, 74])
    first, second = rows(single, full, 4.0)
    assert (first.images, first.full_images) == (400, 100)
    assert first.gain.mean == pytest.approx(10)
    assert second.full.mean == pytest.approx(62)
    # Paired by seed: +10 and +10 has no spread, though each curve has.
    assert first.gain.half == pytest.approx(0)
    assert first.gain.sure
    assert second.gain == Estimate.of(np.array([-1.0, 1.0]))
    # 51 lies half-way up from 41 to 62 at 100 and 200 images.
    expected = 100 * 2 ** ((51 - 41) / 21)
    assert first.worth == pytest.approx(expected)
    assert first.to_dict()["break_even_cost"] == pytest.approx(400 / expected)


def test_prices_that_only_one_way_was_tried_at_are_left_out():
    single = curve([100, 400], [50, 60])
    full = curve([100, 400], [50, 60])
    assert [row.images for row in rows(single, full, 4.0)] == [400]


def test_a_planted_crossing_is_found_with_its_interval():
    prices = np.array([100.0, 200, 400, 800])
    single = curve(prices, 10 * np.log2(prices), 10 * np.log2(prices) + 1)
    # Flatter, and equal at a price of 300.
    flat = 10 * np.log2(300) + 5 * np.log2(prices / 300)
    full = curve(prices / 4, flat, flat + 1)
    (found,) = crossings(single, full, 4.0)
    assert found.images == pytest.approx(300, rel=0.01)
    assert found.single_above
    assert found.low <= found.images <= found.high
    assert found.high / found.low < 1.1  # the seeds agree
    wide = curve(prices / 4, flat - 4, flat + 5)
    (loose,) = crossings(single, wide, 4.0)
    assert loose.low < 110
    assert loose.high > 700


def test_the_other_way_round_and_no_crossing():
    prices = np.array([100.0, 800])
    rising, flat = curve(prices, [10, 40]), curve(prices / 2, [20, 30])
    (found,) = crossings(rising, flat, 2.0)
    assert found.single_above
    (other,) = crossings(curve(prices, [20, 30]), curve(prices / 2, [10, 40]), 2.0)
    assert not other.single_above
    assert other.images == pytest.approx(found.images)
    assert crossings(rising, curve(prices / 2, [0, 1]), 2.0) == []


@given(
    st.lists(st.floats(0, 100), min_size=2, max_size=5),
    st.floats(1, 8),
    st.integers(1, 3),
)
def test_equal_curves_at_equal_prices_never_differ(values, cost, seeds):
    images = 100.0 * 2 ** np.arange(len(values))
    single = curve(images, *[values] * seeds)
    full = curve(images / cost, *[values] * seeds)
    found = rows(single, full, cost)
    assert len(found) == len(values)
    assert all(abs(row.gain.mean) < 1e-9 for row in found)
