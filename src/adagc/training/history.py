"""history.jsonl, one line per epoch, and TensorBoard where it is installed."""

from __future__ import annotations

import json
from typing import Any

from adagc.training.folders import Folder
from adagc.training.records import EpochRecord, parse_history

NAME = "history.jsonl"


class History:
    """history.jsonl: one line per epoch; lines of epochs that were never finished are dropped."""

    def __init__(self, folder: Folder, keep: int) -> None:
        self.folder = folder
        content = folder.read(NAME) if folder.exists(NAME) else b""
        lines = parse_history(content, NAME if folder.place is None else str(folder.path(NAME)))
        # As they were written, which may have been in another format.
        folder.write(NAME, "".join(line for line, record in lines if record.epoch <= keep))

    def append(self, record: EpochRecord) -> None:
        """Add one epoch."""
        self.folder.append(NAME, json.dumps(record.to_dict()) + "\n")


def tensorboard(folder: Folder, first: int) -> Any:
    """A writer if TensorBoard is installed and there is a folder to write to."""
    if folder.place is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(log_dir=str(folder.path("tensorboard")), purge_step=first)


def log_scalars(writer: Any, record: EpochRecord) -> None:
    """One epoch for TensorBoard."""
    for name, value in record.losses.items():
        writer.add_scalar(f"loss/{name}", value, record.epoch)
    clean = {} if record.oracle is None else record.oracle.validation
    for kind, networks in (("noisy", record.noisy), ("oracle", clean)):
        for name, scores in networks.items():
            writer.add_scalar(f"{kind}_mAP/{name}", scores.mean_average_precision, record.epoch)
