"""One suite over the registry: a new method is tested without a new test.

The checks are those that `adagc.testing.check_method` makes of anybody's method.
"""

from __future__ import annotations

import pytest

from adagc.methods import registry
from adagc.testing import method_checks

CHECKS = dict(method_checks())


@pytest.mark.parametrize("cls", registry().values(), ids=registry().keys())
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_every_method_passes_every_check(cls, check):
    check(cls)
