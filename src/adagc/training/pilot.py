"""How frequent classes are, for methods that want to know: from a pilot, the truth, or a file.

A pilot is a short training before the run: the same images, observed labels, network and seed, but
with the likelihood of labels that were drawn at random (`adagc.methods.pilot`). Frequencies are
estimated from what it predicts for the validation images (`adagc.priors`). No clean label reaches
it. The result is priors.json in the folder of the run; a run that is resumed reads it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from adagc import ranks
from adagc.atomic import write_json
from adagc.errors import AdagcError, UnsuitedError
from adagc.methods.base import Method
from adagc.methods.pilot import Pilot
from adagc.methods.told import WORDS, Source
from adagc.models.spec import PLAIN_BACKBONES
from adagc.priors import estimate
from adagc.progress import meter
from adagc.training.clock import cpu_seconds, of_all_ranks
from adagc.training.contents import contents, data_digests
from adagc.training.folders import MemoryFolder
from adagc.training.frequencies import judged
from adagc.training.loop import Validation, fit
from adagc.training.network import network_maker, suited
from adagc.training.prior_files import PRIORS, read_priors
from adagc.training.records import PriorsRecord
from adagc.training.runs import FREE, Run
from adagc.training.settings import Settings
from adagc.types import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from adagc.datasets.collection import Collection
    from adagc.training.config import RunConfig
    from adagc.training.observe import Observed

_RECIPE = 1  # raise it when the same settings would give another estimate
# A pilot may take a third of the epochs of the run, or this many in a short one: what a network
# predicts that has hardly been trained says nothing of frequencies.
_SHARE, _LEAST = 1 / 3, 10
# Settings that change neither what a pilot sees nor how it is trained.
_WITHOUT_EFFECT = FREE | {
    *("truth", "text", "priors", "selection", "thresholds", "select", "average")
}

log = logging.getLogger(__name__)


def known_priors(
    source: Source | None,
    config: RunConfig,
    method: Method,
    collection: Collection,
    observed: Observed,
) -> PriorsRecord | None:
    """Those that are known before training; None if there are none, or they are to be estimated.

    Raises:
        UnsuitedError: If the truth is asked for, and no training image has clean labels.
        UsageError: If the file cannot be used, also if this method takes nothing from it.
    """
    found = None
    if config.priors not in WORDS:
        found = read_priors(Path(config.priors)).ordered(collection.classes, config.priors)
        # What it took to find them is not part of this run.
        found = replace(found, seconds=0.0, cpu_seconds=0.0, epochs=0, best_epoch=0, key="")
    if source != "truth":
        return found if source == "file" else None
    rows = observed.train[collection.has_truth(observed.train)]
    if collection.truth is None or not len(rows):
        raise UnsuitedError(
            f"{method.title} needs true class frequencies, which this task does not have: let"
            " --priors estimate them, or give clean training labels (--truth FILE; in"
            " scenario.yaml truth: FILE)"
        )
    shares = torch.from_numpy(collection.truth[rows].astype(np.float32)).mean(dim=0)
    return PriorsRecord("truth", collection.classes, tuple(shares.tolist()), cpu_seconds=0.0)


def stand_in(task: Task) -> Task:
    """The task with frequencies of observed labels, to check a method before the pilot."""
    return replace(task, priors=(task.observed > 0).float().mean(dim=0))


def informed(task: Task, priors: PriorsRecord | None) -> Task:
    """The task with these frequencies."""
    return task if priors is None else replace(task, priors=torch.tensor(priors.frequencies))


def with_pilot(
    seconds: float, used: float | None, priors: PriorsRecord | None
) -> tuple[float, float | None]:
    """What a run costs, in seconds and CPU seconds: its training, and the estimate made for it.

    A shared estimate counts in every run, which could not have been made without it.
    """
    if priors is None:
        return seconds, used
    known = used is not None and priors.cpu_seconds is not None
    return seconds + priors.seconds, (used or 0.0) + (priors.cpu_seconds or 0.0) if known else None


def estimated_priors(
    run: Run,
    config: RunConfig,
    method: Method,
    collection: Collection,
    observed: Observed,
    task: Task,
    fabric: Fabric,
    shared: Path | None = None,
) -> PriorsRecord:
    """The estimate for a run: the one in its folder, or in the shared one, or that of a new pilot.

    With several ranks all of them call this.

    Args:
        run: The run, which has been started; priors.json is written here.
        config: Its settings.
        method: Its method, for messages.
        collection: Its data.
        observed: Its observed labels.
        task: What its method may know; the pilot gets no clean labels, even if it has some.
        fabric: The device.
        shared: Folder of estimates that runs with the same data and seed may share.
    """
    key = _key(config, collection, observed)
    place = None if shared is None or run.files.place is None else shared / f"{key[:16]}.json"
    with _alone(place):
        if run.files.written_here and place is not None and not _usable(run, key):
            _take(run, key, place)
        ranks.wait()  # until the first rank has looked
        if not _usable(run, key):
            _pilot(run, config, method, collection, observed, task, fabric, key)
            if place is not None and run.files.written_here:
                write_json(place, run.read_json(PRIORS))
    ranks.wait()  # until the first rank has written
    found = run.priors
    assert found is not None
    if not found.trusted:
        log.warning(
            "%s goes on with an estimate of %.1f labels per image that cannot be trusted. %s",
            method.title, found.cardinality, found.reason,
        )  # fmt: skip
    return found


def _usable(run: Run, key: str) -> bool:
    """Whether the run has an estimate that is its own.

    Once an epoch is finished, it is the one that the run is trained with. Before that the run may
    still get other labels or images, for which another estimate has to be made.
    """
    found = run.priors
    return found is not None and (run.begun or found.key == key)


def _take(run: Run, key: str, place: Path) -> None:
    """Copy the shared estimate, if there is one that can be read."""
    with suppress(AdagcError):
        found = read_priors(place)
        if found.key == key:
            run.write_json(PRIORS, found.to_dict())


def _pilot(
    run: Run,
    config: RunConfig,
    method: Method,
    collection: Collection,
    observed: Observed,
    task: Task,
    fabric: Fabric,
    key: str,
) -> None:
    """Train the pilot and write its estimate; nothing is written before the pilot has ended."""
    began, began_cpu = time.perf_counter(), cpu_seconds()
    most = min(config.epochs, max(_LEAST, round(_SHARE * config.epochs)))
    log.info(
        "estimating how frequent classes are, which %s wants to know: a training of at most %d"
        " epochs before its own", method.title, most,
    )  # fmt: skip
    pilot = Pilot(most=most)
    head = pilot.head()
    images = suited(collection.images, plain=config.backbone in PLAIN_BACKBONES, head=head)
    fresh = network_maker(config, images, collection.classes, observed.train, head)
    with meter("estimating how frequent classes are", most * task.steps_per_epoch) as shown:
        fit(
            fresh(config.seed),
            pilot,
            replace(task, truth=None, priors=None, selection=None, text=None, fresh=fresh),
            images,
            observed.train,
            Validation(observed.val, observed.values[observed.val]),
            MemoryFolder(),
            replace(Settings.of(config), average=None),
            fabric=fabric,
            on_step=lambda progress, _: shown.update(progress.step + 1),
        )
    assert pilot.best is not None  # it has seen at least one epoch
    found = judged(estimate(*pilot.best), observed.table.meta.get("scheme"))
    used = of_all_ranks(cpu_seconds() - began_cpu, fabric.device)
    record = PriorsRecord(
        "estimated",
        collection.classes,
        tuple(found.frequencies.tolist()),
        found.interval,
        found.trusted,
        found.reason,
        images=len(observed.val),
        epochs=pilot.epochs,
        best_epoch=pilot.best_epoch,
        seconds=round(time.perf_counter() - began, 3),
        cpu_seconds=None if used is None else round(used, 3),
        key=key,
    )
    log.info(
        "the images show about %.1f labels each, by an estimate that took %.0f s",
        record.cardinality, record.seconds,
    )  # fmt: skip
    if run.files.written_here:
        run.write_json(PRIORS, record.to_dict())


def _key(config: RunConfig, collection: Collection, observed: Observed) -> str:
    """Digest of everything that an estimate depends on; of clean labels it knows nothing."""
    settings = config.to_dict()
    files = contents(settings)
    known = {
        "recipe": _RECIPE,
        "settings": {k: v for k, v in settings.items() if k not in _WITHOUT_EFFECT},
        "weights": files.get("weights"),
        "labels": observed.table.hash,
        "scheme": observed.table.meta.get("scheme"),
        "data": {
            name: digest
            for name, digest in data_digests(collection).items()
            if name in ("train images", "val images")
        },
    }
    text = json.dumps(known, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _alone(place: Path | None) -> Iterator[None]:
    """Be the only process that makes this shared file; others wait and then find it.

    Only the first rank takes part. On a disk without locks every process makes its own.
    """
    if place is None or ranks.rank() != 0:
        yield
        return
    from filelock import FileLock

    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.with_suffix(".lock"))
    try:
        lock.acquire()
    except (NotImplementedError, OSError):
        yield
        return
    try:
        yield
    finally:
        lock.release()
