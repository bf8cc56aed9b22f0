"""The seven metrics of multi-label classification, exact and in one pass over sorted scores.

All values are exact: ties count as in scikit-learn, and no score is rounded before it is compared.
The work is done class by class on a transposed copy, because sorting and comparing are several
times faster along contiguous memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.errors import DataError, UsageError
from adagc.metrics.registry import METRICS
from adagc.types import PerClass, Scores

Absent = Literal["error", "skip", "zero"]

_BLOCK = 1 << 18  # entries compared at a time: small enough for the cache, large enough for numpy
_PAIRWISE_CLASSES = 48  # up to here comparing all pairs beats sorting (measured); must be below 256


def score(
    truth: ArrayLike,
    scores: ArrayLike,
    threshold: ArrayLike = 0.5,
    *,
    absent: Absent = "error",
) -> Scores:
    """Compute the seven metrics, and all further metrics that were registered.

    Mean precision, recall and F1 are means over all classes, in which an undefined value counts as
    0; `absent` applies to the mean average precision only. An image without a true label adds 0 to
    the ranking loss and -1 to the coverage.

    Args:
        truth: (N, C) clean labels, 0 and 1 or booleans.
        scores: (N, C) predictions, larger for more certain; usually probabilities, but any finite
            values are allowed. Half, single and double precision are compared without rounding.
        threshold: Score from which on a class is predicted, one number or one per class (C,). The
            comparison is exact: 0.7 stored in single precision lies below a threshold of 0.7.
        absent: What to do about a class without a positive, whose average precision is undefined:
            "error" raises DataError, "skip" leaves it out of the mean, "zero" counts it as 0. Its
            entry in `per_class` is NaN in any case.

    Raises:
        DataError: If the two tables differ in shape, if `truth` has values other than 0 and 1, if a
            score is not finite, or if a class has no positive and `absent` is "error".
        UsageError: If `absent` is unknown, or `threshold` is neither one number nor one per class.

    Example:
        >>> from adagc import score
        >>> result = score([[1, 0, 0], [0, 1, 1]], [[0.9, 0.2, 0.6], [0.1, 0.8, 0.4]])
        >>> result.mean_average_precision, result.coverage, result.ranking_loss
        (0.8333333333333334, 0.5, 0.0)
    """
    if absent not in get_args(Absent):
        raise UsageError(f"absent={absent!r} is unknown: use 'error', 'skip' or 'zero'")
    y, s = _check(truth, scores)
    limits = _check_threshold(threshold, classes=len(y))
    images = y.shape[1]

    support = np.count_nonzero(y, axis=1)
    if absent == "error" and not support.all():
        missing = np.flatnonzero(support == 0).tolist()
        named = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise DataError(
            f"no positive for class {named} ({len(missing)} of {len(y)}), so average precision is"
            ' undefined there: pass absent="skip" to leave such classes out of the mean'
        )
    if absent == "skip" and not support.any():
        raise DataError(
            f"no positive among {images} images and {len(y)} classes: there is nothing to score"
        )

    chosen = s >= limits[:, None]
    predicted = np.count_nonzero(chosen, axis=1)
    hits = np.count_nonzero(chosen & y, axis=1)
    wrong = predicted + support - 2 * hits

    ap = _average_precision(y, s)
    counted = len(y) if absent == "zero" else np.count_nonzero(support)
    coverage, ranking_loss = _row_metrics(y, s)
    table = PerClass(
        average_precision=ap,
        precision=hits / np.maximum(predicted, 1),
        recall=hits / np.maximum(support, 1),
        f1=2 * hits / np.maximum(predicted + support, 1),
        support=support.astype(np.int64),
        predicted=predicted.astype(np.int64),
    )
    return Scores(
        mean_average_precision=float(np.nansum(ap) / counted),
        coverage=coverage,
        ranking_loss=ranking_loss,
        overall_accuracy=1.0 - int(wrong.sum()) / y.size,
        mean_f1=float(table.f1.mean()),
        mean_precision=float(table.precision.mean()),
        mean_recall=float(table.recall.mean()),
        per_class=table,
        extra=_registered(y.T, s.T, chosen.T),
    )


def _registered(
    truth: NDArray[np.bool_], scores: NDArray[Any], predicted: NDArray[np.bool_]
) -> dict[str, float]:
    """The registered metrics, each computed by its own function; those not finite are left out."""
    values = {
        metric.key: float(metric.compute(truth, scores, predicted))
        for metric in METRICS.values()
        if metric.compute is not None
    }
    return {key: value for key, value in values.items() if np.isfinite(value)}


def average_precision(truth: ArrayLike, scores: ArrayLike) -> NDArray[np.float64]:
    """Average precision of every class, (C,), not interpolated; NaN for a class without a positive.

    Arguments and errors as for `score`; `np.nanmean` of the result is the mean over the classes
    that have a positive.

    Example:
        >>> average_precision([[1], [0], [1]], [[0.9], [0.5], [0.1]]).tolist()
        [0.8333333333333333]
    """
    return _average_precision(*_check(truth, scores))


def _average_precision(y: NDArray[np.bool_], s: NDArray[Any]) -> NDArray[np.float64]:
    """AP = mean over positives of the precision among all images that score at least as high."""
    result = np.full(len(y), np.nan)
    for c, (member, column) in enumerate(zip(y, s, strict=True)):
        positives = np.sort(column[member])
        if positives.size:
            # `searchsorted` finds the first of equal scores, so ties share the largest count
            hits = positives.size - np.searchsorted(positives, positives)
            shown = column.size - np.searchsorted(np.sort(column), positives)
            result[c] = (hits / shown).mean()
    return result


def _row_metrics(y: NDArray[np.bool_], s: NDArray[Any]) -> tuple[float, float]:
    """Coverage and ranking loss, both means over images."""
    classes, images = y.shape
    misordered = _misordered_pairwise if classes <= _PAIRWISE_CLASSES else _misordered_sorted
    infinity = s.dtype.type(np.inf)
    reached, loss = 0, 0.0
    for block in _blocks(images, _BLOCK // classes):
        member, score_ = y[:, block], s[:, block]
        # scores are finite, so the infinities take the other entries out of every comparison
        positive = np.where(member, score_, infinity)
        negative = np.where(member, -infinity, score_)
        reached += int(np.count_nonzero(score_ >= positive.min(axis=0)))
        relevant = np.count_nonzero(member, axis=0)
        pairs = relevant * (classes - relevant)
        loss += float((misordered(positive, negative) / np.maximum(pairs, 1)).sum())
    return reached / images - 1.0, loss / images


def _misordered_pairwise(positive: NDArray[Any], negative: NDArray[Any]) -> NDArray[np.int64]:
    """(B,) number of pairs per image in which the true label does not score above the other.

    Compares all pairs, so the time is quadratic in the number of classes.

    Args:
        positive: (C, B) scores of true labels, +inf elsewhere.
        negative: (C, B) scores of the other labels, -inf elsewhere.
    """
    images = positive.shape[1]
    below = np.empty(positive.shape, dtype=np.bool_)
    count = np.empty(images, dtype=np.uint8)  # a narrow sum is several times faster
    total = np.zeros(images, dtype=np.int64)
    for row in positive:
        np.less_equal(row, negative, out=below)
        total += np.add.reduce(below.view(np.uint8), axis=0, dtype=np.uint8, out=count)
    return total


def _misordered_sorted(positive: NDArray[Any], negative: NDArray[Any]) -> NDArray[np.int64]:
    """The same counts as `_misordered_pairwise`, faster for many classes: sort, then look up.

    All true labels are looked up together by bisection, because `np.searchsorted` handles only one
    row at a time.
    """
    classes, images = positive.shape
    ordered = np.sort(np.ascontiguousarray(negative.T), axis=1).ravel()
    row, column = np.nonzero(np.isfinite(positive.T))
    wanted = positive[column, row]
    before = row * classes - 1  # entry `before + k` is the k-th smallest of the row
    smaller = np.zeros(len(row), dtype=np.intp)
    step = 1 << (classes.bit_length() - 1)
    while step:
        probe = smaller + step
        inside = probe <= classes
        lower = ordered.take(before + probe, mode="clip") < wanted
        smaller += step * (inside & lower)
        step >>= 1
    # bincount adds floats, which are exact for whole numbers below 2**53
    return np.bincount(row, weights=classes - smaller, minlength=images).astype(np.int64)


def _blocks(length: int, size: int) -> Iterator[slice]:
    """Slices that cover `length` rows, each of `size` rows (at least 1)."""
    size = max(size, 1)
    return (slice(start, start + size) for start in range(0, length, size))


def _check(truth: ArrayLike, scores: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Check both tables and transpose them to contiguous (C, N): booleans, and floats."""
    y, s = _array(truth, "truth"), _array(scores, "scores")
    if y.ndim != 2 or y.shape != s.shape:
        raise DataError(
            f"truth is {y.shape} and scores are {s.shape}: both must be (images, classes)"
        )
    if y.size == 0:
        raise DataError(f"truth and scores are {y.shape}: at least one image and class are needed")

    if y.dtype != np.bool_:
        wrong = np.flatnonzero((y != 0) & (y != 1))
        if wrong.size:
            row, column = divmod(int(wrong[0]), y.shape[1])
            raise DataError(
                f"truth must be 0 or 1, but {wrong.size} of {y.size} entries are not, first"
                f" {y[row, column]} at image {row}, class {column}: pass truth == 1 to count only 1"
            )
    # half precision sorts slowly and converts to single without rounding; double stays double
    narrow = s.dtype.kind == "f" and s.dtype.itemsize <= 4
    s = np.ascontiguousarray(s.T, dtype=np.float32 if narrow else np.float64)
    if not np.isfinite(s).all():
        raise DataError(
            f"scores hold {np.isnan(s).sum()} NaN and {np.isinf(s).sum()} infinite values of"
            f" {s.size}: mend them first (a diverged network is the usual cause)"
        )
    return np.ascontiguousarray(y.T, dtype=np.bool_), s


def _array(values: ArrayLike, name: str) -> NDArray[Any]:
    """The values as an array of real numbers; DataError names the argument if that fails."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists; tensors on a GPU
        raise DataError(
            f"{name} cannot be read as an array: pass a numpy array or tensor.detach().cpu()"
            f" ({str(error).splitlines()[0]})"
        ) from error
    if array.dtype.kind not in "buif":
        raise DataError(f"{name} is of type {array.dtype}: pass an array of numbers")
    return array


def _check_threshold(threshold: ArrayLike, *, classes: int) -> NDArray[np.float64]:
    """(C,) one threshold per class, from one number or one per class."""
    limits = _array(threshold, "threshold").astype(np.float64)
    if limits.shape not in ((), (classes,)):
        raise UsageError(
            f"threshold is {limits.shape}: pass one number or one for each of the {classes} classes"
        )
    if np.isnan(limits).any():
        raise UsageError(f"threshold holds {np.isnan(limits).sum()} NaN: pass numbers")
    return np.broadcast_to(limits, classes)
