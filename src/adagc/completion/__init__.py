"""Completed labels: what every image shows, as far as a run can tell, and how sure that is."""

from __future__ import annotations

from adagc.completion.completed import Completed
from adagc.completion.work import PARTS, complete

__all__ = ["PARTS", "Completed", "complete"]
