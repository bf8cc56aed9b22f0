"""What the paper's propositions say of a run's noisy mAP, beside what was measured.

Of the true positives of class c a share β_c was not observed. The propositions are two guesses of
what that does to the average precision, AP_c = w_c AP*_c:

    Proposition 1   w_c = 1 - β_c          flips hit everywhere in the ranking, α_c = Rec*_c
    Proposition 2   w_c = 1 / (1 - β_c)    flipped positives are never predicted, α_c = 0

These are the assumptions. The rest is arithmetic: the mean over classes is exactly

    mAP = mean(w) mAP* + Cov(w, AP*)       which for w = 1 - β is (1 - mean β) mAP* - Cov(β, AP*)

Without the covariance it is an assumption again: that the classes with many flips are neither
harder nor easier than the others. That mAP lies below mAP* in Proposition 1 and above it in
Proposition 2 follows from w_c <= 1 and w_c >= 1 alone; the negative covariance that the paper
brings forward works against both inequalities, but cannot turn them.

How far a ranking of finitely many images can be from the assumptions (the tests prove both; P true
positives, K of them observed, no wrong labels):

    Any flips: AP_c <= AP*_c / (1 - β_c), so Proposition 2 can only be too high. If no flipped
    positive ranks level with or above an observed one, it is too high by exactly the sum of the
    clean precisions at the flipped positives divided by K: little if they come at the very end of
    a long list, but never nothing. The value may exceed 1.

    Flips drawn with equal chances: E[AP_c] = q AP*_c + (1 - q) mean(1 / rank), the mean over true
    positives, q = (K - 1) / (P - 1). So Proposition 1 is too low, by up to β_c (H_P - 1) / (P - 1)
    with the harmonic number H_P: nothing for thousands of positives, much for ten. Random single
    positives are such flips only if the scores of a class do not depend on how many other classes
    an image has: one class of k is kept with a chance of 1 / k, the only one always. But a network
    that is trained on such labels learns that very chance, and AP_c comes out higher.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adagc.errors import AdagcError, UsageError
from adagc.training.records import EpochRecord
from adagc.training.runs import Run
from adagc.types import NetworkRole, with_role

Floats = NDArray[np.float64]
_LEVEL = 1e-9  # predictions closer than this are the same


@dataclass(frozen=True, eq=False)
class Proposition:
    """One proposition's noisy average precision, made of the clean one, for E epochs."""

    weights: Floats  # (C,) w
    classes: Floats  # (E, C) w_c AP*_c
    plain: Floats  # (E,) mean(w) mAP*
    covariance: Floats  # (E,) Cov(w, AP*)

    @property
    def full(self) -> Floats:
        """(E,) the noisy mAP with the covariance, as the paper writes it."""
        return self.plain + self.covariance


def propose(number: Literal[1, 2], beta: Floats, clean_ap: Floats) -> Proposition:
    """What a proposition makes of (C,) flip rates and (E, C) clean average precision."""
    weights = 1 - beta if number == 1 else 1 / (1 - beta)
    means = clean_ap.mean(axis=1)
    apart = (weights - weights.mean()) * (clean_ap - means[:, None])
    return Proposition(
        weights=weights,
        classes=weights * clean_ap,
        plain=weights.mean() * means,
        covariance=apart.mean(axis=1),
    )


@dataclass(frozen=True)
class Peaks:
    """Where noisy and clean mAP were highest, both up to the same epoch (Theorem 1)."""

    noisy: int  # epoch
    clean: int
    last: int  # the last epoch looked at
    lost: float  # clean mAP that stopping at the noisy peak gives away

    @property
    def distance(self) -> int:
        """Epochs by which the noisy peak is late; negative if it is early."""
        return self.noisy - self.clean

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "lost": _plain(self.lost), "distance": self.distance}


