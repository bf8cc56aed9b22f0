"""How probable it is that a class is present, and how sure that is, from single observed labels.

What a network's probabilities are worth differs from method to method. Presence is

    logit P(c is present | x) = κ logit p_c + γ (log Σ_j r_j² - its mean) + β + δ_c

with r as in `adagc.priors.calibration`, which tells how many classes an image shows, and a level
δ_c of every class as in `adagc.priors.levels`. The observed labels of images that the network was
not trained on say what these numbers are, by the likelihood of the random annotator given that the
image shows something: it has a label, so it does (`adagc.priors.explained`). Without this condition
presence comes out too high, by a tenth and more where many images could show nothing.

Labels say little about the level: that every image shows one class and that it shows all that are
probable explain them nearly as well. And what they say is right only if classes are present
independently of each other, once the image is known. Real ones are not: cars stand on pavement, and
what is no field may be bare soil. Single labels do not show who keeps company with whom, and the
likelihood takes it for something else. On features of UC Merced it made ten labels of nine and grew
too sure, although the network's own probabilities were right; the best calibration that the clean
labels know is less probable, there and on features of AID, by 0.02 nats per image. A likelihood
that is wrong by so much must not be believed the more, the more labels there are. So labels count
as those of `WORTH` images at most (a "coarsened" likelihood: Miller and Dunson, 2019), and what is
believed before anything is observed matters:

- The network is right: κ = 1, all others 0. Or it is not, as the scores of many methods that take
  what was not observed for absent, and then it may be far off. So κ, γ and β have the heavy tails
  of Cauchy distributions, with widths of 0.1, 0.1 and 0.5; levels are normal, with a deviation of
  0.3.
- Images without any of the classes are rare, as if 20 had been drawn without looking for a label
  and each had shown something: an exponential distribution of their share with a mean of 5 %.

There may be several optima. The highest is taken of those that are reached from what is believed,
and from where the likelihood without the condition leads.

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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.priors.calibration import Floats, described, enough, exponent_of
from adagc.priors.checks import checked
from adagc.priors.explained import Labels, Local, lowest

# κ, γ and β, before the levels of the classes: what they are believed to be, and how far off.
_USUAL, _WIDTHS = (1.0, 0.0, 0.0), (0.1, 0.1, 0.5)
_SHARED = len(_USUAL)
_LEVEL = 0.3
_LEAST = 0.25  # curvature in any direction: what labels do not tell is known to about 2
_BLIND = 20  # images
WORTH = 200.0  # images
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
    centre: float  # what log Σ r² is in the mean
    numbers: Floats  # (3 + C,) κ, γ, β and the levels of the classes
    root: Floats  # (3 + C, 3 + C) lower triangle; root @ root.T is their covariance
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
        return _features(np.asarray(probabilities, dtype=np.float64), self.exponent, self.centre)

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


def fit_presence(
    probabilities: ArrayLike, observed: ArrayLike, *, worth: float = WORTH
) -> Presence:
    """Learn what the probabilities of a network mean.

    Args:
        probabilities: (N, C) predictions for images that the network was not trained on.
        observed: (N, C) their labels: +1 seen to be present, 0 not known, -1 seen to be absent.
        worth: Of how many images labels count as those at most, because classes keep company in a
            way that single labels do not show; infinite only if they are known not to.

    Raises:
        DataError: If the arrays do not fit each other, or no label was observed.
    """
    import torch

    from adagc.losses import anything_present, random_annotator

    scores, seen = checked(probabilities, observed)
    rows = enough(seen)
    scores, seen = scores[rows], seen[rows]
    exponent = exponent_of(scores, seen)
    centre = float(described(scores, exponent)[1].mean())
    known = Labels(_features(scores, exponent, centre), np.sign(seen).astype(np.int8))
    labelled = (seen > 0).any(axis=1)
    count = float(labelled.sum())
    power = min(1.0, worth / count)

    def cost(numbers: Floats, blind: float = _BLIND / power) -> Local:
        """Minus the logarithm of how probable numbers and labels are."""
        found, belief = known.at(numbers, min(blind, count)), _belief(numbers)
        return Local(
            belief.value - power * found.value,
            belief.slope - power * found.slope,
            belief.curvature - power * found.curvature,
        )

    start = np.array([*_USUAL, *[0.0] * scores.shape[1]])
    # Without the condition, as if all images had been drawn blindly, the level is too high, and the
    # way from there leads to another optimum than that from what is believed.
    above, _ = lowest(partial(cost, blind=count), start, _LEAST)
    numbers, curvature = min(
        (lowest(cost, begin, _LEAST) for begin in (start, above)),
        key=lambda end: cost(end[0]).value,
    )
    z = torch.from_numpy(known.features[labelled] @ numbers[:_SHARED] + numbers[_SHARED:])
    share = anything_present(z).exp()[:, None]  # these images show something
    values, expected = (z.sigmoid() / share).numpy(), (random_annotator(z).exp() / share).numpy()
    labels = (seen[labelled] > 0).astype(np.float64)
    labels /= labels.sum(axis=1, keepdims=True)  # an annotator draws one
    flat = np.stack([one.ravel() for one in (values, expected, labels)])
    flat = flat[:, np.argsort(-flat[0], kind="stable")]
    flat[1:] = np.cumsum(flat[1:], axis=1)
    root = _root(curvature, _LEAST)
    return Presence(exponent, centre, numbers, root, int(count), flat)


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


def _belief(numbers: Floats) -> Local:
    """Minus the logarithm of how probable numbers are before anything is observed."""
    shared, levels = numbers[:_SHARED] - _USUAL, numbers[_SHARED:]
    squares = np.square(_WIDTHS)
    ends = squares + shared**2
    return Local(
        float(np.log(ends / squares).sum() + (levels**2).sum() / (2 * _LEVEL**2)),
        np.concatenate([2 * shared / ends, levels / _LEVEL**2]),
        np.diag([*2 * (squares - shared**2) / ends**2, *[_LEVEL**-2] * len(levels)]),
    )


def _features(scores: Floats, exponent: float, centre: float) -> Floats:
    """(N, C, 3) logit p, log Σ r² above its mean, and 1."""
    inside = np.clip(scores, _EDGE, 1 - _EDGE)
    _, spread = described(scores, exponent)
    logits = np.log(inside) - np.log1p(-inside)
    levelled = np.broadcast_to(spread - centre, logits.shape)
    return np.stack([logits, levelled, np.ones_like(logits)], axis=2)
