"""Variants of Auto's second stage that were tried on development seeds: docs/results/beyond.md.

    ADAGC_FEATURES=runs/aid-arrays/maps-96 python experiments/variants.py aid-features

Each variant changes one thing in how labels are completed or learnt. Every run is a line of
docs/results/data/beyond-variants.jsonl; lines that are there are not made again.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from lines import RECORDS, append, read
from torch import Tensor, nn
from words import plus

from adagc import losses
from adagc.bench.scenarios import load
from adagc.methods.auto import Auto
from adagc.methods.state import Mixup
from adagc.training import trainer
from adagc.training.environment import environment
from adagc.training.experiment import train
from adagc.training.inputs import open_configured
from adagc.training.network import resolve
from adagc.training.observe import observe
from adagc.training.settings import Settings
from adagc.types import Batch, Losses, Progress, Scores, Task, Verdict

RECORD = RECORDS / "beyond-variants.jsonl"
SEEDS = range(5)  # those of development


@dataclass(frozen=True)
class Change:
    """What differs from Auto; nothing by default.

    Args:
        words: The change, for the table.
        neighbours: Number of nearest training images, by their features, whose mean score counts.
        their_weight: Share of that mean in the score by which images are ranked.
        again: Labels are completed anew in every so many epochs of the second stage.
        rate: In the second stage the learning rate falls from this multiple to zero along a cosine.
        left_out: Ranks around the last completed one, in multiples of it, that count neither way.
        scale: Multiplies how many labels of a class are completed.
        smooth: Completed labels are 1 minus the first, others the second.
        fresh: The second stage begins with a new network.
    """

    words: str = "Auto as it is"
    neighbours: int = 0
    their_weight: float = 0.0
    again: int = 0
    rate: float | None = None
    left_out: tuple[float, float] | None = None
    scale: float = 1.0
    smooth: tuple[float, float] | None = None
    fresh: bool = False


CHANGES = {
    "base": Change(),
    "nbr5l": Change("scores with 5 neighbours, 15 %", neighbours=5, their_weight=0.15),
    "nbr10": Change("scores with 10 neighbours, 30 %", neighbours=10, their_weight=0.3),
    "nbr10h": Change("scores with 10 neighbours, 60 %", neighbours=10, their_weight=0.6),
    "nbr20h": Change("scores with 20 neighbours, 80 %", neighbours=20, their_weight=0.8),
    "again3": Change("completed anew every 3 epochs", again=3),
    "again1": Change("completed anew every epoch", again=1),
    "cos1": Change("rate falls along a cosine in stage 2", rate=1.0),
    "cos3": Change("the same from the threefold rate", rate=3.0),
    "ign": Change("unsure ranks left out, 0.8 to 1.5", left_out=(0.8, 1.5)),
    "ignw": Change("unsure ranks left out, 0.6 to 2", left_out=(0.6, 2.0)),
    "s8": Change("four fifths of the labels", scale=0.8),
    "s12": Change("six fifths of the labels", scale=1.2),
    "ls": Change("completed labels 0.9, others 0.02", smooth=(0.1, 0.02)),
    "fresh": Change("stage 2 from a new network", fresh=True),
}


class Variant(Auto):
    """Auto with the change of this name."""

    def __init__(self, *, variant: str = "base") -> None:
        super().__init__()
        self.variant = variant
        self.change = CHANGES[variant]
        self.features: Tensor | None = None  # of the training images, for neighbours
        self.counted: Tensor | None = None

    def setup(self, network: nn.Module, task: Task) -> None:
        """Keep the task, which can make a new network."""
        super().setup(network, task)
        self.task = task

    def _complete(self, predicted: Tensor) -> None:
        change, shares = self.change, self.shares
        if self.features is not None:
            own = torch.logit(predicted.double().clamp(1e-7, 1 - 1e-7)).float()
            near = _nearest(self.features, change.neighbours)
            predicted = torch.lerp(own, own[near].mean(dim=1), change.their_weight).sigmoid()
        self.shares = tuple(min(1.0, change.scale * share) for share in shares)
        super()._complete(predicted)
        if change.left_out is not None:
            low, high = (bound * torch.tensor(self.shares) for bound in change.left_out)
            ranks = predicted.argsort(dim=0, descending=True).argsort(dim=0) / len(predicted)
            unsure = (ranks >= low) & (ranks < high) & (self.observed == 0)
            self.counted = (~unsure).float()
        if change.smooth is not None:
            values, (less, more) = self.completed.values, change.smooth
            softer = values * (1 - less) + (1 - values) * more
            softer = torch.where(self.observed == 0, softer, values)
            self.completed.write(torch.arange(len(values)), softer)
        self.shares = shares

    def reviews(self, progress: Progress) -> bool:
        """In the second stage too, if labels are completed again."""
        if self.completed_after is None:
            return super().reviews(progress)
        since = progress.epoch - self.completed_after
        return self.change.again > 0 and since > 0 and since % self.change.again == 0

    def end_epoch(self, scores: Scores, progress: Progress) -> Verdict:
        """Complete labels again without a restart."""
        if self.completed_after is None or self.predicted is None:
            return super().end_epoch(scores, progress)
        predicted, self.predicted = self.predicted, None
        self._complete(predicted)
        return Verdict.CONTINUE

    def restarted(self, network: nn.Module, progress: Progress) -> None:
        """Go on with a new network, if that is the change."""
        if self.change.fresh:
            assert self.task.fresh is not None
            network.load_state_dict(self.task.fresh(7).state_dict())
        super().restarted(network, progress)

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """As in Completion, without the entries that do not count."""
        if self.completed_after is None or self.counted is None:
            return super().loss(network, batch, progress)
        targets, counted = self.completed[batch.index], self.counted[batch.index]
        mix = Mixup.draw(len(targets), self.mixup, batch.generator, device=targets.device)
        outputs = self.explained.outputs(network, mix(batch.images))
        entries = losses.binary_cross_entropy(self.explained.logits(outputs), mix(targets))
        own, partner = (
            self.explained.explain(outputs, labels)
            for labels in (batch.observed, batch.observed[mix.partner])
        )
        explained = torch.lerp(partner, own, mix.share.to(own.dtype))
        return Losses((entries * mix(counted)).sum(dim=1).mean() - explained.mean(), {})

    def factor(self, progress: Progress, settings: Settings) -> float:
        """The multiple of the learning rate in a step, in place of the trainer's."""
        usual = _USUAL(progress, settings)
        if self.change.rate is None or self.completed_after is None:
            return usual
        within = progress.step % progress.steps_per_epoch / progress.steps_per_epoch
        done = progress.epoch - 1 - self.completed_after + within
        left = done / max(1, progress.epochs - self.completed_after)
        return usual * self.change.rate * (1 + math.cos(math.pi * left)) / 2


