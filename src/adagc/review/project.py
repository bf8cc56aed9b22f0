"""A review as the command line describes it: pictures first, questions and model when ready."""

from __future__ import annotations

import hashlib
import logging
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adagc import progress
from adagc.datasets import find
from adagc.datasets.collection import Collection
from adagc.errors import AdagcError, DataError, UsageError
from adagc.images.base import SceneDataset, is_feature_map
from adagc.labels import LabelTable, locate, read_labels
from adagc.review.desk import Desk
from adagc.review.layers import Layers
from adagc.review.questions import Suggestion, from_plain, joined, to_plain
from adagc.review.record import Store
from adagc.review.table_file import TableFile
from adagc.training.inputs import config_of, open_configured
from adagc.training.runs import Run
from adagc.web.images import open_images, originals
from adagc.web.ledger import database_of

if TYPE_CHECKING:
    from adagc.review.layers import Maker

# What decides which questions are asked, so that a review goes on with the same ones.
FIXED = ("part", "folds", "order", "least", "most", "blind", "seed")
_IDENTITY = ("model.json", "labels.csv", "history.jsonl")  # files that tell runs apart

log = logging.getLogger(__name__)


class Project:
    """One review: what the page shows of it, and what it still waits for.

    Args:
        run: The run, which is finished.
        options: Those of `adagc review`.

    Attributes:
        images: The images to look at.
        layers: Evidence maps, as soon as the model is there.
        desk: The work; None as long as there are no questions yet.
        failure: What kept the questions from being found, for the command to say.
        mute: Whether there will be no evidence: the model could not be loaded, or sees an image at
            a single position.
    """

    def __init__(self, run: Run, options: Namespace) -> None:
        self.run, self.options = run, options
        self.layers = Layers()
        self.desk: Desk | None = None
        self.failure: Exception | None = None
        self.mute = False
        self._store: Store | None = None
        self._collection: Collection | None = None
        self._doing = ""
        self.images = self._looked_at()
        self._out = Path(options.out)
        self._database = database_of(self._out)
        if self._out.exists() and not self._database.exists():
            raise UsageError(
                f"{self._out} exists, but not the file of events beside it"
                f" ({self._database.name}): choose another --out"
            )
        self._digest = _digest(run)

    @property
    def doing(self) -> str:
        """What the page waits for, in words."""
        return progress.in_words() or self._doing

    def begin(self) -> None:
        """Open the file of events; where it has enough questions, work can begin at once."""
        if not self._database.exists():
            return
        self._store = Store(self._database)
        known = self._store.settings()
        if "plan" not in known:
            return
        self._agree(known)
        plan = from_plain(known["plan"])
        if self.options.count <= len(plan) or known["complete"]:
            self._sit_down(plan[: self.options.count], known["classes"])

    def load(self) -> None:
        """What takes time: torch, the model, and questions where there are none yet."""
        self._doing = "loading the model"
        if self.desk is None:
            try:
                self._ask()
            except Exception as error:  # the command says what it was
                self.failure = error
                return
        try:
            self._furnish()
        except Exception as error:  # answers do not need it
            log.warning("there are no evidence maps: %s", error)
            self.mute = True
        self._doing = ""

    def close(self) -> None:
        """Close the file of events."""
        if self._store is not None:
            self._store.close()

    # -- images ------------------------------------------------------------------------------------

    def _looked_at(self) -> SceneDataset:
        """The images to look at; DataError if there is nothing to see."""
        config, given = config_of(self.run), self.options.images
        if self.options.root is not None:
            config = replace(config, root=self.options.root)
        if given is not None and find(config.data).named_by_root:  # images of one's own
            images = open_images(Path(given), bands=config.bands, nodata=config.nodata)
        else:
            collection = self._opened()
            images = collection.images
            if not images.is_image or is_feature_map(images.shape):
                raise DataError(
                    f"{self.run} was trained on embeddings, of which there is nothing to see:"
                    " review a run that was trained on the images themselves"
                )
            place = config.root if given is None else given
            if place is not None:
                images = originals(images, Path(place), nodata=config.nodata)
        return images

    def _opened(self) -> Collection:
        """The data of the run, or the images that were given, as the run opens them."""
        if self._collection is None:
            config = config_of(self.run)
            place = self.options.images or self.options.root or config.root
            nothing = _nothing(_classes(self.run))
            plain = replace(config, root=place, labels=None, truth=None, split=None)
            self._collection = open_configured(plain, labels=nothing)
        return self._collection

    # -- questions ---------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Find the questions, or more of them, and keep them."""
        from adagc.completion import complete
        from adagc.review.suggest import suggestions

        options = self.options
        made = complete(
            self.run, part=options.part, images=options.images, root=options.root,
            folds=options.folds,
        )  # fmt: skip
        self._doing = "choosing questions"
        found = suggestions(
            self.run, order=options.order, count=options.count, least=options.least,
            most=options.most, blind=options.blind, seed=options.seed, completed=made,
        )  # fmt: skip
        if not found:
            raise AdagcError(
                f"there is nothing to ask: no class that nobody has marked is as probable as"
                f" {options.least:g}; give a smaller --least"
            )
        unseen = set(self.images.names)
        found = tuple(one for one in found if one.image in unseen)
        if self._store is None:
            self._store = Store(self._database)
        known = self._store.settings()
        plan = joined(from_plain(known.get("plan", [])), found)
        self._store.settle(
            run=self._digest, given=options.images is not None, classes=list(made.classes),
            complete=len(found) < options.count, plan=to_plain(plan), **self._told(),
        )  # fmt: skip
        # As it was kept, so that a new start shows the same.
        self._sit_down(from_plain(to_plain(plan))[: options.count], made.classes)

    def _told(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in FIXED}

    def _agree(self, known: Mapping[str, Any]) -> None:
        """UsageError if the questions were asked of another run, or in another way."""
        if known["run"] != self._digest:
            raise UsageError(
                f"{self._database} holds answers about another run: choose another --out"
            )
        if known["given"] != (self.options.images is not None):
            raise UsageError(
                f"{self._database} holds answers about other images: choose another --out"
            )
        for name, value in self._told().items():
            if known.get(name) != value:
                before = "nothing" if known.get(name) is None else known[name]
                raise UsageError(
                    f"{self._database}: questions were chosen with --{name} {before}: use the same,"
                    " or choose another --out"
                )

    def _sit_down(self, plan: Sequence[Suggestion], classes: Sequence[str]) -> None:
        assert self._store is not None
        table, rows = self._labels(tuple(classes))
        labels = TableFile(self._out, table, rows)
        self.desk = Desk(
            plan,
            self._store,
            labels,
            blind=self.options.blind > 0,
            patience=60 * self.options.patience,
        )

    def _labels(self, classes: tuple[str, ...]) -> tuple[LabelTable, dict[str, int]]:
        """The labels before the review, and the row of each image in them."""
        if self.options.images is not None:  # of which nothing is known
            return _nothing(classes), {}
        table = read_labels(self.run.path("labels.csv"), classes=classes)
        names = self.images.names
        located = locate(table, names, unknown="ignore").tolist()
        table = LabelTable(table.images, table.classes, table.values, "multi", table.meta)
        return table, {name: row for name, row in zip(names, located, strict=True) if row >= 0}

    # -- evidence ----------------------------------------------------------------------------------

    def _furnish(self) -> None:
        """Bring the model for evidence maps."""
        import torch

        from adagc.review.evidence import evidence_maps, layer

        model, images = self.run.model(), self._opened().images
        rows = {name: row for row, name in enumerate(images.names)}

        def maps(image: str, labels: Sequence[str]) -> NDArray[np.float32]:
            with torch.inference_mode(False):
                return evidence_maps(model, images, rows[image], labels, least=True)

        def make(image: str, labels: Sequence[str]) -> dict[str, bytes]:
            found = zip(labels, maps(image, labels), strict=True)
            return {label: layer(each) for label, each in found}

        assert self.desk is not None
        if maps(self.desk.plan[0].image, self.desk.classes[:1]).size == 1:
            self.mute = True  # a single position says nothing of where a class is
            return
        maker: Maker = make
        self.layers.furnish(maker)


@contextmanager
def open_project(options: Namespace) -> Iterator[Project]:
    """Open a review, or begin one; what takes time waits for `Project.load`.

    Args:
        options: Those of `adagc review`.
    """
    run = Run.open(options.run)
    if not run.finished:
        raise AdagcError(f"{run} is not finished: adagc train --resume completes it")
    project = Project(run, options)
    try:
        project.begin()
        yield project
    finally:
        project.close()


def _classes(run: Run) -> tuple[str, ...]:
    """The classes of a run, in the order of its label file."""
    return read_labels(run.path("labels.csv")).classes


def _nothing(classes: tuple[str, ...]) -> LabelTable:
    """Labels of no image."""
    return LabelTable((), classes, np.zeros((0, len(classes)), dtype=np.int8))


def _digest(run: Run) -> str:
    """What tells this run from others, wherever its folder lies."""
    digest = hashlib.sha256()
    for name in _IDENTITY:
        digest.update(run.files.read(name))
    return digest.hexdigest()[:32]