@dataclass(frozen=True, eq=False)
class Theory:
    """One network of one run, measured on the validation images whose clean labels are known.

    All means run over the same classes, those of which at least one true positive was observed:
    for the others there is no noisy average precision, and β_c = 1 leaves Proposition 2 without a
    value. So the clean mAP here can differ from that of the report, which counts them.
    """

    title: str  # of the method
    scheme: str | None  # how the observed labels came about, where the run knows
    network: str
    classes: tuple[str, ...]
    left_out: tuple[str, ...]  # classes without an observed true positive
    support: NDArray[np.int64]  # (C,) true positives
    beta: Floats  # (C,) share of them that was not observed
    wrong: int  # observed positives that the truth lacks; the propositions know none
    epochs: tuple[int, ...]  # E of them
    trigger: int | None  # the epoch after which the method began to correct labels
    clean_ap: Floats  # (E, C) AP*
    noisy_ap: Floats  # (E, C) AP
    alpha: Floats  # (E, C) at threshold 0.5, NaN where nothing was flipped
    recall: Floats  # (E, C) Rec* at threshold 0.5

    @cached_property
    def clean(self) -> Floats:
        """(E,) mAP*."""
        return np.asarray(self.clean_ap.mean(axis=1))

    @cached_property
    def noisy(self) -> Floats:
        """(E,) mAP."""
        return np.asarray(self.noisy_ap.mean(axis=1))

    @cached_property
    def propositions(self) -> tuple[Proposition, Proposition]:
        """What both say."""
        return propose(1, self.beta, self.clean_ap), propose(2, self.beta, self.clean_ap)

    @cached_property
    def allowance(self) -> float:
        """By how much Proposition 1 may be too low for want of images, mean over the classes."""
        harmonic = np.array([np.sum(1 / np.arange(1, count + 1)) for count in self.support])
        return float(np.mean(self.beta * (harmonic - 1) / np.maximum(self.support - 1, 1)))

    @cached_property
    def mean_alpha(self) -> Floats:
        """(E,) over the classes that have flipped positives; NaN if none has."""
        return _mean(self.alpha[:, self.beta > 0])

    @cached_property
    def mean_recall(self) -> Floats:
        """(E,) over the same classes as `mean_alpha`."""
        return _mean(self.recall[:, self.beta > 0])

    @cached_property
    def nearer(self) -> tuple[int | None, ...]:
        """For each epoch the proposition whose mAP is nearer; None if they say the same."""
        first, second = (np.abs(said.full - self.noisy) for said in self.propositions)
        return tuple(
            None if abs(one - two) < _LEVEL else 1 if one < two else 2
            for one, two in zip(first.tolist(), second.tolist(), strict=True)
        )

    @cached_property
    def peaks(self) -> Peaks:
        """Up to the trigger: from there on training is another one, of which no theorem speaks.

        Of all epochs if the oracle saw none before it.
        """
        among = [i for i, epoch in enumerate(self.epochs) if epoch <= (self.trigger or epoch)]
        among = among or list(range(len(self.epochs)))
        clean, noisy = self.clean[among], self.noisy[among]
        at, top = int(noisy.argmax()), int(clean.argmax())
        epochs = [self.epochs[i] for i in among]
        return Peaks(epochs[at], epochs[top], epochs[-1], float(clean[top] - clean[at]))

    def errors(self, number: Literal[1, 2]) -> dict[str, Any]:
        """Root-mean-square errors over epochs: of the mAP in both forms, and of every AP_c."""
        said = self.propositions[number - 1]
        apart = said.classes - self.noisy_ap
        return {
            "with_covariance": _rms(said.full - self.noisy),
            "without_covariance": _rms(said.plain - self.noisy),
            "all_classes": _rms(apart),
            "per_class": [_rms(column) for column in apart.T],
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: everything that was measured and said, NaN as None."""
        return {
            "method": self.title,
            "scheme": self.scheme,
            "network": self.network,
            "classes": list(self.classes),
            "left_out": list(self.left_out),
            "support": self.support.tolist(),
            "beta": _plain(self.beta),
            "allowance": _plain(self.allowance),
            "wrong": self.wrong,
            "trigger": self.trigger,
            "peaks": self.peaks.to_dict(),
            "errors": {str(number): _plain(self.errors(number)) for number in (1, 2)},
            "epochs": [self._epoch(i) for i in range(len(self.epochs))],
        }

    def _epoch(self, i: int) -> dict[str, Any]:
        predicted = {
            f"proposition_{number}": {
                "with_covariance": _plain(said.full[i]),
                "without_covariance": _plain(said.plain[i]),
            }
            for number, said in enumerate(self.propositions, start=1)
        }
        return {
            "epoch": self.epochs[i],
            "clean": _plain(self.clean[i]),
            "noisy": _plain(self.noisy[i]),
            **predicted,
            "nearer": self.nearer[i],
            "mean_alpha": _plain(self.mean_alpha[i]),
            "mean_recall": _plain(self.mean_recall[i]),
            "clean_ap": _plain(self.clean_ap[i]),
            "noisy_ap": _plain(self.noisy_ap[i]),
        }


def measure(run: Run | Path | str, network: str | None = None) -> Theory:
    """Hold the propositions against the record of a run.

    Args:
        run: A run, finished or not, whose oracle saw clean labels of validation images.
        network: Which of its networks; the teacher where there is one by default.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    history = run.history
    lines = [line for line in history if line.oracle is not None and line.oracle.classes]
    if not lines:
        raise AdagcError(_nothing(run, history))
    seen = [line.oracle for line in lines if line.oracle is not None]
    last, there = lines[-1], seen[-1].classes
    network = network or with_role(last.roles, NetworkRole.TEACHER) or last.deployed
    if network not in there:
        raise UsageError(f"{run.folder} has no network {network!r}: choose {' or '.join(there)}")
    labels, counts = run.labels, seen[-1].labels
    if labels is None or counts is None:
        raise AdagcError(f"{run.folder} does not say what its labels are: train it again")
    true, flipped = np.array(counts.true), np.array(counts.flipped)
    judged = true > flipped
    if not judged.any():
        raise AdagcError(
            f"no class has an observed positive among {run.folder}'s validation images with known"
            " truth: train with more validation images (--split)"
        )

    own = [oracle.classes[network] for oracle in seen]

    def stacked(columns: Iterable[Sequence[float | None]]) -> Floats:
        return np.array(list(columns), dtype=np.float64)[:, judged]  # None becomes NaN

    return Theory(
        title=run.settings.method,
        scheme=labels.scheme,
        network=network,
        classes=_pick(labels.classes, judged),
        left_out=_pick(labels.classes, ~judged),
        support=true[judged],
        beta=flipped[judged] / true[judged],
        wrong=sum(counts.wrong),
        epochs=tuple(line.epoch for line in lines),
        trigger=history[-1].status.get("triggered_after"),
        clean_ap=stacked(one.clean_ap for one in own),
        noisy_ap=stacked(one.noisy_ap for one in own),
        alpha=stacked(one.alpha for one in own),
        recall=stacked(one.recall for one in own),
    )


def _nothing(run: Run, history: Sequence[EpochRecord]) -> str:
    """Why there is nothing to measure, and what to do."""
    if not history:
        return f"{run.folder} has no finished epoch yet: adagc train --resume continues it"
    if any(line.oracle is not None and line.oracle.validation for line in history):
        return (
            f"{run.folder} was trained by a version of adagc that kept no scores per class: train"
            " it again"
        )
    if not run.settings.oracle:
        return f"{run.folder} was trained with --oracle false: train it again with --oracle true"
    return (
        f"{run.folder} knows no clean labels of its validation images: train it again with"
        " --truth FILE"
    )


def _pick(names: Iterable[str], chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(name for name, yes in zip(names, chosen, strict=True) if yes)


def _mean(values: Floats) -> Floats:
    """Over the classes, NaN without any."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    return np.asarray(values.mean(axis=1))


def _rms(apart: Floats) -> float:
    return float(np.sqrt(np.mean(apart**2)))


def _plain(value: Any) -> Any:
    """JSON-ready with six digits, NaN as None."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | list):
        return [_plain(inner) for inner in value]
    return None if value != value else round(float(value), 6)
