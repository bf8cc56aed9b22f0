"""How well numbers explain observed labels, with exact first and second derivatives.

Classes are present independently of each other, with logits z_c that are linear in a few numbers,
and a random annotator draws one of those that are present. An image that has a label shows
something, so what counts is the probability of its label given that anything is present,

    log P(s | something) = log P(s) - log π,   π = 1 - ∏_j (1 - p_j).

Both terms are of the form log Σ_Y w(Y) exp(z·Y) over sets of labels Y. So the slope in z is the
mean of Y once the label is known minus that of any image that shows something, and the curvature
is the covariance of the first minus that of the second. Once the label is known, Y is a mixture
over u in [0, 1] (`adagc.losses.annotators`): given u classes are independent, with probability
p_c u / (1 - p_c + p_c u).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.priors.calibration import Floats

_ENTRIES = 2_000_000  # images, nodes and classes at a time
_STEPS, _HALVINGS = 100, 30
_LEAST = 1e-100  # that anything is present; its square is a number, too
_CLOSE = 1e-9  # nats that another step would gain


@dataclass(frozen=True)
class Local:
    """A function of the numbers at one place."""

    value: float
    slope: Floats  # (P,)
    curvature: Floats  # (P, P)


@dataclass(frozen=True)
class Labels:
    """Observed labels, and the features that logits are made from.

    z of class c is features[:, c] @ numbers[:F] + numbers[F + c].
    """

    features: Floats  # (N, C, F)
    observed: NDArray[np.int8]  # (N, C) +1, 0, -1

    def at(self, numbers: Floats, blind: float = 0.0) -> Local:
        """The log-likelihood, and how it changes.

        Args:
            numbers: (F + C,) the numbers.
            blind: As if so many images had been drawn without looking for a label, like those that
                have one, and each had shown something.
        """
        labelled = (self.observed > 0).any(axis=1)
        parts = [labelled] if labelled.all() else [labelled, ~labelled & (self.observed < 0).any(1)]
        share = 1 - blind / max(int(labelled.sum()), 1)
        size = max(1, _ENTRIES // (self.observed.shape[1] ** 2 // 2 + 1))
        total = Local(0.0, np.zeros(len(numbers)), np.zeros((len(numbers), len(numbers))))
        for part, explain in zip(parts, (self._labelled, self._unlabelled), strict=False):
            rows = np.flatnonzero(part)
            for start in range(0, len(rows), size):
                found = explain(rows[start : start + size], numbers, share)
                total = Local(
                    total.value + found.value,
                    total.slope + found.slope,
                    total.curvature + found.curvature,
                )
        return total

    def _labelled(self, rows: NDArray[np.int64], numbers: Floats, share: float) -> Local:
        """Of images with a label; the condition that they show something counts by its share."""
        from adagc.losses.annotators import rule

        features, seen = self.features[rows], self.observed[rows]
        z, p, q = _chances(features, numbers)
        unknown, count = seen == 0, (seen > 0).sum(axis=1)
        u, weights = rule(seen.shape[1])
        open_ = np.where(unknown, p, 0.0)[:, None, :]
        factors = 1 - open_ + open_ * u[:, None]
        draw = np.log(factors).sum(axis=2) + np.log(weights) + (count[:, None] - 1) * np.log(u)
        top = draw.max(axis=1, keepdims=True)
        mixture = np.exp(draw - top)
        total = mixture.sum(axis=1, keepdims=True)
        mixture /= total
        given = open_ * u[:, None] / factors  # (n, nodes, C)
        mean = np.einsum("nk,nkc->nc", mixture, given)
        nothing = -_softplus(z).sum(axis=1)
        something = -np.expm1(np.minimum(nothing, -_LEAST))
        known = np.where(seen > 0, -_softplus(-z), 0) + np.where(seen < 0, -_softplus(z), 0)
        value = known.sum() + (top + np.log(total)).sum() + np.log(count).sum()
        value -= share * np.log(something).sum()

        empty = (np.exp(nothing) / something)[:, None]
        residual = np.where(seen > 0, 1.0, mean) - p - share * empty * p
        own = np.einsum("nk,nkc->nc", mixture, given * (1 - given)) - p * q * (1 + share * empty)
        pairs = [
            (mixture, _along(features, given)),
            (-np.ones((len(rows), 1)), _along(features, mean[:, None])),
            # 1/π - 1/π² is -(1 - π) / π²
            (share * empty / something[:, None], _along(features, p[:, None])),
        ]
        return Local(float(value), _slope(features, residual), _bend(features, own, pairs))

    def _unlabelled(self, rows: NDArray[np.int64], numbers: Floats, share: float) -> Local:
        """Of images that nobody has given a label, but of which some classes were seen absent."""
        features, absent = self.features[rows], self.observed[rows] < 0
        z, p, q = _chances(features, numbers)
        value = float(-_softplus(z)[absent].sum())
        slope = _slope(features, np.where(absent, -p, 0.0))
        return Local(value, slope, _bend(features, np.where(absent, -p * q, 0.0), []))


def _chances(features: Floats, numbers: Floats) -> tuple[Floats, Floats, Floats]:
    """(n, C) logits, how probable presence is, and absence."""
    shared = features.shape[2]
    z = features @ numbers[:shared] + numbers[shared:]
    # 1 - p is a sigmoid of its own, so that no digits are lost where p is close to 1.
    return z, np.exp(-_softplus(-z)), np.exp(-_softplus(z))


def _slope(features: Floats, by_logit: Floats) -> Floats:
    """(P,) derivatives by the numbers, of those by (n, C) logits."""
    return np.concatenate([np.tensordot(by_logit, features, 2), by_logit.sum(axis=0)])


def _along(features: Floats, values: Floats) -> Floats:
    """(n, K, P) sums over classes of (n, K, C) values times what a logit is made of."""
    return np.concatenate([values @ features, values], axis=2)


def _bend(features: Floats, own: Floats, pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """(P, P) second derivatives: of single classes, and of classes with each other."""
    shared = features.shape[2]
    weighted = own[:, :, None] * features
    found = np.zeros((shared + own.shape[1],) * 2)
    found[:shared, :shared] = np.tensordot(weighted, features, ([0, 1], [0, 1]))
    found[:shared, shared:] = weighted.sum(axis=0).T
    found[shared:, :shared] = found[:shared, shared:].T
    found[shared:, shared:] = np.diag(own.sum(axis=0))
    for weights, vectors in pairs:
        # A product for every image: one for all would be shared out over threads, which costs more
        # than it saves where other work waits.
        found += ((vectors * weights[:, :, None]).transpose(0, 2, 1) @ vectors).sum(axis=0)
    return found


def lowest(cost: Callable[[Floats], Local], start: Floats, least: float) -> tuple[Floats, Floats]:
    """The numbers at which a cost is lowest, and the curvature there.

    Newton's method. Where the cost bends downwards, which it may on the way, it goes downhill as
    far as if it bent upwards by as much.

    Args:
        cost: Its value and derivatives.
        start: (P,) numbers to begin with.
        least: The least curvature in any direction that is believed in.
    """
    now, here = start, cost(start)
    for _ in range(_STEPS):
        values, vectors = np.linalg.eigh(here.curvature)
        along = vectors.T @ here.slope / np.maximum(np.abs(values), least)
        gain = float(here.slope @ (vectors @ along))
        if gain < _CLOSE:
            break
        for halving in range(_HALVINGS):
            further = now - 0.5**halving * (vectors @ along)
            there = cost(further)
            if there.value <= here.value - 1e-4 * 0.5**halving * gain:
                break
        else:  # nothing is gained any more: rounding
            break
        now, here = further, there
    return now, here.curvature


def _softplus(z: Floats) -> Floats:
    return np.logaddexp(0, z)
