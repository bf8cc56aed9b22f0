"""What single observed labels tell about all labels: frequencies of classes, and thresholds."""

from __future__ import annotations

from adagc.priors.estimate import Priors, estimate
from adagc.priors.presence import Presence, fit_presence
from adagc.priors.recovery import Cuts, find_cuts
from adagc.priors.thresholds import Rule, thresholds

__all__ = [
    "Cuts",
    "Presence",
    "Priors",
    "Rule",
    "estimate",
    "find_cuts",
    "fit_presence",
    "thresholds",
]
