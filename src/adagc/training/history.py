"""history.jsonl, one line per epoch, and TensorBoard where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adagc.atomic import write_text


class History:
    """history.jsonl: one line per epoch; lines of epochs that were never finished are dropped."""

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = []
        for text in lines:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:  # the line that was being written when the run was killed
                continue
            if line["epoch"] <= keep:
                kept.append(text)
        write_text(path, "".join(f"{text}\n" for text in kept))

    def append(self, line: dict[str, Any]) -> None:
        """Add one epoch."""
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")


def tensorboard(folder: Path, first: int) -> Any:
    """A writer if TensorBoard is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(log_dir=str(folder / "tensorboard"), purge_step=first)


def log_scalars(writer: Any, line: dict[str, Any]) -> None:
    """One history line for TensorBoard."""
    epoch = line["epoch"]
    for name, value in line["losses"].items():
        writer.add_scalar(f"loss/{name}", value, epoch)
    for name, scores in line["noisy"].items():
        writer.add_scalar(f"noisy_mAP/{name}", scores["mean_average_precision"], epoch)
    for name, scores in line.get("oracle", {}).get("validation", {}).items():
        writer.add_scalar(f"oracle_mAP/{name}", scores["mean_average_precision"], epoch)
