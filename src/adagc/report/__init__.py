"""One HTML page about one run: settings, scores, curves, examples, and how to repeat the run."""

from __future__ import annotations

from adagc.report.page import write_report

__all__ = ["write_report"]
