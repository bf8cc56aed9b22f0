from __future__ import annotations

import io
import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adagc.labels import cooccurrence, flip_rates, simulate_random
from reference import slow_labels

pairs = hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=7).flatmap(
    lambda shape: st.tuples(
        hnp.arrays(np.bool_, shape), hnp.arrays(np.int8, shape, elements=st.integers(-1, 1))
    )
)


@given(pair=pairs)
def test_flip_rates_equal_counting(pair):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = flip_rates(*pair)
    slow = slow_labels.flip_rates(*pair)
    np.testing.assert_allclose(rates.beta, slow["beta"])
    for name in ("micro", "macro", "mean_cardinality"):
        np.testing.assert_allclose(getattr(rates, name), slow[name])
    assert rates.support.tolist() == slow["support"]
    assert rates.cardinality.tolist() == slow["cardinality"]
    assert (rates.observed, rates.wrong) == (slow["observed"], slow["wrong"])
    assert json.loads(json.dumps(rates.to_dict(), allow_nan=False))["wrong"] == slow["wrong"]


def test_by_hand():
    truth = [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    observed = [[1, 0, 0, 0], [1, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    rates = flip_rates(truth, observed)
    np.testing.assert_allclose(rates.beta, [1 / 3, 1 / 2, 1, math.nan])
    assert rates.micro == pytest.approx(3 / 6)
    assert rates.macro == pytest.approx((1 / 3 + 1 / 2 + 1) / 3)
    assert rates.mean_cardinality == 1.5
    assert rates.cardinality.tolist() == [1, 1, 1, 1, 0]
    assert rates.wrong == 1
    assert rates.wrong_share == 1 / 4
    assert rates.to_dict()["beta"][3] is None


def test_one_label_of_k_flips_all_but_one():
    truth = np.zeros((6000, 8), dtype=bool)
    truth[:, :5] = True
    rates = flip_rates(truth, simulate_random(truth, seed=1))
    assert rates.micro == pytest.approx(1 - 1 / 5)
    np.testing.assert_allclose(rates.beta[:5], 0.8, atol=0.03)
    assert rates.wrong == 0


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shape"):
        flip_rates(np.zeros((2, 3)), np.zeros((3, 3)))


def test_table_has_the_form_of_the_paper():
    from rich.console import Console

    rates = flip_rates([[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [1, 0, 1]])
    console = Console(file=io.StringIO(), width=100)
    console.print(rates.table(["[red]", "water", "sand"], scheme="Manual"))
    lines = console.file.getvalue().splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert "Manual β_c" in lines[1]
    assert cells == [
        ["[red]", "0.00", "2"],
        ["water", "1.00", "1"],
        ["sand", "–", "0"],
        ["Micro average", "0.33", "–"],
        ["Macro average", "0.50", "–"],
        ["Wrong positives", "0.33", "1"],
        ["True labels per image", "", "1.5"],
    ]
    with pytest.raises(ValueError, match="2 names for 3 classes"):
        rates.table(["a", "b"])


@given(truth=hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7)))
def test_cooccurrence_equals_counting(truth):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shares = cooccurrence(truth)
    np.testing.assert_allclose(shares, slow_labels.cooccurrence(truth))
