"""One HTML page about one run: what was trained, how well, where it errs, and how to repeat it."""

from __future__ import annotations

from adagc.report.page import write_report

__all__ = ["write_report"]
