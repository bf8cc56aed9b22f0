"""How many images contain each class, estimated from single observed labels."""

from __future__ import annotations

from adagc.priors.estimate import Priors, estimate

__all__ = ["Priors", "estimate"]
