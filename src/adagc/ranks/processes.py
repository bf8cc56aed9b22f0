"""Which processes train together, and which rows of a batch belong to this one."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, distributed

Rows = TypeVar("Rows", Tensor, NDArray[np.int64])


def world() -> int:
    """Number of processes that train together; 1 without torch.distributed."""
    return distributed.get_world_size() if _many() else 1


def rank() -> int:
    """Number of this process among those that train together, counted from 0."""
    return distributed.get_rank() if _many() else 0


def own(rows: Rows) -> Rows:
    """The rows of a batch (or the row numbers) that belong to this rank: every `world()`-th."""
    count = world()
    return rows if count == 1 else rows[rank() :: count]


def wait() -> None:
    """Wait until all ranks have called this; with one process, return at once."""
    if world() > 1:
        distributed.barrier()


def _many() -> bool:
    return distributed.is_available() and distributed.is_initialized()
