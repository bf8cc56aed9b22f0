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
    """A table with one row per training image, stored in checkpoints and equal on all ranks.

    It takes 4 bytes per entry and no more, since there may be millions of images.

    Args:
        rows: Number of training images.
        columns: Number of classes.
        start: Value of every entry before its row is first written; a row in which every entry has
            this value counts as never written.
    """

    values: Tensor  # (N, C) float32

    def __init__(self, rows: int, columns: int, *, start: float = 0.0) -> None:
        super().__init__()
        self.start = start
        self.register_buffer("values", torch.full((rows, columns), start))

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.values[index]

    @property
    def seen(self) -> Tensor:
        """Which rows were ever written, (N,) bool."""
        return self.written(slice(None))

    def written(self, index: Tensor | slice) -> Tensor:
        """Which of these rows were ever written, one bool each."""
        values = self.values[index]
        return (values != values.new_tensor(self.start)).any(dim=1)

    def write(self, index: Tensor, rows: Tensor) -> None:
        """Replace the rows of these images, without gradient."""
        self.values[index] = rows.detach().to(self.values.dtype)

    def average(self, index: Tensor, rows: Tensor, momentum: float, *, first: bool) -> Tensor:
        """Replace old rows by momentum * old + (1 - momentum) * new, and return the result.

        With `first` the first value of a row is stored as it is, not averaged with `start`.
        """
        rows = rows.detach().to(self.values.dtype)
        averaged = torch.lerp(rows, self.values[index], momentum)
        if first:
            averaged = torch.where(self.written(index).unsqueeze(1), averaged, rows)
        self.write(index, averaged)
        return averaged

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *more: Any) -> None:
        state.pop(f"{prefix}seen", None)  # of checkpoints that kept beside it what was written
        super()._load_from_state_dict(state, prefix, *more)


class AveragedNetwork(nn.Module):
    """An exponential moving average of a network, θ_T ← β θ_T + (1 - β) θ_S after every step.

    It is always in evaluation mode. Floating-point buffers (the statistics of batch normalisation)
    are averaged like weights, because no training batch is ever passed through this copy; integer
    buffers are copied.

    Args:
        network: The network whose weights are averaged.
        momentum: Share of the average that is kept in every step (β).
        warm_up: Whether to limit β to 1 - 1/n in step n, which makes the average a plain mean of
            all weights so far for the first 1 / (1 - β) steps. Without it the random initial
            weights still make up 56 % of the average after ten epochs of 57 steps with β = 0.999.
    """

    steps: Tensor  # () int64: updates so far

    def __init__(self, network: nn.Module, momentum: float, *, warm_up: bool = True) -> None:
        super().__init__()
        self.momentum = momentum
        self.warm_up = warm_up
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self._pairs: _Pairs | None = None
        self.eval()

    def train(self, mode: bool = True) -> AveragedNetwork:
        """Stay in evaluation mode, whatever `mode` is."""
        return super().train(False)

    def forward(self, images: Tensor | Share) -> Tensor:
        """(B, C) logits of the averaged network."""
        return spread(cast(Callable[[Tensor], Tensor], self.network), images)

    def probabilities(self, images: Tensor | Share) -> Tensor:
        """(B, C) probabilities of the averaged network, as its head defines them."""
        return spread(partial(probabilities, self.network), images)

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Average the network's current weights in; called after every optimiser step."""
        self.steps += 1
        momentum = self.momentum
        if self.warm_up:
            momentum = min(momentum, 1.0 - 1.0 / int(self.steps))
        if self._pairs is None or self._pairs.followed is not network:
            self._pairs = _Pairs(self.network, network)
        ours, theirs = self._pairs.averaged()
        # lerp leaves equal values untouched, so constants such as the normalisation never drift.
        torch._foreach_lerp_(ours, theirs, 1.0 - momentum)
        for mine, followed in zip(*self._pairs.copied(), strict=True):
            mine.copy_(followed)

    @torch.no_grad()
    def begin_anew(self, network: nn.Module) -> None:
        """Start again: the average becomes a copy of this network, with no steps counted."""
        self.network.load_state_dict(network.state_dict())
        self.steps.zero_()

    def __getstate__(self) -> dict[str, Any]:
        # A copy must collect its own pairs: these point into the original and its network.
        return {**self.__dict__, "_pairs": None}


class _Pairs:
    """The weights and buffers of two networks of the same structure, in pairs.

    Collecting them from the modules takes a twentieth of a step of a small network, so it is done
    once. What is stored is where each tensor is found (a dictionary and a key), not the tensor,
    because moving a network to another device replaces its buffers.
    """

    def __init__(self, mine: nn.Module, followed: nn.Module) -> None:
        self.followed = followed
        pairs = list(zip(_places(mine), _places(followed), strict=True))
        self._floats = [pair for pair in pairs if _at(pair[0]).is_floating_point()]
        self._others = [pair for pair in pairs if not _at(pair[0]).is_floating_point()]

    def averaged(self) -> tuple[list[Tensor], list[Tensor]]:
        """The floating-point tensors of our network and those of the one it follows."""
        return _both(self._floats)

    def copied(self) -> tuple[list[Tensor], list[Tensor]]:
        """The other tensors (integers) of our network and those of the one it follows."""
        return _both(self._others)


_Place = tuple[dict[str, Any], str]  # the dictionary of a module that holds a tensor, and its key


def _places(network: nn.Module) -> list[_Place]:
    """The place of every parameter and buffer; one that modules share is listed once.

    Buffers that are not saved in files of weights (thresholds) are left out: they are settings of
    each network, not weights.
    """
    places: dict[int, _Place] = {}
    for module in network.modules():
        for shelf in (module._parameters, module._buffers):
            for name, tensor in shelf.items():
                if tensor is not None and name not in module._non_persistent_buffers_set:
                    places.setdefault(id(tensor), (shelf, name))
    return list(places.values())


def _at(place: _Place) -> Tensor:
    shelf, name = place
    return cast(Tensor, shelf[name])


def _both(pairs: list[tuple[_Place, _Place]]) -> tuple[list[Tensor], list[Tensor]]:
    return [_at(mine) for mine, _ in pairs], [_at(theirs) for _, theirs in pairs]


@dataclass(frozen=True)
class Mixup:
    """Mixes pairs z̃ = φ z_i + (1 - φ) z_j, with the same pairs and φ for images and labels."""

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
        """Draw a partner for each of `size` images, and φ ~ Beta(α, α) per batch or per sample."""
        partner = torch.randperm(size, generator=generator)
        count = size if per == "sample" else 1
        # torch's Beta takes no generator: two gammas make it, drawn on the CPU for repeatability.
        shape = torch.full((2, count), alpha, dtype=torch.float64)
        gamma = torch._standard_gamma(shape, generator=generator)
        # For a tiny α both gammas may underflow to 0, which gives 0 / 0: use the first image alone.
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
