"""The network in training: one optimiser step after another, over any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from lightning_fabric import Fabric
from torch import nn

from adagc import ranks
from adagc.errors import TrainingError
from adagc.methods.base import Method, reported_by
from adagc.methods.state import AveragedNetwork
from adagc.training.batches import Batches, derived_seed
from adagc.training.records import NamedRole
from adagc.training.settings import Settings
from adagc.types import Batch, Losses, NetworkRole, Progress, Reported

OnStep = Callable[[Progress, Losses], None]


class Trainer:
    """A network and its method, the optimiser, and an averaged copy if one is wanted."""

    def __init__(
        self, network: nn.Module, method: Method, settings: Settings, fabric: Fabric
    ) -> None:
        self.network = network
        self.method = method
        self.settings = settings
        self.fabric = fabric
        self._plain = torch.optim.Adam(
            method.parameter_groups(network, settings.learning_rate),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            # One pass over the weights instead of seven.
            fused=fabric.device.type in ("cpu", "cuda"),
        )
        self._base_rates = [group["lr"] for group in self._plain.param_groups]
        self.optimiser = cast(torch.optim.Adam, fabric.setup_optimizers(self._plain))
        self._exchange = ranks.GradientExchange(self._parameters())
        self._called = network if ranks.world() == 1 else ranks.Spread(network)
        self.averaged: AveragedNetwork | None = None
        if settings.average is not None:
            self.averaged = AveragedNetwork(network, settings.average).to(fabric.device)

    def epoch(
        self, batches: Batches, number: int, on_step: OnStep | None = None
    ) -> dict[str, float]:
        """Train on all batches of an epoch; returns the means of the loss and its parts."""
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
        """One step of the optimiser, and what follows from it."""
        factor = _rate(progress, self.settings)
        for group, rate in zip(self.optimiser.param_groups, self._base_rates, strict=True):
            group["lr"] = rate * factor
        with self.fabric.autocast():
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
        """Go on from the weights of another network; optimiser and average forget the past."""
        if chosen is not self.network:
            self.network.load_state_dict(chosen.state_dict())
        self._plain.state.clear()
        if self.averaged is not None:
            self.averaged.begin_anew(self.network)

    def reported(self) -> tuple[dict[str, nn.Module], dict[str, NamedRole]]:
        """All networks that get a row in the table, and what they are for."""
        found = reported_by(self.method, self.network)
        if self.averaged is not None:
            found["averaged"] = Reported(self.averaged.network, NetworkRole.AVERAGE, "averaged")
        networks = {name: one.network for name, one in found.items()}
        return networks, {name: NamedRole.of(one) for name, one in found.items()}

    @property
    def learning_rate(self) -> float:
        """Of the network, at the last step."""
        return float(self.optimiser.param_groups[0]["lr"])

    def _parameters(self, *, clipped: bool = False) -> list[nn.Parameter]:
        """Everything that is trained, or only what may be clipped."""
        return [
            parameter
            for group in self._plain.param_groups
            if group.get("clip", True) or not clipped
            for parameter in group["params"]
        ]


def progress_at(epoch: int, batches: Batches, settings: Settings, step: int) -> Progress:
    """Where training stands before this step of an epoch."""
    return Progress(epoch, settings.epochs, (epoch - 1) * len(batches) + step, len(batches))


def _broken(
    loss: torch.Tensor, batch: Batch, batches: Batches, progress: Progress
) -> TrainingError:
    """Stop before a broken step reaches the weights, and say where to look."""
    index = batch.index.tolist()
    step = progress.step % progress.steps_per_epoch + 1
    where = (
        f"the loss became {loss.item()} in epoch {progress.epoch}, step {step}, training images"
        f" {', '.join(map(str, index))}"
    )
    names = [batches.images.names[row] for row in batches.rows[index]]
    finite = _finite(batch).tolist()
    bad = [name for name, good in zip(names, finite, strict=True) if not good]
    if bad:
        return TrainingError(
            f"{where}: {', '.join(bad[:5])} hold values that are not finite; mend or remove them,"
            " then continue with --resume, the last finished epoch is kept"
        )
    return TrainingError(
        f"{where} (the first is {names[0]}): start a new run with a lower"
        " --learning-rate or --clip 1, or continue this one with --resume; the last finished epoch"
        " is kept"
    )


def _finite(batch: Batch) -> torch.Tensor:
    """(B,) which images of a batch hold finite values only; ranks tell each other."""
    images = batch.images
    mine = images.mine if isinstance(images, ranks.Share) else images
    return ranks.gather(mine.flatten(1).isfinite().all(dim=1).to(torch.uint8), len(images))


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
