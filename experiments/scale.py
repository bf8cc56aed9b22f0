"""What reBEN costs, as docs/results/scale.md says it: measured by benchmarks/reben.py, or computed.

Computed figures follow from measured ones and from the assumptions in `Assumed`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adagc.datasets.bigearthnet.splits import PUBLISHED
from adagc.images.bigearthnet.lmdb import entry_sizes
from adagc.images.bigearthnet.measured import RECORD
from adagc.images.bigearthnet.shards import PATCH_BYTES

RECORDED: Final = Path(__file__).parents[1] / "docs" / "results" / "data" / "scale.json"
CLASSES: Final = 19
GPUS: Final = (1, 4, 8, 16, 64)


@dataclass(frozen=True)
class Assumed:
    """What was not measured here: there is no GPU on the machine."""

    batch: int = 512
    epochs: int = 70
    passes: int = 5  # AdaGC: student forward twice and backward (as two), teacher forward
    backward: int = 2  # of these, those that an exchange of gradients can hide behind
    flops: float = 30e12  # that a GPU does per second, of which the arithmetic is counted
    exchange: float = 20e9  # bytes per second between GPUs
    scored: int = 2  # networks that validation scores
    large: int = 100_000_000  # patches of a data set that does not exist


ASSUMED: Final = Assumed()


@dataclass(frozen=True)
class Row:
    """The paper's run on so many GPUs."""

    gpus: int
    step: float  # seconds of a step
    exchange: float  # seconds that an exchange of gradients takes

    @property
    def rate(self) -> float:
        """Patches per second."""
        return ASSUMED.batch / self.step

    @property
    def epoch(self) -> float:
        """Seconds of an epoch of training."""
        return PUBLISHED["train"] / self.rate

    @property
    def waits(self) -> bool:
        """Whether GPUs wait for the exchange."""
        own = self.step - self.exchange
        share = ASSUMED.backward / (ASSUMED.passes - ASSUMED.backward)
        return self.gpus > 1 and self.exchange > share * own * (1 + 1e-9)


class Scale:
    """The figures of docs/results/scale.md."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))

    @property
    def made(self) -> str:
        """Where the parts were measured, and how busy the machine was."""
        machines = [one["machine"] for one in self.found.values()]
        processors = ", ".join(sorted({str(one["processor"]) for one in machines}))
        torch = ", ".join(sorted({str(one["packages"]["torch"]) for one in machines}))
        commits = ", ".join(sorted({str(one["git"]) for one in machines}))
        return f"Two cores of {processors}, torch {torch}, commit {commits}; {self._busy()}"

    def _busy(self) -> str:
        """How many programs wanted the two cores: figures of a busy machine say less."""
        least, most = (round(end(one["load"] for one in self.found.values())) for end in (min, max))
        if most <= 2:
            return "nothing else wanted these cores at the time"
        wanted = f"{least}" if least == most else f"from {least} to {most}"
        return (
            f"{wanted} programs wanted these cores at the time, so look at the ratios, which are taken"
            " within one run"
        )

    # -- measured --------------------------------------------------------------------------------

    def rate(self, reader: str) -> float:
        """Patches per CPU-second."""
        return float(self.found["reading"]["rates"][reader])

    def ratio(self, reader: str) -> float:
        """Times the reader of today."""
        return float(self.found["reading"]["ratios"][reader])

    def readers(self) -> str:
        """All readers as a table, with their limits."""
        limits = {"LMDB": 5, "memmap": 20}
        lines = [
            "| reader | patches per CPU-second | times today's | wanted |",
            "|---|---|---|---|",
        ]
        rates = self.found["reading"]["rates"]
        for name in sorted(rates, key=lambda one: float(rates[one])):
            ratio = self.found["reading"]["ratios"].get(name)
            limit = "" if ratio is None else str(limits[name.partition(",")[0]])
            times = "" if ratio is None else f"{ratio:.1f}"
            lines.append(f"| {name} | {rates[name]:,.0f} | {times} | {limit} |")
        return "\n".join(lines)

    def workers(self, form: str) -> float:
        """How many times faster two workers of prepare are, by the clock."""
        own = self.found["preparing"][form]
        return float(own["seconds_1"] / own["seconds_2"])

    def alone(self, form: str) -> float:
        """Share of the CPU time of two workers that their parent takes, in per cent."""
        own = self.found["preparing"][form]
        return 100 * float(own["parent_2"] / own["cpu_2"])

    # -- computed --------------------------------------------------------------------------------

    def row(self, gpus: int) -> Row:
        """The paper's run on so many GPUs, from the arithmetic of a forward pass."""
        flop = 1e9 * self.found["step"]["gflop"] * ASSUMED.passes
        compute = ASSUMED.batch / gpus * flop / ASSUMED.flops
        moved = 2 * 4 * self.found["step"]["weights"]  # all-reduce: there and back
        exchange = moved / ASSUMED.exchange if gpus > 1 else 0.0
        hidden = compute * ASSUMED.backward / ASSUMED.passes
        return Row(gpus, compute - hidden + max(hidden, exchange), exchange)

    def runs(self) -> str:
        """The paper's run on one to many GPUs as a table."""
        lines = [
            "| GPUs | patches per second | epoch | all epochs | from the store | cores that read |"
            " what limits |",
            "|---|---|---|---|---|---|---|",
        ]
        for gpus in GPUS:
            row = self.row(gpus)
            limits = (
                f"the exchange: {1e3 * row.exchange:.1f} of {1e3 * row.step:.1f} ms"
                if row.waits
                else "the GPUs, if the store keeps up"
            )
            lines.append(
                f"| {gpus} | {row.rate:,.0f} | {duration(row.epoch)} |"
                f" {duration(ASSUMED.epochs * row.epoch)} |"
                f" {row.rate * PATCH_BYTES / 1e9:.1f} GB/s |"
                f" {row.rate / self.rate('memmap, nearest'):.1f} | {limits} |"
            )
        return "\n".join(lines)

    @property
    def feeds(self) -> float:
        """How many GPUs one core of a memmap store feeds."""
        return self.rate("memmap, nearest") / self.row(1).rate

    @property
    def validation(self) -> float:
        """Passes of validation, in per cent of those of training."""
        scored = PUBLISHED["val"] * ASSUMED.scored
        return 100 * scored / (PUBLISHED["train"] * ASSUMED.passes)

    def state(self, patches: float) -> float:
        """GB of AdaGC's state for so many training patches."""
        return patches * float(self.found["epochs"]["bytes_per_image"]) / 1e9

    @property
    def lmdb(self) -> float:
        """Size of the LMDB form against the memmap form, in per cent."""
        return 100 * sum(entry_sizes()) / PATCH_BYTES

    def stored(self, patches: float) -> float:
        """GB of a memmap store."""
        return patches * (PATCH_BYTES + RECORD.itemsize) / 1e9

    def index(self, patches: float) -> float:
        """GB of the index on the disk."""
        own = self.found["start-up"]
        return float(patches * own["index"] / own["patches"] / 1e3)

    def opening(self, patches: float) -> float:
        """Seconds of CPU until training can begin."""
        own = self.found["start-up"]
        return float(patches * own["seconds"] / own["patches"])

    def epoch(self, patches: float, gpus: int) -> str:
        """How long an epoch takes."""
        return duration(patches / self.row(gpus).rate)


def duration(seconds: float) -> str:
    """Seconds in the largest unit of which there is more than one and a half."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


__all__ = ["ASSUMED", "PUBLISHED", "Scale", "duration"]
