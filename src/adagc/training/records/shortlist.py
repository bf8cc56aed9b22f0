"""Which of several ways to go on explained held-out labels best in short trainings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adagc.training.records.common import FORMAT, check_format


@dataclass(frozen=True)
class ShortlistRecord:
    """The content of shortlist.json.

    Attributes:
        taken: The name on the shortlist that the run goes on as.
        likelihoods: By name the mean log-likelihood of an observed validation label (tempered), in
            the epoch of the short training that explains them best.
        epochs: By name how many epochs the short training took.
        images: Validation images with an observed label.
        seconds: What all short trainings together took.
        cpu_seconds: The same in seconds of CPU; None on a GPU.
        key: Digest of all that the choice depends on.
    """

    taken: str
    likelihoods: Mapping[str, float]
    epochs: Mapping[str, int]
    images: int = 0
    seconds: float = 0.0
    cpu_seconds: float | None = None
    key: str = ""

    @property
    def lead(self) -> float:
        """By how much the one that was taken explains a label better than the best of the others.

        Negative, but not by much, if they tie and it comes first; infinite without others.
        """
        others = [value for name, value in self.likelihoods.items() if name != self.taken]
        return self.likelihoods[self.taken] - max(others, default=-math.inf)

    def to_dict(self) -> dict[str, Any]:
        """The values as a dictionary for JSON."""
        return {
            "format": FORMAT,
            "taken": self.taken,
            "likelihoods": dict(self.likelihoods),
            "epochs": dict(self.epochs),
            "images": self.images,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "key": self.key,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ShortlistRecord:
        """The inverse of `to_dict`."""
        check_format(values, "shortlist.json")
        likelihoods = {str(name): float(value) for name, value in values["likelihoods"].items()}
        taken, used = str(values["taken"]), values.get("cpu_seconds")
        if taken not in likelihoods:
            raise ValueError(f"{taken!r} was taken, which has no likelihood")
        return cls(
            taken=taken,
            likelihoods=likelihoods,
            epochs={str(name): int(count) for name, count in values["epochs"].items()},
            images=int(values.get("images", 0)),
            seconds=float(values.get("seconds", 0.0)),
            cpu_seconds=None if used is None else float(used),
            key=str(values.get("key", "")),
        )
