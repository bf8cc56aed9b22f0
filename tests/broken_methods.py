"""Methods that each break one rule, for the suite to find; importable by other processes."""

from __future__ import annotations

import torch
from torch import nn

from adagc import losses, ranks
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.base import Method, positives
from adagc.models import HeadSpec
from adagc.types import Losses


class Base(Method):
    """Binary cross-entropy of assumed negatives, right by itself."""

    title = "Base"

    def loss(self, network, batch, progress):
        return self.of(network(batch.images), batch)

    def of(self, logits, batch):
        total = losses.reduce(losses.binary_cross_entropy(logits, positives(batch.observed)))
        return Losses(total, {"bce": total.detach()})


class Forgetful(Base):
    """Keeps what it counts in a plain attribute, which no checkpoint has."""

    def setup(self, network, task):
        super().setup(network, task)
        self.steps = 0

    def loss(self, network, batch, progress):
        self.steps += 1
        total = self.of(network(batch.images), batch).total * self.steps
        return Losses(total, {"bce": total.detach()})


class Dicing(Base):
    """Draws from torch's own generator."""

    def loss(self, network, batch, progress):
        images = batch.images + 0.1 * torch.randn(batch.images.shape)
        return self.of(network(images), batch)


class DicingSetup(Base):
    """Starts a layer from torch's own generator."""

    def setup(self, network, task):
        super().setup(network, task)
        self.layer = nn.Linear(4, 4).requires_grad_(False)


class Peeking(Base):
    """Reads clean labels that it does not declare."""

    def loss(self, network, batch, progress):
        total = losses.reduce(losses.binary_cross_entropy(network(batch.images), batch.truth))
        return Losses(total, {"bce": total.detach()})


class Scribbling(Base):
    """Changes the images of the batch."""

    def loss(self, network, batch, progress):
        batch.images.mul_(0.5)
        return super().loss(network, batch, progress)


class Rewriting(Base):
    """Writes into the observed labels of the task."""

    def setup(self, network, task):
        super().setup(network, task)
        self.observed = task.observed

    def loss(self, network, batch, progress):
        self.observed[0] = 1
        return super().loss(network, batch, progress)


class Overflowing(Base):
    """The logarithm of a probability that may be 0."""

    def of(self, logits, batch):
        p = logits.sigmoid()
        seen = positives(batch.observed)
        total = -(seen * p.log() + (1 - seen) * (1 - p).log()).mean()
        return Losses(total, {"bce": total.detach()})


class Losing(Base):
    """Stores an option under another name."""

    def __init__(self, *, weight: float = 1.0) -> None:
        super().__init__()
        self.w = weight


class Bending(Base):
    """Stores something else than it was given."""

    def __init__(self, *, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = 2 * weight


class Swallowing(Base):
    """Takes any option."""

    def __init__(self, **options: float) -> None:
        super().__init__()


class Detached(Base):
    """Cuts the network off from its loss."""

    def loss(self, network, batch, progress):
        logits = network(batch.images).detach().requires_grad_()
        return self.of(logits, batch)


class PartlyTrained(Base):
    """Leaves the bias of the head out of the optimiser."""

    def parameter_groups(self, network, lr):
        kept = [p for name, p in network.named_parameters() if name != "head.bias"]
        return [{"params": kept, "lr": lr}]


class RankBound(Base):
    """Remembers which rank it is on and weighs its loss by it."""

    def setup(self, network, task):
        super().setup(network, task)
        self.register_buffer("bias", torch.tensor(float(ranks.rank())))

    def loss(self, network, batch, progress):
        total = self.of(network(batch.images), batch).total * (1 + self.bias)
        return Losses(total, {"bce": total.detach()})


class AloneWithItsPeer(Base):
    """Fails where it is not alone."""

    def loss(self, network, batch, progress):
        if ranks.world() > 1:
            raise RuntimeError("I work alone")
        return super().loss(network, batch, progress)


class Counting(Base):
    """Depends on how often a process was started: epochs since then, in no checkpoint.

    The step that the suite takes by hand does not see it, because `status` and the loss of the
    first epochs are right.
    """

    def end_epoch(self, scores, progress):
        self.epochs = getattr(self, "epochs", 0) + 1
        return super().end_epoch(scores, progress)

    def loss(self, network, batch, progress):
        total = self.of(network(batch.images), batch).total
        if getattr(self, "epochs", 0) > 2:
            total = total * 2
        return Losses(total, {"bce": total.detach()})


class Silent(AssumeNegative):
    """Needs the truth and does not say so in a line of its own."""

    title = "Silent"
    needs = frozenset({"truth"})

    def check(self, task):
        pass


class Pooling(Base):
    """Asks for a head on maps without saying that it needs positions."""

    def head(self):
        return HeadSpec("class-map")


class Timely(Base):
    """Another result in every run."""

    runs = 0

    def setup(self, network, task):
        super().setup(network, task)
        type(self).runs += 1

    def loss(self, network, batch, progress):
        total = self.of(network(batch.images), batch).total * self.runs
        return Losses(total + 0 * total, {"bce": total.detach()})


class Matrix(Base):
    """Forgets to reduce."""

    def of(self, logits, batch):
        matrix = losses.binary_cross_entropy(logits, positives(batch.observed))
        return Losses(matrix.sum(dim=1)[:1], {"bce": matrix.detach().mean()})
