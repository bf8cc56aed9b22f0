"""BoostLU: the large losses of LL-Ct, computed on boosted class activation maps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from adagc.methods.large_loss import LargeLossTemporary
from adagc.models.spec import HeadSpec


class BoostLU(LargeLossTemporary):
    """Boost positive activations, then correct large losses.

    Boost positive values of the class activation maps, then correct large losses per step.

    z = mean over positions of f(M),   f(m) = α m if m > 0 else m
    M = the class activation maps: the last layer at every position of the feature map
    L = LL-Ct on z: the k largest losses of the batch's unobserved entries become ℓ⁺
    k = ⌈BC (t - 1) Δ⌉ in epoch t of T,   Δ = final / (T - 1)

    Missing labels leave the maps in the right places but with too small values; the boost makes up
    for that. It is part of the network, in training from the first step and at test time. α = 1 is
    plain LL-Ct.

    Args:
        boost: Factor by which positive activations of the class maps are multiplied (the paper's
            α); 1 changes nothing.
        final: Share of all entries (images x classes) that is corrected in the last epoch, however
            many epochs there are. The right value is the share of labels that are missing, (labels
            per image - 1) / classes, which follows from --priors by default. With --priors
            published it is 0.1, a round number among those that the released code reaches in 10
            to 70 epochs.
        delta: Percentage of all entries by which the corrected share grows every epoch; replaces
            `final`. The paper uses 0.2, for ten epochs.
        largest: Upper limit of the corrected share of entries, from 0 to 1; no limit by default.
    """

    title: ClassVar[str] = "BoostLU + LL-Ct"
    paper: ClassVar[str] = (
        "Kim et al., Bridging the Gap between Model Explanations in Partially Annotated"
        " Multi-label Classification, CVPR 2023"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"feature_map"})
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "boost": (2.0, 5.0, 10.0),
        **LargeLossTemporary.grid,
    }
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "boost": (1, math.inf),
        **LargeLossTemporary.ranges,
    }

    def __init__(
        self,
        *,
        boost: float = 5.0,
        final: float | None = None,
        delta: float | None = None,
        largest: float | None = None,
    ) -> None:
        super().__init__(final=final, delta=delta, largest=largest)
        self.boost = boost

    def head(self) -> HeadSpec:
        """A last layer that multiplies positive activations by `boost` before it averages them."""
        return HeadSpec("class-map", boost=self.boost)
