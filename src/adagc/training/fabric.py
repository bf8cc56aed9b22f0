"""Sets up Lightning Fabric: the device, the precision, and processes that train together."""

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
    """A launched Fabric for these settings; UsageError if the device cannot be used here."""
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
    """Number of processes in all and on this node, and how they find each other.

    Fabric can guess the latter, but wrongly: it takes a single process inside a larger Slurm
    allocation for one of many.
    """
    variables = os.environ
    if int(variables.get("WORLD_SIZE", "1")) > 1:  # set by torchrun
        local = int(variables["LOCAL_WORLD_SIZE"])
        return int(variables["WORLD_SIZE"]), local, TorchElasticEnvironment()
    # Set by srun: the tasks of this step, not of the whole allocation.
    total = int(variables.get("SLURM_STEP_NUM_TASKS", "1"))
    if total == 1:
        return 1, 1, LightningEnvironment()
    local = int(variables.get("SLURM_NTASKS_PER_NODE", "0"))
    if local * int(variables["SLURM_STEP_NUM_NODES"]) != total:
        raise UsageError(
            f"srun started {total} tasks without a --ntasks-per-node that fits: give"
            " --ntasks-per-node instead of --ntasks"
        )
    return total, local, SLURMEnvironment(auto_requeue=False)


def _precision(settings: Settings) -> Any:
    if settings.precision != "auto":
        return settings.precision
    # On a CPU without bfloat16 instructions, autocast is tens of times slower than float32.
    cuda = settings.accelerator in ("auto", "cuda") and torch.cuda.is_available()
    return "bf16-mixed" if cuda and torch.cuda.is_bf16_supported() else "32-true"
