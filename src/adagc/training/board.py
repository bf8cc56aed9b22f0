"""Curves of a run for TensorBoard, if it is installed."""

from __future__ import annotations

import io
import os
import platform
import time
from typing import Any

from adagc.training.folders import Folder
from adagc.training.records import EpochRecord


class Board:
    """Writes losses and mean average precisions of every epoch into the folder `tensorboard`.

    Unlike TensorBoard's own writer this one has no thread, in which an error (a full disk, say)
    would show as a traceback.

    Args:
        folder: The files of the run.
        first: The first epoch that is written. TensorBoard discards what an interrupted run has
            left of it and of later epochs.
    """

    def __init__(self, folder: Folder, first: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self._folder = folder
        self._name = f"tensorboard/events.out.tfevents.{time.time():.0f}"
        self._name += f".{platform.node()}.{os.getpid()}"
        start = SessionLog(status=SessionLog.START)
        self._add(Event(file_version="brain.Event:2"), Event(step=first, session_log=start))

    def add(self, record: EpochRecord) -> None:
        """Write the numbers of an epoch."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = {f"loss/{name}": value for name, value in record.losses.items()}
        clean = {} if record.oracle is None else record.oracle.validation
        for kind, networks in (("noisy", record.noisy), ("oracle", clean)):
            for name, scores in networks.items():
                values[f"{kind}_mAP/{name}"] = scores.mean_average_precision
        points = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._add(Event(step=record.epoch, summary=Summary(value=points)))

    def _add(self, *events: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        content = io.BytesIO()
        for event in events:
            event.wall_time = time.time()
            RecordWriter(content).write(event.SerializeToString())
        self._folder.append(self._name, content.getvalue())


def open_board(folder: Folder, first: int) -> Board | None:
    """A board; None if TensorBoard is not installed or the run is in memory only."""
    if folder.place is None:
        return None
    try:
        return Board(folder, first)
    except ImportError:
        return None
