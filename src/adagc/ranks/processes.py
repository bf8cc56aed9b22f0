"""Which processes train together, and which rows of a batch belong to this one."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, distributed

Rows = TypeVar("Rows", Tensor, NDArray[np.int64])


def world() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if _many() else 1


def rank() -> int:
    """The number of this process among them, from 0."""
    return distributed.get_rank() if _many() else 0


def own(rows: Rows) -> Rows:
    """Those of a batch's rows, or of their numbers, that are this rank's: every `world()`-th."""
    count = world()
    return rows if count == 1 else rows[rank() :: count]


def wait() -> None:
    """Return when all ranks have called this."""
    if world() > 1:
        distributed.barrier()


def _many() -> bool:
    return distributed.is_available() and distributed.is_initialized()
