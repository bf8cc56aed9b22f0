from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adagc.compare.distributions import f_survival, t_quantile
from reference import slow_ranking


@given(chance=st.floats(1e-6, 0.9), degrees=st.one_of(st.integers(1, 1000), st.floats(0.5, 1000.0)))
def test_quantiles_of_t(chance, degrees):
    assert t_quantile(chance, degrees) == pytest.approx(stats.t.isf(chance / 2, degrees), rel=1e-8)


def test_tails_agree_with_scipy():
    for f, over, under in [(0.3, 1, 4), (3.69, 3, 39), (51.5, 20, 60), (1.0, 22, 330)]:
        assert f_survival(f, over, under) == pytest.approx(stats.f.sf(f, over, under), rel=1e-10)


@settings(max_examples=25, deadline=None)
@given(f=st.floats(0.01, 30), over=st.integers(1, 22), under=st.integers(1, 80))
def test_f_tail_equals_small_steps(f, over, under):
    slow = slow_ranking.f_survival(f, over, under, steps=4000)
    assert f_survival(f, over, under) == pytest.approx(slow, rel=1e-5, abs=1e-9)


def test_f_tail_at_its_ends():
    assert f_survival(0.0, 3, 9) == 1.0
    assert f_survival(math.inf, 3, 9) == 0.0
