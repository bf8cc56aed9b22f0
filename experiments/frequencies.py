"""How well class frequencies are estimated from single labels: docs/results/frequencies.md.

    python experiments/frequencies.py run aid  --features runs/aid-arrays/maps-96
    python experiments/frequencies.py run ucm  --features runs/ucm-arrays/maps-96
    python experiments/frequencies.py run demo
    python experiments/frequencies.py run dominant       (the demo with dominant labels)
    python experiments/frequencies.py table              (prints Markdown)

Each of three methods is trained for five seeds that played no part in making the estimator, and
estimates are made from what the run keeps of its validation images: predictions of the averaged
network after the epoch that noisy validation chooses, and observed labels. Clean labels of the same
images say afterwards how good they are. One line per training in docs/results/data, resumable.

With pulearn installed (pip install pulearn) two estimators of that library are tried as well.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.bench.scenarios import load
from adagc.methods import find
from adagc.priors import estimate
from adagc.priors.estimate import with_network
from adagc.training import held_out
from adagc.training.environment import environment
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.network import resolve
from adagc.training.observe import observe

sys.path.insert(0, str(Path(__file__).parent))
from lines import RECORDS, Line, append, read

SCENARIOS = {
    "aid": "aid-features",
    "ucm": "ucm-features",
    "demo": "demo-random",
    "dominant": "demo-dominant",
}
TITLES = {
    "aid": "AID",
    "ucm": "UC Merced",
    "demo": "demo, random labels",
    "dominant": "demo, dominant labels",
}
SEEDS = {"aid": range(10, 15), "ucm": range(10, 15), "demo": range(5), "dominant": range(5)}
METHODS = ("AN", "WAN", "Random label")

Floats = NDArray[np.float64]


# -- estimators --------------------------------------------------------------------------------


def _shares(p: Floats) -> Floats:
    values: Floats = p / p.sum(axis=1, keepdims=True)
    return values


def ours(p: Floats, observed: NDArray[Any]) -> Floats:
    """`adagc.priors.estimate`."""
    return estimate(p, observed).frequencies


def simpson(p: Floats, observed: NDArray[Any]) -> Floats:
    """Inverse Simpson: mean of q_c / sum q^2, at most 1."""
    q = _shares(p)
    values: Floats = np.minimum(1, q / (q**2).sum(axis=1, keepdims=True)).mean(axis=0)
    return values


def mean_probability(p: Floats, observed: NDArray[Any]) -> Floats:
    """The mean of the predicted probabilities."""
    values: Floats = p.mean(axis=0)
    return values


def relative(p: Floats, observed: NDArray[Any]) -> Floats:
    """The mean of q_c / max q."""
    q = _shares(p)
    values: Floats = (q / q.max(axis=1, keepdims=True)).mean(axis=0)
    return values


def elkan_noto(p: Floats, observed: NDArray[Any]) -> Floats:
    """P(s = c) over the mean of P(s = c | x) where c was observed (Elkan and Noto, KDD 2008)."""
    q, seen = _shares(p), observed > 0
    found = [
        seen[:, c].mean() / q[seen[:, c], c].mean() if seen[:, c].any() else 0.0
        for c in range(p.shape[1])
    ]
    return np.minimum(1, found)


def best_bin(p: Floats, observed: NDArray[Any], delta: float = 0.01) -> Floats:
    """CRISP's rule (Liu et al., ICML 2023): images above a score over positives above it.

    The score is the one for which an upper bound of the ratio is smallest.
    """
    count = len(p)
    found = []
    for c in range(p.shape[1]):
        own = p[observed[:, c] > 0, c]
        if not len(own):
            found.append(0.0)
            continue
        cuts = np.unique(p[:, c])
        every = (p[:, c][None] >= cuts[:, None]).mean(axis=1)
        positive = (own[None] >= cuts[:, None]).mean(axis=1)
        slack = np.sqrt(np.log(4 / delta) / (2 * count)) + np.sqrt(
            np.log(4 / delta) / (2 * len(own))
        )
        some = positive > 0
        bound = (every[some] + (1 + delta) * slack) / positive[some]
        best = int(np.argmin(bound))
        found.append(float(every[some][best] / positive[some][best]))
    return np.minimum(1, found)


def _of_pulearn(name: str) -> Callable[[Floats, NDArray[Any]], Floats]:
    def found(p: Floats, observed: NDArray[Any]) -> Floats:
        from pulearn import priors

        values = []
        logits = np.log(np.clip(p, 1e-9, 1)) - np.log(np.clip(1 - p, 1e-9, 1))
        for c in range(p.shape[1]):
            labels = (observed[:, c] > 0).astype(int)
            if labels.sum() < 2:
                values.append(float(labels.mean()))
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                estimator = getattr(priors, name)()
                values.append(float(estimator.estimate(logits[:, [c]], labels).pi))
        return np.array(values)

    return found


ESTIMATORS: dict[str, Callable[[Floats, NDArray[Any]], Floats]] = {
    "adagc.priors": ours,
    "inverse Simpson": simpson,
    "mean probability": mean_probability,
    "q / max q": relative,
    "Elkan-Noto": elkan_noto,
    "CRISP": best_bin,
    "pulearn, histogram": _of_pulearn("HistogramMatchPriorEstimator"),
    "pulearn, SCAR-EM": _of_pulearn("ScarEMPriorEstimator"),
}


# -- training ----------------------------------------------------------------------------------


def run(data: str, out: Path, features: str | None) -> None:
    """Train whatever has no line yet."""
    if features is not None:
        os.environ["ADAGC_FEATURES"] = features
    path = out / f"frequencies-{data}.jsonl"
    known = {(line["method"], line["seed"]) for line in read(path)}
    scenario = load(SCENARIOS[data])
    collection = open_configured(scenario.config(SEEDS[data][0]))
    for seed in SEEDS[data]:
        config = resolve(replace(scenario.config(seed), oracle=False), collection.images)
        if scenario.config(seed).split_seed != scenario.config(SEEDS[data][0]).split_seed:
            collection = open_configured(config)
        observed = observe(
            collection,
            labels=config.labels,
            scheme=config.scheme,
            label_seed=config.label_seed,
            share=config.share,
        )
        assert collection.truth is not None
        truth = collection.truth[observed.val]
        for title in METHODS:
            if (title, seed) in known:
                continue
            trained = train(config, find(title)(**scenario.told(title)), collection=collection)
            held = held_out.load(trained)
            p = held.probabilities.astype(np.float64)
            found = estimate(p, held.observed, network=0)  # see `covered`
            line = {
                "data": data,
                "method": title,
                "seed": seed,
                "truth": truth.mean(axis=0).tolist(),
                "images": len(truth),
                "interval": list(found.interval),
                "intervals": found.frequency_intervals.tolist(),
                "trusted": found.trusted,
                "estimates": {
                    name: estimator(p, held.observed).tolist()
                    for name, estimator in ESTIMATORS.items()
                    if not name.startswith("pulearn") or _has_pulearn()
                },
                "machine": environment(),
            }
            append(path, line)
            print(f"{title}, seed {seed}: {sum(line['truth']):.2f} labels, {found.cardinality:.2f}")


def _has_pulearn() -> bool:
    try:
        import pulearn  # noqa: F401
    except ImportError:
        return False
    return True


# -- reading -----------------------------------------------------------------------------------


def lines() -> list[Line]:
    """All records."""
    return [line for data in SCENARIOS for line in read(RECORDS / f"frequencies-{data}.jsonl")]


def labels_off(line: Line, estimator: str) -> float:
    """By which share of the truth the number of labels is too large."""
    return float(sum(line["estimates"][estimator]) / sum(line["truth"]) - 1)


def classes_off(line: Line, estimator: str) -> float:
    """Median over classes of how far a frequency is off, as a share of the truth."""
    truth, found = np.array(line["truth"]), np.array(line["estimates"][estimator])
    there = truth > 0
    return float(np.median(np.abs(found[there] / truth[there] - 1)))


def mean_error(records: Sequence[Line], estimator: str = "adagc.priors") -> float:
    """Mean over trainings of how far the number of labels is off, as a share of the truth."""
    return statistics.fmean(abs(labels_off(one, estimator)) for one in records)


def worst_error(records: Sequence[Line], estimator: str = "adagc.priors") -> float:
    """The largest of them."""
    return max(abs(labels_off(one, estimator)) for one in records)


def within(records: Sequence[Line], share: float) -> int:
    """In how many trainings the number of labels is so close to the truth."""
    return sum(abs(labels_off(one, "adagc.priors")) <= share for one in records)


def classes_within(records: Sequence[Line], share: float) -> int:
    """In how many trainings the median class is so close to the truth."""
    return sum(classes_off(one, "adagc.priors") <= share for one in records)


def covered(records: Sequence[Line], share: float) -> int:
    """In how many trainings the interval of the number of labels holds the truth.

    The records have that of the images alone; the network's share is added as `estimate` does it.
    """
    found = 0
    for one in records:
        low, high = with_network(one["interval"][0], one["interval"][1], share)
        found += low <= sum(one["truth"]) <= high
    return found


def table(records: Sequence[Line]) -> str:
    """Mean over seeds of both errors in per cent, by data, method and estimator."""
    names = [name for name in ESTIMATORS if all(name in one["estimates"] for one in records)]
    rows = [
        f"| data | method | labels | {' | '.join(names)} |",
        f"|---|---|---:|{'---:|' * len(names)}",
    ]
    for data in TITLES:
        for title in METHODS:
            own = [one for one in records if (one["data"], one["method"]) == (data, title)]
            if not own:
                continue
            cells = [
                f"{100 * statistics.fmean(labels_off(one, name) for one in own):+.0f}"
                f" ({100 * statistics.fmean(classes_off(one, name) for one in own):.0f})"
                for name in names
            ]
            count = statistics.fmean(sum(one["truth"]) for one in own)
            rows.append(f"| {TITLES[data]} | {title} | {count:.2f} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("data", choices=list(SCENARIOS))
    one.add_argument("--features")
    one.add_argument("--out", type=Path, default=RECORDS)
    commands.add_parser("table")
    told = parser.parse_args()
    if told.command == "run":
        run(told.data, told.out, told.features)
    else:
        print(table(lines()))
