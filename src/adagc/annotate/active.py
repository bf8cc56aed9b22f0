"""Active choice: the images first of which a trained model expects to learn most.

Two parts in two processes. A child process predicts the images in the order in which they would
come anyway, and sends an order of what it has seen so far whenever that is twice as much as before:
so the first images can be chosen soon, however many there are, and nobody at the page waits for a
computation. The main process listens in a thread, and tells the desk.

How much is expected of an image: every class is there or not, and the answer is worth the entropy
H(p) of the probability that it is, in bits; probabilities are calibrated by the observed labels of
the run's validation images. Of a class that has been labelled often, or of which images before it
in the order tell much, the next answer is worth less: the order is `informative` of
`adagc.review.order`. `gain` of an image is Σ_c H(p_c) alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.annotate.desk import Desk
from adagc.errors import AdagcError, DataError
from adagc.images.base import SceneDataset
from adagc.images.decode import resize
from adagc.review.order import entropy, ranked
from adagc.web.background import Background

_BATCH: Final = 32  # images that are predicted together
_FIRST: Final = 64  # images after which there is a first order

CHOSEN: Final = (
    "A model chooses which image comes next: one of which it expects to learn much. So these labels"
    " are not those of a random sample."
)
SEEDED: Final = "The model cannot choose among these images, so they come in random order."

log = logging.getLogger(__name__)

Presence = Callable[[NDArray[Any]], NDArray[np.float64]]


@dataclass(frozen=True)
class Ranking:
    """Images in the order in which they should be labelled.

    Attributes:
        rows: Their rows, the first ones first.
        gains: How much is expected of each, in bits.
    """

    rows: NDArray[np.int64]
    gains: NDArray[np.float64]


def ranking(
    rows: NDArray[np.int64], presence: NDArray[np.float64], known: NDArray[np.int64], seed: int = 0
) -> Ranking:
    """The order of images by what is expected to be learnt of each.

    Args:
        rows: (N,) the rows of the images.
        presence: (N, C) how probable it is that each class is there.
        known: (C,) on how many images each class was seen so far.
        seed: Decides among equals.
    """
    most = int(known.max(initial=0))
    # Images of which labels are known are rows about which nothing is asked.
    seen = (np.arange(most)[:, None] < known).astype(np.int8)
    asked = np.zeros((len(rows) + most, len(known)), dtype=np.bool_)
    asked[: len(rows)] = True
    order = ranked(
        np.vstack([presence, np.zeros((most, len(known)))]),
        asked,
        np.vstack([np.zeros(presence.shape, dtype=np.int8), seen]),
        seed=seed,
    )
    return Ranking(rows[order], entropy(presence[order]).sum(axis=1))


def choosing(run: Path, desk: Desk, images: SceneDataset) -> Chooser:
    """What lets a run choose the images of a desk; nothing happens before it is started."""
    rows = {name: row for row, name in enumerate(images.names)}

    def choose(found: Ranking) -> None:
        names = [images.names[row] for row in found.rows.tolist()]
        desk.prefer(dict(zip(names, found.gains.tolist(), strict=True)), CHOSEN)

    def fail(reason: str) -> None:
        log.warning("--active: %s; images come in their seeded order", reason)
        desk.tell(SEEDED)

    left = [rows[name] for name in desk.unfinished]
    return Chooser(
        run, images, left, desk.rules.classes, desk.counts,
        seed=desk.rules.seed, choose=choose, fail=fail,
    )  # fmt: skip


class Chooser:
    """The child process that predicts and ranks.

    Args:
        run: The folder of a finished run.
        images: The images.
        rows: Those to choose from, in the order in which they would come anyway.
        classes: Names of the classes that people are asked about.
        known: (C,) on how many images each of them was seen so far.
        seed: Decides among equals.
        choose: Told of each order.
        fail: Told, once, that there is none, and why.
    """

    def __init__(
        self,
        run: Path,
        images: SceneDataset,
        rows: Sequence[int],
        classes: Sequence[str],
        known: Sequence[int],
        *,
        seed: int,
        choose: Callable[[Ranking], None],
        fail: Callable[[str], None],
    ) -> None:
        self._choose, self._fail = choose, fail
        # Whether there was an order or a reason why there is none; nothing is left to order either.
        self._told = not len(rows)
        told = (
            run, images, np.array(rows, dtype=np.int64), tuple(classes),
            np.array(known, dtype=np.int64), seed,
        )  # fmt: skip
        self._work = Background(_work, told, self._hear, self._ended)
        self.start = self._work.start

    def _hear(self, said: Ranking | str) -> None:
        self._told = True
        if isinstance(said, str):
            self._fail(said)
        else:
            self._choose(said)

    def _ended(self) -> None:
        if not self._told:
            self._fail("the process that predicts was ended")


def _work(
    run: Path,
    images: SceneDataset,
    rows: NDArray[np.int64],
    classes: tuple[str, ...],
    known: NDArray[np.int64],
    seed: int,
) -> Iterator[Ranking | str]:
    """What the child process says: orders, or why there is none."""
    try:
        model = Model(run, images, classes)
        yield from rankings(model.of, rows, known[model.columns], seed)
    except AdagcError as error:
        yield str(error)
    except Exception as error:  # whatever a run may hold: the work goes on without it
        yield f"{run} cannot be used ({type(error).__name__}: {error})"


class Model:
    """The deployed network of a run on these images, calibrated.

    Args:
        run: Its folder.
        images: What it is to predict.
        classes: Those that people are asked about.

    Attributes:
        columns: Which of `classes` it knows, in their order.
    """

    def __init__(self, run: Path, images: SceneDataset, classes: Sequence[str]) -> None:
        from adagc.training.runs import Run

        opened = Run.open(run)
        if not opened.finished:
            raise AdagcError(f"{run} is not finished: adagc train --resume completes it")
        self._network = opened.model().eval()
        spec = self._network.spec
        place = {name: c for c, name in enumerate(spec.classes)}
        self.columns = [c for c, name in enumerate(classes) if name in place]
        self._chosen = [place[classes[c]] for c in self.columns]
        if not self.columns:
            raise AdagcError(
                f"{run} knows none of the classes: give a run that was trained on some"
            )
        has = {name.casefold(): band for band, name in enumerate(images.bands)}
        if len(spec.shape) != 3 or not all(name.casefold() in has for name in spec.bands):
            raise AdagcError(
                f"{run} takes the bands {', '.join(spec.bands[:4])}, and the images have"
                f" {', '.join(images.bands[:4])}: give a run that was trained on such images"
            )
        self._bands = [has[name.casefold()] for name in spec.bands]
        self._shape = spec.shape
        self._images = images
        self._calibrated = _calibration(opened)

    def of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(n,) those of the images that can be read, (n, C) how probable each class is there."""
        import torch

        from adagc.inference import probabilities

        values, read = [], []
        for row in rows.tolist():
            with suppress(DataError):  # a broken image comes when all others are labelled
                values.append(self._load(row))
                read.append(row)
        if not read:
            return np.zeros(0, np.int64), np.zeros((0, len(self.columns)))
        with torch.no_grad():
            given = torch.from_numpy(np.stack(values))
            found = self._calibrated(probabilities(self._network, given).numpy())
        return np.array(read, dtype=np.int64), found[:, self._chosen]

    def _load(self, row: int) -> NDArray[np.float32]:
        image = self._images.gather(np.array([row], dtype=np.int64))[0][self._bands]
        _, height, width = self._shape
        if image.shape[1:] != (height, width):
            if height != width:
                raise AdagcError(f"the model takes {height} x {width} pixels: give such images")
            image = resize(image, height)
        return np.ascontiguousarray(image, dtype=np.float32)


