"""Time the seven metrics against scikit-learn in one run: python benchmarks/metrics.py --help."""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    average_precision_score,
    coverage_error,
    label_ranking_loss,
    precision_recall_fscore_support,
)

from adagc.metrics import average_precision, score

T = TypeVar("T")
REQUIRED = 10.0  # times faster than scikit-learn
TOLERANCE = 1e-9


def main() -> int:
    options = arguments()
    truth, scores = table(options.images, options.classes, options.labels, options.dtype)

    # scikit-learn gets half precision widened: it would be needlessly slow, and overflow
    wide = scores.astype(np.float32) if options.dtype == "float16" else scores
    oracle_seconds, expected = best(lambda: sklearn_scores(truth, wide), options.oracle_repeats)
    own_seconds, result = best(lambda: score(truth, scores, absent="skip"), options.repeats)
    ap_seconds, _ = best(lambda: average_precision(truth, scores), options.repeats)
    memory = peak_memory(lambda: score(truth, scores, absent="skip"))

    own = result.summary()
    # numpy's maximum, because it lets a NaN through
    difference = float(np.max([abs(own[name] - expected[name]) for name in own]))
    ratio = oracle_seconds / own_seconds
    tries = f"best of {options.oracle_repeats}"
    print(f"table                {options.images} x {options.classes} {options.dtype}")
    print(f"scikit-learn         {oracle_seconds * 1e3:10.1f} ms ({tries})")
    print(f"adagc                {own_seconds * 1e3:10.1f} ms (best of {options.repeats})")
    print(f"  average precision  {ap_seconds * 1e3:10.1f} ms")
    print(f"ratio                {ratio:10.1f}")
    print(f"largest difference   {difference:10.1e}")
    print(f"peak extra memory    {memory / 2**20:10.1f} MiB")

    if not difference <= TOLERANCE:
        print(f"FAILED: differs by more than {TOLERANCE:.0e}", file=sys.stderr)
        return 1
    if ratio < REQUIRED:
        print(f"FAILED: less than {REQUIRED:.0f} times faster", file=sys.stderr)
        return 1
    return 0


def table(
    images: int, classes: int, labels: float, dtype: str
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Labels as in a land-cover archive, frequent to rare, and scores of a middling classifier."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(2, classes + 2)
    truth = rng.random((images, classes)) < np.minimum(share * labels / share.sum(), 0.9)
    logits = rng.normal(size=truth.shape) + 2.0 * truth - 1.5
    return truth, (1 / (1 + np.exp(-logits))).astype(dtype)


def sklearn_scores(truth: NDArray[np.bool_], scores: NDArray[Any]) -> dict[str, float]:
    chosen = scores >= 0.5
    precision, recall, f1, _ = precision_recall_fscore_support(
        truth, chosen, average="macro", zero_division=0
    )
    return {
        "mean_average_precision": average_precision_score(truth, scores, average="macro"),
        "coverage": coverage_error(truth, scores) - 1,
        "ranking_loss": label_ranking_loss(truth, scores),
        "overall_accuracy": float(np.mean(chosen == truth)),
        "mean_precision": precision,
        "mean_recall": recall,
        "mean_f1": f1,
    }


def best(work: Callable[[], T], repeats: int) -> tuple[float, T]:
    """Shortest time of several, since other work on the machine only ever adds to it."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times), result


def peak_memory(work: Callable[[], object]) -> int:
    """Bytes allocated at once, on top of the inputs; traced apart, because tracing takes time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=125_000)
    parser.add_argument("--classes", type=int, default=19)
    parser.add_argument("--labels", type=float, default=2.9, help="true labels per image")
    parser.add_argument("--dtype", choices=["float16", "float32", "float64"], default="float32")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--oracle-repeats", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
