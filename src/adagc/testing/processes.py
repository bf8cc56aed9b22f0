"""Several real processes on this machine that train as one, over the loopback interface."""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import wait
from typing import Any, cast

import torch
from torch import Tensor

_FORKSERVER = "forkserver" in multiprocessing.get_all_start_methods()

# One server that has imported everything heavy; a process is a fork of it, quick to start and free
# of the threads of this process, and can be killed for good.
SPAWN = multiprocessing.get_context("forkserver" if _FORKSERVER else "spawn")
if _FORKSERVER:
    SPAWN.set_forkserver_preload(
        ["adagc.training.experiment", "adagc.methods", "torch.utils.tensorboard", __name__]
    )


def torchrun(rank: int, count: int, port: int) -> dict[str, str]:
    """The environment that torchrun gives to one of its processes."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0",
    }  # fmt: skip


def in_ranks(
    target: Callable[..., None],
    *arguments: Any,
    count: int = 2,
    environment: Callable[[int, int, int], dict[str, str]] = torchrun,
) -> None:
    """Call `target(*arguments)` in so many processes that know each other as ranks.

    Args:
        target: What another process can import by its name.
        arguments: Of the target.
        count: How many processes.
        environment: Of (rank, count, port): what whoever starts them would set.

    Raises:
        AssertionError: If one of them fails, with its message; the others are ended.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = cast(Any, SPAWN)  # mypy knows only what all start methods have in common
    complaints = context.SimpleQueue()
    ranks = [
        context.Process(target=_one, args=(complaints, environment(rank, count, port), target,
                                           arguments))
        for rank in range(count)
    ]  # fmt: skip
    for process in ranks:
        process.start()
    running = list(ranks)
    while running and not any(process.exitcode for process in ranks):
        ready = wait([process.sentinel for process in running], timeout=300)
        running = [process for process in running if process.sentinel not in ready]
        if not ready:
            break
    for process in running:
        process.kill()  # it waits for one that failed
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        why = complaints.get() if not complaints.empty() else "a process ended without a word"
        raise AssertionError(f"with {count} ranks: {why}")


def _one(
    complaints: Any,
    environment: dict[str, str],
    target: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    os.environ |= environment
    try:
        target(*arguments)
    except Exception as error:
        complaints.put(repr(error))
        raise SystemExit(1) from None


def compare_states(where: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> int:
    """How many tensors are the same but for rounding; labels and counts to the bit.

    Raises:
        AssertionError: If some are not; its message begins with `where` and the tensor's name.
    """
    if one.keys() != two.keys():
        raise AssertionError(f"{where}: only one of the two has {sorted(one.keys() ^ two.keys())}")
    tensors = {name: value for name, value in one.items() if isinstance(value, Tensor)}
    for name, value in tensors.items():
        if value.is_floating_point():
            message = partial("{}: {}: {}".format, where, name)
            torch.testing.assert_close(value, two[name], rtol=1e-3, atol=3e-4, msg=message)
        elif not torch.equal(value, two[name]):
            raise AssertionError(f"{where}: {name} differs")
    return len(tensors)
