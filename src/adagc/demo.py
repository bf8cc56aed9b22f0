"""`adagc demo`: compare three methods on synthetic scenes, so that nothing is downloaded."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adagc.datasets.synthetic import synthetic_collection
from adagc.errors import UsageError
from adagc.methods import find
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run
from adagc.training.views import DEFAULT, VIEWS, View

# All three methods use the same network and settings. There are few enough scenes and enough epochs
# that the method "assume negative" (AN) begins to memorise which labels are missing, as it does on
# real data. AdaGC's weight is the paper's for reBEN-Random, and its teacher averages the network
# over about two epochs, as in the paper. The learning rate, and whether to use Mixup, were chosen
# by noisy validation labels on other seeds (experiments/demo.py). The numbers of scenes and epochs
# had been chosen before that, while looking at clean scores of the seeds 100 and 101.
SETTINGS: dict[str, Any] = {
    "data": "synthetic",
    "scenes": 600,
    "size": 32,
    "scheme": "random",
    "backbone": "test_resnet",
    "weights": "none",
    "batch_size": 32,
    "learning_rate": 2e-3,
    "epochs": 60,
    "average": 0.98,  # as AdaGC's teacher below: averages are compared with averages
    "thresholds": "half",  # as in the paper
    "priors": "published",  # as in the paper
}
METHODS: dict[str, dict[str, Any]] = {
    "AN": {},
    "AdaGC": {"weight": 3.0, "teacher_momentum": 0.98, "mixup": 0.0},
    "GT w/ BCE": {},
}


def run_demo(out: Path, *, seed: int = 0) -> dict[str, Any]:
    """Train the three methods on the same scenes and labels, and compare them on clean labels.

    Args:
        out: Folder for the runs and the report; the folder of an earlier demo is replaced.
        seed: Seed of the scenes, of their single labels and of the initial weights.

    Returns:
        By view the scores of the methods and the share of the gap between AN and training with all
        labels that AdaGC closes; a sentence that says so, the path of the report, the seed, and the
        duration in seconds.
    """
    from adagc import console
    from adagc.report import write_report

    began = time.perf_counter()
    _make_room(out)
    scenes = SETTINGS["scenes"]
    collection = synthetic_collection(
        n_train=scenes, n_val=scenes // 2, n_test=scenes, size=SETTINGS["size"], seed=seed
    )
    runs: dict[str, Run] = {}
    for number, (title, options) in enumerate(METHODS.items(), start=1):
        config = RunConfig(**SETTINGS, seed=seed, label_seed=seed, split_seed=seed)
        with console.progress_bar(f"{title} ({number} of {len(METHODS)})") as bar:
            runs[title] = train(
                config,
                find(title)(**options),
                out / title.split()[0].lower(),
                collection=collection,
                on_step=bar.step,
                on_epoch=bar.epoch,
            )
    scores = {
        name: {title: _scores(run, view) for title, run in runs.items()}
        for name, view in VIEWS.items()
    }
    report = write_report(
        runs["AdaGC"],
        against=[run for title, run in runs.items() if title != "AdaGC"],
        out=out / "report.html",
        collection=collection,
    )
    labels = {"AN": "AN (one label)", "AdaGC": "AdaGC (one label)", "GT w/ BCE": "all clean labels"}
    return {
        "scores": {
            name: {labels[title]: values for title, values in own.items()}
            for name, own in scores.items()
        },
        "gap_closed": {name: _gap_closed(own) for name, own in scores.items()},
        "sentence": _sentence(scores),
        "report": str(report),
        "seed": seed,
        "seconds": round(time.perf_counter() - began, 1),
    }


def _scores(run: Run, view: View) -> dict[str, Any]:
    """Test scores of a run in this view."""
    found = None if run.scores is None else view.scores(run.scores.networks)
    assert found is not None, "scenes come with clean labels, and every run keeps an average"
    return found.to_dict()


def _gap_closed(scores: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """(AdaGC - AN) / (GT - AN) in mAP and in mF1; NaN where GT and AN score the same.

    All three scores are of the same view: with averaged weights for AdaGC alone a part of the gap
    would be closed by averaging.
    """
    shares = {}
    for key in ("mean_average_precision", "mean_f1"):
        low, ours, high = (scores[title][key] for title in ("AN", "AdaGC", "GT w/ BCE"))
        shares[key] = (ours - low) / (high - low) if high != low else float("nan")
    return shares


def _sentence(scores: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The result in words, with averaged weights for all methods and then without."""
    parts = []
    for name in (DEFAULT.name, "network-last"):
        own = scores[name]
        share = _gap_closed(own)["mean_average_precision"]
        ours, low = (100 * own[title]["mean_average_precision"] for title in ("AdaGC", "AN"))
        parts.append((VIEWS[name].networks, ours, low, 100 * share))
    (kind, ours, low, share), (other, raw, raw_low, raw_share) = parts
    return (
        f"With one label per image AdaGC reaches {ours:.1f} mAP, assuming negatives {low:.1f}:"
        f" {share:.0f} % of the gap to training with all labels ({kind}; {other}: {raw:.1f} and"
        f" {raw_low:.1f}, {raw_share:.0f} %)."
    )


def _make_room(out: Path) -> None:
    """Make `out` an empty folder; it must be empty, missing, or hold an earlier demo."""
    mark = out / ".adagc-demo"
    if out.exists() and any(out.iterdir()):
        if not mark.exists():
            raise UsageError(f"{out} is not empty and not an earlier demo: choose another --out")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    mark.touch()
