"""Batch normalisation over the rows of all ranks.

Within `shared_statistics` every call of `batch_norm` in training mode takes mean and variance over
the rows of all ranks, whichever layer makes the call: torch's, timm's with an activation, or a
user's own. Running statistics are therefore the same on all ranks and need no further exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, distributed
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from adagc.ranks.processes import world


@contextmanager
def shared_statistics() -> Iterator[None]:
    """Normalise by the statistics of the whole batch; nothing changes with a single process."""
    if world() == 1:
        yield
        return
    with _Shared():
        yield


class _Shared(TorchFunctionMode):
    """Replaces calls of `torch.nn.functional.batch_norm` by `batch_norm` of this module."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is functional.batch_norm:
            return batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def batch_norm(
    input: Tensor,  # noqa: A002 - the argument names are those of torch's function
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Like torch's `batch_norm`, but in training with statistics over the rows of all ranks."""
    if not training:
        return functional.batch_norm(
            input, running_mean, running_var, weight, bias, False, momentum, eps
        )
    channels = input.shape[1]
    weight = input.new_ones(channels) if weight is None else weight
    bias = input.new_zeros(channels) if bias is None else bias
    mean, variance, count = _statistics(input.detach())
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        unbiased = variance * (count / (count - 1).clamp(min=1))
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    normalised = _Normalise.apply(  # type: ignore[no-untyped-call]
        input, weight, bias, mean, variance, count, eps
    )
    return cast(Tensor, normalised)


def _statistics(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and biased variance of every channel, and the number of values behind each.

    Ranks send means and sums of squared distances from them. Sums of plain squares would lose
    digits when the squared mean is subtracted.
    """
    channels = values.shape[1]
    # Tens of times as fast as torch.var_mean where channels come last in memory.
    mean, variance = torch.batch_norm_update_stats(_precise(values), None, None, 0.0)
    count = mean.new_full((1,), values.numel() / channels)
    message = torch.cat([mean, variance * count, count])
    means, squares, counts = torch.split(_of_all(message), [channels, channels, 1], dim=1)
    total = counts.sum()
    overall_mean = (means * counts).sum(dim=0) / total
    overall_variance = (squares + counts * (means - overall_mean).square()).sum(dim=0) / total
    return overall_mean, overall_variance, total


def _of_all(message: Tensor) -> Tensor:
    """(ranks, n) the messages of all ranks; for so few numbers quicker than to reduce them."""
    messages = [torch.empty_like(message) for _ in range(world())]
    distributed.all_gather(messages, message)
    return torch.stack(messages)


def _precise(values: Tensor) -> Tensor:
    """The values in at least single precision, also under mixed precision."""
    return values if values.dtype == torch.float64 else values.float()


class _Normalise(torch.autograd.Function):
    """y = w (x - mean) / sqrt(variance + eps) + b, with the gradient through mean and variance."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance, count)
        ctx.eps = eps
        return functional.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, count = ctx.saved_tensors
        # Gradients of weight and bias: sums over this rank's rows; like all gradients they are
        # averaged over ranks later.
        _, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradients[0], x, weight, mean, variance, None, None, False, ctx.eps, [False, True, True]
        )
        # The gradient of x has a part through mean and variance, which depend on all images of all
        # ranks: dx = f (dy - sum(dy) / n - x^ sum(dy x^) / n), with x^ the normalised x and
        # f = w / sqrt(variance + eps). The last two terms are a batch normalisation of x.
        sums = _of_all(torch.cat([of_bias, of_weight])).sum(dim=0)
        through_mean, through_variance = (sums / count).chunk(2)
        factor = _precise(weight) * torch.rsqrt(variance + ctx.eps)
        dx = functional.batch_norm(
            x, mean, variance, -factor * through_variance, -factor * through_mean, eps=ctx.eps
        )
        dx.addcmul_(gradients[0], factor.view([1, -1] + [1] * (x.dim() - 2)).to(x.dtype))
        return dx, of_weight.to(weight.dtype), of_bias.to(weight.dtype), *[None] * 4
