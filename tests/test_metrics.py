from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from sklearn.metrics import (
    average_precision_score,
    coverage_error,
    label_ranking_loss,
    precision_recall_fscore_support,
)

from adagc.errors import DataError, UsageError
from adagc.metrics import average_precision, exact, score
from adagc.types import Scores
from reference import slow_metrics

CLOSE = 1e-9
pytestmark = pytest.mark.filterwarnings("ignore:No positive class found in y_true")
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --------------------------------------------------------------------------- the two judges


def by_hand(truth: NDArray[Any], scores: NDArray[Any], limits: NDArray[Any]) -> dict[str, float]:
    y, s, t = truth.astype(int).tolist(), scores.astype(np.float64).tolist(), limits.tolist()
    ap = [value for value in slow_metrics.average_precision(y, s) if value == value]
    table = np.array(slow_metrics.precision_recall_f1(y, s, t))
    return {
        "mean_average_precision": sum(ap) / len(ap),
        "coverage": slow_metrics.coverage(y, s),
        "ranking_loss": slow_metrics.ranking_loss(y, s),
        "overall_accuracy": slow_metrics.overall_accuracy(y, s, t),
        "mean_precision": table[:, 0].mean(),
        "mean_recall": table[:, 1].mean(),
        "mean_f1": table[:, 2].mean(),
    }


def by_sklearn(truth: NDArray[Any], scores: NDArray[Any], limits: NDArray[Any]) -> dict[str, float]:
    # double throughout: scikit-learn must see the same values, not compare them more coarsely
    y, s = truth.astype(int), scores.astype(np.float64)
    chosen = (s >= limits).astype(int)
    if y.shape[1] == 1:
        # scikit-learn takes a single column for something else: append a label that is never there
        # and never near, which leaves all but the means over classes as they are
        y, s = np.hstack([y, np.zeros_like(y)]), np.hstack([s, s - 1e3])
        chosen = np.hstack([chosen, np.zeros_like(chosen)])
    real = slice(truth.shape[1])
    ap = average_precision_score(y, s, average=None)[real][truth.any(axis=0)]
    precision, recall, f1, _ = precision_recall_fscore_support(y, chosen, zero_division=0)
    return {
        "mean_average_precision": np.mean(ap),
        "coverage": coverage_error(y, s) - 1,
        "ranking_loss": label_ranking_loss(y, s),
        "overall_accuracy": np.mean((chosen == y)[:, real]),
        "mean_precision": precision[real].mean(),
        "mean_recall": recall[real].mean(),
        "mean_f1": f1[real].mean(),
    }


def assert_right(
    truth: NDArray[Any], scores: NDArray[Any], threshold: Any = 0.5, *, slow: bool = True
) -> Scores:
    result = score(truth, scores, threshold, absent="skip")
    limits = np.broadcast_to(np.asarray(threshold, dtype=np.float64), truth.shape[1])
    for judge in (by_sklearn, by_hand) if slow else (by_sklearn,):
        expected = judge(truth, scores, limits)
        assert result.summary() == pytest.approx(expected, abs=CLOSE, rel=0), judge.__name__
    return result


# --------------------------------------------------------------------------- random tables


@st.composite
def tables(draw: st.DrawFn) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    shape = draw(st.tuples(st.integers(1, 14), st.integers(1, 7)))
    truth = draw(hnp.arrays(np.bool_, shape))
    truth[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = True
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    width = np.dtype(dtype).itemsize * 8
    elements = draw(
        st.sampled_from(
            [
                st.floats(0, 1, width=width),
                st.sampled_from([0.25, 0.5, 0.75]),  # hardly anything but ties
                st.sampled_from([-0.0, 0.0, 1.0]),  # equal numbers of different bits
                st.just(0.5),
                st.floats(-100, 100, width=width),  # logits
            ]
        )
    )
    return truth, draw(hnp.arrays(dtype, shape, elements=elements))


@relaxed
@given(tables(), st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]))
def test_equals_sklearn_and_the_slow_twin(
    table: tuple[NDArray[np.bool_], NDArray[Any]], threshold: float
) -> None:
    assert_right(*table, threshold)


@relaxed
@given(tables(), st.data())
def test_one_threshold_per_class(
    table: tuple[NDArray[np.bool_], NDArray[Any]], data: st.DataObject
) -> None:
    truth, scores = table
    assert_right(
        truth, scores, data.draw(hnp.arrays(float, truth.shape[1], elements=st.floats(0, 1)))
    )


@relaxed
@given(tables())
def test_per_class_table(table: tuple[NDArray[np.bool_], NDArray[Any]]) -> None:
    truth, scores = table
    found = score(truth, scores, absent="skip").per_class
    y, s = truth.astype(int).tolist(), scores.astype(np.float64).tolist()
    expected = np.array(slow_metrics.precision_recall_f1(y, s, [0.5] * truth.shape[1]))
    np.testing.assert_allclose(
        np.stack([found.precision, found.recall, found.f1], axis=1), expected, atol=CLOSE
    )
    ap = slow_metrics.average_precision(y, s)
    np.testing.assert_allclose(found.average_precision, ap, atol=CLOSE)
    np.testing.assert_array_equal(found.average_precision, average_precision(truth, scores))
    np.testing.assert_array_equal(found.support, truth.sum(axis=0))
    np.testing.assert_array_equal(found.predicted, (scores >= 0.5).sum(axis=0))
    assert found.support.dtype == found.predicted.dtype == np.int64


@relaxed
@given(tables(), st.randoms(use_true_random=False))
def test_order_of_images_and_classes_is_irrelevant(
    table: tuple[NDArray[np.bool_], NDArray[Any]], random: Any
) -> None:
    truth, scores = table
    rows, columns = (random.sample(range(n), n) for n in truth.shape)
    before = score(truth, scores, absent="skip").summary()
    after = score(truth[rows][:, columns], scores[rows][:, columns], absent="skip").summary()
    assert after == pytest.approx(before, abs=1e-12)


@relaxed
@given(tables())
def test_ranking_metrics_see_the_order_alone(
    table: tuple[NDArray[np.bool_], NDArray[Any]],
) -> None:
    truth, scores = table
    _, rank = np.unique(scores, return_inverse=True)
    one = score(truth, scores, absent="skip")
    two = score(truth, rank.reshape(scores.shape), absent="skip")
    assert (one.mean_average_precision, one.coverage, one.ranking_loss) == (
        two.mean_average_precision,
        two.coverage,
        two.ranking_loss,
    )


# --------------------------------------------------------------------------- both ways to count


@relaxed
@given(tables())
def test_both_counts_of_misordered_pairs(table: tuple[NDArray[np.bool_], NDArray[Any]]) -> None:
    truth, scores = table[0], table[1].astype(np.float64)
    positive = np.where(truth, scores, np.inf).T
    negative = np.where(truth, -np.inf, scores).T
    expected = [slow_metrics.misordered(*row) for row in zip(truth, scores, strict=True)]
    assert exact._misordered_pairwise(positive, negative).tolist() == expected
    assert exact._misordered_sorted(positive, negative).tolist() == expected


@pytest.mark.parametrize("classes", [1, 2, 47, 48, 49, 63, 64, 65, 127, 128, 255, 256, 300])
@pytest.mark.parametrize("levels", [3, 1 << 20])
def test_any_number_of_classes(classes: int, levels: int) -> None:
    rng = np.random.default_rng(classes)
    truth = rng.random((23, classes)) < rng.random((23, 1))  # from hardly any label to nearly all
    truth[0], truth[1] = True, False
    scores = (rng.integers(0, levels, truth.shape) / levels).astype(np.float32)
    assert_right(truth, scores, slow=classes < 200)


@pytest.mark.parametrize("classes", [48, 255, 256, 1000])
def test_counters_do_not_overflow_when_every_pair_is_wrong(classes: int) -> None:
    truth = np.arange(classes) < classes // 2
    scores = np.where(truth, 0.0, 1.0)
    result = score(truth[None], scores[None], absent="skip")
    assert result.ranking_loss == 1.0
    assert result.coverage == classes - 1
    lone = np.arange(classes) == 0  # one positive below all others: the longest single count
    assert score(lone[None], scores[None], absent="skip").ranking_loss == pytest.approx(
        by_sklearn(lone[None], scores[None], np.full(classes, 0.5))["ranking_loss"]
    )


