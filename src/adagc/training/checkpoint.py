"""Reading and writing checkpoints.

A checkpoint is replaced completely or stays as it was, and reading one never runs code from it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, BinaryIO

import torch

from adagc.errors import AdagcError
from adagc.training.folders import Folder


def save(folder: Folder, name: str, state: dict[str, Any]) -> None:
    """Write a dictionary of tensors and plain values into a file of this folder."""
    with folder.replacing(name) as target:
        _undisturbed(lambda: torch.save(state, target))


def load(path: Path | BinaryIO, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint from a file or from memory, with its tensors on this device.

    Raises AdagcError if it does not exist or holds anything but tensors and plain values.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise AdagcError(f"{path} does not exist: start the run without --resume") from None
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise AdagcError(
            f"{path} cannot be read as a checkpoint ({reason}): restore the file, or train anew"
            " with another --out"
        ) from error
    return state


def _undisturbed(work: Callable[[], None]) -> None:
    """Call a function that no signal may interrupt; the exception of a signal is raised after it.

    Torch calls the file's `write` from compiled code, which would turn the end of the process
    (Ctrl-C, the time limit of a cluster) into an error of the checkpoint. Signals are answered in
    the main thread, so the function is called in another one.
    """
    errors: list[BaseException] = []
    done = Event()  # because a signal makes `join` take a thread for ended that is not

    def call() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = Thread(target=call)
    try:
        thread.start()
        done.wait()
    finally:
        if thread.ident is not None:  # it was started; the signal may have come just then
            done.wait()
    if errors:
        raise errors[0]
