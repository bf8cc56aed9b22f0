"""All settings of a run in one flat class, from which command line and YAML are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adagc.training.settings import DataSettings, LabelSettings, ModelSettings, Settings


@dataclass(frozen=True)
class RunConfig(ModelSettings, DataSettings, LabelSettings, Settings):
    """The settings of one run: its data, labels and network, and how it is trained.

    The names are those of the options of `adagc train`; `help(RunConfig)` lists them with their
    defaults, and `adagc train --help` explains them.

    Example:
        >>> from dataclasses import replace
        >>> from adagc import RunConfig
        >>> config = RunConfig(root="photos", labels="labels.csv", size=120)
        >>> replace(config, seed=1).seed, config.epochs, config.backbone
        (1, 40, 'auto')
        >>> RunConfig(epochs=0)
        Traceback (most recent call last):
        adagc.errors.UsageError: --epochs must be at least 1, not 0

    Args:
        absent: What to do about classes that no test image contains: skip leaves them out of the
            mean average precision and says so, error stops before training.
        thresholds: From which probability on a class is predicted, learnt from observed validation
            labels: pooled-f1 expects the largest F1 score, with help from all classes where one is
            rare; expected-f1 does without that help; shares predicts a class as often as it seems
            to be present. half is 0.5 for all, as in the paper.
        oracle: Record scores on clean labels in every epoch, where clean labels exist. Training
            never uses these scores.
    """

    absent: Literal["error", "skip"] = "skip"
    thresholds: Literal["pooled-f1", "expected-f1", "shares", "half"] = "pooled-f1"
    oracle: bool = True
