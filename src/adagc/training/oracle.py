"""Scores on clean labels during training, for the history only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adagc.metrics import average_precision, score
from adagc.training.records import (
    ClassCounts,
    ClassScores,
    OracleRecord,
    PseudoLabelQuality,
    Summary,
)
from adagc.types import Scores


@dataclass(frozen=True, eq=False)
class Pair:
    """Clean and observed labels of the same images."""

    truth: NDArray[np.bool_]  # (N, C) clean labels
    known: NDArray[np.bool_]  # (N,) images with clean labels; other rows of `truth` mean nothing
    observed: NDArray[np.int8]  # (N, C) -1/0/+1


class Oracle:
    """Scores predictions and pseudo-labels of an epoch on clean labels.

    The loop calls it with predictions and writes the result into the history; training never uses
    it. It keeps no state, so that an interrupted run gets the same record as any other.

    Args:
        val: Labels of the validation images.
        train: Labels of the training images. Pseudo-labels are scored where no label was observed.
    """

    def __init__(self, val: Pair, train: Pair) -> None:
        self._val_known, self._train_known = val.known, train.known
        self._val = val.truth[val.known]
        self._val_seen = val.observed[val.known] > 0
        self._train = train.truth[train.known]
        self._unknown = train.observed[train.known] == 0

    def __call__(
        self,
        predictions: Mapping[str, NDArray[np.float32]],
        estimates: NDArray[np.float32] | None,
    ) -> OracleRecord:
        """Clean validation scores per network and class, and the quality of the pseudo-labels.

        Args:
            predictions: Name of each network -> (V, C) probabilities of the validation images.
            estimates: (N, C) pseudo-labels of the training images, if the method has them.
        """
        record = OracleRecord()
        if self._val.any():
            known = {name: values[self._val_known] for name, values in predictions.items()}
            scores = {
                name: score(self._val, values, absent="skip") for name, values in known.items()
            }
            record = OracleRecord(
                validation={name: Summary(one.summary()) for name, one in scores.items()},
                labels=self._count(),
                classes={
                    name: self._compare(values, scores[name]) for name, values in known.items()
                },
            )
        if self._train.any() and estimates is not None:
            record = replace(record, pseudo_labels=self._judge(estimates[self._train_known]))
        return record

    def _count(self) -> ClassCounts:
        """Validation labels per class: true ones, those not observed, and wrongly observed ones.

        They are the same in every epoch, but every line of the history has them, so that it says
        what its scores were measured on wherever the history begins.
        """
        true, seen = self._val, self._val_seen
        return ClassCounts(
            true=tuple(true.sum(axis=0).tolist()),
            flipped=tuple((true & ~seen).sum(axis=0).tolist()),
            wrong=tuple((seen & ~true).sum(axis=0).tolist()),
        )

    def _compare(self, values: NDArray[np.float32], clean: Scores) -> ClassScores:
        """The quantities of the paper's propositions per class, None where they are undefined.

        alpha is the share of the flipped positives (true but not observed) that are predicted,
        recall (Rec*) the share of all true positives that are predicted, both at threshold 0.5.
        """
        # The paper defines them at 0.5, so the thresholds of the deployed model do not matter here.
        predicted, flipped = values >= 0.5, self._val & ~self._val_seen
        table = clean.per_class
        return ClassScores(
            clean_ap=_short(table.average_precision),
            noisy_ap=_short(average_precision(self._val_seen, values)),
            recall=_short(np.where(table.support > 0, table.recall, np.nan)),
            alpha=_short(_share(predicted & flipped, flipped)),
        )

    def _judge(self, estimates: NDArray[np.float32]) -> PseudoLabelQuality:
        """Precision and recall of missing positives at threshold 0.5, and the mAP of all labels."""
        added = (estimates >= 0.5) & self._unknown
        missing = self._train & self._unknown
        right = int((added & missing).sum())
        precision = right / max(int(added.sum()), 1)
        recall = right / max(int(missing.sum()), 1)
        ap = average_precision(self._train, estimates)
        return PseudoLabelQuality(
            mean_average_precision=float(np.nanmean(ap)),
            precision=precision,
            recall=recall,
            f1=2 * precision * recall / max(precision + recall, 1e-12),
            added_per_image=float(added.sum(axis=1).mean()),
        )


def _share(part: NDArray[np.bool_], whole: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(C,) share of the entries of `whole` that are in `part`, NaN for classes without entries."""
    count = whole.sum(axis=0)
    return np.where(count > 0, part.sum(axis=0) / np.maximum(count, 1), np.nan)


def _short(values: NDArray[np.float64]) -> tuple[float | None, ...]:
    """The values rounded to five decimals, to keep the history short; None for NaN."""
    return tuple(None if value != value else round(value, 5) for value in values.tolist())
