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
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from adagc.errors import AdagcError, UsageError
from adagc.training.runs import Run

if TYPE_CHECKING:
    from rich.table import Table

Floats = NDArray[np.float64]
_ROWS = 6  # epochs that the table shows beside the peaks and the trigger
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
        """Up to the trigger: from there on training is another one, of which no theorem speaks."""
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
            "found": self.sentence(),
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

    def table(self) -> Table:
        """For the terminal, in per cent: some epochs, the peaks and the trigger among them."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self._headline()), caption=Text(self._caption()))
        table.box, table.title_justify, table.caption_justify = box.SIMPLE_HEAD, "left", "left"
        table.pad_edge, table.collapse_padding = False, True
        table.add_column("\nEpoch", no_wrap=True)
        # Headings in two lines, one decimal: all of it fits into 80 columns.
        said = ("Prop.\n1", "no\nCov", "Prop.\n2", "no\nCov")
        for heading in ("clean\nmAP*", "noisy\nmAP", *said, "mean\nα", "mean\nRec*", "\nnearer"):
            table.add_column(heading, justify="right", no_wrap=True)
        one, two = self.propositions
        columns = (self.clean, self.noisy, one.full, one.plain, two.full, two.plain)
        for i in self._shown():
            values = [*columns, self.mean_alpha, self.mean_recall]
            cells = [_per_cent(float(column[i])) for column in values]
            table.add_row(self._named(i), *cells, str(self.nearer[i] or "–"))
        table.add_section()
        found = [self.errors(1), self.errors(2)]
        maps = [e[key] for e in found for key in ("with_covariance", "without_covariance")]
        table.add_row("error of mAP", "", "", *(_per_cent(value) for value in maps))
        first, second = (_per_cent(e["all_classes"]) for e in found)
        table.add_row("error of AP_c", "", "", first, "", second)
        return table

    def _headline(self) -> str:
        labels = "" if self.scheme is None else f", {self.scheme} labels"
        return f"{self.title}, {self.network}{labels}: mean β {self.beta.mean():.3f}"

    def _caption(self) -> str:
        notes = ["Errors: root mean square over epochs. α and Rec* at threshold 0.5."]
        if self.trigger is not None:
            notes.append("* is the trigger.")
        if self.allowance >= 0.005:
            low = f"{100 * self.allowance:.1f}"
            notes.append(f"So few images make Proposition 1 up to {low} too low for random flips.")
        if max(said.full.max() for said in self.propositions) > 1:
            notes.append("Proposition 2 is an upper bound and may exceed 100.")
        if self.left_out:
            total = len(self.classes) + len(self.left_out)
            notes.append(
                f"Over {len(self.classes)} of {total} classes; no observed true positive in the"
                f" validation images: {'; '.join(self.left_out)}."
            )
        if self.wrong:
            what = "positive is" if self.wrong == 1 else "positives are"
            notes.append(f"{self.wrong} observed {what} wrong; the propositions foresee none.")
        return " ".join(notes)

    def _shown(self) -> list[int]:
        """Rows of the table."""
        spread = np.linspace(0, len(self.epochs) - 1, _ROWS).round().astype(int).tolist()
        marks = {self.peaks.noisy, self.peaks.clean, self.trigger}
        return sorted({*spread, *(i for i, epoch in enumerate(self.epochs) if epoch in marks)})

    def _named(self, i: int) -> str:
        epoch, peaks = self.epochs[i], self.peaks
        both = {
            (True, True): " both peaks",
            (True, False): " noisy peak",
            (False, True): " clean peak",
        }
        mark = "*" if epoch == self.trigger else ""
        return f"{epoch}{mark}{both.get((epoch == peaks.noisy, epoch == peaks.clean), '')}"

    def sentence(self) -> str:
        """What was found, in two sentences."""
        return f"{self._fit()} {self._theorem()}"

    def _fit(self) -> str:
        if set(self.nearer) == {None}:
            return "No validation label is missing: both propositions say that noisy is clean."
        first, second = (100 * self.errors(number)["with_covariance"] for number in (1, 2))
        where = {
            number: [e for e, near in zip(self.epochs, self.nearer, strict=True) if near == number]
            for number in (1, 2)
        }
        better = 1 if len(where[1]) >= len(where[2]) else 2
        total, below = len(self.epochs), int((self.noisy < self.clean).sum())
        share = f"{'all ' if len(where[better]) == total else ''}{len(where[better])}"
        if where[3 - better]:
            share += f" (Proposition {3 - better} in {_spans(where[3 - better])})"
        return (
            f"The noisy mAP lies below the clean one in {below} of {total} epochs, and Proposition"
            f" {better} is nearer to it in {share}: the root-mean-square error is {first:.1f}"
            f" points for Proposition 1 and {second:.1f} for Proposition 2."
        )

    def _theorem(self) -> str:
        peaks = self.peaks
        begin = (
            "The" if self.trigger is None else f"Up to the trigger after epoch {self.trigger}, the"
        )
        if peaks.distance == 0:
            return f"{begin} noisy and the clean mAP both peak in {_when(peaks.noisy, peaks.last)}."
        late = "late" if peaks.distance > 0 else "early"
        return (
            f"{begin} noisy mAP peaks in {_when(peaks.noisy, peaks.last)} and the clean mAP in"
            f" {_when(peaks.clean, peaks.last)}: stopping at the noisy peak is"
            f" {abs(peaks.distance)} {_plural('epoch', abs(peaks.distance))} {late} and costs"
            f" {100 * peaks.lost:.2f} points of clean mAP."
        )


def measure(run: Run | Path | str, network: str | None = None) -> Theory:
    """Hold the propositions against the record of a run.

    Args:
        run: A run, finished or not, whose oracle saw clean labels of validation images.
        network: Which of its networks; the teacher where there is one by default.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    history = run.history
    lines = [line for line in history if "classes" in line.get("oracle", {})]
    if not lines:
        raise AdagcError(_nothing(run, history))
    there = lines[-1]["oracle"]["classes"]
    network = network or ("teacher" if "teacher" in there else "network")
    if network not in there:
        raise UsageError(f"{run.folder} has no network {network!r}: choose {' or '.join(there)}")
    labels = run.read_json("labels.json")
    counts = {key: np.array(value) for key, value in lines[-1]["oracle"]["labels"].items()}
    judged = counts["true"] > counts["flipped"]
    if not judged.any():
        raise AdagcError(
            f"no class has an observed positive among {run.folder}'s validation images with known"
            " truth: train with more validation images (--split)"
        )

    def stacked(key: str) -> Floats:
        rows = [line["oracle"]["classes"][network][key] for line in lines]
        return np.array(rows, dtype=np.float64)[:, judged]  # None becomes NaN

    own = run.config.get("method")
    return Theory(
        title=str(own["title"] if isinstance(own, Mapping) else own),
        scheme=labels.get("scheme"),
        network=network,
        classes=_pick(labels["classes"], judged),
        left_out=_pick(labels["classes"], ~judged),
        support=counts["true"][judged],
        beta=counts["flipped"][judged] / counts["true"][judged],
        wrong=int(counts["wrong"].sum()),
        epochs=tuple(int(line["epoch"]) for line in lines),
        trigger=history[-1].get("status", {}).get("triggered_after"),
        clean_ap=stacked("clean_ap"),
        noisy_ap=stacked("noisy_ap"),
        alpha=stacked("alpha"),
        recall=stacked("recall"),
    )


