"""The images of a batch, of which every rank holds only a part."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property

import torch
from torch import Tensor, distributed

from adagc.ranks.processes import own, rank, world


class Share:
    """A batch of images: this rank holds its own rows and can read the others when needed.

    Args:
        rows: (m, bands, H, W) or (m, D), rows `rank() :: world()` of the batch, or a function that
            makes them when they are first used.
        total: Number of images in the batch, over all ranks.
        read: Function that starts to read the images at these batch positions in another thread.
            None for images computed from others, of which other ranks' rows cannot be read.
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
        del self._rows  # frees the memory of what the rows were made of
        return rows

    def __len__(self) -> int:
        return self._total

    @property
    def shape(self) -> torch.Size:
        """Shape of the whole batch, over all ranks."""
        return torch.Size((self._total, *self.mine.shape[1:]))

    @property
    def device(self) -> torch.device:
        """Device that holds this rank's rows."""
        return self.mine.device

    def map(self, function: Callable[[Tensor], Tensor]) -> Share:
        """The batch after a function that treats every image independently of the others."""
        return Share(function(self.mine), self._total)

    def blend(self, partner: Tensor, share: Tensor) -> Share:
        """Row i becomes share_i x_i + (1 - share_i) x_partner(i).

        Reading of partners that this rank does not hold starts at once. The result waits for them
        when it is first used, so that the network can run on other images meanwhile.

        Args:
            partner: (B,) the batch position of each image's partner.
            share: (B,) the share of the image itself in the mixture, from 0 to 1.
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
    """(bands,) mean over all positions and all images of a batch, including other ranks' images.

    Missing values (NaN) are left out of the mean.
    """
    mine = images.mine if isinstance(images, Share) else images
    not_bands = [dim for dim in range(mine.dim()) if dim != 1]
    if not isinstance(images, Share):
        mean = mine.mean(dim=not_bands)
    else:
        mean = mine.sum(dim=not_bands) / (len(images) * mine[0, 0].numel())
        distributed.all_reduce(mean)
    if not mean.isnan().any():
        return mean
    totals = torch.stack([mine.nansum(dim=not_bands), (~mine.isnan()).sum(dim=not_bands)])
    if isinstance(images, Share):
        distributed.all_reduce(totals)
    return totals[0] / totals[1].clamp(min=1)
