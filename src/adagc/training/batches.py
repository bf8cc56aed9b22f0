"""Batches of training images.

Their order and augmentation depend only on the seed and the number of the epoch, so that any epoch
can be repeated.
"""

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

_SMALL = 2**21  # bytes; reading a smaller batch takes less time than waking a thread
_SMALLEST = 2  # images per rank, because batch normalisation needs two to compute a variance


def derived_seed(*parts: object) -> int:
    """A seed made from the run seed and a purpose, for example (seed, epoch, "order").

    Different parts give independent seeds; the same parts always give the same one.
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:7], "little")


def generator_for(*parts: object) -> torch.Generator:
    """A generator on the CPU with the seed that `derived_seed` makes from these parts."""
    return torch.Generator().manual_seed(derived_seed(*parts))


def batch_bounds(count: int, batch_size: int, ranks: int = 1) -> list[tuple[int, int]]:
    """Start and end of every batch of an epoch, as positions in its order of images.

    A last batch with fewer than two images per rank is left out, because batch normalisation could
    not compute a variance. Every epoch has another order, so the next one leaves out other images.
    """
    size = min(batch_size, count)
    full, rest = divmod(count, size)
    ends = [size * (i + 1) for i in range(full)]
    if rest >= _SMALLEST * ranks:
        ends.append(count)
    return list(pairwise([0, *ends]))


class Batches:
    """The batches of training images, for one epoch after another.

    All ranks go through the same batches; each rank reads its own share of the images of a batch.

    Args:
        images: All images of the data set.
        rows: Rows of the training images in `images`; their order here is the training order.
        observed: (N, C) observed labels in training order.
        truth: (N, C) clean labels in training order, only for methods that declare them.
        batch_size: Number of images per optimiser step, over all ranks.
        seed: Seed of the run.
        how: Which augmentation to apply.
        device: Device on which the batches are used.
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
        """The batches of an epoch, whose number starts from 1.

        Large batches are read by a thread, each one while the batch before it is in use.
        """
        order = torch.randperm(len(self.rows), generator=generator_for(self.seed, number, "order"))
        turns = draw_turns(len(self.rows), generator_for(self.seed, number, "augment"))
        generator = generator_for(self.seed, number, "method")
        # One thread reads the next batch, the other the images of other ranks that Mixup asks for
        # during a step.
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
        """Whether batches are so large that reading them in another thread saves time."""
        rows = max((end - start for start, end in self.bounds), default=0) // world()
        return rows * math.prod(self.images.shape) * self.images.dtype.itemsize > _SMALL

    def _read(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For every batch its index and the raw values of this rank's images, read when needed."""
        for start, end in self.bounds:
            index = order[start:end]
            yield index, self._gather(own(index))

    def _ahead(self, order: Tensor, readers: Executor) -> Iterator[tuple[Tensor, Tensor]]:
        """The same as `_read`, but a thread reads each batch while the one before it is in use."""
        previous: Future[Tensor] | None = None
        previous_index = order[:0]
        for start, end in self.bounds:
            index = order[start:end]
            current = readers.submit(self._gather, own(index))
            if previous is not None:
                yield previous_index, previous.result()
            previous, previous_index = current, index
        if previous is not None:
            yield previous_index, previous.result()

    def _gather(self, index: Tensor) -> Tensor:
        return torch.from_numpy(self.images.gather(self.rows[index.numpy()]))

    def _finish(self, index: Tensor, values: Tensor, turns: Tensor) -> Tensor:
        """Raw values as the images of a batch: on the device, as floating point, augmented."""
        images = values.to(self.device, non_blocking=True).to(torch.get_default_dtype())
        if self.how == "dihedral":
            images = dihedral(images, turns[index])
        if images.ndim == 4:
            # Convert once here instead of in each of the forward passes of a method.
            images = images.contiguous(memory_format=torch.channels_last)
        return images

    def _partners(
        self, readers: Executor, index: Tensor, turns: Tensor, positions: Tensor
    ) -> Future[Tensor]:
        """Read images at these positions of the batch, which other ranks hold, in a thread."""

        def read() -> Tensor:
            partners = index[positions]
            return self._finish(partners, self._gather(partners), turns)

        return readers.submit(read)

    @staticmethod
    def _share(images: Tensor, total: int, read: partial[Future[Tensor]]) -> Tensor | Share:
        return images if world() == 1 else Share(images, total, read)
