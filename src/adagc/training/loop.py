"""The training loop. It knows epochs, snapshots and verdicts; it never names a method."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import nn

from adagc import ranks
from adagc.images.base import SceneDataset
from adagc.inference import predict
from adagc.methods.base import Method
from adagc.training.batches import Batches
from adagc.training.fabric import make_fabric
from adagc.training.folders import Folder
from adagc.training.history import History, log_scalars, tensorboard
from adagc.training.records import EpochRecord, NamedRole, OracleRecord, Summary
from adagc.training.settings import Settings
from adagc.training.snapshots import Snapshots, save_weights
from adagc.training.trainer import OnStep, Trainer, progress_at
from adagc.training.validation import Judgement, Validation, judge
from adagc.types import Progress, Task, Verdict


class Observer(Protocol):
    """Sees predictions and estimates after every epoch and returns numbers for the history."""

    def __call__(
        self,
        predictions: dict[str, NDArray[np.float32]],
        estimates: NDArray[np.float32] | None,
    ) -> OracleRecord: ...


@dataclass
class Trained:
    """What the loop leaves: the networks of the last epoch and where the best ones are."""

    networks: dict[str, nn.Module]  # last epoch
    roles: dict[str, NamedRole]  # of these networks
    best_epoch: dict[str, int]  # by each network's own noisy validation mAP
    seconds: float


def fit(
    network: nn.Module,
    method: Method,
    task: Task,
    images: SceneDataset,
    rows: NDArray[np.int64],
    validation: Validation,
    folder: Folder,
    settings: Settings,
    *,
    resume: bool = False,
    fabric: Fabric | None = None,
    observer: Observer | None = None,
    on_step: OnStep | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> Trained:
    """Train and leave checkpoints and a history in `folder`.

    Killed at any moment, a second call with `resume` ends with the same weights as a call that
    was never interrupted: order, augmentation and the method's draws depend on the seed and the
    epoch alone, and the last finished epoch is on disk. With several ranks, all call this, and the
    first one writes.
    """
    fabric = fabric or make_fabric(settings)
    network = network.to(fabric.device)
    method.setup(network, task)
    method.to(fabric.device)
    trainer = Trainer(network, method, settings, fabric)
    batches = Batches(
        images,
        rows,
        task.observed,
        truth=task.truth,
        batch_size=settings.batch_size,
        seed=settings.seed,
        how=settings.augment,
        device=fabric.device,
    )
    first_rank, writes = ranks.rank() == 0, folder.written_here
    state = Snapshots(network, method, trainer.optimiser, trainer.averaged, writes=writes)
    first = state.load(folder) + 1 if resume else 1
    ranks.wait()  # until all have read what the first rank may now write
    history = History(folder, keep=first - 1) if writes else None
    writer = tensorboard(folder, first) if writes else None

    for epoch in range(first, settings.epochs + 1):
        began = time.perf_counter()
        losses = trainer.epoch(batches, epoch, on_step if first_rank else None)
        trained = time.perf_counter() - began
        progress = progress_at(epoch, batches, settings, len(batches))
        if method.reviews(progress):
            seen = predict(
                method.deployed(network), images, rows, device=fabric.device, together=True
            )
            method.review(torch.from_numpy(seen).to(fabric.device), progress)
        networks, roles = trainer.reported()
        judged = judge(networks, method.watched(network), images, validation, fabric.device)
        rate = trainer.learning_rate  # before a snapshot brings another one back
        oracle = None
        if observer is not None:
            estimates = method.estimates()
            oracle = observer(
                dict(judged.probabilities),
                None if estimates is None else estimates.cpu().numpy(),
            )
        state.note_best(folder, epoch, networks, judged.noisy)
        verdict = _verdict(method, judged, validation, progress, fabric.device)
        if verdict is Verdict.KEEP:
            state.keep(folder)
        elif verdict is Verdict.RESTORE:
            state.restore(folder)
            method.restored(progress)
        elif verdict is Verdict.RESTART:
            trainer.restart(method.chosen(network))
            method.restarted(network, progress)
        line = EpochRecord(
            epoch=epoch,
            losses=losses,
            noisy={name: Summary(scores.summary()) for name, scores in judged.noisy.items()},
            roles=roles,
            learning_rate=rate,
            oracle=oracle,
            verdict=verdict,
            status=method.status(),
            train_seconds=round(trained, 3),
            seconds=round(time.perf_counter() - began, 3),
        )
        state.seconds += line.seconds
        if history is not None:
            history.append(line)
        state.save(folder, epoch)
        if writer is not None:
            log_scalars(writer, line)
        if on_epoch is not None and first_rank:
            on_epoch(line)

    if writer is not None:
        writer.close()
    networks, roles = trainer.reported()
    if writes:
        for name, candidate in networks.items():
            save_weights(folder, name, "last", candidate)
    return Trained(networks, roles, dict(state.best_epoch), state.seconds)


def _verdict(
    method: Method,
    judged: Judgement,
    validation: Validation,
    progress: Progress,
    device: torch.device,
) -> Verdict:
    """What the method makes of the epoch, after it has seen the predictions if it wants to."""
    if method.wants_validation(progress):
        observed = torch.from_numpy(validation.observed.astype(np.int8))
        method.see_validation(
            torch.from_numpy(judged.watched).to(device), observed.to(device), progress
        )
    return method.end_epoch(judged.scores, progress)


__all__ = ["Settings", "Trained", "Validation", "fit"]
