"""The section of the page that shows images with their observed, true and predicted labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.collection import Collection
from adagc.errors import AdagcError
from adagc.images.pictures import TINY, limits, thumbnails
from adagc.report.html import esc, note, section
from adagc.report.record import Record

EACH = 6  # pictures in each of random, best, typical and worst
TRAINING = 12  # training images
# A chip is the small box with one label; a card is an image with its chips.
_LONG = 32  # largest number of characters of a class name on a chip
_MANY = 12  # largest number of chips on a card; of further ones only the number is shown


@dataclass(frozen=True)
class _Known:
    """Labels of all images of a collection, the range for pictures, and the model's thresholds."""

    observed: NDArray[np.int8]  # (N, C)
    truth: NDArray[np.bool_] | None  # (N, C)
    limits: NDArray[np.float64] | None  # darkest and brightest value shown; see `limits`
    thresholds: NDArray[np.float32]  # (C,) probabilities from which on a class is predicted

    def decided(self, values: NDArray[np.float32]) -> NDArray[np.bool_]:
        """(..., C) which classes are predicted, given the probabilities (..., C)."""
        return np.asarray(values >= self.thresholds)


def gallery_section(
    record: Record, collection: Collection, *, seed: int = 0, remark: str = ""
) -> str:
    """The section with test and training images; validation images if there was no test.

    `remark` is shown above the pictures.
    """
    images = collection.images
    if not images.is_image or not record.run.finished:
        return ""
    # Single precision, like the probabilities that they are compared with.
    thresholds = np.array(record.thresholds, dtype=np.float32)
    known = _Known(_observed(record, collection), collection.truth, limits(images), thresholds)
    generator = np.random.default_rng(seed)
    parts = _judged(record, collection, known, generator)
    train = _labelled(collection, known, "train")
    rows = np.sort(generator.choice(train, min(TRAINING, len(train)), replace=False))
    parts.append(
        _panel(
            "Training images",
            "with observed labels (◉) and the predictions of the network",
            _cards(record, collection, known, rows, _predict(record, collection, rows)),
        )
    )
    above = note(remark) if remark else ""
    return section("pictures", "Pictures", above, _key(known), *parts)


def _judged(
    record: Record,
    collection: Collection,
    known: _Known,
    generator: np.random.Generator,
) -> list[str]:
    """Panels with images that the network was not trained on."""
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
            ("Typical", "drawn from the middle fifth by F1"),
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
    """Draw images from all, from the best, from the middle and from the worst, none twice.

    Returns:
        Four arrays of row numbers, each sorted by F1 from high to low.
    """
    # Shuffled first, so that images with equal F1 are in random order.
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
    drawn: list[NDArray[np.int64]] = []
    free = np.ones(count, dtype=np.bool_)
    for pool in pools:
        left = pool[free[pool]]
        chosen = generator.choice(left, min(EACH, len(left)), replace=False)
        chosen = chosen[np.argsort(-f1[chosen], kind="stable")]
        free[chosen] = False
        drawn.append(chosen)
    return drawn


def image_f1(truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(N,) F1 over the labels of each image; 1 if no label is true and none is predicted."""
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
    predicted: NDArray[np.bool_],
    truth: NDArray[np.bool_] | None,
    observed: NDArray[np.int8],
) -> str:
    """Chips of one image: observed labels, then right, missed and wrong predictions.

    In each group the most probable comes first.
    """
    ranked: list[tuple[int, float, str]] = []
    for c, name in enumerate(classes):
        chance = f"{100 * float(p[c]):.0f} %"
        if truth is None:
            if not predicted[c]:
                continue
            kind, sign, word, rank = "said", "•", "predicted", 1
        elif predicted[c] and truth[c]:
            kind, sign, word, rank = "right", "✓", "right", 1
        elif truth[c]:
            kind, sign, word, rank = "missed", "○", "missed", 2
        elif predicted[c]:
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
    """A class name, shortened to fit on a chip; the hover text has the whole name."""
    return name if len(name) <= _LONG else f"{name[: _LONG - 1].rstrip(' ,')}…"


def _key(known: _Known) -> str:
    """The legend of the chips."""
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


def _observed(record: Record, collection: Collection) -> NDArray[np.int8]:
    """(N, C) observed labels of the run: those of the collection if they are the same."""
    from adagc.labels import match, read_labels

    opened, recorded = collection.observed, record.labels
    if opened is not None and recorded is not None and opened.hash == recorded.hash:
        assert collection.observed_values is not None
        return collection.observed_values
    table = read_labels(record.run.path("labels.csv"), classes=collection.classes)
    return match(table, collection.images.names, unknown="ignore")


def _labelled(collection: Collection, known: _Known, split: str) -> NDArray[np.int64]:
    """The images of a split that have an observed label."""
    rows = np.asarray(collection.splits.get(split, ()), dtype=np.int64)
    return rows[(known.observed[rows] > 0).any(axis=1)]


def _saved(
    record: Record, collection: Collection
) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
    """Rows and saved probabilities of the test images; None if the run was not tested."""
    from adagc.training.inputs import rows_of_split
    from adagc.training.scoring import images_of, predictions_of

    if record.final is None or not len(collection.splits.get("test", ())):
        return None
    rows = rows_of_split(record.run, collection, "test")
    values = predictions_of(record.run).get(f"{record.networks[0]}-last")
    names = images_of(record.run)  # unknown if an older version tested the run
    same = names is None or names == tuple(collection.images.names[row] for row in rows.tolist())
    if values is None or values.shape != (len(rows), len(collection.classes)) or not same:
        raise AdagcError(
            "the saved predictions are not of these test images: run  adagc evaluate"
            f" {record.run}  and write the report again"
        )
    return rows, values


def _predict(
    record: Record, collection: Collection, rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """(rows, C) probabilities that the deployed network predicts for these images."""
    from adagc.inference import predict
    from adagc.models import load_model
    from adagc.training.network import suited

    if not len(rows):
        return np.empty((0, len(collection.classes)), dtype=np.float32)
    model = load_model(record.run.folder)
    images = suited(collection.images, plain=model.spec.is_plain, head=model.spec.head)
    if tuple(model.spec.shape) != tuple(images.shape):
        raise AdagcError(
            f"the network takes images of shape {tuple(model.spec.shape)}, but these have shape"
            f" {tuple(images.shape)}"
        )
    return predict(model, images, rows)
