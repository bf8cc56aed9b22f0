"""The training loop. It knows epochs, steps and snapshots; it never names a method."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import nn

from adagc import ranks
from adagc.augment import Augmentation
from adagc.errors import TrainingError, check_range
from adagc.images.base import SceneDataset
from adagc.inference import predict
from adagc.methods.base import Method, reported_by
from adagc.methods.state import AveragedNetwork
from adagc.metrics import score
from adagc.training.batches import Batches, derived_seed
from adagc.training.fabric import make_fabric
from adagc.training.folders import Folder
from adagc.training.history import History, log_scalars, tensorboard
from adagc.training.records import EpochRecord, NamedRole, OracleRecord, Summary
from adagc.training.snapshots import Snapshots, save_weights
from adagc.types import Batch, Losses, NetworkRole, Progress, Reported, Scores, Task, Verdict

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """How to train; the same for every method that is to be compared.

    Args:
        epochs: Passes over the training images.
        batch_size: Images per optimiser step.
        learning_rate: Of Adam.
        weight_decay: Of Adam.
        schedule: Learning rate over the run: constant, or a half cosine down to zero.
        augment: Random mirroring and quarter turns, or none.
        clip: Largest norm of the gradient; none by default.
        precision: "auto" uses bfloat16 on GPUs that have it and float32 elsewhere.
        average: Momentum of an averaged copy of the network that is scored beside it; none by
            default. Any method can have one, which keeps comparisons fair with methods that
            report an average of their own.
        seed: Of weights, order and augmentation.
        accelerator: Where to compute.
    """

    epochs: int = 40
    batch_size: int = 32
    learning_rate: float = 5e-4
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    augment: Augmentation = "dihedral"
    clip: float | None = None
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    average: float | None = None
    seed: int = 0
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"

    def __post_init__(self) -> None:
        check_range("epochs", self.epochs, 1)
        check_range("batch_size", self.batch_size, 2)  # batch normalisation needs a variance
        check_range("learning_rate", self.learning_rate, 0)
        check_range("weight_decay", self.weight_decay, 0)
        check_range("clip", self.clip, 1e-12)
        check_range("average", self.average, 0, 1, below=True)
        check_range("seed", self.seed, 0)


@dataclass(frozen=True)
class Validation:
    """Rows for the noisy validation and what was observed of them."""

    rows: NDArray[np.int64]
    observed: NDArray[np.bool_]  # (V, C)


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
    on_step: Callable[[Progress, Losses], None] | None = None,
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
    if ranks.world() > 1 and fabric.device.type == "cuda":
        for module in (network, method):  # in place: neither is itself a normalisation
            nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    plain = torch.optim.Adam(
        method.parameter_groups(network, settings.learning_rate),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        # One pass over the weights instead of seven.
        fused=fabric.device.type in ("cpu", "cuda"),
    )
    base_rates = [group["lr"] for group in plain.param_groups]
    optimiser = cast(torch.optim.Adam, fabric.setup_optimizers(plain))
    called = network if ranks.world() == 1 else ranks.Spread(network)
    averaged = None
    if settings.average is not None:
        averaged = AveragedNetwork(network, settings.average).to(fabric.device)
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
    writes = ranks.rank() == 0
    state = Snapshots(network, method, optimiser, averaged, writes=writes)
    first = state.load(folder) + 1 if resume else 1
    ranks.wait()  # until all have read what the first rank may now write
    history = History(folder, keep=first - 1) if writes else None
    writer = tensorboard(folder, first) if writes else None

    for epoch in range(first, settings.epochs + 1):
        began = time.perf_counter()
        network.train()
        method.train()
        sums: dict[str, torch.Tensor] = {}
        with _seeded(settings.seed, epoch, fabric.device):
            for step, batch in enumerate(batches.epoch(epoch)):
                progress = Progress(
                    epoch, settings.epochs, (epoch - 1) * len(batches) + step, len(batches)
                )
                factor = _rate(progress, settings)
                for group, rate in zip(optimiser.param_groups, base_rates, strict=True):
                    group["lr"] = rate * factor
                with fabric.autocast():
                    losses = method.loss(called, batch, progress)
                if not bool(torch.isfinite(losses.total)):
                    raise _broken(losses.total, batch, images, rows, progress)
                fabric.backward(losses.total)
                ranks.mean_gradients(_parameters(plain))
                if settings.clip is not None:
                    fabric.strategy.precision.unscale_gradients(plain)
                    nn.utils.clip_grad_norm_(_parameters(plain, clipped=True), settings.clip)
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
                ranks.mean_statistics(network, method)
                method.after_step(network)
                if averaged is not None:
                    averaged.update(network)
                for name, value in (("total", losses.total), *losses.parts.items()):
                    sums[name] = value.detach() + sums.get(name, 0.0)
                if on_step is not None and writes:
                    on_step(progress, losses)
        trained = time.perf_counter() - began
        progress = Progress(epoch, settings.epochs, epoch * len(batches), len(batches))
        if method.reviews(progress):
            seen = _predict(method.deployed(network), images, rows, fabric.device)
            method.review(torch.from_numpy(seen).to(fabric.device), progress)

        networks, roles = _reported(method, network, averaged)
        probabilities, noisy, watched = _validate(
            method.watched(network), networks, images, validation, fabric.device
        )
        estimates = method.estimates()
        rate_used = optimiser.param_groups[0]["lr"]  # before a snapshot brings another one back
        seen_clean = None
        if observer is not None:
            seen_clean = observer(
                probabilities, None if estimates is None else estimates.cpu().numpy()
            )
        state.note_best(folder, epoch, networks, noisy)
        verdict = method.end_epoch(watched, progress)
        if verdict is Verdict.KEEP:
            state.keep(folder)
        elif verdict is Verdict.RESTORE:
            state.restore(folder)
            method.restored(progress)
        line = EpochRecord(
            epoch=epoch,
            losses={name: float(value) / len(batches) for name, value in sums.items()},
            noisy={name: Summary(scores.summary()) for name, scores in noisy.items()},
            roles=roles,
            learning_rate=rate_used,
            oracle=seen_clean,
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
        if on_epoch is not None and writes:
            on_epoch(line)

    if writer is not None:
        writer.close()
    networks, roles = _reported(method, network, averaged)
    if writes:
        for name, candidate in networks.items():
            save_weights(folder, name, "last", candidate)
    return Trained(networks, roles, dict(state.best_epoch), state.seconds)


def _reported(
    method: Method, network: nn.Module, averaged: AveragedNetwork | None
) -> tuple[dict[str, nn.Module], dict[str, NamedRole]]:
    """Every network that is scored, and what it is for."""
    found = reported_by(method, network)
    if averaged is not None:
        found["averaged"] = Reported(averaged.network, NetworkRole.AVERAGE, "averaged")
    networks = {name: one.network for name, one in found.items()}
    return networks, {name: NamedRole.of(one) for name, one in found.items()}


def _validate(
    watched: nn.Module,
    networks: dict[str, nn.Module],
    images: SceneDataset,
    validation: Validation,
    device: torch.device,
) -> tuple[dict[str, NDArray[np.float32]], dict[str, Scores], Scores]:
    """Probabilities and noisy scores of every network, and those of the watched one."""
    probabilities: dict[str, NDArray[np.float32]] = {}
    noisy: dict[str, Scores] = {}
    seen = None
    for name, candidate in networks.items():
        probabilities[name] = _predict(candidate, images, validation.rows, device)
        noisy[name] = score(validation.observed, probabilities[name], absent="skip")
        if candidate is watched:
            seen = noisy[name]
    if seen is None:
        values = _predict(watched, images, validation.rows, device)
        seen = score(validation.observed, values, absent="skip")
    return probabilities, noisy, seen


def _predict(
    network: nn.Module, images: SceneDataset, rows: NDArray[np.int64], device: torch.device
) -> NDArray[np.float32]:
    """Probabilities for these rows, every rank making its share."""
    mine = rows[ranks.rank() :: ranks.world()] if len(rows) >= ranks.world() else rows
    values = predict(network, images, mine, device=device)
    if len(mine) == len(rows):
        return values
    whole: NDArray[np.float32] = (
        ranks.gather(torch.from_numpy(values).to(device), len(rows)).cpu().numpy()
    )
    return whole


def _parameters(optimiser: torch.optim.Optimizer, *, clipped: bool = False) -> list[nn.Parameter]:
    """Everything that is trained, or only what may be clipped."""
    return [
        parameter
        for group in optimiser.param_groups
        if group.get("clip", True) or not clipped
        for parameter in group["params"]
    ]


def _broken(
    loss: torch.Tensor,
    batch: Batch,
    images: SceneDataset,
    rows: NDArray[np.int64],
    progress: Progress,
) -> TrainingError:
    """Stop before a broken step reaches the weights, and say where to look."""
    index = batch.index.tolist()
    step = progress.step % progress.steps_per_epoch + 1
    where = (
        f"the loss became {loss.item()} in epoch {progress.epoch}, step {step}, training images"
        f" {', '.join(map(str, index))}"
    )
    finite = batch.images.flatten(1).isfinite().all(dim=1).tolist()
    bad = [images.names[rows[i]] for i, good in zip(index, finite, strict=True) if not good]
    if bad:
        return TrainingError(
            f"{where}: {', '.join(bad[:5])} hold values that are not finite; mend or remove them,"
            " then continue with --resume, the last finished epoch is kept"
        )
    return TrainingError(
        f"{where} (the first is {images.names[rows[index[0]]]}): start a new run with a lower"
        " --learning_rate or --clip 1, or continue this one with --resume; the last finished epoch"
        " is kept"
    )


def _rate(progress: Progress, settings: Settings) -> float:
    """Share of the learning rate at this step."""
    if settings.schedule == "constant":
        return 1.0
    done = progress.step / max(1, progress.epochs * progress.steps_per_epoch)
    return 0.5 * (1.0 + math.cos(math.pi * done))


@contextmanager
def _seeded(seed: int, epoch: int, device: torch.device) -> Iterator[None]:
    """Layers such as dropout draw from torch's global generator: fix it for this epoch only."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        # Ranks drop different units: they see different images.
        purpose = "layers" if ranks.rank() == 0 else f"layers of rank {ranks.rank()}"
        torch.manual_seed(derived_seed(seed, epoch, purpose))
        yield


__all__ = ["Settings", "Trained", "Validation", "fit"]
