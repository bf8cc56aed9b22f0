"""Writing the history of a run: history.jsonl, one line per epoch."""

from __future__ import annotations

import json

from adagc.errors import TrainingError
from adagc.training.folders import Folder
from adagc.training.records import EpochRecord, parse_history

NAME = "history.jsonl"


class History:
    """Writes history.jsonl, one line per epoch.

    Args:
        folder: The files of the run.
        keep: Number of finished epochs. Lines of later epochs, which a resumed run repeats, are
            removed.

    Raises:
        TrainingError: If lines of finished epochs are missing, or if there is no checkpoint
            although several epochs were finished.
    """

    def __init__(self, folder: Folder, keep: int) -> None:
        self.folder = folder
        content = folder.read(NAME) if folder.exists(NAME) else b""
        what = NAME if folder.place is None else str(folder.path(NAME))
        lines = parse_history(content, what)
        kept = [(line, record.epoch) for line, record in lines if record.epoch <= keep]
        if [epoch for _, epoch in kept] != list(range(1, keep + 1)):
            raise TrainingError(
                f"{what} does not have one line for each of the {keep} epochs of last.ckpt, but"
                f" {len(kept)} lines: restore the file, or train anew with another --out"
            )
        # A run that is killed before its first checkpoint has one line.
        if not keep and len(lines) > 1:
            raise TrainingError(
                f"{what} has {len(lines)} epochs, but there is no last.ckpt to continue from:"
                " restore that file, or train anew with another --out"
            )
        # The lines themselves, not the parsed records: they may be in an older format.
        folder.write(NAME, "".join(line for line, _ in kept))

    def append(self, record: EpochRecord) -> None:
        """Add the line of an epoch."""
        self.folder.append(NAME, json.dumps(record.to_dict()) + "\n")
