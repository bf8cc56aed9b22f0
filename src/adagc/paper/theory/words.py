"""The result of a theory check as a table for the terminal and as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rich.table import Table

    from adagc.paper.theory.measure import Theory

_ROWS = 6  # evenly spaced epochs that the table shows, in addition to the peaks and the trigger


def table(theory: Theory) -> Table:
    """A table for the terminal, in per cent: some epochs, with the peaks and the trigger."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text(_headline(theory)), caption=Text(_caption(theory)))
    shown.box, shown.title_justify, shown.caption_justify = box.SIMPLE_HEAD, "left", "left"
    shown.pad_edge, shown.collapse_padding = False, True
    shown.add_column("\nEpoch", no_wrap=True)
    # Headings have two lines and values one decimal, so that the table fits into 80 columns.
    predicted = ("Prop.\n1", "no\nCov", "Prop.\n2", "no\nCov")
    for heading in ("clean\nmAP", "noisy\nmAP", *predicted, "mean\nα", "clean\nrecall", "\nnearer"):
        shown.add_column(heading, justify="right", no_wrap=True)
    one, two = theory.propositions
    columns = [theory.clean, theory.noisy, one.full, one.plain, two.full, two.plain]
    columns += [theory.mean_alpha, theory.mean_recall]
    for i in _rows(theory):
        cells = [_per_cent(float(column[i])) for column in columns]
        shown.add_row(_named(theory, i), *cells, str(theory.nearer[i] or "–"))
    shown.add_section()
    errors = [theory.errors(1), theory.errors(2)]
    maps = [own[key] for own in errors for key in ("with_covariance", "without_covariance")]
    shown.add_row("error of mAP", "", "", *(_per_cent(value) for value in maps))
    first, second = (_per_cent(own["all_classes"]) for own in errors)
    shown.add_row("error of AP_c", "", "", first, "", second)
    return shown


def _headline(theory: Theory) -> str:
    labels = "" if theory.scheme is None else f", {theory.scheme} labels"
    return f"{theory.title}, {theory.network}{labels}: mean β {theory.beta.mean():.3f}"


def _caption(theory: Theory) -> str:
    notes = [
        "β: share of a class's true positives that were not observed. α: share of those that are"
        " predicted; α and the recall are at threshold 0.5. no Cov: without the covariance of β"
        " and clean AP. nearer: the proposition that is nearer to the noisy mAP. Errors: root mean"
        " square over epochs."
    ]
    if theory.trigger in theory.epochs:
        notes.insert(0, "▸: calibration starts after this epoch.")
    if theory.allowance >= 0.005:
        low = f"{100 * theory.allowance:.1f}"
        notes.append(
            f"With so few images, Proposition 1 can be up to {low} too low even for random flips."
        )
    if max(predicted.full.max() for predicted in theory.propositions) > 1:
        notes.append("Proposition 2 is an upper bound and may exceed 100.")
    if theory.left_out:
        total = len(theory.classes) + len(theory.left_out)
        notes.append(
            f"Over {len(theory.classes)} of {total} classes. Left out, because no true positive was"
            f" observed in the validation images: {'; '.join(theory.left_out)}."
        )
    if theory.wrong:
        what = "positive is" if theory.wrong == 1 else "positives are"
        notes.append(f"{theory.wrong} observed {what} wrong; the propositions assume none.")
    return " ".join(notes)


def _rows(theory: Theory) -> list[int]:
    """Indices of the epochs that are shown."""
    spread = np.linspace(0, len(theory.epochs) - 1, _ROWS).round().astype(int).tolist()
    marks = {theory.peaks.noisy, theory.peaks.clean, theory.trigger}
    return sorted({*spread, *(i for i, epoch in enumerate(theory.epochs) if epoch in marks)})


def _named(theory: Theory, i: int) -> str:
    epoch, peaks = theory.epochs[i], theory.peaks
    peak = {
        (True, True): " both peaks",
        (True, False): " noisy peak",
        (False, True): " clean peak",
        (False, False): "",
    }[epoch == peaks.noisy, epoch == peaks.clean]
    return f"{'▸' if epoch == theory.trigger else ''}{epoch}{peak}"


def sentence(theory: Theory) -> str:
    """The result in words: how well the propositions fit, and where the peaks are (Theorem 1)."""
    return f"{_fit(theory)} {_theorem(theory)}"


def _fit(theory: Theory) -> str:
    if not theory.beta.any():
        which = "validation label of these classes" if theory.left_out else "validation label"
        return f"No {which} is missing: both propositions predict that noisy and clean mAP agree."
    first, second = (100 * theory.errors(number)["with_covariance"] for number in (1, 2))
    pairs = list(zip(theory.epochs, theory.nearer, strict=True))
    where = {number: [epoch for epoch, near in pairs if near == number] for number in (1, 2)}
    better = 1 if len(where[1]) >= len(where[2]) else 2
    total, below = len(theory.epochs), int((theory.noisy < theory.clean).sum())
    share = f"{'all ' if len(where[better]) == total else ''}{len(where[better])}"
    if where[3 - better]:
        share += f" (Proposition {3 - better} in {_spans(where[3 - better])})"
    return (
        f"The noisy mAP lies below the clean one in {below} of {total} epochs, and Proposition"
        f" {better} is nearer to it in {share}: the root-mean-square error is {first:.1f}"
        f" points for Proposition 1 and {second:.1f} for Proposition 2."
    )


def _theorem(theory: Theory) -> str:
    peaks = theory.peaks
    begin, end = f"Over all {peaks.last} epochs, the", ""
    if not peaks.whole:
        side = "Up to" if peaks.last <= (theory.trigger or 0) else "Beyond"
        begin = f"{side} the trigger after epoch {theory.trigger}, the"
        end = (
            " This does not test Theorem 1, because a later clean peak of training on noisy labels"
            " alone cannot be seen here: check a run of AN that has an average."
        )
    if peaks.distance == 0:
        at = _when(peaks.noisy, peaks.last)
        return f"{begin} noisy and the clean mAP both peak in {at}.{end}"
    late = "late" if peaks.distance > 0 else "early"
    return (
        f"{begin} noisy mAP peaks in {_when(peaks.noisy, peaks.last)} and the clean mAP in"
        f" {_when(peaks.clean, peaks.last)}: stopping at the noisy peak is"
        f" {abs(peaks.distance)} {_epochs(abs(peaks.distance))} {late} and costs"
        f" {100 * peaks.lost:.2f} points of clean mAP.{end}"
    )


def _per_cent(value: float) -> str:
    return "–" if value != value else f"{100 * value:.1f}"


def _when(epoch: int, last: int) -> str:
    """The epoch of a peak; says if it is the last one, where the mAP may still be rising."""
    return f"epoch {epoch}{', the last one' if epoch == last else ''}"


def _epochs(count: int) -> str:
    return "epoch" if count == 1 else "epochs"


def _spans(epochs: Sequence[int]) -> str:
    """Epochs in words: their spans if there are at most three, else how many epochs there are.

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
    listed = ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
    return f"{_epochs(len(epochs))} {listed}"
