"""How frequent classes are, for methods that want to know: from a pilot, the truth, or a file.

A pilot is a short training before the run: the same images, observed labels, network and seed, but
with the likelihood of labels that were drawn at random (`adagc.methods.pilot`). Frequencies are
estimated from what it predicts for the validation images (`adagc.priors`). No clean label reaches
it. The result is priors.json in the folder of the run; a run that is resumed reads it.
"""

from __future__ import annotations

import logging
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
from adagc.priors import estimate
from adagc.training.frequencies import judged
from adagc.training.prior_files import PRIORS, read_priors
from adagc.training.records import PriorsRecord
from adagc.training.runs import Run
from adagc.training.short import Material
from adagc.types import Task

if TYPE_CHECKING:
    from adagc.datasets.collection import Collection
    from adagc.training.config import RunConfig
    from adagc.training.observe import Observed

_RECIPE = 1  # raise it when the same settings would give another estimate
# A pilot may take a third of the epochs of the run, or this many in a short one: what a network
# predicts that has hardly been trained says nothing of frequencies.
_SHARE, _LEAST = 1 / 3, 10

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


def estimated_priors(
    run: Run, material: Material, method: Method, shared: Path | None = None
) -> PriorsRecord:
    """The estimate for a run: the one in its folder, or in the shared one, or that of a new pilot.

    With several ranks all of them call this.

    Args:
        run: The run, which has been started; priors.json is written here.
        material: What it is made from.
        method: Its method, for messages.
        shared: Folder of estimates that runs with the same data and seed may share.
    """
    key = material.key({"recipe": _RECIPE})
    place = None if shared is None or run.files.place is None else shared / f"{key[:16]}.json"
    with _alone(place):
        if run.files.written_here and place is not None and not _usable(run, key):
            _take(run, key, place)
        ranks.wait()  # until the first rank has looked
        if not _usable(run, key):
            _pilot(run, material, method, key)
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


def _pilot(run: Run, material: Material, method: Method, key: str) -> None:
    """Train the pilot and write its estimate; nothing is written before the pilot has ended."""
    epochs, observed = material.config.epochs, material.observed
    most = min(epochs, max(_LEAST, round(_SHARE * epochs)))
    log.info(
        "estimating how frequent classes are, which %s wants to know: a training of at most %d"
        " epochs before its own", method.title, most,
    )  # fmt: skip
    pilot = Pilot(most=most)
    spent = material.train(pilot, "estimating how frequent classes are")
    assert pilot.best is not None  # it has seen at least one epoch
    found = judged(estimate(*pilot.best), observed.table.meta.get("scheme"))
    record = PriorsRecord(
        "estimated",
        material.collection.classes,
        tuple(found.frequencies.tolist()),
        found.interval,
        found.trusted,
        found.reason,
        images=len(observed.val),
        epochs=pilot.epochs,
        best_epoch=pilot.best_epoch,
        seconds=spent.seconds,
        cpu_seconds=spent.cpu_seconds,
        key=key,
    )
    log.info(
        "the images show about %.1f labels each, by an estimate that took %.0f s",
        record.cardinality, record.seconds,
    )  # fmt: skip
    if run.files.written_here:
        run.write_json(PRIORS, record.to_dict())


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
