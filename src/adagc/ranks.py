"""Several processes as one: every rank sees the whole batch, only the networks' passes are shared.

A rule that looks at a whole batch (the largest losses, a class's mean, a partner to mix with, a
queue) means the same however many processes there are, because each of them applies it to the
same numbers. Tables of labels stay equal on all ranks without ever being exchanged. What is dear,
running networks, is split: a rank runs its share of the rows and gets the others' results.

Gradients: every rank computes the same loss, and of its gradient with respect to the gathered
results keeps its own rows, times the number of ranks; `mean_gradients` then makes the mean over
ranks the gradient of the one loss. Parameters used outside of `spread` have the whole gradient on
every rank, of which the mean is the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn

Result = TypeVar("Result", Tensor, tuple[Tensor, ...])


def world() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if _many() else 1


def rank() -> int:
    """Which of them this one is."""
    return distributed.get_rank() if _many() else 0


def spread(function: Callable[[Tensor], Result], rows: Tensor) -> Result:
    """`function(rows)`, every rank computing its share; results must have a row for each row.

    Everything a function does between rows (batch normalisation) happens within a share.
    """
    count = world()
    if count == 1 or len(rows) < count:
        return function(rows)
    mine = function(rows[rank() :: count])
    if isinstance(mine, Tensor):
        return _gather(mine, len(rows))
    return cast(Result, tuple(_gather(part, len(rows)) for part in mine))


def gather(share: Tensor, total: int) -> Tensor:
    """All rows of something whose rows `rank() :: world()` each rank computed; without gradient."""
    return share if world() == 1 else _gather(share.detach(), total)


def mean_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by its mean over ranks."""
    if world() == 1:
        return
    # What one rank leaves untouched (a stage that has not begun), all of them leave untouched.
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    _mean(gradients)


def mean_statistics(*networks: nn.Module) -> None:
    """Make statistics of batch normalisation, which each rank took of its share, the same."""
    if world() == 1:
        return
    kinds = nn.modules.batchnorm._BatchNorm
    _mean(
        [
            buffer
            for network in networks
            for module in network.modules()
            if isinstance(module, kinds)
            for buffer in module.buffers(recurse=False)
            if buffer.is_floating_point()
        ]
    )


def _mean(tensors: list[Tensor]) -> None:
    """In place, in one exchange."""
    if not tensors:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    distributed.all_reduce(flat)
    flat /= world()
    means = torch.split(flat, [tensor.numel() for tensor in tensors])
    for tensor, mean in zip(tensors, means, strict=True):
        tensor.copy_(mean.view(tensor.shape))


def wait() -> None:
    """Until all ranks are here."""
    if world() > 1:
        distributed.barrier()


class Spread(nn.Module):
    """A network whose calls are spread over ranks; everything else is the network's own."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, rows: Tensor) -> Tensor:
        """`spread` over the network."""
        return spread(cast(Callable[[Tensor], Tensor], self.network), rows)

    def probabilities(self, rows: Tensor) -> Tensor:
        """`spread` over what the network deploys."""
        return spread(cast(Callable[[Tensor], Tensor], self.network.probabilities), rows)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("network"), name)


def _many() -> bool:
    return distributed.is_available() and distributed.is_initialized()


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