@pytest.mark.parametrize("classes", [5, 60])
def test_result_does_not_depend_on_the_block(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    truth, scores = rng.random((101, classes)) < 0.3, rng.random((101, classes)).round(1)
    whole = assert_right(truth, scores)
    for block in (1, 7 * classes, 100 * classes):
        monkeypatch.setattr(exact, "_BLOCK", block)
        assert score(truth, scores).summary() == pytest.approx(whole.summary(), abs=1e-12)


def test_pairwise_count_fits_its_byte() -> None:
    assert exact._PAIRWISE_CLASSES < 256


# --------------------------------------------------------------------------- known answers


def test_worked_example() -> None:
    truth = [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]
    scores = [
        [0.9, 0.4, 0.6, 0.5],
        [0.3, 0.3, 0.2, 0.1],
        [0.7, 0.1, 0.1, 0.1],
        [0.1, 0.2, 0.3, 0.8],
    ]
    result = score(truth, scores)
    # class 0: positives at .9 and .1, the last; 1: .3, .2 under .4; 2: .3 under .6; 3: .8, .5
    np.testing.assert_allclose(
        result.per_class.average_precision, [(1 + 2 / 4) / 2, (1 / 2 + 2 / 3) / 2, 1 / 2, 1]
    )
    assert result.coverage == pytest.approx((3 + 2 + 0 + 4) / 4 - 1)
    assert result.ranking_loss == pytest.approx((1 / 4 + 1 / 3 + 0 + 0) / 4)
    assert result.overall_accuracy == pytest.approx(10 / 16)
    np.testing.assert_allclose(result.per_class.precision, [1 / 2, 0, 0, 1])
    np.testing.assert_allclose(result.per_class.recall, [1 / 2, 0, 0, 1])
    assert result.mean_f1 == pytest.approx((1 / 2 + 0 + 0 + 1) / 4)
    assert result.never_predicted == 1


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_perfect_and_constant_scores(fill: float) -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((50, 6)) < 0.4
    perfect = score(truth, truth.astype(np.float32))
    assert perfect.mean_average_precision == perfect.overall_accuracy == perfect.mean_f1 == 1.0
    assert perfect.ranking_loss == 0.0
    constant = assert_right(truth, np.full(truth.shape, fill))
    np.testing.assert_allclose(constant.per_class.average_precision, truth.mean(axis=0))
    assert constant.coverage == pytest.approx(6 * truth.any(axis=1).mean() - 1)
    assert constant.never_predicted == (6 if fill == 0.0 else 0)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (9, 1), (4, 3)])
def test_all_positive(shape: tuple[int, int]) -> None:
    scores = np.random.default_rng(0).random(shape)
    result = assert_right(np.ones(shape, dtype=int), scores)
    assert result.mean_average_precision == 1.0
    assert result.ranking_loss == 0.0
    assert result.coverage == shape[1] - 1


def test_double_is_not_rounded_to_single() -> None:
    step = 2.0**-40  # lost in single precision
    truth, scores = [[1, 0], [0, 1]], [[0.5 + step, 0.5], [0.5, 0.5 + step]]
    fine = score(truth, scores)
    assert (fine.mean_average_precision, fine.ranking_loss) == (1.0, 0.0)
    coarse = score(truth, np.asarray(scores, dtype=np.float32))
    assert (coarse.mean_average_precision, coarse.ranking_loss) == (0.5, 1.0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_threshold_is_compared_exactly(dtype: Any) -> None:
    scores = np.array([[0.7]], dtype=dtype)
    reached = bool(float(scores[0, 0]) >= 0.7)
    assert score([[1]], scores, 0.7).per_class.predicted.tolist() == [int(reached)]
    assert score([[1]], scores, [0.7]).per_class.predicted.tolist() == [int(reached)]
    assert score([[1]], scores, scores[0]).per_class.predicted.tolist() == [1]


# --------------------------------------------------------------------------- absent classes

ABSENT_TRUTH = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]])
ABSENT_SCORES = np.array([[0.9, 0.4, 0.6], [0.95, 0.8, 0.2], [0.7, 0.3, 0.1]])


def test_absent_is_an_error_that_names_classes_and_remedy() -> None:
    with pytest.raises(DataError, match=r'no positive for class 2 \(1 of 3\).*absent="skip"'):
        score(ABSENT_TRUTH, ABSENT_SCORES)
    truth = np.zeros((2, 9))
    truth[0, 3] = 1
    with pytest.raises(DataError, match=r"class 0, 1, 2, 4, 5, \.\.\. \(8 of 9\)"):
        score(truth, np.ones((2, 9)))


def test_absent_skip_and_zero_differ_in_the_mean_alone() -> None:
    skip = score(ABSENT_TRUTH, ABSENT_SCORES, absent="skip")
    zero = score(ABSENT_TRUTH, ABSENT_SCORES, absent="zero")
    ap = skip.per_class.average_precision
    assert np.isnan(ap).tolist() == [False, False, True]
    np.testing.assert_array_equal(ap, zero.per_class.average_precision)
    assert skip.mean_average_precision == pytest.approx((ap[0] + ap[1]) / 2)
    assert zero.mean_average_precision == pytest.approx((ap[0] + ap[1]) / 3)
    rest = {**skip.summary(), "mean_average_precision": zero.mean_average_precision}
    assert rest == zero.summary()


def test_absent_everywhere() -> None:
    truth, scores = np.zeros((3, 4)), np.full((3, 4), 0.2)
    with pytest.raises(DataError, match="nothing to score"):
        score(truth, scores, absent="skip")
    zero = score(truth, scores, absent="zero")
    assert zero.mean_average_precision == zero.ranking_loss == 0.0
    assert zero.coverage == coverage_error(truth, scores) - 1 == -1.0
    assert zero.overall_accuracy == 1.0
    assert np.isnan(average_precision(truth, scores)).all()


