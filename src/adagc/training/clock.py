"""What training costs in CPU time.

Time on the clock depends on what else the machine is doing: on a busy one the order of two methods
can turn round. The time that the processor spent on the run does not wait for others.
"""

from __future__ import annotations

import os
import time

import torch
from torch import distributed

from adagc import ranks


def cpu_seconds() -> float:
    """CPU time of this process so far: all its threads, and child processes that have ended."""
    ended = os.times()  # only in hundredths of a second, which is enough for these
    return time.process_time() + ended.children_user + ended.children_system


def of_all_ranks(seconds: float, device: torch.device) -> float | None:
    """The sum of this number over all ranks, which all call this; None if training uses a GPU.

    What a GPU does is not CPU time, so that methods could not be compared by it.
    """
    if device.type != "cpu":
        return None
    if ranks.world() == 1:
        return seconds
    total = torch.tensor([seconds], dtype=torch.float64)
    distributed.all_reduce(total)
    return float(total)
