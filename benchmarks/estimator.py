"""Seconds that `SinglePositiveClassifier` takes to learn from 10,000 embeddings (limit 60).

`python benchmarks/estimator.py [METHOD]` fits 10,000 x 768 random embeddings of 20 classes with one
label each, with all defaults, on two threads. On a busy machine look at the seconds of CPU: with
two idle cores the clock shows no more than those.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

from adagc import SinglePositiveClassifier
from adagc.methods import DEFAULT

ROWS, NUMBERS, CLASSES, LIMIT = 10_000, 768, 20, 60


def made() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings, one label of each, and all of them."""
    rng = np.random.default_rng(0)
    truth = rng.random((ROWS, CLASSES)) < 0.15
    truth[np.arange(ROWS), rng.integers(0, CLASSES, ROWS)] = True
    noise = rng.normal(scale=4, size=(ROWS, NUMBERS))
    values = (truth @ rng.normal(size=(CLASSES, NUMBERS)) + noise).astype(np.float32)
    return values, np.array([rng.choice(np.flatnonzero(row)) for row in truth]), truth


def main() -> int:
    torch.set_num_threads(2)
    method = sys.argv[1] if len(sys.argv) > 1 else DEFAULT
    X, y, truth = made()
    model = SinglePositiveClassifier(method)
    began, used = time.perf_counter(), time.process_time()
    model.fit(X, y)
    clock, cpu = time.perf_counter() - began, time.process_time() - used
    began = time.perf_counter()
    score = model.score(X, truth)
    print(f"{method} on {ROWS:,} x {NUMBERS}, {CLASSES} classes (limit {LIMIT} s)")
    print(f"fit      {clock:6.1f} s on the clock, {cpu:.1f} s of CPU")
    print(f"score    {time.perf_counter() - began:6.1f} s on the clock (mAP {100 * score:.1f})")
    return int(min(clock, cpu) > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
