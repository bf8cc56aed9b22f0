"""How long a method has not changed its mind about a label."""

from __future__ import annotations

import pytest
import torch

from adagc.errors import AdagcError
from adagc.training.folders import MemoryFolder
from adagc.training.runs import Run
from adagc.training.stability import Stability, stable_epochs
from scripted import EPOCHS, train_scripted


def counted(*estimates) -> list[list[int]] | None:
    """The counts after these epochs, interrupted and continued after each."""
    state: dict = {}
    for one in estimates:
        part = Stability()
        part.load(state)
        part.note(None if one is None else torch.tensor(one))
        state = part.state()
    folder = MemoryFolder()
    part.write(folder)
    found = stable_epochs(Run(folder))
    return None if found is None else found.tolist()


def test_epochs_since_a_label_last_changed():
    assert counted([[0.1, 0.9]]) == [[0, 0]]
    assert counted([[0.1, 0.9]], [[0.2, 0.8]], [[0.3, 0.4]]) == [[2, 0]]
    assert counted([[0.1]], [[0.9]], [[0.9]], [[0.5]]) == [[2]]
    assert counted(None) is None
    assert counted([[0.9]], None, [[0.9]]) == [[0]]  # a mind that was lost begins anew


def test_a_run_of_a_method_with_a_memory_keeps_it(tmp_path):
    run = train_scripted(tmp_path / "run")
    found = stable_epochs(run)
    assert found is not None
    assert found.shape == (run.labels.images.train, len(run.labels.classes))
    assert 0 <= found.min() <= found.max() <= EPOCHS - 1
    assert found.max() > 0
    run.path("estimates.safetensors").write_bytes(b"nothing")
    with pytest.raises(AdagcError, match=r"estimates\.safetensors is damaged"):
        stable_epochs(run)
