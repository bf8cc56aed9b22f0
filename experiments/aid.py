"""The AID-multilabel experiments behind docs/results/aid.md, resumable run by run.

    python experiments/aid.py choose     --out runs/aid-features     (minutes)
    python experiments/aid.py features   --out runs/aid-features     (minutes)
    python experiments/aid.py arrays     --out runs/aid-arrays       (for adagc bench aid-features)
    python experiments/aid.py arrays     --out runs/ucm-arrays --data ucmerced
    python experiments/aid.py end-to-end --out runs/aid-96           (hours)
    python experiments/aid.py record features --out runs/aid-features
    python experiments/aid.py table features                         (prints Markdown)

Finished runs are recorded in docs/results/data/; what is recorded there is not run again. AID and
UC Merced are looked for under the folder that the variable ADAGC_DATA names.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import write_text
from adagc.datasets import open_collection
from adagc.datasets.collection import Collection
from adagc.labels import LabelTable, write_labels
from adagc.methods import find, registry
from adagc.models import ModelSpec, build, pretrained_normalisation
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.files import options_in
from adagc.training.records import EpochRecord
from adagc.training.runs import Run
from adagc.training.views import VIEWS, View

RECORDS = Path(__file__).parents[1] / "docs" / "results" / "data"

SCENARIO = "aid-random"
# Recorded runs of LL-R were told the true number of labels, as the second folder says.
CONFIGS = [Path(__file__).parents[1] / "configs" / name for name in (SCENARIO, "aid-features-told")]
METHODS = {
    "features": [
        (method, seed)
        for method in ("GT w/ BCE", "IUN", "AN", "AN-LS", "WAN", "EPR", "AdaGC")
        for seed in range(10, 15)
    ],
    "end-to-end": [
        ("AdaGC", 0), ("AN", 0), ("GT w/ BCE", 0), ("WAN", 0),
        ("AN", 1), ("AdaGC", 1), ("AN", 2), ("AdaGC", 2),
        ("EPR", 0), ("Dist-PU", 0), ("LL-R", 0),
        ("WAN", 1), ("Dist-PU", 1), ("WAN", 2), ("Dist-PU", 2),
    ],
    # As end to end, but p^S is made with the statistics of the batch.
    "student-mode": [("AdaGC", 0)],
}  # fmt: skip


VARIANTS: dict[str, dict[str, Any]] = {
    "features": {"patience": 4},
    "student-mode": {"student_mode": "train"},
}
ON_FEATURES = ("features",)


FOLDERS = {"aid": "AID_multilabel", "ucmerced": "UCMerced_LandUse"}


def root(data: str = "aid") -> Path:
    """Where a data set is."""
    here = Path(os.environ.get("ADAGC_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return here / FOLDERS[data]


def options(kind: str, title: str) -> dict[str, Any]:
    """What configs/aid-random says of a method; on features AdaGC waits four short epochs."""
    for folder in CONFIGS:
        own = options_in(folder, title).get(title)
        if own is not None:
            return {**own.options, **(VARIANTS.get(kind, {}) if title == "AdaGC" else {})}
    return {}


def features(out: Path, size: int, *, maps: bool = False, data: str = "aid") -> dict[str, str]:
    """Features of the pretrained lite backbone, pooled or not, written once as a set of arrays.

    Returns:
        The settings that open it: root, truth and split.
    """
    folder = out / f"{'maps' if maps else 'features'}-{size}"
    settings = {
        "root": str(folder),
        "truth": str(folder / "truth.csv"),
        "split": str(folder / "split.csv"),
    }
    if not Path(settings["split"]).exists():
        folder.mkdir(parents=True, exist_ok=True)
        images = open_collection(data, str(root(data)), size=size)
        names, truth = images.images.names, images.truth
        assert truth is not None
        np.save(folder / "embeddings.npy", _embed(images, maps=maps))
        (folder / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        clean = LabelTable(names, images.classes, truth.astype(np.int8))
        write_labels(clean, Path(settings["truth"]))
        lines = [f"{names[i]},{part}" for part, rows in images.splits.items() for i in rows]
        Path(settings["split"]).write_text("\n".join(["image,split", *lines]) + "\n")
    return settings


def _embed(images: Collection, *, maps: bool) -> NDArray[np.float32]:
    import torch

    shape, bands = images.images.shape, images.images.bands
    spec = ModelSpec("tf_efficientnet_lite0", shape, images.classes, bands)
    mean, std = pretrained_normalisation(spec.backbone, bands, 255.0) or (None, None)
    network = build(spec, seed=0, weights="registry", mean=mean, std=std).eval()
    parts = []
    with torch.no_grad():
        for rows in np.array_split(np.arange(len(images.images)), 48):
            values = torch.from_numpy(images.images.gather(rows)).float()
            parts.append((network.feature_map if maps else network.embed)(values).numpy())
    return np.concatenate(parts)


# What AN and WAN may use is settled on noisy validation labels, before any method is compared: the
# share of features dropped, with which both reach their highest noisy mAP.
DROPOUTS = (0.0, 0.25, 0.5, 0.75)
DROPOUT = 0.5


def choose(out: Path, size: int, epochs: int) -> None:
    """Best noisy validation mAP of AN and WAN for every dropout, on two seeds; recorded."""
    where, lines = features(out, size), []
    for dropout in DROPOUTS:
        for title in ("AN", "WAN"):
            for seed in (10, 11):
                config = _features_config(where, seed, epochs, dropout)
                folder = out / "choice" / f"{title.lower()}-{dropout}-seed{seed}"
                run = train(config, find(title)(), folder, resume=True)
                best = max(line.noisy["network"].mean_average_precision for line in run.history)
                lines.append({"dropout": dropout, "method": title, "seed": seed, "noisy": best})
                print(lines[-1])
    RECORDS.mkdir(parents=True, exist_ok=True)
    write_text(RECORDS / "aid-choice.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def _features_config(
    where: dict[str, str], seed: int, epochs: int, dropout: float = DROPOUT
) -> RunConfig:
    return RunConfig(
        data="array", **where, epochs=epochs, learning_rate=3e-4, dropout=dropout, average=0.999,
        scheme="random", label_seed=seed, seed=seed, batch_size=32, backbone="mlp",
    )  # fmt: skip


def run_all(kind: str, out: Path, size: int, epochs: int, only: set[str], workers: int) -> None:
    """Every run of the list that is neither recorded nor finished yet."""
    where = {"root": str(root())}
    if kind in ON_FEATURES:
        where = features(out, size)
    known = recorded(kind)
    missing = [key for key in METHODS[kind] if key not in known]
    print(f"{len(METHODS[kind]) - len(missing)} of {len(METHODS[kind])} runs are recorded already")
    missing = [key for key in missing if not only or folder_of(out, *key).name in only]
    if workers == 1:
        for title, seed in missing:
            run_one(kind, title, seed, out, where, size, epochs)
            record(kind, out)
        return
    # One thread each: two small networks side by side beat one on two cores.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        jobs = [
            pool.submit(run_one, kind, title, seed, out, where, size, epochs)
            for title, seed in missing
        ]
        for job in as_completed(jobs):
            job.result()
            record(kind, out)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def run_one(
    kind: str, title: str, seed: int, out: Path, where: dict[str, str], size: int, epochs: int
) -> None:
    """One method on one seed, from where it was left."""
    if kind not in ON_FEATURES:
        config = RunConfig(
            data="aid", **where, size=size, epochs=epochs, learning_rate=5e-4, batch_size=32,
            scheme="random", label_seed=seed, seed=seed,
            # AdaGC's teacher is such an average already.
            average=None if title == "AdaGC" else 0.999,
        )  # fmt: skip
    else:
        config = _features_config(where, seed, epochs)
    folder = folder_of(out, title, seed)
    method = find(title)(**options(kind, title))
    train(config, method, folder, resume=True, on_epoch=_say(folder))


def folder_of(out: Path, title: str, seed: int) -> Path:
    """Where a run lies; the title without signs that folders do not like."""
    name = title.split(" w/")[0].lower().replace(" ", "").replace("+", "-")
    return out / f"{name}-seed{seed}"


def _say(folder: Path) -> Any:
    def say(line: EpochRecord) -> None:
        values = {k: round(v.mean_average_precision * 100, 1) for k, v in line.noisy.items()}
        print(folder.name, line.epoch, values, line.status, f"{line.seconds:.0f} s")

    return say


def recorded(kind: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Results by method and seed."""
    path = RECORDS / f"aid-{kind}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    return {(result["method"], result["seed"]): result for result in results}


