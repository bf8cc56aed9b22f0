"""Runs a batch through a network in parts: the memory of a small batch, the loss of a large one.

All parts are first run without remembering what their gradient needs. The loss is then taken once,
on the results of the whole batch, so that rules which look across it (the largest losses, the mean
of a class, partners of Mixup) mean the same. On the way back each part is run again, this time for
its gradient. Adding up the losses of small batches instead would be another loss.

Layers that treat every image on its own therefore give the gradient of the whole batch, up to
rounding. Batch normalisation does not: it normalises each part by the part's own mean and variance
(those of the whole batch could only be had by keeping all of it in memory), and its running
statistics follow the parts, with a momentum for which all parts of a batch count as one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from adagc.ranks.processes import world
from adagc.ranks.statistics import shared_statistics

Result = TypeVar("Result", Tensor, tuple[Tensor, ...])

_SMALLEST = 2  # rows of a part, because batch normalisation needs two to compute a variance
_at_once: int | None = None  # rows that a rank runs at once; None for all


@contextmanager
def in_parts(rows: int | None) -> Iterator[None]:
    """Within the block `spread` runs about this many rows at once on each rank; None for all."""
    global _at_once
    before, _at_once = _at_once, rows
    try:
        yield
    finally:
        _at_once = before


def run(function: Callable[[Tensor], Result], mine: Tensor, total: int) -> Result:
    """`function` of these rows, part by part where they are too many.

    Args:
        function: Gives one row of results for each row that it gets.
        mine: The rows of this rank.
        total: Number of rows of all ranks, from which all of them find the same number of parts.
    """
    count = _parts(total)
    if count <= 1:
        return function(mine)
    parts = mine.tensor_split(count)
    if torch.is_grad_enabled():
        results = [
            checkpoint(function, part, use_reentrant=False, context_fn=lambda: _contexts(count))
            for part in parts
        ]
    else:
        with _Partial(count):
            results = [function(part) for part in parts]
    first = results[0]
    joined: Tensor | tuple[Tensor, ...]
    if isinstance(first, Tensor):
        joined = torch.cat(cast(list[Tensor], results))
    else:
        joined = tuple(torch.cat(pieces) for pieces in zip(*results, strict=True))
    return cast(Result, joined)


def _parts(total: int) -> int:
    """Number of parts of a batch: as few as possible, with two rows each at least."""
    if _at_once is None:
        return 1
    most, least = -(-total // world()), total // world()
    return min(-(-most // _at_once), least // _SMALLEST)


def _contexts(count: int) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """What surrounds the first run of a part, and the one on the way back."""
    return _Partial(count), _again(count)


@contextmanager
def _again(count: int) -> Iterator[None]:
    # The way back is in no block of the caller, and may be in another thread.
    with shared_statistics(), _Partial(count, again=True):
        yield


class _Partial(TorchFunctionMode):
    """Lets all parts together change running statistics as much as one batch does, and once.

    Args:
        count: Number of parts.
        again: Whether this part was run before, so that its statistics have been counted.
    """

    def __init__(self, count: int, *, again: bool = False) -> None:
        super().__init__()
        self._count, self._again = count, again

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is functional.batch_norm:
            return self._batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _batch_norm(
        self,
        input: Tensor,  # noqa: A002 - the argument names are those of torch's function
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if training and self._again:
            # Not left out: as many values must be kept as in the first run.
            running_mean = None if running_mean is None else running_mean.clone()
            running_var = None if running_var is None else running_var.clone()
        elif training:
            # After all parts, what was there before has the same weight as after one batch.
            momentum = 1 - (1 - momentum) ** (1 / self._count)
        return functional.batch_norm(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )
