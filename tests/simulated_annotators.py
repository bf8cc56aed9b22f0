"""Annotators with known behaviour, as events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from adagc.annotate.events import Event

CLASSES = ("water", "trees", "buildings", "grass", "road", "soil", "cars", "field")
Chooser = Callable[[np.random.Generator, int, np.ndarray], int]


def scenes(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Truth (N, C) with one to five classes, and areas that sum to one."""
    generator = np.random.default_rng(seed)
    truth = generator.random((count, len(CLASSES))) < np.linspace(0.15, 0.6, len(CLASSES))
    truth[np.arange(count), generator.integers(0, len(CLASSES), count)] = True
    areas = truth * generator.gamma(0.8, 1, truth.shape)
    return truth, areas / areas.sum(axis=1, keepdims=True)


def by_weights(weights: Sequence[float]) -> Chooser:
    w = np.asarray(weights, dtype=float)

    def choose(generator: np.random.Generator, row: int, able: np.ndarray) -> int:
        share = w * able
        return int(generator.choice(len(w), p=share / share.sum()))

    return choose


def mixed(areas: np.ndarray, share: float) -> Chooser:
    """The largest class with this probability, else any."""

    def choose(generator: np.random.Generator, row: int, able: np.ndarray) -> int:
        if generator.random() < share:
            return int(np.argmax(np.where(able, areas[row], -1)))
        return int(generator.choice(np.flatnonzero(able)))

    return choose


def by_area(areas: np.ndarray, power: float) -> Chooser:
    def choose(generator: np.random.Generator, row: int, able: np.ndarray) -> int:
        share = np.where(able, areas[row] ** power, 0)
        return int(generator.choice(len(share), p=share / share.sum()))

    return choose


def annotate(
    truth: np.ndarray,
    choose: Chooser,
    *,
    name: str = "ada",
    candidates: int | None = None,
    seed: int = 0,
    first_key: float = 0.0,
    wrong: float = 0.0,
    seconds: float = 4.0,
    number: int = 1,
) -> list[Event]:
    """Events of one person who labels all images.

    Args:
        truth: What is there.
        choose: Takes one of the classes that are there and on offer.
        name: Of the person.
        candidates: Number of classes on offer; all if None.
        seed: Of everything.
        first_key: How often, where several fit, the first fitting key is taken.
        wrong: How often a class is taken that is not there.
        seconds: Median time of an answer.
        number: Number of the first event.
    """
    generator = np.random.default_rng(seed)
    events: list[Event] = []
    count = len(CLASSES) if candidates is None else candidates

    def add(kind, row, **values):
        events.append(
            Event(number + len(events), 1e9 + len(events), name, f"i{row:05d}", kind, **values)
        )

    for row in range(len(truth)):
        left = generator.permutation(len(CLASSES)).tolist()
        shown = [left.pop() for _ in range(count)]
        add("shown", row, candidates=tuple(CLASSES[c] for c in shown))
        while True:
            able = np.zeros(len(CLASSES), dtype=bool)
            able[shown] = True
            on_offer = tuple(CLASSES[c] for c in shown)
            false = able & ~truth[row]
            fits = able & truth[row]
            time = float(seconds * generator.lognormal(0, 0.4))
            if false.any() and generator.random() < wrong:
                pick = int(generator.choice(np.flatnonzero(false)))
            elif fits.any():
                pick = choose(generator, row, fits)
                if generator.random() < first_key:
                    pick = next(c for c in shown if fits[c])
            elif left:
                add("refresh", row, candidates=on_offer, seconds=time)
                shown = [left.pop() for _ in range(min(count, len(left)))]
                add("shown", row, candidates=tuple(CLASSES[c] for c in shown))
                continue
            else:
                add("none", row, candidates=on_offer, seconds=time)
                break
            add(
                "choose", row, candidates=on_offer, present=(CLASSES[pick],),
                key=shown.index(pick), seconds=time,
            )  # fmt: skip
            break
    return events
