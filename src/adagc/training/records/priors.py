"""How frequent classes are, as a run was told or has estimated it: priors.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adagc.errors import UsageError
from adagc.methods.told import Source
from adagc.training.records.common import FORMAT, check_format

# What a file may say of its source; a file that says nothing may hold anything.
_SOURCES: tuple[Source, ...] = ("estimated", "truth", "file")


@dataclass(frozen=True)
class PriorsRecord:
    """The content of priors.json; what `adagc priors --json` prints can be read as one, too."""

    source: Source
    classes: tuple[str, ...]
    frequencies: tuple[float, ...]  # share of images that contain each class
    interval: tuple[float, float] | None = None  # 95 % interval of the cardinality
    trusted: bool = True  # whether an estimate may be used
    reason: str = ""  # why, or why not, in a sentence
    images: int | None = None  # validation images that an estimate is made from
    # Of the pilot training that an estimate was made with: its epochs, the one that explains the
    # observed labels best, what it took, and a digest of all that it depends on.
    epochs: int = 0
    best_epoch: int = 0
    seconds: float = 0.0
    cpu_seconds: float | None = None  # None on a GPU
    key: str = ""

    @property
    def cardinality(self) -> float:
        """Mean number of labels per image."""
        return sum(self.frequencies)

    def ordered(self, classes: Sequence[str], where: str) -> PriorsRecord:
        """The same for classes in this order; UsageError if `where` has other classes."""
        known = dict(zip(self.classes, self.frequencies, strict=True))
        if sorted(known) != sorted(classes):
            strange = sorted(known.keys() ^ set(classes))[0]
            has = "lacks" if strange in classes else "has"
            raise UsageError(
                f"--priors {where} {has} the class {strange!r}: give frequencies of the same"
                " classes as those of the labels"
            )
        return replace(
            self, classes=tuple(classes), frequencies=tuple(known[name] for name in classes)
        )

    def to_dict(self) -> dict[str, Any]:
        """The values as a dictionary for JSON."""
        return {
            "format": FORMAT,
            "source": self.source,
            "classes": list(self.classes),
            "frequencies": list(self.frequencies),
            "cardinality": self.cardinality,  # for other readers; here it follows
            "interval": None if self.interval is None else list(self.interval),
            "trusted": self.trusted,
            "reason": self.reason,
            "images": self.images,
            "epochs": self.epochs,
            "best_epoch": self.best_epoch,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "key": self.key,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PriorsRecord:
        """The inverse of `to_dict`."""
        check_format(values, "priors.json")
        classes = tuple(map(str, values["classes"]))
        frequencies = tuple(map(float, values["frequencies"]))
        if len(classes) != len(frequencies) or len(set(classes)) < len(classes):
            raise ValueError(f"{len(frequencies)} frequencies of {len(set(classes))} classes")
        if not all(0 <= value <= 1 for value in frequencies):
            raise ValueError("frequencies must be numbers from 0 to 1")
        source = values.get("source", "file")
        if source not in _SOURCES:
            raise ValueError(f"source must be one of {', '.join(_SOURCES)}")
        interval, images = values.get("interval"), values.get("images")
        used = values.get("cpu_seconds")
        return cls(
            source=source,
            classes=classes,
            frequencies=frequencies,
            interval=None if interval is None else (float(interval[0]), float(interval[1])),
            trusted=bool(values.get("trusted", True)),
            reason=str(values.get("reason", "")),
            images=None if images is None else int(images),
            epochs=int(values.get("epochs", 0)),
            best_epoch=int(values.get("best_epoch", 0)),
            seconds=float(values.get("seconds", 0.0)),
            cpu_seconds=None if used is None else float(used),
            key=str(values.get("key", "")),
        )