def _calibration(run: Any) -> Presence:
    """What probabilities of a run mean, as far as its validation images tell."""
    from adagc.priors import fit_presence
    from adagc.priors.checks import FEW_LABELS
    from adagc.training.held_out import of_network
    from adagc.types import NetworkRole, with_role

    name = with_role(run.made.roles, NetworkRole.DEPLOYED)
    held = of_network(run, name or "", "last")
    labelled = int((held.observed > 0).any(axis=1).sum())
    if labelled < FEW_LABELS or held.observed.shape[1] < 2:
        return lambda values: values.astype(np.float64)
    return fit_presence(held.probabilities, held.observed).given


def rankings(
    predict: Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.float64]]],
    rows: NDArray[np.int64],
    known: NDArray[np.int64],
    seed: int = 0,
) -> Iterator[Ranking]:
    """Orders of the images predicted so far, each of twice as many as the one before, then of all.

    Args:
        predict: (n,) rows to the rows that can be read and (n, C) probabilities of presence.
        rows: The rows of the images, in the order in which they are predicted.
        known: (C,) on how many images each class was seen so far.
        seed: Decides among equals.

    Raises:
        DataError: None of the images can be read.
    """
    read: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    due = _FIRST
    for start in range(0, len(rows), _BATCH):
        some, presence = predict(rows[start : start + _BATCH])
        read.append(some)
        values.append(presence)
        done = start + _BATCH >= len(rows)
        if (sum(map(len, read)) >= due or done) and any(map(len, read)):
            yield ranking(np.concatenate(read), np.concatenate(values), known, seed)
            due *= 2
    if len(rows) and not any(map(len, read)):
        raise DataError("none of the images can be read")
