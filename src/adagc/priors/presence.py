"""How probable it is that a class is present, and how sure that is, from single observed labels.

`adagc.priors.calibration` looks at how the scores of an image compare with each other. Networks
that were trained on completed labels say more: their probabilities are those of presence already,
or nearly so. Here both are weighed:

    logit P(c is present | x) = κ logit p_c + α log q_c + γ log Σ_j r_j² + β + δ_c

with q and r as there, and a level δ_c of every class as in `adagc.priors.levels`. The observed
labels of images that the network was not trained on say what these numbers are, by the likelihood
of the random annotator given that the image shows something: it has a label, so it does
(`adagc.priors.explained`). Without this condition presence comes out too high, by a tenth and more
where many images could show nothing.

Given the condition, labels say little about the level: that every image shows one class and that
it shows all that are probable explain them nearly as well. So what is believed before anything is
observed has to say more than "anything":

- The network is right, κ = 1, α = γ = 0, and it is hardly more than twice as sure as it should be
  (κ, α: deviations of 0.5). How much the number of classes in an image matters is known less well
  (γ: 2), and the level β not at all: scores of many methods are far too low.
- Images without any of the classes are rare, as if 20 had been drawn without looking for a label
  and each had shown something: an exponential distribution of their share with a mean of 5 %.

Both are worth little beside some thousands of labels. There may still be several optima. The one
that is taken is the highest: the way to it starts where the likelihood without the condition leads.

What was observed of an image itself counts too: a class that was not drawn is a little less
probable (`adagc.losses.random_posterior`), and one that was is certain.

How sure all this is follows from the curvature of the likelihood: the numbers are normally
distributed around the most probable ones (Laplace's approximation), and `draws` gives the
probabilities that other numbers mean which explain the labels nearly as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.priors.calibration import Floats, described, enough, exponent_of
from adagc.priors.checks import checked
from adagc.priors.explained import Labels, Local, lowest

# κ, α, γ and β, before the levels of the classes: what they are believed to be, and how far off.
_USUAL, _SPREAD = (1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 2.0, 10.0)
_SHARED = len(_USUAL)
_LEVEL = 1.0
_BLIND = 20  # images
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
        features = self._described(probabilities)
        return self._given(features, _seen(features, observed), self.numbers)

    def draws(
        self, probabilities: ArrayLike, observed: ArrayLike | None, count: int, *, seed: int = 0
    ) -> Iterator[Floats]:
        """The same for other numbers, drawn by how well they explain the labels."""
        features = self._described(probabilities)
        seen = _seen(features, observed)
        rng = np.random.default_rng(seed)
        for _ in range(count):
            drawn = self.numbers + self.root @ rng.standard_normal(len(self.numbers))
            yield self._given(features, seen, drawn)

    def _described(self, probabilities: ArrayLike) -> Floats:
        return _features(np.asarray(probabilities, dtype=np.float64), self.exponent)

    def _given(self, features: Floats, seen: NDArray[np.int8], numbers: Floats) -> Floats:
        import torch

        from adagc.losses import random_posterior

        values = np.empty(seen.shape)
        with torch.no_grad():
            for start in range(0, len(seen), _ROWS):
                part = slice(start, start + _ROWS)
                z = torch.from_numpy(features[part] @ numbers[:_SHARED] + numbers[_SHARED:])
                known = torch.from_numpy(seen[part])
                values[part] = random_posterior(z, known).sigmoid().numpy()
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

    from adagc.losses import anything_present, random_annotator

    scores, seen = checked(probabilities, observed)
    rows = enough(seen)
    scores, seen = scores[rows], seen[rows]
    exponent = exponent_of(scores, seen)
    known = Labels(_features(scores, exponent), np.sign(seen).astype(np.int8))
    start = np.array([*_USUAL, *[0.0] * scores.shape[1]])
    weights = np.array([*_SPREAD, *[_LEVEL] * scores.shape[1]]) ** -2.0

    labelled = (seen > 0).any(axis=1)

    def cost(numbers: Floats, blind: float = _BLIND) -> Local:
        """Minus the logarithm of how probable numbers and labels are."""
        found, off = known.at(numbers, blind), numbers - start
        return Local(
            float(weights @ off**2) / 2 - found.value,
            weights * off - found.slope,
            np.diag(weights) - found.curvature,
        )

    # Without the condition, as if all images had been drawn blindly, the level is too high. From
    # there the way leads to the highest of the optima with the condition.
    above, _ = lowest(partial(cost, blind=float(labelled.sum())), start, weights.min())
    numbers, curvature = lowest(cost, above, weights.min())
    z = torch.from_numpy(known.features[labelled] @ numbers[:_SHARED] + numbers[_SHARED:])
    share = anything_present(z).exp()[:, None]  # these images show something
    values, expected = (z.sigmoid() / share).numpy(), (random_annotator(z).exp() / share).numpy()
    labels = (seen[labelled] > 0).astype(np.float64)
    labels /= labels.sum(axis=1, keepdims=True)  # an annotator draws one
    flat = np.stack([one.ravel() for one in (values, expected, labels)])
    flat = flat[:, np.argsort(-flat[0], kind="stable")]
    flat[1:] = np.cumsum(flat[1:], axis=1)
    root = _root(curvature, weights.min())
    return Presence(exponent, numbers, root, int(labelled.sum()), flat)


def _root(curvature: Floats, least: float) -> Floats:
    """A root of the covariance of numbers that are where the cost is lowest."""
    values, vectors = np.linalg.eigh(curvature)
    root: Floats = vectors / np.sqrt(np.maximum(values, least))
    return root


def _seen(features: Floats, observed: ArrayLike | None) -> NDArray[np.int8]:
    """(N, C) +1, 0, -1; all 0 if nothing was observed."""
    if observed is None:
        return np.zeros(features.shape[:2], np.int8)
    signs: NDArray[np.int8] = np.sign(np.asarray(observed)).astype(np.int8)
    return signs


def _features(scores: Floats, exponent: float) -> Floats:
    """(N, C, 4) logit p, log q, log Σ r² and 1."""
    inside = np.clip(scores, _EDGE, 1 - _EDGE)
    logs, spread = described(scores, exponent)
    parts: list[NDArray[Any]] = [np.log(inside) - np.log1p(-inside), logs]
    parts += [np.broadcast_to(spread, logs.shape), np.ones_like(logs)]
    return np.stack(parts, axis=2)
