"""State that several methods share: a table per image, an averaged network, Mixup."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast, overload

import torch
from torch import Tensor, nn

from adagc.inference import probabilities
from adagc.ranks import Share, spread


class SampleTable(nn.Module):
    """One row per training image, in the checkpoint; the same on all ranks.

    Args:
        rows: Training images.
        columns: Classes.
        start: What a row holds before it is first written.
    """

    values: Tensor  # (N, C) float32
    seen: Tensor  # (N,) bool: ever written

    def __init__(self, rows: int, columns: int, *, start: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("values", torch.full((rows, columns), start))
        self.register_buffer("seen", torch.zeros(rows, dtype=torch.bool))

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.values[index]

    def write(self, index: Tensor, rows: Tensor) -> None:
        """Replace these rows."""
        self.values[index] = rows.detach().to(self.values.dtype)
        self.seen[index] = True

    def average(self, index: Tensor, rows: Tensor, momentum: float, *, first: bool) -> Tensor:
        """Move rows towards new values by 1 - momentum and return them.

        With `first` a row's first value is taken whole instead of being averaged with `start`.
        """
        rows = rows.detach().to(self.values.dtype)
        mixed = torch.lerp(rows, self.values[index], momentum)
        if first:
            mixed = torch.where(self.seen[index].unsqueeze(1), mixed, rows)
        self.write(index, mixed)
        return mixed


class AveragedNetwork(nn.Module):
    """An exponential moving average of a network, θ_T ← β θ_T + (1 - β) θ_S after every step.

    Always in evaluation mode. Floating-point buffers (the statistics of batch normalisation) are
    averaged like weights, because this copy never sees a training batch of its own; integer
    buffers are copied.

    Args:
        network: The network to follow.
        momentum: β.
        warm_up: Cap β at 1 - 1/n in step n, so that the average is a plain mean of all weights so
            far until it has a history worth β. Without it the random initial weights still make
            up 56 % of the average after ten epochs of 57 steps with β = 0.999.
    """

    steps: Tensor

    def __init__(self, network: nn.Module, momentum: float, *, warm_up: bool = True) -> None:
        super().__init__()
        self.momentum = momentum
        self.warm_up = warm_up
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self._pairs: _Pairs | None = None
        self.eval()

    def train(self, mode: bool = True) -> AveragedNetwork:
        """Stay in evaluation mode whatever is asked."""
        return super().train(False)

    def forward(self, images: Tensor | Share) -> Tensor:
        """Logits of the averaged network."""
        return spread(cast(Callable[[Tensor], Tensor], self.network), images)

    def probabilities(self, images: Tensor | Share) -> Tensor:
        """(B, C) what the averaged network deploys."""
        return spread(partial(probabilities, self.network), images)

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Take one step towards the network."""
        self.steps += 1
        momentum = self.momentum
        if self.warm_up:
            momentum = min(momentum, 1.0 - 1.0 / int(self.steps))
        if self._pairs is None or self._pairs.followed is not network:
            self._pairs = _Pairs(self.network, network)
        ours, theirs = self._pairs.averaged()
        # lerp leaves equal values untouched, so constants such as the normalisation never drift.
        torch._foreach_lerp_(ours, theirs, 1.0 - momentum)
        for mine, other in zip(*self._pairs.copied(), strict=True):
            mine.copy_(other)

    @torch.no_grad()
    def begin_anew(self, network: nn.Module) -> None:
        """Forget the past: the average is this network, and its history starts here."""
        self.network.load_state_dict(network.state_dict())
        self.steps.zero_()

    def __getstate__(self) -> dict[str, Any]:
        # A copy finds its own places: these point into the original and the network it follows.
        return {**self.__dict__, "_pairs": None}


class _Pairs:
    """Where the weights and buffers of two equal networks are kept.

    Walking through the modules takes a twentieth of a step of a small network, so it is done once.
    Places, not tensors, because moving a network to another device replaces its buffers.
    """

    def __init__(self, mine: nn.Module, followed: nn.Module) -> None:
        self.followed = followed
        pairs = list(zip(_places(mine), _places(followed), strict=True))
        self._floats = [pair for pair in pairs if _at(pair[0]).is_floating_point()]
        self._others = [pair for pair in pairs if not _at(pair[0]).is_floating_point()]

    def averaged(self) -> tuple[list[Tensor], list[Tensor]]:
        """Ours and theirs, of floating point."""
        return _both(self._floats)

    def copied(self) -> tuple[list[Tensor], list[Tensor]]:
        """Ours and theirs, the rest."""
        return _both(self._others)


_Place = tuple[dict[str, Any], str]


def _places(network: nn.Module) -> list[_Place]:
    """Of every parameter and buffer, a shared one once.

    Buffers that no file of weights has (thresholds) are settings of each network, not weights.
    """
    found: dict[int, _Place] = {}
    for module in network.modules():
        for shelf in (module._parameters, module._buffers):
            for name, tensor in shelf.items():
                if tensor is not None and name not in module._non_persistent_buffers_set:
                    found.setdefault(id(tensor), (shelf, name))
    return list(found.values())


def _at(place: _Place) -> Tensor:
    shelf, name = place
    return cast(Tensor, shelf[name])


def _both(pairs: list[tuple[_Place, _Place]]) -> tuple[list[Tensor], list[Tensor]]:
    return [_at(mine) for mine, _ in pairs], [_at(theirs) for _, theirs in pairs]


@dataclass(frozen=True)
class Mixup:
    """Pairs for z̃ = φ z_i + (1 - φ) z_j, the same for images, labels and pseudo-labels."""

    partner: Tensor  # (B,) j of each i
    share: Tensor  # (B,) φ

    @classmethod
    def draw(
        cls,
        size: int,
        alpha: float,
        generator: torch.Generator,
        *,
        per: Literal["batch", "sample"] = "batch",
        device: torch.device | None = None,
    ) -> Mixup:
        """One permutation, φ ~ Beta(α, α) once per batch or once per sample."""
        partner = torch.randperm(size, generator=generator)
        count = size if per == "sample" else 1
        # torch's Beta takes no generator: two gammas make it, drawn on the CPU for repeatability.
        shape = torch.full((2, count), alpha, dtype=torch.float64)
        gamma = torch._standard_gamma(shape, generator=generator)
        # For a tiny α both may be too small to be told from 0: then one of the two images is all.
        share = (gamma[0] / gamma.sum(dim=0)).nan_to_num(1.0).to(torch.float32).expand(size)
        return cls(partner.to(device), share.to(device))

    @overload
    def __call__(self, values: Tensor) -> Tensor: ...
    @overload
    def __call__(self, values: Share) -> Share: ...
    def __call__(self, values: Tensor | Share) -> Tensor | Share:
        """Mix the rows of a tensor, or the images of a batch."""
        if isinstance(values, Share):
            return values.blend(self.partner, self.share)
        share = self.share.view(-1, *[1] * (values.dim() - 1)).to(values.dtype)
        return torch.lerp(values[self.partner], values, share)
