"""What single observed labels tell about all labels: frequencies of classes, and thresholds."""

from __future__ import annotations

from adagc.priors.estimate import Priors, estimate
from adagc.priors.thresholds import Rule, thresholds

__all__ = ["Priors", "Rule", "estimate", "thresholds"]
