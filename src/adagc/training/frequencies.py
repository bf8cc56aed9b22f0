"""How frequent classes are in the images of a run, estimated from its validation images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from adagc.errors import AdagcError
from adagc.priors import Priors, estimate
from adagc.training import held_out
from adagc.training.runs import Run

_DOMINANT = (
    "The labels were simulated as those of dominant classes: classes that seldom dominate leave"
    " hardly a trace, so it cannot be known how frequent they are."
)


@dataclass(frozen=True)
class Frequencies:
    """The estimate for a run, and what it is made from."""

    run: Run
    classes: tuple[str, ...]
    priors: Priors
    network: str
    images: int
    observed: tuple[float, ...]  # share of validation images with each class as their label

    @property
    def sentence(self) -> str:
        """The number of labels per image, in words."""
        low, high = self.priors.interval
        if not self.priors.trusted:
            return f"How many labels the images have cannot be told. {self.priors.reason}"
        return (
            f"The images show about {self.priors.cardinality:.1f} labels each"
            f" (95 % interval {low:.1f} to {high:.1f}), judging by {self.images:,} validation"
            " images."
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "source": "estimated",
            "run": str(self.run),
            "network": self.network,
            "images": self.images,
            "classes": list(self.classes),
            "observed": list(self.observed),
            **self.priors.to_dict(),
        }


def judged(priors: Priors, scheme: str | None) -> Priors:
    """The estimate, not trusted if labels are known to be those of dominant classes."""
    if scheme != "dominant":
        return priors
    return replace(priors, trusted=False, reason=_DOMINANT)


def frequencies(run: Run) -> Frequencies:
    """Estimate them from the average of the network after its best noisy epoch.

    Raises AdagcError if the run has no such predictions.
    """
    held, labels = held_out.load(run), run.labels
    if labels is None or len(labels.classes) != held.observed.shape[1]:
        raise AdagcError(
            f"{run}/labels.json does not name the classes of this run: copy the run folder again"
        )
    priors = judged(estimate(held.probabilities, held.observed), labels.scheme)
    seen = (held.observed > 0).mean(axis=0).tolist()
    return Frequencies(run, labels.classes, priors, held.network, len(held.observed), tuple(seen))
