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
