"""Training a network: the steps of the optimiser, with any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from lightning_fabric import Fabric
from torch import nn

from adagc import ranks
from adagc.errors import TrainingError, examples
from adagc.methods.base import Method, reported_by
from adagc.methods.state import AveragedNetwork
from adagc.training.batches import Batches, derived_seed
from adagc.training.optimiser import make_optimiser, trained_backbones
from adagc.training.records import NamedRole
from adagc.training.settings import Settings
from adagc.types import Batch, Losses, NetworkRole, Progress, Reported, with_role

OnStep = Callable[[Progress, Losses], None]


class Trainer:
    """A network in training, with its method, its optimiser and, if wanted, an averaged copy.

    Args:
        network: The network to train, on the device of `fabric`.
        method: The method, after its `setup`.
        settings: How to train; `average` decides whether there is an averaged copy, unless the
            method deploys an average itself.
        fabric: Device and precision.
    """

    def __init__(
        self, network: nn.Module, method: Method, settings: Settings, fabric: Fabric
    ) -> None:
        self.network = network
        self.method = method
        self.settings = settings
        self.fabric = fabric
        modules = (network, method)
        groups = method.parameter_groups(network, settings.learning_rate)
        self._plain = make_optimiser(groups, modules, settings, fabric.device)
        # Those that stay as they are for the first epochs.
        self._waiting = trained_backbones(modules, self._plain) if settings.head_epochs else []
        self._base_rates = [group["lr"] for group in self._plain.param_groups]
        self.optimiser = cast(torch.optim.Optimizer, fabric.setup_optimizers(self._plain))
        self._exchange = ranks.GradientExchange(self._parameters())
        whole = ranks.world() == 1 and settings.device_batch is None
        self._called = network if whole else ranks.Spread(network)
        self.averaged: AveragedNetwork | None = None
        # A method that deploys an average of its own needs no second one.
        own = with_role(reported_by(method, network), NetworkRole.TRAINED) is not None
        if settings.average is not None and not own:
            self.averaged = AveragedNetwork(network, settings.average).to(fabric.device)

    def epoch(
        self, batches: Batches, number: int, on_step: OnStep | None = None
    ) -> dict[str, float]:
        """Train on all batches of an epoch, and return the means of the loss and of its parts."""
        for backbone in self._waiting:
            backbone.freeze(number <= self.settings.head_epochs)
        self.network.train()
        self.method.train()
        sums: dict[str, torch.Tensor] = {}
        with _seeded(self.settings.seed, number, self.fabric.device):
            for step, batch in enumerate(batches.epoch(number)):
                progress = progress_at(number, batches, self.settings, step)
                losses = self.step(batch, progress, batches)
                for name, value in (("total", losses.total), *losses.parts.items()):
                    sums[name] = value.detach() + sums.get(name, 0.0)
                if on_step is not None:
                    on_step(progress, losses)
        return {name: float(value) / len(batches) for name, value in sums.items()}

    def step(self, batch: Batch, progress: Progress, batches: Batches) -> Losses:
        """Take one optimiser step, then let the method and the averaged copy follow the weights.

        Raises TrainingError before the step if the loss is not finite.
        """
        factor = _rate(progress, self.settings)
        for group, rate in zip(self.optimiser.param_groups, self._base_rates, strict=True):
            group["lr"] = rate * factor
        with self.fabric.autocast(), ranks.in_parts(self.settings.device_batch):
            losses = self.method.loss(self._called, batch, progress)
        if not bool(torch.isfinite(losses.total)):
            raise _broken(losses.total, batch, batches, progress)
        self.fabric.backward(losses.total)
        self._exchange.finish()
        if self.settings.clip is not None:
            self.fabric.strategy.precision.unscale_gradients(self._plain)
            nn.utils.clip_grad_norm_(self._parameters(clipped=True), self.settings.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.method.after_step(self.network)
        if self.averaged is not None:
            self.averaged.update(self.network)
        return losses

    def restart(self, chosen: nn.Module) -> None:
        """Continue from the weights of this network, with a new optimiser state and average."""
        if chosen is not self.network:
            self.network.load_state_dict(chosen.state_dict())
        self._plain.state.clear()
        if self.averaged is not None:
            self.averaged.begin_anew(self.network)

    def reported(self) -> tuple[dict[str, nn.Module], dict[str, NamedRole]]:
        """All networks that get a row in the table of scores, and their roles, by name."""
        reported = reported_by(self.method, self.network)
        if self.averaged is not None:
            reported["averaged"] = Reported(self.averaged.network, NetworkRole.AVERAGE, "averaged")
        networks = {name: one.network for name, one in reported.items()}
        return networks, {name: NamedRole.of(one) for name, one in reported.items()}

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last step, in the first parameter group."""
        return float(self.optimiser.param_groups[0]["lr"])

    def _parameters(self, *, clipped: bool = False) -> list[nn.Parameter]:
        """All trained parameters, or only those of groups whose gradients may be clipped."""
        return [
            parameter
            for group in self._plain.param_groups
            if group.get("clip", True) or not clipped
            for parameter in group["params"]
        ]


def progress_at(epoch: int, batches: Batches, settings: Settings, step: int) -> Progress:
    """The progress of the run before this step of an epoch; steps count from 0."""
    return Progress(epoch, settings.epochs, (epoch - 1) * len(batches) + step, len(batches))


def _broken(
    loss: torch.Tensor, batch: Batch, batches: Batches, progress: Progress
) -> TrainingError:
    """The error for a loss that is not finite; names images with infinite values, if any."""
    step = progress.step % progress.steps_per_epoch + 1
    where = f"the loss became {loss.item()} in epoch {progress.epoch}, step {step}"
    names = [batches.images.names[row] for row in batches.rows[batch.index.tolist()]]
    finite = _finite(batch).tolist()
    bad = [name for name, good in zip(names, finite, strict=True) if not good]
    if bad:
        return TrainingError(
            f"{examples(bad)}: infinite values ({where}); repair or remove these images and start a"
            " new run with another --out"
        )
    return TrainingError(
        f"{where} (the first image is {names[0]}): start a new run with a lower"
        " --learning-rate or --clip 1, or continue this one with --resume from the last finished"
        " epoch"
    )


def _finite(batch: Batch) -> torch.Tensor:
    """(B,) 1 for images of the batch without infinite values, gathered from all ranks."""
    images = batch.images
    mine = images.mine if isinstance(images, ranks.Share) else images
    return ranks.gather((~mine.flatten(1).isinf()).all(dim=1).to(torch.uint8), len(images))


def _rate(progress: Progress, settings: Settings) -> float:
    """The factor of the learning rate at this step, from the schedule."""
    if settings.schedule == "constant":
        return 1.0
    done = progress.step / max(1, progress.epochs * progress.steps_per_epoch)
    return 0.5 * (1.0 + math.cos(math.pi * done))


@contextmanager
def _seeded(seed: int, epoch: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generator, which layers such as dropout use, for one epoch only."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        # Ranks have different images, so each rank draws its own random numbers.
        purpose = "layers" if ranks.rank() == 0 else f"layers of rank {ranks.rank()}"
        torch.manual_seed(derived_seed(seed, epoch, purpose))
        yield
