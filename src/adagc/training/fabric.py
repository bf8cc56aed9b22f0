"""The engine under the loop: devices, precision, and the processes that train together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

from adagc.errors import UsageError

if TYPE_CHECKING:
    from adagc.training.settings import Settings


def make_fabric(settings: Settings) -> Fabric:
    """Fabric for these settings; a device that is not there is the user's to know."""
    total, local, environment = _launcher()
    try:
        fabric = Fabric(
            accelerator=settings.accelerator,
            devices=local,
            num_nodes=total // local,
            strategy="ddp" if total > 1 else "auto",
            precision=_precision(settings),
            plugins=environment,
        )
        fabric.launch()
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"--accelerator {settings.accelerator} cannot be used here ({reason}): use auto or cpu"
        ) from error
    return fabric


def _launcher() -> tuple[int, int, ClusterEnvironment]:
    """How many processes train together, in all and here, and how they find each other.

    Fabric would guess the last: it takes one process in a larger allocation for many.
    """
    told = os.environ
    if int(told.get("WORLD_SIZE", "1")) > 1:  # by torchrun
        return int(told["WORLD_SIZE"]), int(told["LOCAL_WORLD_SIZE"]), TorchElasticEnvironment()
    total = int(told.get("SLURM_STEP_NUM_TASKS", "1"))  # by srun, not of the whole allocation
    if total == 1:
        return 1, 1, LightningEnvironment()
    local = int(told.get("SLURM_NTASKS_PER_NODE", "0"))
    if local * int(told["SLURM_STEP_NUM_NODES"]) != total:
        raise UsageError(f"srun started {total} tasks: say --ntasks-per-node, not --ntasks")
    return total, local, SLURMEnvironment(auto_requeue=False)


def _precision(settings: Settings) -> Any:
    if settings.precision != "auto":
        return settings.precision
    # bfloat16 autocast on a CPU without the instructions is tens of times slower than float32.
    cuda = settings.accelerator in ("auto", "cuda") and torch.cuda.is_available()
    return "bf16-mixed" if cuda and torch.cuda.is_bf16_supported() else "32-true"
