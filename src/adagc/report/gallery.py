"""Pictures with what is on them, what was seen of it, and what the network says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.collection import Collection
from adagc.errors import AdagcError
from adagc.images.pictures import TINY, limits, thumbnails
from adagc.report.html import esc, section
from adagc.report.record import Record

EACH = 6  # pictures in each of random, best, typical and worst
TRAINING = 12
_LONG = 32  # characters of a class name on a chip
_MANY = 12  # chips on a card, beyond which the least certain wait in the hover text


@dataclass(frozen=True)
class _Known:
    """What is known of the images of a collection, rows as there, and of the network."""

    observed: NDArray[np.int8]  # (N, C)
    truth: NDArray[np.bool_] | None
    limits: NDArray[np.float64] | None  # how to stretch the pictures
    thresholds: NDArray[np.float32]  # (C,) of the model

    def decided(self, values: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which classes are predicted, of probabilities (..., C)."""
        return np.asarray(values >= self.thresholds)


def gallery_section(record: Record, collection: Collection, *, seed: int = 0) -> str:
    """Test images, or validation images without a test, and training images."""
    images = collection.images
    if not images.is_image or not record.run.finished:
        return ""
    known = _Known(
        _observed(record, collection), collection.truth, limits(images), _thresholds(record)
    )
    generator = np.random.default_rng(seed)
    parts = _judged(record, collection, known, generator)
    train = _labelled(collection, known, "train")
    rows = np.sort(generator.choice(train, min(TRAINING, len(train)), replace=False))
    parts.append(
        _panel(
            "Training images",
            "what was observed (◉), what is there, and what the network makes of it",
            _cards(record, collection, known, rows, _predict(record, collection, rows)),
        )
    )
    return section("pictures", "Pictures", _key(known), *parts)


def _judged(
    record: Record,
    collection: Collection,
    known: _Known,
    generator: np.random.Generator,
) -> list[str]:
    """Panels of images the network was not trained on."""
    tested = _saved(record, collection)
    if tested is None or known.truth is None:
        rows = _labelled(collection, known, "val")
        rows = np.sort(generator.choice(rows, min(4 * EACH, len(rows)), replace=False))
        values = _predict(record, collection, rows)
        cards = _cards(record, collection, known, rows, values)
        return [_panel("Validation images", "drawn at random", cards)]
    rows, values = tested
    f1 = image_f1(known.truth[rows], known.decided(values))
    panels = []
    for (name, text), chosen in zip(
        (
            ("At random", f"drawn from all {len(rows):,} test images"),
            ("Among the best", "drawn from the 15 % with the highest F1"),
            ("Typical", "drawn from the middle fifth"),
            ("Among the worst", "drawn from the 15 % with the lowest F1"),
        ),
        pick(f1, generator),
        strict=True,
    ):
        cards = _cards(record, collection, known, rows[chosen], values[chosen])
        if len(chosen):
            panels.append(_panel(name, text, cards))
    return panels


def pick(f1: NDArray[np.float64], generator: np.random.Generator) -> list[NDArray[np.int64]]:
    """Some of all, of the best, of the middle and of the worst images, none of them twice."""
    # shuffled first, so that equal values come in no particular order
    order = generator.permutation(len(f1))
    order = order[np.argsort(-f1[order], kind="stable")]
    count = len(order)
    edge = max(EACH, round(0.15 * count))
    pools = (
        order,
        order[:edge],
        order[round(0.4 * count) : round(0.6 * count)],
        order[max(count - edge, 0) :],
    )
    found: list[NDArray[np.int64]] = []
    free = np.ones(count, dtype=np.bool_)
    for pool in pools:
        left = pool[free[pool]]
        chosen = generator.choice(left, min(EACH, len(left)), replace=False)
        chosen = chosen[np.argsort(-f1[chosen], kind="stable")]
        free[chosen] = False
        found.append(chosen)
    return found


