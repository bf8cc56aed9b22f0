"""`adagc demo`: compare three methods on synthetic scenes, so that nothing is downloaded."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from adagc.datasets.synthetic import synthetic_collection
from adagc.errors import UsageError
from adagc.methods import find
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run

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
        The scores by method, the share of the gap between AN and training with all labels that
        AdaGC closes, a sentence that says so, the path of the report, the seed, and the duration
        in seconds.
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
    for title, options in METHODS.items():
        config = RunConfig(**SETTINGS, seed=seed, label_seed=seed, split_seed=seed)
        with console.progress_bar(title) as bar:
            runs[title] = train(
                config,
                find(title)(**options),
                out / title.split()[0].lower(),
                collection=collection,
                on_step=bar.step,
                on_epoch=bar.epoch,
            )
    scores = {title: _final(run) for title, run in runs.items()}
    report = write_report(
        runs["AdaGC"],
        against=[run for title, run in runs.items() if title != "AdaGC"],
        out=out / "report.html",
        collection=collection,
    )
    labels = {"AN": "AN (one label)", "AdaGC": "AdaGC (one label)", "GT w/ BCE": "all clean labels"}
    return {
        "scores": {labels[title]: values for title, values in scores.items()},
        "gap_closed": _gap_closed(scores),
        "sentence": _sentence(scores),
        "report": str(report),
        "seed": seed,
        "seconds": round(time.perf_counter() - began, 1),
    }


def _final(run: Run) -> dict[str, Any]:
    """Test scores of the deployed network after the last epoch."""
    found = run.scores.final if run.scores is not None else None
    assert found is not None, "scenes come with clean labels"
    return {"epoch": SETTINGS["epochs"], **found.to_dict()}


def _gap_closed(scores: dict[str, Any]) -> dict[str, float]:
    """(AdaGC - AN) / (GT - AN) in mAP and in mF1; NaN where GT and AN score the same."""
    shares = {}
    for key in ("mean_average_precision", "mean_f1"):
        low, ours, high = (scores[title][key] for title in ("AN", "AdaGC", "GT w/ BCE"))
        shares[key] = (ours - low) / (high - low) if high != low else float("nan")
    return shares


def _sentence(scores: dict[str, Any]) -> str:
    share = _gap_closed(scores)["mean_average_precision"]
    ours, low = (100 * scores[title]["mean_average_precision"] for title in ("AdaGC", "AN"))
    return (
        f"With one label per image AdaGC reaches {ours:.1f} mAP, assuming negatives {low:.1f}: "
        f"{100 * share:.0f} % of the gap to training with all labels."
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
