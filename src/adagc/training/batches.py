"""Batches in an order that depends on the seed and the epoch alone, so any epoch can be redone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adagc.augment import Augmentation, dihedral, draw_turns
from adagc.images.base import SceneDataset
from adagc.ranks import world
from adagc.types import Batch

_SMALL = 2**21  # bytes of a batch that are read faster than a thread is woken
# Batch normalisation needs two images to have a variance.
_SMALLEST = 2


def derived_seed(*parts: object) -> int:
    """A seed for one purpose, independent of those for other purposes."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:7], "little")


def generator_for(*parts: object) -> torch.Generator:
    """A generator for one purpose, for example (seed, epoch, "order")."""
    return torch.Generator().manual_seed(derived_seed(*parts))


def batch_bounds(count: int, batch_size: int, ranks: int = 1) -> list[tuple[int, int]]:
    """Where the batches of an epoch begin and end.

    A last batch too small for every rank to have a variance is left out; the order changes with
    every epoch, so other images are left out in the next one.
    """
    size = min(batch_size, count)
    full, rest = divmod(count, size)
    ends = [size * (i + 1) for i in range(full)]
    if rest >= _SMALLEST * ranks:
        ends.append(count)
    return list(pairwise([0, *ends]))


class Batches:
    """The training images, epoch by epoch, in the same batches on every rank.

    Args:
        images: Where values come from.
        rows: Training rows of `images`, in training order.
        observed: (N, C) labels in training order.
        truth: (N, C) clean labels, only for methods that declare them.
        batch_size: Images per optimiser step, over all ranks.
        seed: Of the run.
        how: Augmentation.
        device: Where batches go.
    """

    def __init__(
        self,
        images: SceneDataset,
        rows: NDArray[np.int64],
        observed: Tensor,
        *,
        truth: Tensor | None,
        batch_size: int,
        seed: int,
        how: Augmentation,
        device: torch.device,
    ) -> None:
        self.images = images
        self.rows = rows
        self.observed = observed
        self.truth = truth
        self.seed = seed
        self.how = how
        self.device = device
        self.bounds = batch_bounds(len(rows), batch_size, world())

    def __len__(self) -> int:
        return len(self.bounds)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of this epoch (1-based); if large, the next is read while one is in use."""
        order = torch.randperm(len(self.rows), generator=generator_for(self.seed, number, "order"))
        turns = draw_turns(len(self.rows), generator_for(self.seed, number, "augment"))
        generator = generator_for(self.seed, number, "method")
        for index, values in self._ahead(order) if self._large else self._at_once(order):
            yield self._finish(index, values, turns, generator)

    @property
    def _large(self) -> bool:
        """Whether reading a batch takes longer than handing it from thread to thread."""
        rows = max((end - start for start, end in self.bounds), default=0)
        return rows * math.prod(self.images.shape) * self.images.dtype.itemsize > _SMALL

    def _at_once(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for start, end in self.bounds:
            yield order[start:end], self._read(order[start:end])

    def _ahead(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        with ThreadPoolExecutor(max_workers=1) as reader:
            ahead: Future[Tensor] | None = None
            previous = order[:0]
            for start, end in self.bounds:
                index = order[start:end]
                coming = reader.submit(self._read, index)
                if ahead is not None:
                    yield previous, ahead.result()
                ahead, previous = coming, index
            if ahead is not None:
                yield previous, ahead.result()

    def _read(self, index: Tensor) -> Tensor:
        return torch.from_numpy(self.images.gather(self.rows[index.numpy()]))

    def _finish(
        self, index: Tensor, values: Tensor, turns: Tensor, generator: torch.Generator
    ) -> Batch:
        images = values.to(self.device, non_blocking=True).to(torch.float32)
        if self.how == "dihedral":
            images = dihedral(images, turns[index])
        if images.ndim == 4:
            # Once here instead of in every pass a method makes over the batch.
            images = images.contiguous(memory_format=torch.channels_last)
        return Batch(
            images=images,
            observed=self.observed[index].to(self.device),
            index=index.to(self.device),
            generator=generator,
            truth=None if self.truth is None else self.truth[index].to(self.device),
        )
