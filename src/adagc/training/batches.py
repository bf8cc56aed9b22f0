"""Batches in an order that depends on the seed and the epoch alone, so any epoch can be redone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adagc.augment import Augmentation, dihedral, draw_turns
from adagc.images.base import SceneDataset
from adagc.ranks import Share, own, world
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
    """The training images, epoch by epoch.

    Every rank goes through the same batches and reads its own images of each.

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
        # One thread reads ahead, the other what a step finds out it needs: partners to mix with.
        with ThreadPoolExecutor(max_workers=2) as readers:
            for index, values in self._ahead(order, readers) if self._large else self._read(order):
                read = partial(self._partners, readers, index, turns)
                yield Batch(
                    images=self._share(self._finish(own(index), values, turns), len(index), read),
                    observed=self.observed[index].to(self.device),
                    index=index.to(self.device),
                    generator=generator,
                    truth=None if self.truth is None else self.truth[index].to(self.device),
                )

    @property
    def _large(self) -> bool:
        """Whether reading a batch takes longer than handing it from thread to thread."""
        rows = max((end - start for start, end in self.bounds), default=0) // world()
        return rows * math.prod(self.images.shape) * self.images.dtype.itemsize > _SMALL

    def _read(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The index of every batch and the raw values of this rank's images in it."""
        for start, end in self.bounds:
            index = order[start:end]
            yield index, self._gather(own(index))

    def _ahead(self, order: Tensor, readers: Executor) -> Iterator[tuple[Tensor, Tensor]]:
        """The same, one batch ahead of its use."""
        ahead: Future[Tensor] | None = None
        previous = order[:0]
        for start, end in self.bounds:
            index = order[start:end]
            coming = readers.submit(self._gather, own(index))
            if ahead is not None:
                yield previous, ahead.result()
            ahead, previous = coming, index
        if ahead is not None:
            yield previous, ahead.result()

    def _gather(self, index: Tensor) -> Tensor:
        return torch.from_numpy(self.images.gather(self.rows[index.numpy()]))

    def _finish(self, index: Tensor, values: Tensor, turns: Tensor) -> Tensor:
        """Raw values of these images as a batch has them: on the device, turned."""
        images = values.to(self.device, non_blocking=True).to(torch.get_default_dtype())
        if self.how == "dihedral":
            images = dihedral(images, turns[index])
        if images.ndim == 4:
            # Once here instead of in every pass a method makes over the batch.
            images = images.contiguous(memory_format=torch.channels_last)
        return images

    def _partners(
        self, readers: Executor, index: Tensor, turns: Tensor, positions: Tensor
    ) -> Future[Tensor]:
        """Images of a batch that another rank has, read by a thread."""

        def read() -> Tensor:
            wanted = index[positions]
            return self._finish(wanted, self._gather(wanted), turns)

        return readers.submit(read)

    @staticmethod
    def _share(images: Tensor, total: int, read: partial[Future[Tensor]]) -> Tensor | Share:
        return images if world() == 1 else Share(images, total, read)
