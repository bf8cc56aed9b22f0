"""Passes of a network over a batch, shared out: every rank runs its rows and gets all results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn

from adagc.ranks.processes import own, rank, world
from adagc.ranks.share import Share
from adagc.ranks.statistics import shared_statistics

Result = TypeVar("Result", Tensor, tuple[Tensor, ...])


def spread(function: Callable[[Tensor], Result], rows: Tensor | Share) -> Result:
    """`function` of all rows, every rank computing its share; a result has a row for each row.

    Batch normalisation inside the function sees the whole batch; anything else that a function
    does between rows happens within a share.
    """
    if isinstance(rows, Share):
        mine = rows.mine
    elif world() == 1 or len(rows) < world():
        return function(rows)
    else:
        mine = own(rows)
    with shared_statistics():
        result = function(mine)
    if isinstance(result, Tensor):
        return _gather(result, len(rows))
    return cast(Result, tuple(_gather(part, len(rows)) for part in result))


def gather(share: Tensor, total: int) -> Tensor:
    """All rows of something whose rows `rank() :: world()` each rank computed; without gradient."""
    return share if world() == 1 else _gather(share.detach(), total)


class Spread(nn.Module):
    """A network whose calls are spread over ranks; everything else is the network's own."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, rows: Tensor | Share) -> Tensor:
        """`spread` over the network."""
        return spread(cast(Callable[[Tensor], Tensor], self.network), rows)

    def probabilities(self, rows: Tensor | Share) -> Tensor:
        """`spread` over what the network deploys."""
        return spread(cast(Callable[[Tensor], Tensor], self.network.probabilities), rows)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("network"), name)


def _gather(share: Tensor, total: int) -> Tensor:
    return cast(Tensor, _Gather.apply(share, total))  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """Interleave the ranks' rows; backwards, a rank's own rows times the number of ranks."""

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
