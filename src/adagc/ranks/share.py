"""The images of a batch, of which every rank holds its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property

import torch
from torch import Tensor, distributed

from adagc.ranks.processes import own, rank, world


class Share:
    """A batch of images: this rank's rows are here, the others can be read.

    Args:
        rows: (m, bands, H, W) or (m, D), rows `rank() :: world()` of the batch, or what will be.
        total: Images in the batch, over all ranks.
        read: Batch positions to their images, begun at once and finished by another thread; None
            where images were made on the way and nobody can read those of other ranks.
    """

    def __init__(
        self,
        rows: Tensor | Callable[[], Tensor],
        total: int,
        read: Callable[[Tensor], Future[Tensor]] | None = None,
    ) -> None:
        self._rows = rows
        self._total = total
        self._read = read

    @cached_property
    def mine(self) -> Tensor:
        """The rows of this rank."""
        rows = self._rows() if callable(self._rows) else self._rows
        del self._rows  # what it was made of is not needed any more
        return rows

    def __len__(self) -> int:
        return self._total

    @property
    def shape(self) -> torch.Size:
        """Of the whole batch."""
        return torch.Size((self._total, *self.mine.shape[1:]))

    @property
    def device(self) -> torch.device:
        """Where this rank's rows are."""
        return self.mine.device

    def map(self, function: Callable[[Tensor], Tensor]) -> Share:
        """What a function that looks at every image by itself makes of this rank's rows."""
        return Share(function(self.mine), self._total)

    def blend(self, partner: Tensor, share: Tensor) -> Share:
        """Row i becomes share_i x_i + (1 - share_i) x_partner(i).

        Partners that this rank does not hold are read, beginning now; the result waits for them
        when it is first used, so that other passes may run meanwhile.

        Args:
            partner: (B,) the batch position of each image's partner.
            share: (B,) how much of each image stays.
        """
        if self._read is None:
            raise RuntimeError("images that were made from others cannot be mixed once more")
        wanted, kept, count = own(partner).cpu(), own(share), world()
        here = wanted % count == rank()
        coming = None if bool(here.all()) else self._read(wanted[~here])

        def mix() -> Tensor:
            mine = self.mine
            others = torch.empty_like(mine)
            others[here] = mine[wanted[here] // count]
            if coming is not None:
                others[~here] = coming.result()
            return torch.lerp(others, mine, kept.view(-1, *[1] * (mine.dim() - 1)).to(mine.dtype))

        return Share(mix, self._total)


def mean_of_bands(images: Tensor | Share) -> Tensor:
    """(bands,) mean over all images of a batch and all positions, also those of other ranks."""
    mine = images.mine if isinstance(images, Share) else images
    others = [dim for dim in range(mine.dim()) if dim != 1]
    if not isinstance(images, Share):
        return mine.mean(dim=others)
    total = mine.sum(dim=others) / (len(images) * mine[0, 0].numel())
    distributed.all_reduce(total)
    return total
