"""The methods of adagc as a scikit-learn estimator: arrays in, a multi-label classifier out."""

from __future__ import annotations

from importlib.util import find_spec

from adagc.errors import MissingExtraError

if find_spec("sklearn") is None:
    raise MissingExtraError("scikit-learn", "sklearn")

from adagc.estimator.classifier import SinglePositiveClassifier

__all__ = ["SinglePositiveClassifier"]
