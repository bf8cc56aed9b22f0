"""Statistics of labels: flip rates (missing labels), labels per image, co-occurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adagc.labels.checks import positives

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, eq=False)
class FlipRates:
    """How many true labels are missing from observed ones (Tables I and II of the paper)."""

    beta: NDArray[np.float64]  # (C,) share of the true labels not observed; NaN without support
    support: NDArray[np.int64]  # (C,) number of images that truly contain the class
    micro: float  # share of all true labels that were not observed, NaN if there are none
    macro: float  # mean of `beta` over the classes with support, NaN if there are none
    observed: int  # number of observed labels
    wrong: int  # number of observed labels that are not true, which simulated labels never are
    cardinality: NDArray[np.int64]  # (C + 1,) images with 0, 1, 2, ... true classes

    @property
    def mean_cardinality(self) -> float:
        """Average number of true classes of an image, NaN if there are no images."""
        images = int(self.cardinality.sum())
        total = int(self.cardinality @ np.arange(self.cardinality.size))
        return total / images if images else float("nan")

    @property
    def wrong_share(self) -> float:
        """Share of the observed positives that are wrong (0 if nothing was observed)."""
        return self.wrong / self.observed if self.observed else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The rates as values that `json` can write, with None in place of NaN."""
        return {
            "beta": [_plain(value) for value in self.beta.tolist()],
            "support": self.support.tolist(),
            "micro": _plain(self.micro),
            "macro": _plain(self.macro),
            "observed": self.observed,
            "wrong": self.wrong,
            "wrong_share": self.wrong_share,
            "mean_cardinality": _plain(self.mean_cardinality),
            "cardinality": self.cardinality.tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FlipRates:
        """The inverse of `to_dict`."""

        def rate(value: float | None) -> float:
            return float("nan") if value is None else float(value)

        return cls(
            beta=np.array([rate(value) for value in values["beta"]], np.float64),
            support=np.array(values["support"], np.int64),
            micro=rate(values["micro"]),
            macro=rate(values["macro"]),
            observed=int(values["observed"]),
            wrong=int(values["wrong"]),
            cardinality=np.array(values["cardinality"], np.int64),
        )

    def table(
        self, classes: Sequence[str], *, scheme: str = "", paper: FlipRates | None = None
    ) -> Table:
        """The rates as a table for the terminal, in the form of the paper's Table I.

        Args:
            classes: Names of the classes, in the order of `beta`.
            scheme: Text in the header of the column of rates, such as "Random" or "Manual".
            paper: Rates that a paper prints for the same classes, to stand beside these.
        """
        from rich.table import Table
        from rich.text import Text  # prints a "[" in a name instead of reading it as markup

        if len(classes) != len(self.beta):
            raise ValueError(f"{len(classes)} names for {len(self.beta)} classes")
        table = Table()
        table.add_column("Class")
        table.add_column(f"{scheme} β_c".strip(), justify="right")
        table.add_column("Support", justify="right")
        if paper is not None:
            table.add_column("the paper's", justify="right")
            table.add_column("Support", justify="right")
        for number, name in enumerate(classes):
            cells = [
                cell
                for own in (self, *([] if paper is None else [paper]))
                for cell in (_rate(own.beta[number]), f"{own.support[number]:,}")
            ]
            table.add_row(Text(name), *cells)
        table.add_section()
        for title, which in (("Micro average", "micro"), ("Macro average", "macro")):
            beside = [] if paper is None else [_rate(getattr(paper, which)), "–"]
            table.add_row(title, _rate(getattr(self, which)), "–", *beside)
        table.add_section()
        if self.wrong:
            table.add_row("Wrong positives", f"{self.wrong_share:.2f}", f"{self.wrong:,}")
        mean = self.mean_cardinality
        table.add_row("True labels per image", "", "–" if mean != mean else f"{mean:.1f}")
        return table


def flip_rates(truth: ArrayLike, observed: ArrayLike) -> FlipRates:
    """Compute which share of the true labels was not observed, for each class and over all.

    Example:
        >>> from adagc import flip_rates
        >>> rates = flip_rates(truth=[[1, 1, 0], [1, 0, 1]], observed=[[1, 0, 0], [0, 0, 1]])
        >>> rates.micro, rates.beta  # half of all true labels are missing
        (0.5, array([0.5, 1. , 0. ]))

    Args:
        truth: (N, C) complete labels, boolean or 0 and 1.
        observed: (N, C) observed labels, of which only +1 counts.
    """
    true, named = positives(truth, "truth"), positives(observed, "observed")
    if true.shape != named.shape:
        raise ValueError(f"truth has the shape {true.shape}, observed has {named.shape}")
    support = true.sum(axis=0, dtype=np.int64)
    missed = (true & ~named).sum(axis=0, dtype=np.int64)
    beta = _divide(missed, support)
    supported = support > 0
    nan = float("nan")
    return FlipRates(
        beta=beta,
        support=support,
        micro=float(missed.sum() / support.sum()) if supported.any() else nan,
        macro=float(beta[supported].mean()) if supported.any() else nan,
        observed=int(named.sum()),
        wrong=int((named & ~true).sum()),
        cardinality=np.bincount(true.sum(axis=1), minlength=true.shape[1] + 1),
    )


def cooccurrence(truth: ArrayLike) -> NDArray[np.float64]:
    """Share of the images of class i (row) that also contain class j (column), (C, C).

    The row of a class that no image contains is NaN.
    """
    present = positives(truth, "truth").astype(np.float64)
    together = present.T @ present
    return _divide(together, together.diagonal()[:, None])


def _divide(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """Divide element by element, with NaN (and no warning) where the whole is 0."""
    out = np.full(part.shape, np.nan)
    np.divide(part, whole, out=out, where=whole > 0)
    return out


def _plain(value: float) -> float | None:
    return None if value != value else value


def _rate(value: float) -> str:
    return "–" if value != value else f"{value:.2f}"
