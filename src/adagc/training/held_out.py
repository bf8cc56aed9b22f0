"""What a run keeps of its validation images: predictions and observed labels.

Frequencies of classes and thresholds are learnt from them. They are small and need no images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import AdagcError
from adagc.priors import Rule, thresholds
from adagc.training.folders import Folder
from adagc.training.records import Choice
from adagc.training.runs import Run
from adagc.training.views import VIEWS, View


@dataclass(frozen=True)
class HeldOut:
    """Predictions of a network for the validation images, and their observed labels."""

    network: str
    choice: Choice  # after the last epoch, or after the best by noisy validation
    probabilities: NDArray[np.float32]  # (V, C)
    observed: NDArray[np.int8]  # (V, C) +1, 0, -1


def save(folder: Folder, held: HeldOut) -> None:
    """Write them into the folder of a run."""
    from safetensors.numpy import save as as_bytes

    content: dict[str, NDArray[Any]] = {
        "probabilities": held.probabilities,
        "observed": held.observed.astype(np.int8),
    }
    folder.write(_file(held.network, held.choice), as_bytes(content))


def load(run: Run, view: View = VIEWS["averaged-best"]) -> HeldOut:
    """Those of the network that a view shows, or of the deployed one if the run has none such.

    Raises AdagcError if the run has not kept any.
    """
    history = run.history
    if not history:
        raise AdagcError(f"{run} has no finished epoch yet: continue it with  adagc train --resume")
    return of_network(run, view.of(history[-1].roles) or history[-1].deployed, view.choice)


def of_network(run: Run, name: str, choice: Choice) -> HeldOut:
    """Those of the network with this name; AdagcError if the run has not kept any."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    file = _file(name, choice)
    if not run.exists(file):
        raise AdagcError(
            f"{run} has kept no predictions for validation images: an older version of adagc has"
            " trained it; train it again with another --out"
        )
    try:
        arrays = from_bytes(run.files.read(file))
        values, seen = arrays["probabilities"], arrays["observed"]
        if values.ndim != 2 or values.shape != seen.shape:
            raise ValueError(f"predictions are {values.shape} and labels {seen.shape}")
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise AdagcError(f"{run}/{file} is damaged ({error}): copy the run folder again") from error
    return HeldOut(name, choice, values, seen)


def limits(run: Run, name: str, choice: Choice, rule: Rule) -> list[float]:
    """The threshold of each class for this network, learnt from what was held out.

    They are rounded to four digits, which is less than what separates two images.
    """
    held = of_network(run, name, choice)
    found = thresholds(held.probabilities, held.observed, rule).tolist()
    return [float(f"{value:.4g}") for value in found]


def _file(network: str, choice: Choice) -> str:
    return f"validation/{network}-{choice}.safetensors"