def test_result_survives_json() -> None:
    result = score(ABSENT_TRUTH, ABSENT_SCORES, absent="skip")
    assert all(type(value) is float for value in result.summary().values())
    assert Scores.from_dict(result.to_dict()).to_dict() == result.to_dict()


# --------------------------------------------------------------------------- what may be passed


@pytest.mark.parametrize("truth_type", [np.bool_, np.int8, np.uint8, np.int64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_layouts_of_truth(truth_type: Any, order: Any) -> None:
    rng = np.random.default_rng(0)
    truth, scores = rng.random((40, 5)) < 0.5, rng.random((40, 5))
    expected = score(truth, scores)
    found = score(np.asarray(truth, dtype=truth_type, order=order), np.asarray(scores, order=order))
    assert found.summary() == expected.summary()
    strided = score(np.repeat(truth, 2, axis=0)[::2], np.repeat(scores, 3, axis=1)[:, ::3])
    assert strided.summary() == expected.summary()


def test_foreign_byte_order_and_inputs_left_alone() -> None:
    rng = np.random.default_rng(0)
    truth, scores = rng.random((40, 5)) < 0.5, rng.random((40, 5)).astype(np.float32)
    kept = truth.copy(), scores.copy()
    assert score(truth, scores.astype(">f4")).summary() == score(truth, scores).summary()
    # one image or one class makes the transpose contiguous already: still nothing may be changed
    score(truth[:1], scores[:1], absent="skip")
    score(truth[:, :1], scores[:, :1])
    np.testing.assert_array_equal(truth, kept[0])
    np.testing.assert_array_equal(scores, kept[1])


def test_torch_tensors() -> None:
    import torch

    rng = np.random.default_rng(0)
    truth, scores = rng.random((40, 5)) < 0.5, rng.random((40, 5)).astype(np.float16)
    found = score(torch.from_numpy(truth), torch.from_numpy(scores), torch.full((5,), 0.5))
    assert found.summary() == score(truth, scores).summary()
    with pytest.raises(DataError, match=r"scores cannot be read.*detach"):
        score(truth, torch.rand(40, 5, requires_grad=True))


@pytest.mark.parametrize(
    ("truth", "scores", "message"),
    [
        ([1, 0], [0.5, 0.5], r"\(2,\).*must be \(images, classes\)"),
        ([[1, 0]], [[0.5]], r"truth is \(1, 2\) and scores are \(1, 1\)"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "at least one image"),
        (np.zeros((3, 0)), np.zeros((3, 0)), "at least one image"),
        (
            [[1, 0], [-1, 2]],
            [[0.5, 0.5]] * 2,
            "2 of 4 entries are not, first -1 at image 1, class 0",
        ),
        ([[1, np.nan]], [[0.5, 0.5]], "1 of 2 entries are not, first nan at image 0, class 1"),
        ([[1, 0, 1]], [[np.nan, 0.5, np.nan]], "2 NaN and 0 infinite values of 3"),
        ([[1, 0, 1]], [[np.inf, 0.5, -np.inf]], "0 NaN and 2 infinite values of 3"),
        ([[1, 0], [1]], [[0.5, 0.5]] * 2, "truth cannot be read as an array"),
        ([["yes", "no"]], [[0.5, 0.5]], "truth is of type"),
        ([[1, 0]], [[0.5 + 1j, 0.5]], "scores is of type complex"),
    ],
)
def test_wrong_tables(truth: Any, scores: Any, message: str) -> None:
    for function in (score, average_precision):
        with pytest.raises(DataError, match=message) as caught:
            function(truth, scores)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"absent": "ignore"}, "absent='ignore' is unknown: use 'error', 'skip' or 'zero'"),
        ({"threshold": [0.5, 0.5, 0.5]}, "one for each of the 2 classes"),
        ({"threshold": [[0.5, 0.5]]}, "one for each of the 2 classes"),
        ({"threshold": float("nan")}, "threshold holds 1 NaN"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        score([[1, 1]], [[0.5, 0.5]], **options)
    assert "\n" not in str(caught.value)


# --------------------------------------------------------------------------- cost


@pytest.mark.parametrize("shape", [(20_000, 19), (400, 2_000)])
def test_memory_stays_near_the_size_of_the_input(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    truth, scores = rng.random(shape) < 0.2, rng.random(shape, dtype=np.float32)
    tracemalloc.start()
    try:
        score(truth, scores, absent="skip")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # a transposed copy, some masks and one block of work; all pairs of classes would be 100 times
    assert peak < 3 * scores.nbytes + 40 * exact._BLOCK
