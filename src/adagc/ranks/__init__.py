"""Training in several processes (ranks) with the same result as in one.

Whatever has one number or one vector per image (its index, labels, random draws, logits, rows of
tables) is the same on every rank. A rule that uses a whole batch (the largest losses, the mean of a
class, a partner to mix with, a queue) therefore gives the same result for any number of processes,
and its code is written for one. Pixels are different on each rank: a rank reads its part of the
images (`Share`) and runs the network on them, and the results of all ranks are gathered (`spread`).

Gradients: every rank computes the same loss. Of its gradient with respect to the gathered results
a rank keeps its own rows, times the number of ranks; the mean over ranks (`GradientExchange`) is
then the gradient of that loss. Parameters used outside of `spread` have the whole gradient on
every rank, and its mean over ranks is the same. Batch normalisation takes its mean and variance
over the whole batch, on any device.
"""

from adagc.ranks.gradients import GradientExchange
from adagc.ranks.parts import in_parts
from adagc.ranks.passes import Spread, gather, spread
from adagc.ranks.processes import own, rank, wait, world
from adagc.ranks.share import Share, mean_of_bands

__all__ = [
    "GradientExchange",
    "Share",
    "Spread",
    "gather",
    "in_parts",
    "mean_of_bands",
    "own",
    "rank",
    "spread",
    "wait",
    "world",
]