def record(kind: str, out: Path) -> None:
    """Take the finished runs of a folder into the record."""
    known = recorded(kind)
    for path in sorted(out.glob("*/scores.json")):
        run = Run.open(path.parent)
        scores, config = run.scores, run.config
        assert scores is not None
        environment = run.read_json("environment.json")
        known[scores.method, config["seed"]] = {
            "method": scores.method,
            "options": config["method"],
            "seed": config["seed"],
            "epochs": config["epochs"],
            "status": dict(run.history[-1].status),
            "processor": environment["processor"],
            "threads": environment["threads"],
            "seconds": run.made.training_seconds,
            "networks": {
                name: {
                    which: {"epoch": at.epoch, **at.scores.summary()}
                    for which, at in network.epochs.items()
                }
                for name, network in scores.networks.items()
            },
        }
    order = {key: i for i, key in enumerate(METHODS[kind])}
    lines = [json.dumps(known[key]) for key in sorted(known, key=lambda key: order.get(key, 999))]
    RECORDS.mkdir(parents=True, exist_ok=True)
    write_text(RECORDS / f"aid-{kind}.jsonl", "\n".join(lines) + "\n")


def table(kind: str) -> None:
    """Markdown: mean and unbiased deviation over seeds, per method, network and choice of epoch."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for (title, _), result in recorded(kind).items():
        for name, choices in result["networks"].items():
            for which, values in choices.items():
                groups.setdefault((title, name, which), []).append(values)
    titles = list(registry())
    print("| method | network | epoch | seeds | mAP | mF1 | mPrec | mRec | OA | rank loss |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    keys = ("mean_average_precision", "mean_f1", "mean_precision", "mean_recall",
            "overall_accuracy", "ranking_loss")  # fmt: skip
    for key in sorted(groups, key=lambda k: (titles.index(k[0]), k[1] != "network", k[1], k[2])):
        runs = groups[key]
        cells = [_spread([100 * run[name] for run in runs]) for name in keys]
        print(f"| {key[0]} | {key[1]} | {key[2]} | {len(runs)} | {' | '.join(cells)} |")
    for view in VIEWS.values():
        _gap(groups, view)


def _gap(groups: dict[tuple[str, str, str], list[dict[str, Any]]], view: View) -> None:
    """(AdaGC - AN) / (GT - AN) in mAP, all three in the same view; a teacher is an average."""
    means = {}
    for title in ("AN", "AdaGC", "GT w/ BCE"):
        names = (view.word, "teacher") if view.word == "averaged" else (view.word,)
        runs = next((own for name in names if (own := groups.get((title, name, view.choice)))), [])
        if not runs:
            return
        means[title] = statistics.mean(run["mean_average_precision"] for run in runs)
    share = (means["AdaGC"] - means["AN"]) / (means["GT w/ BCE"] - means["AN"])
    print(f"\nGap closed in mAP, {view.networks}: {share:.0%}")


def _spread(values: list[float], decimals: int = 2) -> str:
    mean = f"{statistics.mean(values):.{decimals}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({statistics.stdev(values):.{decimals}f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["choose", "arrays", *METHODS, "record", "table"])
    parser.add_argument("kind", nargs="?", choices=[*METHODS])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--size", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--only", nargs="*", default=[], help="for example an-seed1 adagc-seed1")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data", choices=[*FOLDERS], default="aid", help="for arrays only")
    told = parser.parse_args()
    if told.what == "table":
        table(told.kind)
    elif told.what == "record":
        record(told.kind, told.out)
    elif told.what == "arrays":
        print(features(told.out, told.size or 96, maps=True, data=told.data)["root"])
    elif told.what == "choose":
        choose(told.out, told.size or 128, told.epochs or 40)
    else:
        size = 128 if told.what == "features" else 96
        epochs = 40 if told.what in ON_FEATURES else 30
        run_all(
            told.what, told.out, told.size or size, told.epochs or epochs, set(told.only),
            told.workers,
        )  # fmt: skip
