"""Compares the noisy mAP that the paper's propositions predict with the measured one.

AP*_c is the average precision of class c on clean labels, AP_c that on observed (noisy) labels. A
share β_c of the true positives of class c was not observed; these positives are called flipped.
α_c is the share of the flipped positives that the network predicts, Rec*_c its recall on clean
labels. Both propositions say that AP_c = w_c AP*_c, under different assumptions:

    Proposition 1   w_c = 1 - β_c          flips are spread over the whole ranking, α_c = Rec*_c
    Proposition 2   w_c = 1 / (1 - β_c)    flipped positives are never predicted, α_c = 0

From either, the mean over classes follows exactly:

    mAP = mean(w) mAP* + Cov(w, AP*)       which for w = 1 - β is (1 - mean β) mAP* - Cov(β, AP*)

Leaving out the covariance is a further assumption: that classes with many flips are neither harder
nor easier than the others. That mAP lies below mAP* in Proposition 1 and above it in Proposition 2
follows from w_c <= 1 and w_c >= 1 alone. The negative covariance that the paper mentions works
against both inequalities, but cannot reverse them.

How far a ranking of finitely many images can be from these predictions is known exactly (the tests
verify both cases). There are P true positives, K of them observed, and no wrong labels:

    For any flips, AP_c <= AP*_c / (1 - β_c), so Proposition 2 can only be too high. If all flipped
    positives rank below all observed ones, it is too high by exactly the sum of the clean
    precisions at the flipped positives, divided by K. This is little if they are at the very end
    of a long ranking, but never 0. The predicted value may exceed 1.

    For flips drawn with equal chances, E[AP_c] = q AP*_c + (1 - q) mean(1 / rank), with the mean
    over true positives and q = (K - 1) / (P - 1). So Proposition 1 is too low, by up to
    β_c (H_P - 1) / (P - 1) with the harmonic number H_P. This is next to nothing for thousands of
    positives, but much for ten. Random single positives are such flips only if the scores of a
    class do not depend on how many other classes an image has, because one of an image's k classes
    is kept with probability 1 / k. But a network trained on such labels learns this probability:
    it ranks images with few classes higher, and AP_c is higher than predicted.
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
from adagc.suggest import hint_or_list
from adagc.training.records import EpochRecord
from adagc.training.runs import Run
from adagc.types import NetworkRole, with_role

Floats = NDArray[np.float64]
_LEVEL = 1e-9  # predictions closer than this count as equal


@dataclass(frozen=True, eq=False)
class Proposition:
    """The noisy average precision that a proposition predicts from the clean one, for E epochs."""

    weights: Floats  # (C,) w
    classes: Floats  # (E, C) w_c AP*_c
    plain: Floats  # (E,) mean(w) mAP*
    covariance: Floats  # (E,) Cov(w, AP*)

    @property
    def full(self) -> Floats:
        """(E,) the predicted noisy mAP with the covariance, as in the paper."""
        return self.plain + self.covariance


def propose(number: Literal[1, 2], beta: Floats, clean_ap: Floats) -> Proposition:
    """What a proposition predicts from (C,) flip rates and (E, C) clean average precisions."""
    weights = 1 - beta if number == 1 else 1 / (1 - beta)
    means = clean_ap.mean(axis=1)
    products = (weights - weights.mean()) * (clean_ap - means[:, None])
    return Proposition(
        weights=weights,
        classes=weights * clean_ap,
        plain=weights.mean() * means,
        covariance=products.mean(axis=1),
    )


@dataclass(frozen=True)
class Peaks:
    """Epochs with the highest noisy and clean mAP, up to the same last epoch.

    Theorem 1 says that they coincide while a network is trained on noisy labels alone. Only a run
    that is trained so to its end (`whole`), such as one of AN, can show a late clean peak. In a run
    with a trigger the window ends soon after the noisy peak, because that sets off the trigger.
    """

    noisy: int  # epoch with the highest noisy mAP
    clean: int  # epoch with the highest clean mAP
    last: int  # last epoch that was considered
    lost: float  # clean mAP at its peak minus clean mAP at the noisy peak
    whole: bool  # whether all epochs of the run were considered, and none trains otherwise

    @property
    def distance(self) -> int:
        """Number of epochs from the clean peak to the noisy one; negative if that is earlier."""
        return self.noisy - self.clean

    def to_dict(self) -> dict[str, Any]:
        """The peaks as a dictionary that can be written as JSON."""
        return {**asdict(self), "lost": _plain(self.lost), "distance": self.distance}


@dataclass(frozen=True, eq=False)
class Theory:
    """One network of one run, measured on the validation images whose clean labels are known.

    All means are taken over the classes of which at least one true positive was observed. The
    others have no noisy average precision, and with β_c = 1 Proposition 2 has no value. So the
    clean mAP here can differ from that of the report, which includes all classes.
    """

    title: str  # of the method
    scheme: str | None  # how the observed labels were drawn from clean ones, if they were
    network: str  # name of the network
    classes: tuple[str, ...]
    left_out: tuple[str, ...]  # classes without an observed true positive
    support: NDArray[np.int64]  # (C,) number of true positives
    beta: Floats  # (C,) share of the true positives that was not observed
    wrong: int  # number of wrong observed positives; the propositions assume that there are none
    epochs: tuple[int, ...]  # the E epochs at which clean labels were compared
    trigger: int | None  # epoch after which the method began to correct labels; None: never
    clean_ap: Floats  # (E, C) AP*, on clean labels
    noisy_ap: Floats  # (E, C) AP, on observed labels
    alpha: Floats  # (E, C) α at threshold 0.5, NaN for classes without flipped positives
    recall: Floats  # (E, C) Rec* at threshold 0.5, on clean labels

    @cached_property
    def clean(self) -> Floats:
        """(E,) mAP*, on clean labels."""
        return np.asarray(self.clean_ap.mean(axis=1))

    @cached_property
    def noisy(self) -> Floats:
        """(E,) mAP, on observed labels."""
        return np.asarray(self.noisy_ap.mean(axis=1))

    @cached_property
    def propositions(self) -> tuple[Proposition, Proposition]:
        """What Propositions 1 and 2 predict."""
        return propose(1, self.beta, self.clean_ap), propose(2, self.beta, self.clean_ap)

    @cached_property
    def allowance(self) -> float:
        """How much too low Proposition 1 can be because there are few images, mean over classes."""
        harmonic = np.array([np.sum(1 / np.arange(1, count + 1)) for count in self.support])
        return float(np.mean(self.beta * (harmonic - 1) / np.maximum(self.support - 1, 1)))

    @cached_property
    def mean_alpha(self) -> Floats:
        """(E,) mean of α over the classes that have flipped positives; NaN if none has."""
        return _mean(self.alpha[:, self.beta > 0])

    @cached_property
    def mean_recall(self) -> Floats:
        """(E,) mean recall over the same classes as `mean_alpha`."""
        return _mean(self.recall[:, self.beta > 0])

    @cached_property
    def nearer(self) -> tuple[int | None, ...]:
        """For each epoch the proposition whose mAP is nearer to the noisy one; None if equal."""
        first, second = (np.abs(predicted.full - self.noisy) for predicted in self.propositions)
        return tuple(
            None if abs(one - two) < _LEVEL else 1 if one < two else 2
            for one, two in zip(first.tolist(), second.tolist(), strict=True)
        )

    @cached_property
    def peaks(self) -> Peaks:
        """The peaks of the whole run, or up to the trigger, after which another loss is trained.

        If no epoch up to the trigger was compared with clean labels, the peaks of all epochs.
        """
        among = [i for i, epoch in enumerate(self.epochs) if epoch <= (self.trigger or epoch)]
        among = among or list(range(len(self.epochs)))
        clean, noisy = self.clean[among], self.noisy[among]
        at, top = int(noisy.argmax()), int(clean.argmax())
        epochs = [self.epochs[i] for i in among]
        lost = float(clean[top] - clean[at])
        return Peaks(epochs[at], epochs[top], epochs[-1], lost, whole=self.trigger is None)

    def errors(self, number: Literal[1, 2]) -> dict[str, Any]:
        """Root-mean-square errors of a proposition over epochs.

        They are given for the mAP with and without covariance, and for the AP of the classes.
        """
        predicted = self.propositions[number - 1]
        differences = predicted.classes - self.noisy_ap
        return {
            "with_covariance": _rms(predicted.full - self.noisy),
            "without_covariance": _rms(predicted.plain - self.noisy),
            "all_classes": _rms(differences),
            "per_class": [_rms(column) for column in differences.T],
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything measured and predicted, as a dictionary for JSON; NaN becomes None."""
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
                "with_covariance": _plain(proposition.full[i]),
                "without_covariance": _plain(proposition.plain[i]),
            }
            for number, proposition in enumerate(self.propositions, start=1)
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
    """Compare the propositions with the history of a run.

    Args:
        run: A run, or its folder, finished or not, that was trained with --oracle and knows clean
            labels of its validation images.
        network: Name of the network to measure; by default the teacher, whose noisy mAP AdaGC
            watches, or else the average, which a teacher is before its trigger, or else the
            deployed network.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    history = run.history
    lines = [line for line in history if line.oracle is not None and line.oracle.classes]
    if not lines:
        raise AdagcError(_nothing(run, history))
    oracles = [line.oracle for line in lines if line.oracle is not None]
    last, networks = lines[-1], oracles[-1].classes
    if network is None:
        smooth = (with_role(last.roles, r) for r in (NetworkRole.TEACHER, NetworkRole.AVERAGE))
        network = next((name for name in smooth if name in networks), None) or last.deployed
    if network not in networks:
        near = hint_or_list(network, networks, "networks")
        raise UsageError(f"{run.folder} has no network {network!r}{near}")
    labels, counts = run.labels, oracles[-1].labels
    if labels is None or counts is None:
        raise AdagcError(f"{run.folder} has no summary of its labels: train it again")
    true, flipped = np.array(counts.true), np.array(counts.flipped)
    judged = true > flipped
    if not judged.any():
        raise AdagcError(
            f"no class has an observed positive among the validation images of {run.folder} with"
            " known clean labels: train with more validation images (--split)"
        )

    records = [oracle.classes[network] for oracle in oracles]

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
        clean_ap=stacked(record.clean_ap for record in records),
        noisy_ap=stacked(record.noisy_ap for record in records),
        alpha=stacked(record.alpha for record in records),
        recall=stacked(record.recall for record in records),
    )


def _nothing(run: Run, history: Sequence[EpochRecord]) -> str:
    """The error message if there is nothing to measure: the reason, and what to do."""
    if not history:
        return f"{run.folder} has no finished epoch yet: continue it with adagc train --resume"
    if any(line.oracle is not None and line.oracle.validation for line in history):
        return (
            f"{run.folder} was trained by a version of adagc that did not record scores per class:"
            " train it again"
        )
    if not run.settings.oracle:
        return f"{run.folder} was trained with --oracle false: train it again with --oracle true"
    return (
        f"{run.folder} has no clean labels of its validation images: train it again with"
        " --truth FILE"
    )


def _pick(names: Iterable[str], chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(name for name, yes in zip(names, chosen, strict=True) if yes)


def _mean(values: Floats) -> Floats:
    """The mean over classes; NaN if there are none."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    return np.asarray(values.mean(axis=1))


def _rms(differences: Floats) -> float:
    return float(np.sqrt(np.mean(differences**2)))


def _plain(value: Any) -> Any:
    """The value as JSON can hold it: numbers with six decimals, NaN as None."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | list):
        return [_plain(inner) for inner in value]
    return None if value != value else round(float(value), 6)
