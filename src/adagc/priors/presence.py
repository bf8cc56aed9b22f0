"""How probable it is that a class is present, and how sure that is, from single observed labels.

`adagc.priors.calibration` looks at how the scores of an image compare with each other. Networks
that were trained on completed labels say more: their probabilities are those of presence already,
or nearly so. Here both are weighed:

    logit P(c is present | x) = κ logit p_c + α log q_c + γ log Σ_j r_j² + β + δ_c

with q and r as there, and a level δ_c of every class as in `adagc.priors.levels`. Before anything
is observed the network is believed to be right, κ = 1 and all others 0; the observed labels of
images that it was not trained on say how far that holds, by the likelihood of the random annotator.

What was observed of an image itself counts too: a class that was not drawn is a little less
probable (`adagc.losses.random_posterior`), and one that was is certain.

How sure all this is follows from the curvature of the likelihood: the numbers are normally
distributed around the most probable ones (Laplace's approximation), and `draws` gives the
probabilities that other numbers mean which explain the labels nearly as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.priors.calibration import Evidence, Floats, described, enough
from adagc.priors.checks import checked

if TYPE_CHECKING:
    from torch import Tensor

_SHARED = 4  # κ, α, γ and β, before the levels of the classes
_BELIEF = 0.01  # in the shared numbers, worth a fraction of a label
_EDGE = 1e-6  # probabilities of 0 and 1 have no logit
# Of fewer entries no share can be told; and observed labels may be fewer than expected by so many
# standard deviations, as happens to one in ten calibrations that are right.
_FEWEST, _DEVIATIONS = 30, 1.28
_ROWS = 4096  # images at a time: the integral over annotators needs memory


@dataclass(frozen=True)
class Presence:
    """What single labels have told about what the probabilities of a network mean.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> present = rng.random((400, 4)) < 0.4
    >>> observed = np.zeros((400, 4), dtype=np.int8)
    >>> for row in np.flatnonzero(present.any(axis=1)):
    ...     observed[row, rng.choice(np.flatnonzero(present[row]))] = 1
    >>> found = fit_presence(np.where(present, 0.2, 0.05), observed)  # right, but far too low
    >>> values = found.given(np.where(present, 0.2, 0.05))
    >>> bool(values[present].mean() > 0.9), bool(values[~present].mean() < 0.1)
    (True, True)
    """

    exponent: float  # of r
    numbers: Floats  # (4 + C,) κ, α, γ, β and the levels of the classes
    root: Floats  # (4 + C, 4 + C) lower triangle; root @ root.T is their covariance
    images: int  # how many labelled images it was learnt from
    # Of these images and all classes, the most probable first: how probable it is, how many labels
    # an annotator is expected to have drawn so far, and how many were observed.
    drawn: Floats  # (3, M)

    def confirmed(self, cuts: Floats) -> NDArray[np.bool_]:
        """Whether observed labels confirm what is expected from these probabilities on.

        A calibration may be wrong where there are few labels. Among what is at least as probable
        as a cut there must be enough entries that were not observed to speak of a share of them,
        and about as many labels as expected must have been observed.

        Args:
            cuts: (K,) probabilities of presence.
        """
        places = np.searchsorted(-self.drawn[0], -cuts, side="right") - 1
        expected, seen = (np.where(places >= 0, row[places], 0.0) for row in self.drawn[1:])
        short = expected - _DEVIATIONS * np.sqrt(expected)
        missing = places + 1 - seen
        return np.asarray((missing >= _FEWEST) & (seen >= short))

    def given(self, probabilities: ArrayLike, observed: ArrayLike | None = None) -> Floats:
        """(N, C) how probable each class is in each image.

        Args:
            probabilities: (N, C) predictions of the network.
            observed: (N, C) labels of these images: +1, 0, -1; without them nothing is known of
                the images but how they look.
        """
        scores = np.asarray(probabilities, dtype=np.float64)
        return self._given(scores, observed, self.numbers)

    def draws(
        self, probabilities: ArrayLike, observed: ArrayLike | None, count: int, *, seed: int = 0
    ) -> Iterator[Floats]:
        """The same for other numbers, drawn by how well they explain the labels."""
        scores = np.asarray(probabilities, dtype=np.float64)
        rng = np.random.default_rng(seed)
        for _ in range(count):
            drawn = self.numbers + self.root @ rng.standard_normal(len(self.numbers))
            yield self._given(scores, observed, drawn)

    def _given(self, scores: Floats, observed: ArrayLike | None, numbers: Floats) -> Floats:
        import torch

        from adagc.losses import random_posterior

        seen = np.zeros(scores.shape, np.int8) if observed is None else np.asarray(observed)
        values = np.empty(scores.shape)
        with torch.no_grad():
            for start in range(0, len(scores), _ROWS):
                part = slice(start, start + _ROWS)
                logits = _features(scores[part], self.exponent) @ numbers[:_SHARED]
                z = torch.from_numpy(logits + numbers[_SHARED:])
                labels = torch.from_numpy(np.sign(seen[part]).astype(np.int8))
                values[part] = random_posterior(z, labels).sigmoid().numpy()
        return values


def fit_presence(probabilities: ArrayLike, observed: ArrayLike) -> Presence:
    """Learn what the probabilities of a network mean.

    Args:
        probabilities: (N, C) predictions for images that the network was not trained on.
        observed: (N, C) their labels: +1 seen to be present, 0 not known, -1 seen to be absent.

    Raises:
        DataError: If the arrays do not fit each other, or no label was observed.
    """
    import torch

    from adagc.losses import random_annotator, random_likelihood

    scores, seen = checked(probabilities, observed)
    rows = enough(seen)
    scores, seen = scores[rows], seen[rows]
    evidence = Evidence.of(scores, seen)
    features = torch.from_numpy(_features(scores, evidence.exponent))
    start = torch.zeros(_SHARED + scores.shape[1], dtype=torch.float64)
    start[0] = 1.0

    def logits(numbers: Tensor) -> Tensor:
        return features @ numbers[:_SHARED] + numbers[_SHARED:]

    def belief(numbers: Tensor) -> Tensor:
        moved = (numbers - start).square()
        return _BELIEF * moved[:_SHARED].sum() / 2 + moved[_SHARED:].sum() / 2

    def cost(numbers: Tensor) -> Tensor:
        return belief(numbers) - random_likelihood(logits(numbers), evidence.observed).sum()

    found = evidence.most_probable(logits, belief, start)
    root = _root(cost, found)
    with torch.no_grad():
        z = logits(found)
        values, expected = z.sigmoid().numpy(), random_annotator(z).exp().numpy()
    labelled = (seen > 0).any(axis=1)
    labels = (seen[labelled] > 0).astype(np.float64)
    labels /= labels.sum(axis=1, keepdims=True)  # an annotator draws one
    flat = np.stack([one.ravel() for one in (values[labelled], expected[labelled], labels)])
    flat = flat[:, np.argsort(-flat[0], kind="stable")]
    flat[1:] = np.cumsum(flat[1:], axis=1)
    return Presence(evidence.exponent, found.numpy(), root, int(labelled.sum()), flat)


def _root(cost: Callable[[Tensor], Tensor], numbers: Tensor) -> Floats:
    """A root of the covariance of numbers that are where the cost is lowest."""
    from torch.autograd.functional import hessian

    curvature = hessian(cost, numbers).numpy()  # type: ignore[no-untyped-call]
    values, vectors = np.linalg.eigh(curvature)
    # The belief has at least this curvature; what rounding makes of it may be lower.
    root: Floats = vectors / np.sqrt(np.maximum(values, _BELIEF))
    return root


def _features(scores: Floats, exponent: float) -> Floats:
    """(N, C, 4) logit p, log q, log Σ r² and 1."""
    inside = np.clip(scores, _EDGE, 1 - _EDGE)
    logs, spread = described(scores, exponent)
    parts: list[NDArray[Any]] = [np.log(inside) - np.log1p(-inside), logs]
    parts += [np.broadcast_to(spread, logs.shape), np.ones_like(logs)]
    return np.stack(parts, axis=2)
