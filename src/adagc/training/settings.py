"""How to train; nothing here loads torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adagc.errors import check_range


@dataclass(frozen=True)
class Settings:
    """How to train; the same for every method that is to be compared.

    Args:
        epochs: Passes over the training images.
        batch_size: Images per optimiser step.
        learning_rate: Of Adam.
        weight_decay: Of Adam.
        schedule: Learning rate over the run: constant, or a half cosine down to zero.
        augment: Random mirroring and quarter turns, or none.
        clip: Largest norm of the gradient; none by default.
        precision: "auto" uses bfloat16 on GPUs that have it and float32 elsewhere.
        average: Momentum of an averaged copy of the network that is scored beside it; none by
            default. Any method can have one, which keeps comparisons with teachers fair.
        seed: Of weights, order and augmentation.
        accelerator: Where to compute.
    """

    epochs: int = 40
    batch_size: int = 32
    learning_rate: float = 5e-4
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    augment: Literal["dihedral", "none"] = "dihedral"
    clip: float | None = None
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    average: float | None = None
    seed: int = 0
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"

    def __post_init__(self) -> None:
        check_range("epochs", self.epochs, 1)
        check_range("batch_size", self.batch_size, 2)  # batch normalisation needs a variance
        check_range("learning_rate", self.learning_rate, 0)
        check_range("weight_decay", self.weight_decay, 0)
        check_range("clip", self.clip, 1e-12)
        check_range("average", self.average, 0, 1, below=True)
        check_range("seed", self.seed, 0)
