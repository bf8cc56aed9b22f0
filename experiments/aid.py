"""The AID-multilabel experiments behind docs/results/aid.md, resumable run by run.

    python experiments/aid.py choose     --out runs/aid-features     (minutes)
    python experiments/aid.py features   --out runs/aid-features     (minutes)
    python experiments/aid.py end-to-end --out runs/aid-96           (hours)
    python experiments/aid.py record features --out runs/aid-features
    python experiments/aid.py table features                         (prints Markdown)

Finished runs are recorded in docs/results/data/; what is recorded there is not run again. AID is
looked for under the folder that the variable ADAGC_DATA names.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.atomic import write_text
from adagc.data import Collection, open_collection
from adagc.labels import LabelTable, write_labels
from adagc.methods import find, registry
from adagc.models import ModelSpec, build, pretrained_normalisation
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run
from adagc.types import Scores

RECORDS = Path(__file__).parents[1] / "docs" / "results" / "data"

# The paper tunes the weight on noisy validation; 9 is its value for AID-Random. All else is default
# but for the patience on features, whose epochs take a second.
OPTIONS: dict[str, dict[str, Any]] = {
    "features": {"AdaGC": {"weight": 9.0, "patience": 4}},
    "end-to-end": {"AdaGC": {"weight": 9.0}},
}
METHODS = {
    "features": [
        (method, seed)
        for method in ("GT w/ BCE", "IUN", "AN", "AN-LS", "WAN", "EPR", "AdaGC")
        for seed in range(10, 15)
    ],
    "end-to-end": [
        ("AdaGC", 0), ("AN", 0), ("GT w/ BCE", 0), ("WAN", 0),
        ("AN", 1), ("AdaGC", 1), ("AN", 2), ("AdaGC", 2),
    ],
}  # fmt: skip


def root() -> Path:
    """Where AID is."""
    here = Path(os.environ.get("ADAGC_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return here / "AID_multilabel"


def features(out: Path, size: int) -> dict[str, str]:
    """Pooled features of the pretrained lite backbone, written once as a data set of arrays.

    Returns:
        The settings that open it: root, truth and split.
    """
    folder = out / f"features-{size}"
    settings = {
        "root": str(folder),
        "truth": str(folder / "truth.csv"),
        "split": str(folder / "split.csv"),
    }
    if not Path(settings["split"]).exists():
        folder.mkdir(parents=True, exist_ok=True)
        images = open_collection("aid", str(root()), size=size)
        names, truth = images.images.names, images.truth
        assert truth is not None
        np.save(folder / "embeddings.npy", _embed(images))
        (folder / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        clean = LabelTable(names, images.classes, truth.astype(np.int8))
        write_labels(clean, Path(settings["truth"]))
        lines = [f"{names[i]},{part}" for part, rows in images.splits.items() for i in rows]
        Path(settings["split"]).write_text("\n".join(["image,split", *lines]) + "\n")
    return settings


def _embed(images: Collection) -> NDArray[np.float32]:
    import torch

    shape, bands = images.images.shape, images.images.bands
    spec = ModelSpec("tf_efficientnet_lite0", shape, images.classes, bands)
    mean, std = pretrained_normalisation(spec.backbone, bands, 255.0) or (None, None)
    network = build(spec, seed=0, weights="registry", mean=mean, std=std).eval()
    parts = []
    with torch.no_grad():
        for rows in np.array_split(np.arange(len(images.images)), 48):
            values = torch.from_numpy(images.images.gather(rows)).float()
            parts.append(network.embed(values).numpy())
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
                best = max(
                    line["noisy"]["network"]["mean_average_precision"] for line in run.history
                )
                lines.append({"dropout": dropout, "method": title, "seed": seed, "noisy": best})
                print(lines[-1])
    RECORDS.mkdir(parents=True, exist_ok=True)
    write_text(RECORDS / "aid-choice.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def _features_config(
    where: dict[str, str], seed: int, epochs: int, dropout: float = DROPOUT
) -> RunConfig:
    return RunConfig(
        data="array", **where, epochs=epochs, learning_rate=3e-4, dropout=dropout, average=0.999,
        scheme="random", label_seed=seed, seed=seed, batch_size=32,
    )  # fmt: skip


def run_all(kind: str, out: Path, size: int, epochs: int, only: set[str]) -> None:
    """Every run of the list that is neither recorded nor finished yet, one after the other."""
    where = features(out, size) if kind == "features" else {"root": str(root())}
    for title, seed in METHODS[kind]:
        folder = out / f"{title.split()[0].lower()}-seed{seed}"
        if (title, seed) in recorded(kind) or (only and folder.name not in only):
            continue
        if kind == "features":
            config = _features_config(where, seed, epochs)
        else:
            config = RunConfig(
                data="aid", **where, size=size, epochs=epochs, learning_rate=5e-4, batch_size=32,
                scheme="random", label_seed=seed, seed=seed,
                # AdaGC's teacher is such an average already.
                average=None if title == "AdaGC" else 0.999,
            )  # fmt: skip
        method = find(title)(**OPTIONS[kind].get(title, {}))
        train(config, method, folder, resume=True, on_epoch=_say(folder))
        record(kind, out)


def _say(folder: Path) -> Any:
    def say(line: dict[str, Any]) -> None:
        values = {k: round(v["mean_average_precision"] * 100, 1) for k, v in line["noisy"].items()}
        print(folder.name, line["epoch"], values, line["status"], f"{line['seconds']:.0f} s")

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
        scores, config = run.read_json("scores.json"), run.config
        environment = run.read_json("environment.json")
        known[scores["method"], config["seed"]] = {
            "method": scores["method"],
            "options": config["method"],
            "seed": config["seed"],
            "epochs": config["epochs"],
            "status": run.history[-1]["status"],
            "processor": environment["processor"],
            "threads": environment["threads"],
            "seconds": run.read_json("model.json")["extra"]["training_seconds"],
            "networks": {
                name: {
                    which: {"epoch": values["epoch"], **Scores.from_dict(values).summary()}
                    for which, values in choices.items()
                }
                for name, choices in scores["networks"].items()
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
    for which in ("last", "best"):
        _gap(groups, which)


def _gap(groups: dict[tuple[str, str, str], list[dict[str, Any]]], which: str) -> None:
    """(AdaGC - AN) / (GT - AN) in mAP, of the deployed networks."""
    means = {
        title: statistics.mean(run["mean_average_precision"] for run in runs)
        for (title, name, choice), runs in groups.items()
        if name == "network" and choice == which
    }
    if {"AN", "AdaGC", "GT w/ BCE"} <= means.keys():
        share = (means["AdaGC"] - means["AN"]) / (means["GT w/ BCE"] - means["AN"])
        print(f"\nGap closed in mAP, {which} epoch: {share:.0%}")


def _spread(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ({statistics.stdev(values):.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["choose", "features", "end-to-end", "record", "table"])
    parser.add_argument("kind", nargs="?", choices=["features", "end-to-end"])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--size", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--only", nargs="*", default=[], help="for example an-seed1 adagc-seed1")
    options = parser.parse_args()
    only = set(options.only)
    if options.what == "table":
        table(options.kind)
    elif options.what == "record":
        record(options.kind, options.out)
    elif options.what == "choose":
        choose(options.out, options.size or 128, options.epochs or 40)
    elif options.what == "features":
        run_all("features", options.out, options.size or 128, options.epochs or 40, only)
    else:
        run_all("end-to-end", options.out, options.size or 96, options.epochs or 30, only)
