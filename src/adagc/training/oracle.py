"""Who reads the clean labels beside training, and tells the history alone."""

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
    """Clean labels of some rows beside what was observed of them."""

    truth: NDArray[np.bool_]  # (N, C)
    known: NDArray[np.bool_]  # (N,) of which rows the truth is known; the others hold anything
    observed: NDArray[np.int8]  # (N, C) -1/0/+1


class Oracle:
    """Reads the clean labels beside training and writes what it sees into the history.

    The loop hands it predictions and takes numbers for the record; nothing flows back. It has no
    memory either, so a run that was interrupted gets the same record as one that was not.

    Args:
        val: Of the validation rows.
        train: Of the training rows: pseudo-labels are judged where nobody looked.
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
        """Clean validation scores per network and class, and the quality of the pseudo-labels."""
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
        """Labels per class: the true ones, those that were not observed, the wrong ones.

        The same in every epoch, and in every line: wherever a run was interrupted or its oracle
        switched on, the line beside the scores says what they were measured on.
        """
        true, seen = self._val, self._val_seen
        return ClassCounts(
            true=tuple(true.sum(axis=0).tolist()),
            flipped=tuple((true & ~seen).sum(axis=0).tolist()),
            wrong=tuple((seen & ~true).sum(axis=0).tolist()),
        )

    def _compare(self, values: NDArray[np.float32], clean: Scores) -> ClassScores:
        """Per class what the paper's propositions speak of, None where it is undefined.

        alpha is the share of the flipped positives that are predicted, recall (Rec*) the share of
        all true positives, both at threshold 0.5.
        """
        # 0.5 by the paper's definition, whatever thresholds the model is deployed with.
        said, flipped = values >= 0.5, self._val & ~self._val_seen
        table = clean.per_class
        return ClassScores(
            clean_ap=_short(table.average_precision),
            noisy_ap=_short(average_precision(self._val_seen, values)),
            recall=_short(np.where(table.support > 0, table.recall, np.nan)),
            alpha=_short(_share(said & flipped, flipped)),
        )

    def _judge(self, estimates: NDArray[np.float32]) -> PseudoLabelQuality:
        """How well pseudo-labels recover the missing positives, at threshold 0.5 and by rank."""
        said = (estimates >= 0.5) & self._unknown
        missing = self._train & self._unknown
        right = int((said & missing).sum())
        precision = right / max(int(said.sum()), 1)
        recall = right / max(int(missing.sum()), 1)
        ap = average_precision(self._train, estimates)
        return PseudoLabelQuality(
            mean_average_precision=float(np.nanmean(ap)),
            precision=precision,
            recall=recall,
            f1=2 * precision * recall / max(precision + recall, 1e-12),
            added_per_image=float(said.sum(axis=1).mean()),
        )


def _share(part: NDArray[np.bool_], whole: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Per class, NaN where there is nothing to share."""
    count = whole.sum(axis=0)
    return np.where(count > 0, part.sum(axis=0) / np.maximum(count, 1), np.nan)


def _short(values: NDArray[np.float64]) -> tuple[float | None, ...]:
    """For a file that is written every epoch: five digits, None for NaN."""
    return tuple(None if value != value else round(value, 5) for value in values.tolist())
