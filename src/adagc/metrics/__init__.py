"""Metrics that compare scores with clean labels, and the registry that tables are made from."""

from adagc.metrics.exact import Absent, average_precision, score
from adagc.metrics.registry import METRICS, Metric, register, unregister

__all__ = [
    "METRICS",
    "Absent",
    "Metric",
    "average_precision",
    "register",
    "score",
    "unregister",
]
