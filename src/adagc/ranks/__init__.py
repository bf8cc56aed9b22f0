"""Several processes as one: numbers are global, pixels are read where they are used.

What has one number (or one vector) per image - its index, labels, random draws, logits, rows of
tables - is the same on every rank. A rule that looks at a whole batch (the largest losses, a
class's mean, a partner to mix with, a queue) therefore means the same however many processes there
are, and is written for one. Pixels are not: a rank reads and runs its share of the images
(`Share`), and the results of all ranks are gathered (`spread`).

Gradients: every rank computes the same loss, and of its gradient with respect to the gathered
results keeps its own rows, times the number of ranks; the mean over ranks (`GradientExchange`) is
then the gradient of the one loss. Parameters used outside of `spread` have the whole gradient on
every rank, of which the mean is the same again. Batch normalisation takes its mean and variance
over the whole batch, on any device.
"""

from adagc.ranks.gradients import GradientExchange
from adagc.ranks.passes import Spread, gather, spread
from adagc.ranks.processes import own, rank, wait, world
from adagc.ranks.share import Share, mean_of_bands

__all__ = [
    "GradientExchange",
    "Share",
    "Spread",
    "gather",
    "mean_of_bands",
    "own",
    "rank",
    "spread",
    "wait",
    "world",
]
