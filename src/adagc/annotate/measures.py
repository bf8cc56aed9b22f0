"""What the record of annotators tells about their labels: rates, bias, speed, agreement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.annotate.agreement import coded, cohen_interval, fleiss_interval
from adagc.annotate.events import Event, counting
from adagc.annotate.visits import Visits, visits
from adagc.errors import DataError
from adagc.labels import LabelTable
from adagc.labels.drawing import (
    Liking,
    area_power,
    chi_square_tail,
    distance_from_random,
    dominance,
    liking,
)
from adagc.metrics.shares import Estimate, wilson

BREAK = 120.0  # seconds on screen from which on somebody has not been working
FEW = 20  # images from which on agreement or a comparison with the truth is measured


@dataclass(frozen=True)
class ClassRate:
    """One class: how often it was offered, and how often it was taken then."""

    name: str
    offered: int  # images on which it was a candidate and which were answered
    picked: Estimate  # share of them on which it was said to be there
    labels: int  # images on which it was said to be there, offered or searched for
    refused: Estimate | None = None  # share of its labels that are wrong, if truth is given
    missed: Estimate | None = None  # share of images with it, offered, on which another was taken


@dataclass(frozen=True)
class KeyBias:
    """Whether the place of a candidate has an influence on its being chosen.

    Candidates are in random order, so that each place would be chosen equally often.
    """

    candidates: int  # number of places
    counts: tuple[int, ...]  # how often each was chosen
    first: Estimate  # how much more often than by chance the first place was chosen, in shares
    effect: float  # Cramér's V: 0 without bias, 1 if it is always the same place
    p_value: float


@dataclass(frozen=True)
class Speed:
    """Time on screen before an answer, breaks left out."""

    median: float  # seconds
    quartiles: tuple[float, float]
    slowest: float  # 95th percentile
    per_hour: float  # answers in an hour of work
    breaks: int  # answers that took longer than `BREAK`


@dataclass(frozen=True)
class Person:
    """What one annotator did."""

    name: str
    answers: int
    speed: Speed | None


@dataclass(frozen=True)
class Pair:
    """Agreement of two annotators on the images that both answered."""

    names: tuple[str, str]
    kappa: Estimate


@dataclass(frozen=True)
class Truth:
    """Labels compared with what is really there, on images of which that is known."""

    images: int
    wrong: Estimate  # share of labels of which the class is not there
    missed_all: Estimate  # share of "none of the classes" although one is there
    dominance: Estimate | None  # λ, with areas: 0 Random, 1 Dominant
    area_power: Estimate | None  # κ, with areas
    dominance_offered: Estimate | None  # λ among the candidates at the time of the choice
    distance: Estimate  # from Random, in shares of labels
    distance_by_chance: float  # what labels drawn at random reach in 95 % of cases
    liking: Liking  # selection weights of the classes


@dataclass(frozen=True)
class Measures:
    """Everything that is measured of labels; see `measure`."""

    classes: tuple[str, ...]
    images: int
    answers: int  # of all annotators, skips included
    labels: int  # answers that name at least one class
    none: int
    skipped: int
    imported: int  # images with imported labels, which are in no other number here
    active: int  # answers on images that a model chose
    refreshed: Estimate  # share of answers before which other candidates were asked for
    rates: tuple[ClassRate, ...]
    keys: KeyBias | None
    speed: Speed | None
    people: tuple[Person, ...]
    pairs: tuple[Pair, ...]
    fleiss: Estimate | None
    truth: Truth | None

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, strings and lists, ready for JSON; None for what is no number."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def measure(
    events: Sequence[Event],
    classes: Sequence[str],
    truth: LabelTable | None = None,
    *,
    areas: NDArray[np.float64] | None = None,
) -> Measures:
    """Measure the labels that these events record.

    Args:
        events: Everything that annotators were shown and did.
        classes: Names of all classes.
        truth: All classes that are there, of some images at least.
        areas: (len(truth), C) how much of each image of `truth` each class covers, in its order.

    Raises:
        DataError: Classes of events and truth do not fit, or areas do not fit the truth.
    """
    seen = visits(events, classes)
    answered = ~seen.skipped
    labelled = seen.present.any(axis=1)
    known = None if truth is None else _truth_of(seen, truth)
    names = sorted(set(seen.annotators))
    who = np.array(seen.annotators, dtype=object)
    return Measures(
        classes=tuple(classes),
        images=len(set(seen.images)),
        answers=len(seen.images),
        labels=int(labelled.sum()),
        none=int(seen.none.sum()),
        skipped=int(seen.skipped.sum()),
        imported=len({event.image for event in counting(list(events)) if event.kind == "import"}),
        active=int(seen.active.sum()),
        refreshed=wilson(int((seen.refreshes > 0).sum()), len(seen.images)),
        rates=tuple(_rate(seen, c, answered, known) for c in range(len(classes))),
        keys=key_bias(seen.key, seen.candidates),
        speed=speed(seen.seconds[answered]),
        people=tuple(
            Person(name, int((who == name).sum()), speed(seen.seconds[answered & (who == name)]))
            for name in names
        ),
        **_agreement(seen, answered),
        truth=None if known is None else _against(seen, known, truth, areas),
    )


def key_bias(key: NDArray[np.int64], candidates: NDArray[np.int64]) -> KeyBias | None:
    """Whether some places are chosen more often, with as many candidates as most often.

    Args:
        key: (V,) place of the chosen class, -1 if there is none.
        candidates: (V,) number of places there were.
    """
    used = (key >= 0) & (candidates > 1) & (key < candidates)
    if not used.any():
        return None
    count = int(np.bincount(candidates[used]).argmax())
    counts = np.bincount(key[used & (candidates == count)], minlength=count)
    total = int(counts.sum())
    statistic = float(((counts - total / count) ** 2).sum() / (total / count))
    share = wilson(int(counts[0]), total)
    first = Estimate(share.value - 1 / count, share.low - 1 / count, share.high - 1 / count, total)
    return KeyBias(
        count,
        tuple(counts.tolist()),
        first,
        math.sqrt(statistic / (total * (count - 1))),
        chi_square_tail(statistic, count - 1),
    )


def speed(seconds: NDArray[np.float64]) -> Speed | None:
    """Quantiles of the times, and how many answers fit into an hour; None if none was measured."""
    known = seconds[np.isfinite(seconds) & (seconds >= 0)]
    working = known[known <= BREAK]
    if not len(working):
        return None
    lower, median, upper, slowest = np.percentile(working, (25, 50, 75, 95)).tolist()
    total = float(working.sum())
    return Speed(
        median,
        (lower, upper),
        slowest,
        3600 * len(working) / total if total > 0 else float("inf"),
        len(known) - len(working),
    )


def _rate(
    seen: Visits, c: int, answered: NDArray[np.bool_], known: NDArray[np.int8] | None
) -> ClassRate:
    offered = seen.offered[:, c] & answered
    picked = seen.present[:, c]
    refused = missed = None
    if known is not None:
        told = known[:, c] != 0
        refused = wilson(int((picked & (known[:, c] < 0)).sum()), int((picked & told).sum()))
        there = offered & (known[:, c] > 0)
        missed = wilson(int((there & ~picked).sum()), int(there.sum()))
    return ClassRate(
        seen.classes[c],
        int(offered.sum()),
        wilson(int((offered & picked).sum()), int(offered.sum())),
        int(picked.sum()),
        refused,
        missed,
    )


def _agreement(seen: Visits, answered: NDArray[np.bool_]) -> dict[str, Any]:
    """Kappas of all pairs with enough images in common, and of all people together.

    What is compared is the whole answer: all classes that were said to be there.
    """
    said: dict[str, dict[str, str]] = {}
    for row in np.flatnonzero(answered).tolist():
        answer = " + ".join(seen.classes[c] for c in np.flatnonzero(seen.present[row]))
        said.setdefault(seen.images[row], {})[seen.annotators[row]] = answer
    shared = {image: one for image, one in said.items() if len(one) > 1}
    names = sorted({name for one in shared.values() for name in one})
    pairs = []
    for first, second in combinations(names, 2):
        both = [one for one in shared.values() if first in one and second in one]
        if len(both) < FEW:
            continue
        (one, other), count = coded([[b[first] for b in both], [b[second] for b in both]])
        pairs.append(Pair((first, second), Estimate(*cohen_interval(one, other, count), len(both))))
    fleiss = None
    if len(shared) >= FEW:
        codes, count = coded([list(one.values()) for one in shared.values()])
        counts = np.stack([np.bincount(code, minlength=count) for code in codes])
        fleiss = Estimate(*fleiss_interval(counts), len(shared))
    return {"pairs": tuple(pairs), "fleiss": fleiss}


def _truth_of(seen: Visits, truth: LabelTable) -> NDArray[np.int8]:
    """(V, C) +1 there, -1 not there, 0 not known, of the images of the visits."""
    if set(truth.classes) != set(seen.classes):
        missing = sorted(set(seen.classes) ^ set(truth.classes))
        raise DataError(
            f"the truth has other classes than were offered ({', '.join(missing[:4])}): give a"
            " file with the same classes"
        )
    place = {name: row for row, name in enumerate(truth.images)}
    order = [truth.classes.index(name) for name in seen.classes]
    rows = np.array([place.get(image, -1) for image in seen.images], dtype=np.int64)
    values = truth.values[rows][:, order] if len(truth) else np.zeros(seen.present.shape, np.int8)
    there = np.where(values > 0, 1, -1).astype(np.int8)
    return np.where((rows >= 0)[:, None], there, 0).astype(np.int8)


def _against(
    seen: Visits,
    known: NDArray[np.int8],
    truth: LabelTable | None,
    areas: NDArray[np.float64] | None,
) -> Truth | None:
    told = (known != 0).any(axis=1) & ~seen.skipped
    if int(told.sum()) < FEW:
        return None
    there = known > 0
    picked = seen.present & told[:, None]
    nothing = told & seen.none
    right = told & seen.single & (seen.present & there).any(axis=1)
    chosen = seen.chosen[right]
    possible = there[right]
    assert truth is not None
    by_area = power = offered = None
    if areas is not None:
        if areas.shape != truth.values.shape:
            raise DataError(
                f"areas of the shape {areas.shape} for {len(truth)} images of"
                f" {len(truth.classes)} classes: give a row per image of the truth"
            )
        place = {name: row for row, name in enumerate(truth.images)}
        order = [truth.classes.index(name) for name in seen.classes]
        rows = [place[seen.images[row]] for row in np.flatnonzero(right)]
        cover = areas[rows][:, order]
        by_area = dominance(chosen, possible, cover)
        power = area_power(chosen, possible, cover)
        last = seen.last[right] & possible
        able = last[np.arange(len(chosen)), chosen]
        offered = dominance(chosen[able], last[able], cover[able])
    distance, by_chance = distance_from_random(chosen, possible)
    return Truth(
        images=int(told.sum()),
        wrong=wilson(int((picked & ~there).sum()), int(picked.sum())),
        missed_all=wilson(int((nothing & there.any(axis=1)).sum()), int(nothing.sum())),
        dominance=by_area,
        area_power=power,
        dominance_offered=offered,
        distance=distance,
        distance_by_chance=by_chance,
        liking=liking(chosen, possible),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
