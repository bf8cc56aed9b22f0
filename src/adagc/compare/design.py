"""The design of a comparison: methods are the rows, seeds the columns, a run is a cell.

A seed draws the labels, the initial weights and the order of the images, and all methods are run
with the same seeds. Some seeds are easier than others for all methods, which must not count:

    mAP of a run = method + seed + what is special to this method with this seed

The first two parts are fitted by least squares; with a complete table the difference of two methods
is the mean over seeds of their differences. Where runs are missing, the seeds that a method does
have are taken into account, and methods without a common seed are compared through others.

The third part, the interaction, is what makes a difference uncertain. Two or three seeds say next
to nothing about its size for one pair of methods, but the residuals of all methods together do
((k - 1)(n - 1) degrees of freedom for k methods and n seeds). Methods are not equally steady,
however. So the pooled variance is used for every pair, unless the pair's own is larger. This keeps
the rate of false claims where methods differ in steadiness by a factor of five, as on AID, with one
known exception: if the two best are equal, the least steady of ten and far ahead of the others, one
of them is called better in 10 % (2 seeds) or 6 % (5 seeds) of cases instead of 5 %.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Design:
    """Which runs there are, and how differences between methods and their variance follow.

    All functions take any number of worlds at once: leading axes stay as they are.

    Args:
        present: (methods, seeds) whether there is such a run.
    """

    def __init__(self, present: NDArray[np.bool_]) -> None:
        self.present = present
        count, seeds = present.shape
        rows, columns = present.nonzero()
        columns_of_design = np.concatenate(
            [rows[:, None] == np.arange(count), columns[:, None] == np.arange(seeds)], axis=1
        ).astype(np.float64)
        solution = np.linalg.pinv(columns_of_design)
        self._methods = solution[:count]
        self._fitted = columns_of_design @ solution
        # The trace of a projection is its rank.
        self.degrees = len(rows) - round(float(np.trace(self._fitted)))
        covariance = self._methods @ self._methods.T
        scale = np.diag(covariance)
        self._factor = scale[:, None] + scale - 2 * covariance  # 2 / n for a complete table
        self.connected = _connected(present)

    def methods(self, values: Floats) -> Floats:
        """(..., methods) the fitted part of each method, up to a constant that all share.

        Only differences between connected methods have a meaning.

        Args:
            values: (..., runs) one number per run, in the order of `present.nonzero()`.
        """
        return np.asarray(values @ self._methods.T)

    def variance(self, values: Floats) -> Floats:
        """(..., methods, methods) variance of the differences of `methods` due to the seeds.

        It is 0 if the runs say nothing about it: see `degrees`.
        """
        shape = (*values.shape[:-1], *self._factor.shape)
        if not self.degrees:
            return np.zeros(shape)
        residuals = values - values @ self._fitted
        pooled = (residuals**2).sum(axis=-1) / self.degrees
        spread = np.maximum(pooled[..., None, None], self._of_pairs(values))
        return np.asarray(np.maximum(self._factor * spread, 0))

    def _of_pairs(self, values: Floats) -> Floats:
        """(..., methods, methods) half the variance over common seeds of pairs' differences.

        It is 0 for pairs with fewer than two seeds in common.
        """
        table = np.zeros((*values.shape[:-1], *self.present.shape))
        table[..., self.present] = values
        both = (self.present[:, None] & self.present).astype(np.float64)
        number = both.sum(axis=-1)
        apart = (table[..., :, None, :] - table[..., None, :, :]) * both
        mean = apart.sum(axis=-1) / np.maximum(number, 1)
        squares = ((apart - mean[..., None] * both) ** 2).sum(axis=-1)
        return np.where(number > 1, squares / np.maximum(number - 1, 1) / 2, 0.0)


def _connected(present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(methods, methods) whether two methods share a seed, or each does with a third, and so on."""
    linked = present.astype(np.int64) @ present.T.astype(np.int64) > 0
    for _ in range(len(present).bit_length()):
        linked = linked.astype(np.int64) @ linked.astype(np.int64) > 0
    return np.asarray(linked)
