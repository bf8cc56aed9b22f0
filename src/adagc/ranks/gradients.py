"""The mean of gradients over ranks, taken while the backward pass is still under way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, distributed, nn

from adagc.ranks.processes import world

_BUCKET = 4 * 2**20  # bytes that travel together: enough to be worth a message, early enough


class GradientExchange:
    """Exchanges gradients in buckets, each as soon as all of its gradients are there.

    Layers are left in the reverse order of their use, so the last parameters come first. Buckets
    are sent in one fixed order, as ranks must agree on which message is which. What a step leaves
    without a gradient (a stage that has not begun), it leaves so on all ranks.

    Args:
        parameters: All that is trained, in the order in which networks use them.
        bucket: Bytes that travel together.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, bucket: int = _BUCKET) -> None:
        self._buckets: list[list[nn.Parameter]] = []
        self._left: list[int] = []  # gradients that each bucket still waits for
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
        for place, some in enumerate(self._buckets):
            for parameter in some:
                parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    lambda _, place=place: self._arrived(place)
                )
        self._reset()

    def finish(self) -> None:
        """After the backward pass: every gradient is replaced by its mean over ranks."""
        if not self._buckets:
            return
        for place in range(len(self._sent), len(self._buckets)):
            self._send(place)
        for gradients, flat, handle in self._sent:
            if handle is None:
                continue
            handle.wait()
            flat /= world()
            sizes = [gradient.numel() for gradient in gradients]
            for gradient, mean in zip(gradients, torch.split(flat, sizes), strict=True):
                gradient.copy_(mean.view(gradient.shape))
        self._reset()

    def _reset(self) -> None:
        self._sent = []
        self._left = [len(some) for some in self._buckets]

    def _arrived(self, place: int) -> None:
        self._left[place] -= 1
        while len(self._sent) < len(self._buckets) and self._left[len(self._sent)] == 0:
            self._send(len(self._sent))

    def _send(self, place: int) -> None:
        gradients = [p.grad for p in self._buckets[place] if p.grad is not None]
        if not gradients:
            self._sent.append(([], torch.empty(0), None))
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        handle = distributed.all_reduce(flat, async_op=True)
        self._sent.append((gradients, flat, handle))


def _bytes(*parameters: nn.Parameter) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)
