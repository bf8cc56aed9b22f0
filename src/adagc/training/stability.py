"""For how long a method has not changed its mind about a label.

Some methods keep an estimate of the labels of every training image (`Method.estimates`). Here the
epochs are counted since each of these estimates last crossed one half. The counts are written when
training ends, and survive an interruption with the checkpoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adagc.errors import AdagcError
from adagc.training.folders import Folder
from adagc.training.runs import Run

_FILE = "estimates.safetensors"
_HALF = 0.5


class Stability:
    """Counts epochs since the estimates of a method last changed."""

    def __init__(self) -> None:
        self._state: dict[str, Tensor] = {}

    def note(self, estimates: Tensor | None) -> None:
        """Take note of the estimates after an epoch; None if the method has none (yet)."""
        if estimates is None:
            self._state = {}
            return
        now = estimates.detach().cpu() >= _HALF
        before = self._state.get("present")
        count = torch.zeros(now.shape, dtype=torch.int32)
        if before is not None and before.shape == now.shape:
            count = torch.where(before == now, self._state["epochs"] + 1, count)
        self._state = {"present": now, "epochs": count}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return dict(self._state)

    def load(self, state: dict[str, Any]) -> None:
        """Go on with what a checkpoint has kept."""
        self._state = dict(state)

    def write(self, folder: Folder) -> None:
        """Write the counts, if the method has estimates."""
        if self._state:
            from safetensors.torch import save

            content = {"epochs": self._state["epochs"], "present": self._state["present"]}
            folder.write(_FILE, save({k: v.contiguous() for k, v in content.items()}))


def stable_epochs(run: Run) -> NDArray[np.int64] | None:
    """(N, C) epochs for which the method has not changed its mind, of the training images in order.

    None if the method keeps no estimates, or if an older version has trained the run.
    """
    if not run.exists(_FILE):
        return None
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        found = load(run.files.read(_FILE))["epochs"].astype(np.int64)
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise AdagcError(
            f"{run}/{_FILE} is damaged ({error}): copy it again, or delete it"
        ) from error
    return found
