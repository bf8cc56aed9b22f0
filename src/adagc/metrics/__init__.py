"""Metrics on clean labels, which tables show, and criteria on observed labels, which choose."""

from adagc.metrics.exact import Absent, average_precision, score
from adagc.metrics.noisy import CRITERIA, Criterion, CriterionName, criteria
from adagc.metrics.registry import METRICS, Metric, register, unregister

__all__ = [
    "CRITERIA",
    "METRICS",
    "Absent",
    "Criterion",
    "CriterionName",
    "Metric",
    "average_precision",
    "criteria",
    "register",
    "score",
    "unregister",
]