_USUAL = trainer._rate


def _nearest(features: Tensor, count: int) -> Tensor:
    """(N, count) numbers of the most similar other images, by the cosine of centred features."""
    centred = nn.functional.normalize(features - features.mean(dim=0), dim=1)
    similar = centred @ centred.T
    return similar.fill_diagonal_(-math.inf).topk(count).indices


def run(name: str, chosen: Sequence[str], record: Path = RECORD) -> None:
    """Train variants with all seeds of development, unless the record has them."""
    scenario = load(name)
    collection = open_configured(scenario.config(0))
    known = {(line["scenario"], line["variant"], line["seed"]) for line in read(record)}
    for variant in chosen:
        for seed in (seed for seed in SEEDS if (name, variant, seed) not in known):
            config = resolve(scenario.config(seed), collection.images)
            method = Variant(variant=variant)
            if CHANGES[variant].neighbours:
                rows = observe(
                    collection, labels=None, scheme=config.scheme, label_seed=config.label_seed
                ).train
                values = collection.images.gather(rows).astype(np.float32)
                method.features = torch.from_numpy(
                    values.reshape(*values.shape[:2], -1).mean(axis=2)
                )
            with mock.patch.object(trainer, "_rate", method.factor):
                done = train(config, method, collection=collection)
            assert done.scores is not None
            found = done.scores.networks["network"].epochs["last"].scores
            scores = {"mAP": found.mean_average_precision, "mF1": found.mean_f1}
            line = {"scenario": name, "variant": variant, "seed": seed, "scores": scores}
            append(record, {**line, "machine": environment()})
            print(name, variant, seed, scores, flush=True)


def table(name: str = "aid-features") -> str:
    """What every variant gains over Auto as it is, in mAP and mF1, mean over seeds."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for line in read(RECORD):
        if line["scenario"] == name:
            found.setdefault(line["variant"], {})[line["seed"]] = line["scores"]
    rows = ["| | seeds | mAP | mF1 |", "|---|---:|---:|---:|"]
    for variant, change in CHANGES.items():
        own, base = found.get(variant, {}), found.get("base", {})
        if variant == "base" or not own:
            continue
        gains = [
            plus(statistics.fmean(100 * (own[s][key] - base[s][key]) for s in own))
            for key in ("mAP", "mF1")
        ]
        rows.append(f"| {change.words} | {len(own)} | {' | '.join(gains)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenario")
    parser.add_argument("--variants", nargs="+", choices=list(CHANGES), default=list(CHANGES))
    asked = parser.parse_args()
    run(asked.scenario, asked.variants)