def image_f1(truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(N,) F1 over the labels of each image; 1 where both sides are empty."""
    hits = (truth & predicted).sum(axis=1)
    total = truth.sum(axis=1) + predicted.sum(axis=1)
    return np.where(total > 0, 2 * hits / np.maximum(total, 1), 1.0)


def _panel(name: str, text: str, cards: str) -> str:
    return (
        f'<h3>{esc(name)} <span class="sub">{esc(text)}</span></h3><div class="cards">{cards}</div>'
    )


def _cards(
    record: Record,
    collection: Collection,
    known: _Known,
    rows: NDArray[np.int64],
    values: NDArray[np.float32],
) -> str:
    pictures = thumbnails(collection.images, rows, known.limits)
    pixelated = " tiny" if max(collection.images.shape[1:]) <= TINY else ""
    cards = []
    for row, picture, p in zip(rows.tolist(), pictures, values, strict=True):
        name = collection.images.names[row]
        truth = None if known.truth is None else known.truth[row]
        score = ""
        if truth is not None:
            f1 = float(image_f1(truth[None], known.decided(p[None]))[0])
            score = f' <span class="f1">F1 {100 * f1:.0f}</span>'
        chips = _chips(collection.classes, p, known.decided(p), truth, known.observed[row])
        cards.append(
            f'<article class="card"><img class="scene{pixelated}" src="{picture}"'
            f' alt="Image {esc(name)}" loading="lazy"><p class="name" title="{esc(name)}">'
            f"<span>{esc(name.rpartition('/')[2])}</span>{score}</p>"
            f"{chips}</article>"
        )
    return "".join(cards)


def _chips(
    classes: tuple[str, ...],
    p: NDArray[np.float32],
    said: NDArray[np.bool_],
    truth: NDArray[np.bool_] | None,
    observed: NDArray[np.int8],
) -> str:
    """Observed first, then right, missed and wrong, the most certain first in each."""
    ranked: list[tuple[int, float, str]] = []
    for c, name in enumerate(classes):
        chance = f"{100 * float(p[c]):.0f} %"
        if truth is None:
            if not said[c]:
                continue
            kind, sign, word, rank = "said", "•", "predicted", 1
        elif said[c] and truth[c]:
            kind, sign, word, rank = "right", "✓", "right", 1
        elif truth[c]:
            kind, sign, word, rank = "missed", "○", "missed", 2
        elif said[c]:
            kind, sign, word, rank = "wrong", "✗", "wrong", 3
        else:
            continue
        chip = (
            f'<li class="chip {kind}" title="{esc(name)}: {word}, {chance}">'
            f'<span aria-hidden="true">{sign}</span><span class="hidden">{word}: </span>'
            f" {esc(_short(name))}</li>"
        )
        ranked.append((rank, -float(p[c]), chip))
    chips = [chip for *_, chip in sorted(ranked)]
    seen = [
        f'<li class="chip seen" title="observed: {esc(classes[c])}"><span aria-hidden="true">◉'
        f'</span><span class="hidden">observed: </span> {esc(_short(classes[c]))}</li>'
        for c in np.flatnonzero(observed > 0).tolist()
    ]
    if not chips:
        chips = ['<li class="chip none">nothing predicted</li>']
    if len(chips) > _MANY:
        chips = [*chips[:_MANY], f'<li class="chip none">+{len(chips) - _MANY}</li>']
    first = f'<ul class="chips observed">{"".join(seen)}</ul>' if seen else ""
    return f'{first}<ul class="chips">{"".join(chips)}</ul>'


def _short(name: str) -> str:
    """As much of a class name as a chip can carry; the rest is in its hover text."""
    return name if len(name) <= _LONG else f"{name[: _LONG - 1].rstrip(' ,')}…"


def _key(known: _Known) -> str:
    kinds = [("seen", "◉", "observed")]
    if known.truth is None:
        kinds.append(("said", "•", "predicted"))
    else:
        kinds += [("right", "✓", "right"), ("missed", "○", "missed"), ("wrong", "✗", "wrong")]
    items = "".join(
        f'<li class="chip {kind}"><span aria-hidden="true">{sign}</span> {word}</li>'
        for kind, sign, word in kinds
    )
    return f'<ul class="chips key" aria-label="Key">{items}</ul>'


def _thresholds(record: Record) -> NDArray[np.float32]:
    from adagc.models import read_description

    # In single precision, like the probabilities that they are compared with.
    return np.array(read_description(record.run.folder).thresholds, dtype=np.float32)


def _observed(record: Record, collection: Collection) -> NDArray[np.int8]:
    from adagc.labels import match, read_labels

    known, noted = collection.observed, record.labels
    if known is not None and noted is not None and known.hash == noted.hash:
        assert collection.observed_values is not None
        return collection.observed_values
    table = read_labels(record.run.path("labels.csv"), classes=collection.classes)
    return match(table, collection.images.names, unknown="ignore")


def _labelled(collection: Collection, known: _Known, split: str) -> NDArray[np.int64]:
    rows = np.asarray(collection.splits.get(split, ()), dtype=np.int64)
    return rows[(known.observed[rows] > 0).any(axis=1)]


def _saved(
    record: Record, collection: Collection
) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
    """Rows and saved probabilities of the test images, if they fit this collection."""
    from adagc.training.experiment import predictions_of

    rows = np.asarray(collection.splits.get("test", ()), dtype=np.int64)
    if record.final is None or not len(rows):
        return None
    values = predictions_of(record.run).get(f"{record.networks[0]}-last")
    if values is None or values.shape != (len(rows), len(collection.classes)):
        raise AdagcError("the saved predictions belong to other test images")
    return rows, values


def _predict(
    record: Record, collection: Collection, rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The deployed network on these few images."""
    from adagc.inference import predict
    from adagc.models import load_model
    from adagc.training.network import suited

    if not len(rows):
        return np.empty((0, len(collection.classes)), dtype=np.float32)
    model = load_model(record.run.folder)
    images = suited(collection.images, plain=model.spec.is_plain, head=model.spec.head)
    if tuple(model.spec.shape) != tuple(images.shape):
        raise AdagcError(
            f"the network takes images of {tuple(model.spec.shape)}, these are"
            f" {tuple(images.shape)}"
        )
    return predict(model, images, rows)
