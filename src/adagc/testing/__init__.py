"""Checks for methods of your own, and the tiny data and networks that the checks need.

They can be used with any test framework, or without one.
"""

from adagc.testing.checks import Check, NotCheckedWarning, check_method, method_checks

__all__ = ["Check", "NotCheckedWarning", "check_method", "method_checks"]
