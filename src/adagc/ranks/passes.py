"""Runs a network on a batch in several processes: each runs its own rows and gets all results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn

from adagc.ranks.parts import run
from adagc.ranks.processes import own, rank, world
from adagc.ranks.share import Share
from adagc.ranks.statistics import shared_statistics

Result = TypeVar("Result", Tensor, tuple[Tensor, ...])


def spread(function: Callable[[Tensor], Result], rows: Tensor | Share) -> Result:
    """`function` of all rows, of which every rank computes its part.

    The function must return one row of results for each row it gets. Batch normalisation inside it
    uses the whole batch; any other operation that combines rows sees only the rows of one rank.
    Within `in_parts` a rank runs its rows part by part, and batch normalisation uses those parts.
    """
    if isinstance(rows, Share):
        mine = rows.mine
    elif world() == 1 or len(rows) < world():
        return run(function, rows, len(rows) * world())
    else:
        mine = own(rows)
    with shared_statistics():
        result = run(function, mine, len(rows))
    if isinstance(result, Tensor):
        return _gather(result, len(rows))
    return cast(Result, tuple(_gather(part, len(rows)) for part in result))


def gather(share: Tensor, total: int) -> Tensor:
    """All `total` rows, of which each rank gives its own, `rank() :: world()`; without gradient."""
    return share if world() == 1 else _gather(share.detach(), total)


class Spread(nn.Module):
    """Wraps a network so that its calls go through `spread`; other attributes are the network's."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, rows: Tensor | Share) -> Tensor:
        """(B, C) logits of all rows; every rank runs the network on its part."""
        return spread(cast(Callable[[Tensor], Tensor], self.network), rows)

    def probabilities(self, rows: Tensor | Share) -> Tensor:
        """(B, C) probabilities of all rows; every rank runs the network on its part."""
        return spread(cast(Callable[[Tensor], Tensor], self.network.probabilities), rows)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("network"), name)


def _gather(share: Tensor, total: int) -> Tensor:
    return cast(Tensor, _Gather.apply(share, total))  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """Interleaves the rows of all ranks.

    Its gradient is that of this rank's own rows, times the number of ranks.
    """

    @staticmethod
    def forward(ctx: Any, share: Tensor, total: int) -> Tensor:
        count = world()
        ctx.ranks = rank(), count
        largest = -(-total // count)
        padded = share.new_zeros((largest, *share.shape[1:]))
        padded[: len(share)] = share
        parts = [torch.empty_like(padded) for _ in range(count)]
        distributed.all_gather(parts, padded)
        # (count, largest, ...) -> (largest, count, ...): row i of rank r is row i * count + r.
        return torch.stack(parts, dim=1).flatten(0, 1)[:total]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        mine, count = ctx.ranks
        return gradients[0][mine::count] * count, None