def _nothing(run: Run, history: Sequence[Mapping[str, Any]]) -> str:
    """Why there is nothing to measure, and what to do."""
    if not history:
        return f"{run.folder} has no finished epoch yet: adagc train --resume continues it"
    if any("validation" in line.get("oracle", {}) for line in history):
        return (
            f"{run.folder} was trained by a version of adagc that kept no scores per class: train"
            " it again"
        )
    if not run.config.get("oracle", True):
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


def _per_cent(value: float) -> str:
    return "–" if value != value else f"{100 * value:.1f}"


def _when(epoch: int, last: int) -> str:
    """A peak at the end may be none."""
    return f"epoch {epoch}{', the last one' if epoch == last else ''}"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _spans(epochs: Sequence[int]) -> str:
    """Epochs in words: as spans while they are few, else as a number.

    >>> _spans([1, 2, 3, 7]), _spans([4])
    ('epochs 1-3, 7', 'epoch 4')
    """
    spans: list[list[int]] = []
    for epoch in epochs:
        if spans and epoch == spans[-1][-1] + 1:
            spans[-1].append(epoch)
        else:
            spans.append([epoch])
    if len(spans) > 3:
        return f"{len(epochs)}"
    told = ", ".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)
    return f"{_plural('epoch', len(epochs))} {told}"
