"""The optimiser of a run, and the recipes that give the last layer a treatment of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from adagc.errors import AdagcError
from adagc.models.backbones import Backbone
from adagc.models.heads import Head
from adagc.training.settings import Settings

_MOMENTUM = 0.9  # of sgd
Groups = list[dict[str, Any]]


def make_optimiser(
    groups: Groups, modules: Iterable[nn.Module], settings: Settings, device: torch.device
) -> Optimizer:
    """The optimiser of these parameter groups.

    Args:
        groups: What the method wants to be trained.
        modules: The network and the method, in which heads are looked for.
        settings: Which optimiser, and its learning rates.
        device: Where the parameters are.
    """
    if settings.head_learning_rate is not None:
        groups = _with_heads_apart(groups, modules, settings.head_learning_rate)
    common: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.optimiser == "adamax":
        return torch.optim.Adamax(groups, **common)
    # The fused versions read the weights once per step instead of seven times.
    common["fused"] = device.type in ("cpu", "cuda")
    if settings.optimiser == "sgd":
        return torch.optim.SGD(groups, momentum=_MOMENTUM, **common)
    if settings.optimiser == "adamw":
        return torch.optim.AdamW(groups, **common)
    return torch.optim.Adam(groups, **common)


def _with_heads_apart(groups: Groups, modules: Iterable[nn.Module], rate: float) -> Groups:
    """The groups with the parameters of heads in groups of their own, with this learning rate."""
    found = [m for module in modules for m in module.modules() if isinstance(m, Head)]
    heads = {id(p) for head in found for p in head.parameters()}
    if not heads:
        raise AdagcError(
            "--head-learning-rate needs a network with a head: use an adagc.models.Classifier"
        )
    apart: Groups = []
    for group in groups:
        others = [p for p in group["params"] if id(p) not in heads]
        mine = [p for p in group["params"] if id(p) in heads]
        apart += [{**group, "params": others}] if others else []
        apart += [{**group, "params": mine, "lr": rate}] if mine else []
    return apart


def trained_backbones(modules: Iterable[nn.Module], optimiser: Optimizer) -> list[Backbone]:
    """The backbones that the optimiser trains: the network's, and that of a further network.

    Raises AdagcError if there is no backbone at all, whether trained or not.
    """
    backbones = [m for module in modules for m in module.modules() if isinstance(m, Backbone)]
    if not backbones:
        raise AdagcError(
            "--head-epochs needs a network with a backbone: use an adagc.models.Classifier"
        )
    trained = {id(p) for group in optimiser.param_groups for p in group["params"]}
    return [one for one in backbones if any(id(p) in trained for p in one.parameters())]
