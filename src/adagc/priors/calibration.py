"""Calibration: which scores mean that a class is present, learnt from single observed labels.

Any method's scores order the classes of an image, but what they are worth differs from method to
method. Normalised to q_c = p_c / Σ_j p_j they say which label was probably observed. From there to
presence takes three numbers, the same for all images and classes:

    logit P(c is present | x) = α log q_c + γ log Σ_j r_j² + β

r is q with the exponent that explains observed labels best, r_c ∝ q_c^a. The three are those with
which the random annotator most probably chose the labels that were observed in images the network
was not trained on (`adagc.losses.random_likelihood`).

Why this form: if it is certain what an image of k labels shows, q is 1 / k for each of them, and
Σ q² is 1 / k; γ = -α makes these labels equally certain however many there are. If it is uncertain,
q spreads over more classes than are present, and less of log Σ q² may be taken off. How much is a
matter of the images and of the network, so it is learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adagc.metrics.noisy import fit_exponent

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]

Logits = Callable[["Tensor"], "Tensor"]
Belief = Callable[["Tensor"], "Tensor"]

_SMALLEST = 1e-12
USUAL = (1.0, 0.0, 0.0)  # α, γ and β of scores that need no calibration
# A weak belief that α is 1 and the other two are 0, worth a fraction of a label: the three stay
# finite where labels can be told without any error.
_BELIEF = 0.01
# So many images tell the number of labels to about 2 %; more take longer for little.
ENOUGH = 10_000


@dataclass(frozen=True)
class Calibration:
    """Turns scores of a network into probabilities that classes are present."""

    exponent: float  # a
    alpha: float
    gamma: float
    beta: float

    def presence(self, probabilities: Floats, levels: Floats | float = 0.0) -> Floats:
        """(N, C) calibrated probabilities of presence, of (N, C) predicted ones.

        Args:
            probabilities: (N, C) predictions of the network.
            levels: (C,) what the logit of each class is raised by (`adagc.priors.levels`).
        """
        logs, spread = described(probabilities, self.exponent)
        logits = self.alpha * logs + self.gamma * spread + self.beta + levels
        values: Floats = np.exp(-np.logaddexp(0, -logits))  # a sigmoid that cannot overflow
        return values


@dataclass(frozen=True)
class Fit:
    """A calibration, and what each image says about its three numbers."""

    calibration: Calibration
    slopes: Floats  # (N, 3) derivatives of the log-likelihood of each image
    curvatures: Floats  # (N, 3, 3) second derivatives
    belief: Floats  # (3, 3) second derivatives of the weak belief

    def moved(self, weights: Floats) -> Calibration:
        """The calibration if image i counted weights[i] times, to first order (Newton's step)."""
        # At the optimum of all images slopes and belief cancel, so only what is new counts.
        slope = (weights - 1) @ self.slopes
        curvature = np.tensordot(weights, self.curvatures, axes=1) + self.belief
        step = -np.linalg.lstsq(curvature, slope, rcond=None)[0]
        now = self.calibration
        return Calibration(
            now.exponent, now.alpha + step[0], now.gamma + step[1], now.beta + step[2]
        )


@dataclass(frozen=True)
class Evidence:
    """What a calibration is fitted to: described scores, and what was observed of each image."""

    exponent: float  # a
    features: Tensor  # (N, C, 3) log q, log Σ r², 1
    observed: Tensor  # (N, C) int8: +1, 0, -1

    @classmethod
    def of(cls, probabilities: Floats, observed: NDArray[Any]) -> Evidence:
        """Describe the scores, with the exponent that explains the observed labels best."""
        import torch

        exponent = exponent_of(probabilities, observed)
        logs, spread = described(probabilities, exponent)
        known = np.stack([logs, np.broadcast_to(spread, logs.shape), np.ones_like(logs)], axis=2)
        seen = np.sign(observed).astype(np.int8)
        return cls(exponent, torch.from_numpy(known), torch.from_numpy(seen))

    def most_probable(self, logits: Logits, belief: Belief, start: Tensor) -> Tensor:
        """The numbers with which the observed labels are most probable.

        Args:
            logits: (N, C) logits of presence that some numbers mean.
            belief: Minus the logarithm of how far such numbers were believed in before.
            start: Numbers to begin with.
        """
        import torch

        from adagc.losses import random_likelihood

        numbers = start.clone().requires_grad_()
        optimiser = torch.optim.LBFGS(
            [numbers], max_iter=200, tolerance_grad=1e-9, tolerance_change=1e-12,
            line_search_fn="strong_wolfe",
        )  # fmt: skip

        def cost() -> Tensor:
            optimiser.zero_grad()
            explained = random_likelihood(logits(numbers), self.observed).sum()
            value = (belief(numbers) - explained) / len(self.observed)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimiser.step(cost)  # type: ignore[no-untyped-call]
        return numbers.detach()


def exponent_of(probabilities: Floats, observed: NDArray[Any]) -> float:
    """a, with which shares of the scores explain the observed labels best."""
    labels = (observed > 0).astype(np.float64)
    rows = labels.any(axis=1)
    shares = labels[rows] / labels[rows].sum(axis=1, keepdims=True)
    return float(fit_exponent(shares, logs_of(probabilities[rows])))


def enough(observed: NDArray[Any]) -> slice | NDArray[np.int64]:
    """The images to fit a calibration to: all, or 10,000 of those that tell something.

    They are drawn at random, but the same ones in every call. Images of which nothing was observed
    tell nothing.
    """
    if len(observed) <= ENOUGH:
        return slice(None)
    telling = np.flatnonzero((observed != 0).any(axis=1))
    return np.sort(np.random.default_rng(0).permutation(telling)[:ENOUGH])


def believed(numbers: Tensor) -> Tensor:
    """Minus the logarithm of the weak belief in α, γ and β."""
    return _BELIEF * (numbers - numbers.new_tensor(USUAL)).square().sum() / 2


def calibrated(probabilities: Floats, observed: NDArray[Any]) -> Calibration:
    """The calibration that `fit` finds, from as many images as are enough."""
    rows = enough(observed)
    evidence = Evidence.of(probabilities[rows], observed[rows])
    return Calibration(evidence.exponent, *_three_numbers(evidence).tolist())


def fit(probabilities: Floats, observed: NDArray[Any]) -> Fit:
    """Fit the three numbers to the observed labels of these images.

    Args:
        probabilities: (N, C) predictions for images that the network was not trained on.
        observed: (N, C) their labels: +1 seen to be present, 0 not known, -1 seen to be absent.
    """
    evidence = Evidence.of(probabilities, observed)
    found = _three_numbers(evidence)
    slopes, curvatures = _derivatives(evidence.features, found, evidence.observed)
    calibration = Calibration(evidence.exponent, *found.tolist())
    return Fit(calibration, slopes, curvatures, -_BELIEF * np.eye(3))


def _three_numbers(evidence: Evidence) -> Tensor:
    """(3,) α, γ and β, with which the observed labels are most probable."""
    import torch

    start = torch.tensor(USUAL, dtype=torch.float64)
    return evidence.most_probable(lambda now: evidence.features @ now, believed, start)


def _derivatives(features: Tensor, numbers: Tensor, seen: Tensor) -> tuple[Floats, Floats]:
    """(N, 3) first and (N, 3, 3) second derivatives of every image's log-likelihood."""
    import torch

    from adagc.losses import random_likelihood

    logits = (features @ numbers).requires_grad_()
    total = random_likelihood(logits, seen).sum()
    (by_logit,) = torch.autograd.grad(total, logits, create_graph=True)
    slopes = (by_logit.unsqueeze(2) * features).sum(dim=1)
    rows = []
    for column in slopes.unbind(dim=1):
        # Images do not depend on each other, so the gradient of a sum has that of each image.
        (again,) = torch.autograd.grad(column.sum(), logits, retain_graph=True)
        rows.append((again.unsqueeze(2) * features).sum(dim=1))
    return slopes.detach().numpy(), torch.stack(rows, dim=1).numpy()


def described(probabilities: Floats, exponent: float) -> tuple[Floats, Floats]:
    """(N, C) log q, and (N, 1) log Σ r²."""
    logs = logs_of(probabilities)
    logs = logs - np.log(np.exp(logs).sum(axis=1, keepdims=True))
    powers = exponent * (logs - logs.max(axis=1, keepdims=True))
    shares = np.exp(powers)
    shares /= shares.sum(axis=1, keepdims=True)
    return logs, np.log((shares**2).sum(axis=1, keepdims=True))


def logs_of(probabilities: Floats) -> Floats:
    """Logarithms that are finite where a probability is 0."""
    values: Floats = np.log(np.maximum(probabilities, _SMALLEST))
    return values
