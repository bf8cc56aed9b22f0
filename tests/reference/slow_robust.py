"""GR, EM, EM+APL and ASL entry by entry in plain Python, straight from their definitions."""

from __future__ import annotations

from decimal import Decimal, localcontext

from reference.slow_losses import DIGITS, Matrix, _entries, sigmoid

NOTHING = Decimal(0)


def _known(p: Decimal, label: float) -> Decimal:
    return -p.ln() if label == 1 else -(1 - p).ln()


def _power(base: Decimal, exponent: float) -> Decimal:
    """base^exponent with 0^0 = 1."""
    if exponent == 0:
        return Decimal(1)
    return NOTHING if base == 0 else base ** Decimal(exponent)


def generalized_robust(
    z: Matrix, y: Matrix, *, w: float, b: float, mu: float, s: float, q2: float, q3: float
) -> list[list[Decimal]]:
    def rule(i: int, c: int, p: Decimal) -> Decimal:
        if y[i][c] != 0:
            return _known(p, y[i][c])
        trust = sigmoid(Decimal(w) * p + Decimal(b))
        weight = (-((p - Decimal(mu)) ** 2) / (2 * Decimal(s) ** 2)).exp()
        as_positive = (1 - p ** Decimal(q2)) / Decimal(q2)
        as_negative = (1 - (1 - p) ** Decimal(q3)) / Decimal(q3)
        return weight * (trust * as_positive + (1 - trust) * as_negative)

    return _entries(z, rule)


def generalized_robust_gradient(
    z: float, *, w: float, b: float, mu: float, s: float, q2: float, q3: float
) -> float:
    """Of an unobserved entry with respect to its logit, trust and weight held fixed."""
    with localcontext() as context:
        context.prec = DIGITS
        p = sigmoid(z)
        trust = sigmoid(Decimal(w) * p + Decimal(b))
        weight = (-((p - Decimal(mu)) ** 2) / (2 * Decimal(s) ** 2)).exp()
        up = -(p ** (Decimal(q2) - 1))
        down = (1 - p) ** (Decimal(q3) - 1)
        return float(weight * (trust * up + (1 - trust) * down) * p * (1 - p))


def entropy_maximisation(
    z: Matrix,
    y: Matrix,
    alpha: float,
    *,
    beta: float = 0.0,
    soft: dict[tuple[int, int], float] | None = None,
) -> list[list[Decimal]]:
    """EM, or EM+APL with the soft negatives (row, class) -> p̂."""
    soft = soft or {}

    def rule(i: int, c: int, p: Decimal) -> Decimal:
        if y[i][c] != 0:
            return _known(p, y[i][c])
        if (i, c) in soft:
            target = Decimal(soft[i, c])
            return Decimal(beta) * (-target * p.ln() - (1 - target) * (1 - p).ln())
        return Decimal(alpha) * (p * p.ln() + (1 - p) * (1 - p).ln())

    return _entries(z, rule)


def asymmetric_labels(
    y: Matrix, reviews: list[Matrix], share: float
) -> list[dict[tuple[int, int], float]]:
    """The soft negatives after each review; as many rounds are planned as there are reviews."""
    rows, columns = len(y), len(y[0])
    soft: dict[tuple[int, int], float] = {}
    found = []
    for p in reviews:
        for c in range(columns):
            at_start = sum(y[i][c] == 0 for i in range(rows))
            unknown = [i for i in range(rows) if y[i][c] == 0 and (i, c) not in soft]
            unknown.sort(key=lambda i: (p[i][c], i))
            for i in unknown[: int(share * at_start / len(reviews))]:
                soft[i, c] = p[i][c]
        found.append(dict(soft))
    return found


def asymmetric(
    z: Matrix, y: Matrix, *, positive_focus: float, negative_focus: float, margin: float
) -> list[list[Decimal]]:
    def rule(i: int, c: int, p: Decimal) -> Decimal:
        if y[i][c] == 1:
            return -_power(1 - p, positive_focus) * p.ln()
        if y[i][c] == -1:
            return -(1 - p).ln()
        p_m = max(p - Decimal(margin), NOTHING)
        return -_power(p_m, negative_focus) * (1 - p_m).ln()

    return _entries(z, rule)


def asymmetric_gradient(
    z: float, label: int, *, focus: float, margin: float, through_focus: bool
) -> float:
    """With respect to the logit, optionally through the fading weight too."""
    with localcontext() as context:
        context.prec = DIGITS
        p = sigmoid(z)
        g = Decimal(focus)
        slope = p * (1 - p)
        if label == 1:
            found = -_power(1 - p, focus) / p
            if through_focus:
                found += g * (1 - p) ** (g - 1) * p.ln()
            return float(found * slope)
        p_m = p - Decimal(margin)
        if p_m <= 0:
            return 0.0
        found = _power(p_m, focus) / (1 - p_m)
        if through_focus:
            found -= g * p_m ** (g - 1) * (1 - p_m).ln()
        return float(found * slope)
