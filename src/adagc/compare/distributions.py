"""Probabilities and quantiles of the F and of Student's t distribution, without SciPy."""

from __future__ import annotations

import math
from functools import lru_cache

_CLOSE = 1e-15  # relative change at which a continued fraction has converged


@lru_cache(maxsize=4096)
def t_quantile(chance: float, degrees: float) -> float:
    """The t that a variable with this many degrees of freedom exceeds, up or down, by this chance.

    >>> round(t_quantile(0.05, 4), 3)
    2.776

    Args:
        chance: Probability of a value above t or below -t, above 0 and below 1.
        degrees: Degrees of freedom, above 0.
    """
    low, high = 0.0, 1.0
    while f_survival(high * high, 1, degrees) > chance:
        low, high = high, 2 * high
    for _ in range(100):
        t = (low + high) / 2
        low, high = (t, high) if f_survival(t * t, 1, degrees) > chance else (low, t)
        if high - low <= 1e-13 * high:
            break
    return high


def f_survival(f: float, over: float, under: float) -> float:
    """Probability that a variable with the F(over, under) distribution exceeds f.

    `over` and `under` are the degrees of freedom of its numerator and denominator.
    """
    if f == math.inf:
        return 0.0
    return _incomplete_beta(under / (under + over * f), under / 2, over / 2)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), from its continued fraction.

    Where that converges slowly, I_x(a, b) = 1 - I_(1-x)(b, a) is used.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = a * math.log(x) + b * math.log1p(-x)
    log_front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    # Lentz's algorithm: c and d are ratios of successive numerators and denominators of the
    # fraction when it is cut off after more and more terms.
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for term in (even, odd):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            fraction *= c * d
        if abs(fraction - before) <= _CLOSE * abs(fraction):
            break
    return math.exp(log_front) * fraction / a


def _not_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
