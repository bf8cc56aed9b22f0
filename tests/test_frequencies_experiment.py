"""The experiment on estimated frequencies: its estimators and what it says of its records."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
import frequencies

# Two kinds of images, of which it is certain what they show: classes 0 and 1, or class 2 alone.
CERTAIN = np.array([[0.5, 0.5, 1e-9]] * 60 + [[1e-9, 1e-9, 1.0]] * 40)
OBSERVED = np.zeros((100, 3), int)
OBSERVED[np.arange(60), np.arange(60) % 2] = 1
OBSERVED[60:, 2] = 1


@pytest.mark.parametrize("name", ["inverse Simpson", "q / max q", "Elkan-Noto", "CRISP"])
def test_estimators_are_right_where_everything_is_certain(name):
    found = frequencies.ESTIMATORS[name](CERTAIN, OBSERVED)
    assert found.tolist() == pytest.approx([0.6, 0.6, 0.4], abs=0.02)


def test_the_mean_probability_is_what_it_says():
    found = frequencies.ESTIMATORS["mean probability"](CERTAIN, OBSERVED)
    assert found.tolist() == pytest.approx([0.3, 0.3, 0.4])


def line(data: str, estimate: list[float], interval: tuple[float, float]) -> dict:
    return {
        "data": data,
        "method": "AN",
        "seed": 0,
        "truth": [0.5, 0.5, 1.0],
        "interval": list(interval),
        "estimates": dict.fromkeys(frequencies.ESTIMATORS, estimate),
    }


RECORDS = [line("aid", [0.5, 0.6, 1.0], (1.9, 2.3)), line("aid", [0.4, 0.5, 0.8], (1.5, 1.8))]


def test_errors_are_shares_of_the_truth():
    assert [frequencies.labels_off(one, "CRISP") for one in RECORDS] == pytest.approx([0.05, -0.15])
    assert [frequencies.classes_off(one, "CRISP") for one in RECORDS] == pytest.approx([0.0, 0.2])
    assert frequencies.mean_error(RECORDS) == pytest.approx(0.1)
    assert frequencies.worst_error(RECORDS) == pytest.approx(0.15)
    assert frequencies.within(RECORDS, 0.1) == 1
    assert frequencies.classes_within(RECORDS, 0.1) == 1
    assert frequencies.covered(RECORDS, 0) == 1
    assert frequencies.covered(RECORDS, 0.1) == 2  # 1.8 becomes 2.0 and more


def test_the_table_has_the_mean_of_both_errors():
    text = frequencies.table(RECORDS)
    assert text.splitlines()[2].startswith("| AID | AN | 2.00 | -5 (10) |")
