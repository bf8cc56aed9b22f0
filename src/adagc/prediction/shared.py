"""Several processes that predict one input together, started by torchrun or srun.

Every process does its part of the blocks and keeps a journal of its own. The first one waits until
all blocks are in some journal, and writes the output from them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from adagc.prediction.journal import Journal
from adagc.progress import meter

_BETWEEN = 0.2  # seconds from one look at the journals of others to the next


def rank() -> int:
    """Number of this process among those that work together, counted from 0."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))


def world() -> int:
    """Number of processes that work together."""
    return int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_STEP_NUM_TASKS", "1")))


class Journals:
    """The journal of this process, and those of others, which it reads.

    Args:
        out: The output, beside which the journals are.
        fingerprint: Which work it is.
        sizes: Bytes in the record of each block.
    """

    def __init__(self, out: Path, fingerprint: bytes, sizes: Sequence[int]) -> None:
        self._blocks = len(sizes)
        self.own = Journal(_place(out, rank()), fingerprint, sizes)
        places = {_place(out, number) for number in range(world())} | set(_existing(out))
        self._others = [
            Journal(place, fingerprint, sizes, readonly=True)
            for place in sorted(places - {self.own.path})
        ]

    @property
    def continued(self) -> int:
        """Number of blocks that are done already."""
        return sum(block in self for block in range(self._blocks))

    def __contains__(self, block: int) -> bool:
        return block in self.own or any(block in other for other in self._others)

    def write(self, block: int, record: bytes) -> None:
        """See `Records.write`."""
        self.own.write(block, record)

    def read(self, block: int) -> bytes:
        """See `Records.read`."""
        return next(one for one in (self.own, *self._others) if block in one).read(block)

    def wait(self) -> None:
        """Wait until all blocks are done, by this process or by others."""
        with meter("waiting for other processes", self._blocks, unit="blocks") as shown:
            while (done := self.continued) < self._blocks:
                shown.update(done)
                time.sleep(_BETWEEN)
                for other in self._others:
                    other.refresh()

    def close(self) -> None:
        """Close all files, which stay."""
        for one in (self.own, *self._others):
            one.close()

    def remove(self) -> None:
        """Delete all files, when the output is written."""
        self.close()
        for one in (self.own, *self._others):
            one.path.unlink(missing_ok=True)


def _place(out: Path, number: int) -> Path:
    return out.with_name(f"{out.name}.progress{f'.{number}' if number else ''}")


def _existing(out: Path) -> list[Path]:
    """Journals of earlier calls with other numbers of processes."""
    return [path for path in out.parent.glob(f"{out.name}.progress*") if path.is_file()]
