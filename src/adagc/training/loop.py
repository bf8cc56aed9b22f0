"""The training loop, which is the same for all methods.

After every epoch the method answers with a verdict: continue, keep a snapshot, go back to it,
restart, or stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
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
from adagc.training import held_out
from adagc.training.batches import Batches
from adagc.training.board import open_board
from adagc.training.clock import cpu_seconds, of_all_ranks
from adagc.training.fabric import make_fabric
from adagc.training.folders import Folder
from adagc.training.health import Watch, check_weights, checked_predictions
from adagc.training.history import History
from adagc.training.records import Choice, EpochRecord, NamedRole, OracleRecord, Summary
from adagc.training.settings import Settings
from adagc.training.snapshots import Snapshots, save_weights
from adagc.training.trainer import OnStep, Trainer, progress_at
from adagc.training.validation import Judgement, Look, Validation, judge
from adagc.types import Task, Verdict


class Observer(Protocol):
    """Called after every epoch with predictions and estimates; its numbers go into the history.

    Args:
        predictions: Name of each reported network -> (V, C) probabilities of validation images.
        estimates: (N, C) labels that the method estimates for the training images, if it does.
    """

    def __call__(
        self,
        predictions: dict[str, NDArray[np.float32]],
        estimates: NDArray[np.float32] | None,
    ) -> OracleRecord: ...


@dataclass
class Trained:
    """The result of training; the weights of the best epochs are in the folder of the run."""

    networks: dict[str, nn.Module]  # by name, with the weights of the last epoch
    roles: dict[str, NamedRole]  # roles of these networks
    best_epoch: dict[str, int]  # by network: the epoch that noisy validation chooses
    seconds: float  # time of all epochs, including those before an interruption
    cpu_seconds: float | None = None  # CPU time of the same epochs on all ranks; None if unknown


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
    """Train a network and write checkpoints and the history into `folder`.

    If the process is killed at any moment, another call with `resume` ends with the same weights
    as a call that was never interrupted: the order of images, augmentation and the method's random
    numbers depend only on the seed and the epoch, and the last finished epoch is on disk. With
    several ranks, all of them call this function, and the first one writes.

    Args:
        network: The network to train.
        method: The method; its `setup` is called here.
        task: What the method may know of the data.
        images: All images of the data set.
        rows: Rows of the training images in `images`, in the order of `task.observed`.
        validation: The validation images and their observed labels.
        folder: The files of the run.
        settings: How to train.
        resume: Continue after the last finished epoch in `folder`, if there is one.
        fabric: A launched Fabric; one is made if it is not given.
        observer: Adds scores on clean labels to the history; training does not see them.
        on_step: Called after every optimiser step, on the first rank only.
        on_epoch: Called after every epoch with its record, on the first rank only.
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
    ranks.wait()  # until all ranks have read the checkpoint, which the first one will replace
    history = History(folder, keep=first - 1) if writes else None
    board = open_board(folder, first) if writes else None
    watch = Watch()

    for epoch in range(first, settings.epochs + 1):
        began, began_cpu = time.perf_counter(), cpu_seconds()
        losses = trainer.epoch(batches, epoch, on_step if first_rank else None)
        trained = time.perf_counter() - began
        progress = progress_at(epoch, batches, settings, len(batches))
        check_weights(trainer.reported()[0], progress)
        if method.reviews(progress):
            predicted = predict(
                method.reviewed(network), images, rows, device=fabric.device, together=True
            )
            method.review(torch.from_numpy(predicted).to(fabric.device), progress)
        look = Look(images, validation, fabric.device)
        with checked_predictions(method.watched(network), images, validation.rows, progress):
            if method.wants_validation(progress):
                # Before networks are judged: what the method deploys may depend on it.
                method.see_validation(
                    torch.from_numpy(look(method.watched(network))).to(fabric.device),
                    torch.from_numpy(validation.observed.astype(np.int8)).to(fabric.device),
                    progress,
                )
            networks, roles = trainer.reported()
            judged = judge(networks, method.watched(network), look)
        if first_rank:
            watch.look(losses["total"], judged.probabilities, progress)
        rate = trainer.learning_rate  # before a snapshot with another rate may be restored
        oracle = None
        estimates = method.estimates()
        state.stability.note(estimates)
        if observer is not None:
            oracle = observer(
                dict(judged.probabilities),
                None if estimates is None else estimates.cpu().numpy(),
            )
        chosen_by = {name: values[settings.select] for name, values in judged.criteria.items()}
        better = state.note_best(folder, epoch, networks, chosen_by)
        _keep_predictions(folder, judged, validation, better, "best", writes)
        verdict = method.end_epoch(judged.scores, progress)
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
            criteria=judged.criteria,
            roles=roles,
            learning_rate=rate,
            oracle=oracle,
            verdict=verdict,
            status=method.status(),
            train_seconds=round(trained, 3),
            seconds=round(time.perf_counter() - began, 3),
        )
        state.add_time(line.seconds, of_all_ranks(cpu_seconds() - began_cpu, fabric.device))
        if history is not None:
            history.append(line)
        ends = epoch == settings.epochs or verdict is Verdict.STOP
        if ends:
            _keep_predictions(folder, judged, validation, networks, "last", writes)
        state.save(folder, epoch)
        if board is not None:
            board.add(line)
        if on_epoch is not None and first_rank:
            on_epoch(line)
        if ends:
            break

    networks, roles = trainer.reported()
    if writes:
        for name, candidate in networks.items():
            save_weights(folder, name, "last", candidate)
        state.stability.write(folder)
    return Trained(networks, roles, dict(state.best_epoch), state.seconds, state.cpu_seconds)


def _keep_predictions(
    folder: Folder,
    judged: Judgement,
    validation: Validation,
    names: Iterable[str],
    choice: Choice,
    writes: bool,
) -> None:
    """Write what these networks predict for the validation images."""
    for name in names if writes else ():
        values = judged.probabilities[name]
        held_out.save(folder, held_out.HeldOut(name, choice, values, validation.observed))


__all__ = ["Settings", "Trained", "Validation", "fit"]
