"""Tests for methods of your own, and the tiny data and networks that they need.

Nothing here depends on a test framework.
"""

from adagc.testing.checks import Check, NotCheckedWarning, check_method, method_checks

__all__ = ["Check", "NotCheckedWarning", "check_method", "method_checks"]
