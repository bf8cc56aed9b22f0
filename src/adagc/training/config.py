"""Everything a run can be told, in one flat place that is at once command line and YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adagc.training.settings import DataSettings, LabelSettings, ModelSettings, Settings


@dataclass(frozen=True)
class RunConfig(ModelSettings, DataSettings, LabelSettings, Settings):
    """One run: which images, which labels, which network, how to train.

    Args:
        absent: What to do with classes that no test image contains: error stops before training,
            skip leaves them out of the mean average precision.
        oracle: Record scores on clean labels in every epoch, where clean labels exist. They are
            never used.
    """

    absent: Literal["error", "skip"] = "error"
    oracle: bool = True
