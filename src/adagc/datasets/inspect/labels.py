"""Look at label tables before training: counts, spellings, and whether labels and truth agree."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import examples
from adagc.labels import LabelTable, locate, match
from adagc.suggest import hint


@dataclass(frozen=True)
class Labels:
    """Summary of a label table, compared with the images."""

    source: str  # file of the table
    counts: dict[str, int]  # class -> number of images with it
    cardinality: dict[int, int]  # number of labels of an image -> number of such images
    images_without: tuple[str, ...]  # images that have no row in the table
    labels_without: tuple[str, ...]  # rows of the table that have no image

    @property
    def mean_cardinality(self) -> float:
        """Mean number of labels of the images that have a row in the table."""
        images = sum(self.cardinality.values())
        return sum(k * n for k, n in self.cardinality.items()) / max(images, 1)

    def to_dict(self) -> dict[str, Any]:
        """The summary as values that `json` can write."""
        return {
            "source": self.source,
            "counts": self.counts,
            "cardinality": {str(k): n for k, n in self.cardinality.items()},
            "images_without": list(self.images_without),
            "labels_without": list(self.labels_without),
        }


def summarise(table: LabelTable, names: Sequence[str], unreadable: Sequence[str]) -> Labels:
    """Count the labels of the images `names`; rows and images without a partner are listed.

    Args:
        table: The labels.
        names: Names of the readable images.
        unreadable: Names of the others, whose rows are not counted.
    """
    rows = locate(table, [*names, *unreadable], unknown="ignore")
    used = np.isin(np.arange(len(table)), rows)
    rows = rows[: len(names)]
    positive = table.positive[rows[rows >= 0]]
    cardinality = Counter(positive.sum(axis=1).tolist())
    return Labels(
        source=str(table.source or "label table"),
        counts=dict(zip(table.classes, positive.sum(axis=0).tolist(), strict=True)),
        cardinality=dict(sorted(cardinality.items())),
        images_without=tuple(names[i] for i in np.flatnonzero(rows < 0).tolist()),
        labels_without=tuple(table.images[i] for i in np.flatnonzero(~used).tolist()),
    )


def label_warnings(what: str, labels: Labels) -> list[str]:
    """One line for each problem of a label table; `what` is "labels" or "truth"."""
    warnings = []
    if labels.images_without:
        n = len(labels.images_without)
        warnings.append(f"{what}: {n} images have no row: {examples(labels.images_without)}")
    if labels.labels_without:
        n = len(labels.labels_without)
        warnings.append(f"{what}: {n} rows have no image: {examples(labels.labels_without)}")
    empty = [name for name, count in labels.counts.items() if count == 0]
    if empty:
        warnings.append(f"{what}: no image of {examples(empty)}")
    return warnings + class_warnings(what, tuple(labels.counts))


def class_warnings(what: str, classes: Sequence[str]) -> list[str]:
    """One line for each problem of the names of classes; `what` is "labels" or "truth"."""
    warnings = []
    if len(classes) == 1:
        warnings.append(f"{what}: {classes[0]} is the only class; a classifier needs two or more")
    return warnings + [
        f"{what}: {' and '.join(group)} may be one class in different spellings"
        for group in _spellings(classes)
    ]


def conflict_warnings(
    observed: LabelTable | None, clean: LabelTable | None, names: Sequence[str]
) -> list[str]:
    """One line for each way in which observed labels disagree with complete ones.

    Args:
        observed: Observed labels, if given.
        clean: Complete labels, if given.
        names: Names of the images.
    """
    if observed is None or clean is None:
        return []
    warnings = []
    unknown = [name for name in observed.classes if name not in clean.classes]
    if unknown:
        near = hint(unknown[0], clean.classes)
        warnings.append(f"labels: classes that the truth does not know: {examples(unknown)}{near}")
    shared = [name for name in observed.classes if name in clean.classes]
    if not shared:
        return warnings
    known = locate(clean, names, unknown="ignore") >= 0
    seen = match(observed.select(shared), names, unknown="ignore")[known]
    true = match(clean.select(shared), names, unknown="ignore")[known] > 0
    images = [name for name, one in zip(names, known, strict=True) if one]
    return warnings + contradictions(seen, true, images, shared)


def contradictions(
    seen: NDArray[np.int8], true: NDArray[np.bool_], images: Sequence[str], classes: Sequence[str]
) -> list[str]:
    """One line if observed labels are not those of the truth; nothing if they agree.

    Args:
        seen: (N, C) observed labels of images whose complete labels are known.
        true: (N, C) whether each class is present.
        images: Names of these images.
        classes: Names of the classes.
    """
    wrong = ((seen > 0) & ~true) | ((seen < 0) & true)
    if not wrong.any():
        return []
    row, column = np.argwhere(wrong)[0].tolist()
    total = np.count_nonzero(seen)
    return [
        f"labels: {wrong.sum()} of {total} labels ({wrong.sum() / total:.0%}) contradict the"
        f" truth, for example {classes[column]} on {images[row]}"
    ]


def _spellings(classes: Sequence[str]) -> list[list[str]]:
    """Groups of class names that differ only in case, spaces, other signs and coding of accents.

    Names that look the same are written with the codes of their letters.
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in classes:
        # macOS stores an accent as a character of its own, which would count as another sign.
        plain = unicodedata.normalize("NFKC", name).casefold()
        groups[re.sub(r"[\W_]+", "", plain) or name].append(name)
    alike = [
        len({unicodedata.normalize("NFC", name) for name in group}) < len(group)
        for group in groups.values()
    ]
    return [
        [ascii(name) for name in group] if same else group
        for group, same in zip(groups.values(), alike, strict=True)
        if len(group) > 1
    ]
