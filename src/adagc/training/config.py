"""All settings of a run in one flat class, from which command line and YAML are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adagc.training.settings import DataSettings, LabelSettings, ModelSettings, Settings


@dataclass(frozen=True)
class RunConfig(ModelSettings, DataSettings, LabelSettings, Settings):
    """The settings of one run: its data, labels and network, and how it is trained.

    Args:
        absent: What to do about classes that no test image contains: skip leaves them out of the
            mean average precision and says so, error stops before training.
        oracle: Record scores on clean labels in every epoch, where clean labels exist. Training
            never uses these scores.
    """

    absent: Literal["error", "skip"] = "skip"
    oracle: bool = True
