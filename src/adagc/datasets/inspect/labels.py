"""Look at label tables before training: counts, spellings, and whether labels and truth agree."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    if len(labels.counts) == 1:
        warnings.append(
            f"{what}: {examples(labels.counts)} is the only class; a classifier needs two or more"
        )
    return warnings + [
        f"{what}: {' and '.join(group)} may be one class in different spellings"
        for group in _spellings(labels.counts)
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
    wrong = ((seen > 0) & ~true) | ((seen < 0) & true)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        image = [name for name, one in zip(names, known, strict=True) if one][row]
        total = np.count_nonzero(seen)
        warnings.append(
            f"labels: {wrong.sum()} of {total} labels ({wrong.sum() / total:.0%}) contradict the"
            f" truth, for example {shared[column]} on {image}"
        )
    return warnings


def _spellings(classes: Sequence[str] | dict[str, int]) -> list[list[str]]:
    """Groups of class names that differ only in case, spaces and other signs."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in classes:
        groups[re.sub(r"[\W_]+", "", name.casefold()) or name].append(name)
    return [group for group in groups.values() if len(group) > 1]
