"""How the demo's settings were chosen: by noisy validation labels, on seeds of their own.

    python experiments/demo.py --out runs/demo-choice

Four settings are compared by the noisy validation mAP of the student at the last epoch, the mean
over the seeds 100 to 102; the clean labels are not read (`oracle` is off, nothing is tested).
Recorded in docs/results/data/demo-choice.jsonl.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from itertools import product
from pathlib import Path

from adagc.atomic import write_text
from adagc.datasets.synthetic import synthetic_collection
from adagc.demo import METHODS, SETTINGS
from adagc.methods import find
from adagc.training.config import RunConfig
from adagc.training.experiment import train

RECORD = Path(__file__).parents[1] / "docs" / "results" / "data" / "demo-choice.jsonl"
SEEDS = (100, 101, 102)
CHOICES = {"learning_rate": (1e-3, 2e-3), "mixup": (0.0, 1.0)}


def main() -> None:
    """Run the grid and print it, best first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    scenes = SETTINGS["scenes"]
    lines = []
    for seed in SEEDS:
        collection = synthetic_collection(
            n_train=scenes, n_val=scenes // 2, n_test=scenes, size=SETTINGS["size"], seed=seed
        )
        # Without a test split nothing clean is ever scored.
        parts = {name: collection.splits[name] for name in ("train", "val")}
        collection = dataclasses.replace(collection, splits=parts)
        for values in product(*CHOICES.values()):
            chosen = dict(zip(CHOICES, values, strict=True))
            settings = {**SETTINGS, "learning_rate": chosen["learning_rate"]}
            config = RunConfig(
                **settings, seed=seed, label_seed=seed, split_seed=seed, oracle=False
            )
            method = find("AdaGC")(**{**METHODS["AdaGC"], "mixup": chosen["mixup"]})
            name = "-".join(f"{key}{value}" for key, value in chosen.items())
            folder = out / f"{name}-seed{seed}"
            run = train(config, method, folder, collection=collection, resume=True)
            noisy = run.history[-1].noisy["network"].mean_average_precision
            lines.append({**chosen, "seed": seed, "noisy": noisy})
            print(lines[-1], flush=True)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    write_text(RECORD, "".join(json.dumps(line) + "\n" for line in lines))
    means = {
        values: statistics.mean(
            line["noisy"] for line in lines if tuple(line[key] for key in CHOICES) == values
        )
        for values in product(*CHOICES.values())
    }
    for values, mean in sorted(means.items(), key=lambda item: -item[1]):
        print(dict(zip(CHOICES, values, strict=True)), f"noisy validation mAP {100 * mean:.2f}")


if __name__ == "__main__":
    main()
