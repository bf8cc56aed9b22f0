"""Averages gradients over ranks while the backward pass is still running."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, distributed, nn

from adagc.ranks.processes import world

_BUCKET = 16 * 2**20  # bytes per message: larger ones would start later, smaller ones cost more


class GradientExchange:
    """Exchanges gradients in buckets, each as soon as all of its gradients are computed.

    The backward pass reaches layers in the reverse order of their use, so buckets are filled with
    the last parameters first. They are sent in one fixed order, because ranks must agree on which
    message is which. A parameter without a gradient in a step (of a stage that has not begun, say)
    must have none on all ranks.

    Args:
        parameters: All trained parameters, in the order in which networks use them.
        bucket: Largest size of a bucket in bytes, unless a single parameter is larger.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, bucket: int = _BUCKET) -> None:
        self._buckets: list[list[nn.Parameter]] = []
        self._left: list[int] = []  # gradients that each bucket still waits for
        self._messages: list[
            Tensor
        ] = []  # memory for the gradients of each bucket, used every step
        self._sent: list[tuple[list[Tensor], Tensor, Any]] = []
        if world() == 1:
            return
        for parameter in reversed(list(parameters)):
            last = self._buckets[-1] if self._buckets else []
            fits = last and _bytes(*last, parameter) <= bucket and last[0].dtype == parameter.dtype
            if fits:
                last.append(parameter)
            else:
                self._buckets.append([parameter])
        for place, members in enumerate(self._buckets):
            self._messages.append(members[0].new_empty(sum(p.numel() for p in members)))
            for parameter in members:
                parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    lambda _, place=place: self._arrived(place)
                )
        self._reset()

    def finish(self) -> None:
        """Replace every gradient by its mean over ranks; call this after the backward pass."""
        if not self._buckets:
            return
        for place in range(len(self._sent), len(self._buckets)):
            self._send(place)
        for gradients, flat, handle in self._sent:
            if handle is None:
                continue
            handle.wait()
            sizes = [gradient.numel() for gradient in gradients]
            for gradient, total in zip(gradients, torch.split(flat, sizes), strict=True):
                torch.div(total, world(), out=_as_stored(gradient))
        self._reset()

    def _reset(self) -> None:
        self._sent = []
        self._left = [len(members) for members in self._buckets]

    def _arrived(self, place: int) -> None:
        self._left[place] -= 1
        while len(self._sent) < len(self._buckets) and self._left[len(self._sent)] == 0:
            self._send(len(self._sent))

    def _send(self, place: int) -> None:
        gradients = [p.grad for p in self._buckets[place] if p.grad is not None]
        if not gradients:
            self._sent.append(([], torch.empty(0), None))
            return
        flat = self._messages[place][: sum(gradient.numel() for gradient in gradients)]
        torch.cat([_as_stored(gradient) for gradient in gradients], out=flat)
        handle = distributed.all_reduce(flat, async_op=True)
        self._sent.append((gradients, flat, handle))


def _as_stored(gradient: Tensor) -> Tensor:
    """All values of a gradient in the order in which they lie in memory, as a view.

    The gradient of a convolution has its channels last; reading it in the order of its dimensions
    would take three times as long. Its memory order is that of its parameter on every rank.
    """
    order = sorted(range(gradient.dim()), key=gradient.stride, reverse=True)
    return gradient.permute(order).view(-1)


def _bytes(*parameters: nn.Parameter) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)
