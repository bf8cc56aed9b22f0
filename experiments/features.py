"""Frozen features of AID, UC Merced and mosaics, on which methods are compared within minutes.

    python experiments/features.py aid      --out runs/aid-arrays    (for adagc bench aid-features)
    python experiments/features.py ucmerced --out runs/ucm-arrays    (for adagc bench ucm-features)
    python experiments/features.py mosaic   --out runs/mosaic-arrays
                              (for adagc bench mosaic-features-random mosaic-features-dominant)
    python experiments/features.py choose   --out runs/aid-choice    (the dropout of the first two)

The images are looked for under the folder that the variable ADAGC_DATA names; mosaics are made of
AID's. The first three print the folder that they have written, once; the last records what it finds
in docs/results/data/aid-choice.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np

from adagc.atomic import write_text
from adagc.datasets import open_collection
from adagc.datasets.array import AREAS
from adagc.datasets.collection import Collection
from adagc.labels import LabelTable, write_areas, write_labels
from adagc.methods import find
from adagc.models import ModelSpec, build, pretrained_normalisation
from adagc.training.config import RunConfig
from adagc.training.experiment import train

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "results" / "data" / "aid-choice.jsonl"
FOLDERS = {"aid": "AID_multilabel", "ucmerced": "UCMerced_LandUse", "mosaic": "AID_multilabel"}
SIZES = {"mosaic": 150}  # of the images in pixels: maps of 5 x 5, where 96 pixels give 3 x 3


def features(data: str, out: Path, size: int = 96, *, maps: bool = True) -> dict[str, str]:
    """Features of the pretrained lite backbone, written once as a set of arrays.

    If the data set knows the areas of classes, these are written beside the features.

    Args:
        data: Name of the data set.
        out: Folder for sets of arrays.
        size: Height and width in pixels of the images.
        maps: Whether positions are kept; else the mean over them is taken.

    Returns:
        The settings that open the arrays: root, truth and split.
    """
    folder = out / f"{'maps' if maps else 'features'}-{size}"
    settings = {
        "root": str(folder),
        "truth": str(folder / "truth.csv"),
        "split": str(folder / "split.csv"),
    }
    if not Path(settings["split"]).exists():
        folder.mkdir(parents=True, exist_ok=True)
        place = Path(os.environ.get("ADAGC_DATA", ROOT.parent / "shared" / "data"))
        images = open_collection(data, str(place / FOLDERS[data]), size=size)
        names, truth = images.images.names, images.truth
        assert truth is not None
        _embed(images, folder / "embeddings.npy", maps=maps)
        (folder / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        clean = LabelTable(names, images.classes, truth.astype(np.int8))
        write_labels(clean, Path(settings["truth"]))
        if images.areas is not None:
            write_areas(folder / AREAS, names, images.classes, images.areas)
        lines = [f"{names[i]},{part}" for part, rows in images.splits.items() for i in rows]
        write_text(Path(settings["split"]), "\n".join(["image,split", *lines]) + "\n")
    return settings


def _embed(images: Collection, path: Path, *, maps: bool) -> None:
    """Write the features of all images, a part at a time: all of them may not fit into memory."""
    import torch

    shape, bands = images.images.shape, images.images.bands
    spec = ModelSpec("tf_efficientnet_lite0", shape, images.classes, bands)
    mean, std = pretrained_normalisation(spec.backbone, bands, 255.0) or (None, None)
    network = build(spec, seed=0, weights="registry", mean=mean, std=std).eval()
    written = None
    with torch.no_grad():
        for rows in np.array_split(np.arange(len(images.images)), 48):
            values = torch.from_numpy(images.images.gather(rows)).float()
            found = (network.feature_map if maps else network.embed)(values).numpy()
            if written is None:
                shape = (len(images.images), *found.shape[1:])
                written = np.lib.format.open_memmap(path, "w+", found.dtype, shape)
            written[rows] = found


# What AN and WAN may use is settled on noisy validation labels, before any method is compared: the
# share of features dropped, with which both reach their highest noisy mAP.
DROPOUTS = (0.0, 0.25, 0.5, 0.75)


def choose(out: Path) -> None:
    """Best noisy validation mAP of AN and WAN for every dropout, on two seeds; recorded."""
    where, lines = features("aid", out, 128, maps=False), []
    for dropout in DROPOUTS:
        for title in ("AN", "WAN"):
            for seed in (10, 11):
                config = RunConfig(
                    data="array", root=where["root"], truth=where["truth"], split=where["split"],
                    epochs=40, learning_rate=3e-4, dropout=dropout,
                    average=0.999, scheme="random", label_seed=seed, seed=seed, backbone="mlp",
                )  # fmt: skip
                run = train(config, find(title)())
                best = max(line.noisy["network"].mean_average_precision for line in run.history)
                lines.append({"dropout": dropout, "method": title, "seed": seed, "noisy": best})
                print(lines[-1])
    write_text(RECORD, "".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*FOLDERS, "choose"])
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    if told.what == "choose":
        choose(told.out)
    else:
        print(features(told.what, told.out, SIZES.get(told.what, 96))["root"])
