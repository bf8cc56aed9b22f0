"""Short trainings before a run, from which its method learns something: pilots."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adagc.methods.pilot import Pilot
from adagc.progress import meter
from adagc.training.clock import cpu_seconds, of_all_ranks
from adagc.training.contents import contents, data_digests
from adagc.training.folders import MemoryFolder
from adagc.training.loop import Validation, fit
from adagc.training.network import furnished
from adagc.training.records import PriorsRecord, ShortlistRecord
from adagc.training.runs import FREE
from adagc.training.settings import Settings
from adagc.types import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from adagc.datasets.collection import Collection
    from adagc.training.config import RunConfig
    from adagc.training.observe import Observed

# Settings that change neither what a pilot sees nor how it is trained.
_WITHOUT_EFFECT = FREE | {
    *("truth", "text", "priors", "selection", "thresholds", "select", "average")
}


@dataclass(frozen=True)
class Spent:
    """What was spent before a run."""

    seconds: float = 0.0
    cpu_seconds: float | None = 0.0  # None on a GPU

    def __add__(self, other: Spent) -> Spent:
        known = self.cpu_seconds is not None and other.cpu_seconds is not None
        used = (self.cpu_seconds or 0.0) + (other.cpu_seconds or 0.0) if known else None
        return Spent(self.seconds + other.seconds, used)


def spent_on(record: PriorsRecord | ShortlistRecord | None) -> Spent:
    """What a result took that was found before a run; a shared one counts in every run.

    None could have been made without it.
    """
    return Spent() if record is None else Spent(record.seconds, record.cpu_seconds)


@dataclass(frozen=True)
class Material:
    """What a run and its pilots are made from.

    Attributes:
        config: The settings of the run.
        collection: Its data.
        observed: Its observed labels.
        task: What its method may know. Pilots get no clean labels, even if it has some.
        fabric: The device.
    """

    config: RunConfig
    collection: Collection
    observed: Observed
    task: Task
    fabric: Fabric

    def train(self, pilot: Pilot, says: str) -> Spent:
        """Train a pilot from the seed of the run, in memory; progress is shown as `says`."""
        began, began_cpu = time.perf_counter(), cpu_seconds()
        config, observed = self.config, self.observed
        images, fresh = furnished(config, pilot.head(), self.collection, observed.train)
        with meter(says, pilot.most * self.task.steps_per_epoch) as shown:
            fit(
                fresh(config.seed),
                pilot,
                replace(self.task, truth=None, priors=None, selection=None, text=None, fresh=fresh),
                images,
                observed.train,
                Validation(observed.val, observed.values[observed.val]),
                MemoryFolder(),
                replace(Settings.of(config), average=None),
                fabric=self.fabric,
                on_step=lambda progress, _: shown.update(progress.step + 1),
            )
        used = of_all_ranks(cpu_seconds() - began_cpu, self.fabric.device)
        return Spent(
            round(time.perf_counter() - began, 3), None if used is None else round(used, 3)
        )

    def key(self, recipe: Mapping[str, Any]) -> str:
        """Digest of everything that pilots by this recipe depend on; no clean label is part of it.

        Args:
            recipe: What is done with the data, and the version of how it is done.
        """
        settings, observed = self.config.to_dict(), self.observed
        known = {
            **recipe,
            "settings": {k: v for k, v in settings.items() if k not in _WITHOUT_EFFECT},
            "weights": contents(settings).get("weights"),
            "labels": observed.table.hash,
            "scheme": observed.table.meta.get("scheme"),
            "data": {
                name: digest
                for name, digest in data_digests(self.collection).items()
                if name in ("train images", "val images")
            },
        }
        text = json.dumps(known, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()
