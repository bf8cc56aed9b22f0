"""Writing a checkpoint when a signal ends the process in the middle of it."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch

from adagc import atomic
from adagc.training import checkpoint
from adagc.training.folders import DiskFolder


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_a_signal_while_writing_is_not_an_error_of_the_checkpoint(tmp_path, monkeypatch, ending):
    folder = DiskFolder(tmp_path)
    checkpoint.save(folder, "last.ckpt", {"weights": torch.ones(3)})
    written = []
    write = atomic._Output.write

    def slow(self, content):
        if not written:
            time.sleep(0.05)  # the main thread waits by now
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.2)  # the handler has run by now
        written.append(len(content))
        return write(self, content)

    def handler(number, frame):
        raise ending

    monkeypatch.setattr(atomic._Output, "write", slow)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(ending):
            checkpoint.save(folder, "last.ckpt", {"weights": torch.zeros(100_000)})
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sum(written) > 400_000  # the writing itself was not disturbed
    assert checkpoint.load(tmp_path / "last.ckpt")["weights"].tolist() == [1, 1, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]
