"""Starts several processes on this machine that train together over the loopback interface."""

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

# A server process that has imported everything slow. Each new process is a fork of it: it starts
# quickly, does not inherit the threads of this process, and can be killed.
SPAWN = multiprocessing.get_context("forkserver" if _FORKSERVER else "spawn")
if _FORKSERVER:
    SPAWN.set_forkserver_preload(
        [
            "adagc.training.experiment",
            "adagc.methods",
            "tensorboard.compat.proto.event_pb2",
            __name__,
        ]
    )


def torchrun(rank: int, count: int, port: int) -> dict[str, str]:
    """The environment variables that torchrun sets for one of `count` processes."""
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
    """Call `target(*arguments)` in `count` processes that train together as ranks.

    Args:
        target: Function that another process can import by name.
        arguments: Arguments of the target.
        count: Number of processes.
        environment: Function of (rank, count, port) that returns the environment variables of a
            process, as its launcher would set them.

    Raises:
        AssertionError: If a process fails, with its error message; the others are ended.
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
        process.kill()  # it would wait for ever for the rank that failed
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        why = complaints.get() if not complaints.empty() else "a process ended without a message"
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
    """Compare the tensors of two state dicts and return how many there are.

    Floating-point tensors may differ by rounding errors; all others must be equal.

    Raises:
        AssertionError: If two differ; the message begins with `where` and the tensor's name.
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
