"""Checks that make single training steps: constructor, loss, gradients, state."""

from __future__ import annotations

import inspect
import pickle
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from adagc.methods.base import NEEDS, Method
from adagc.metrics import score
from adagc.testing.subject import OBSERVED, Subject, expect, quiet, refused, values_for
from adagc.testing.tiny import FixedLogits, make_batch, make_progress
from adagc.training.experiment import options_of
from adagc.types import Losses, Task

_SCORES = score([[True, False], [False, True]], [[0.9, 0.1], [0.2, 0.8]])


def two_epochs(method: Method, network: nn.Module, task: Task, images: Tensor) -> list[Losses]:
    """Make one training step in each of two epochs, with the other calls that the loop makes.

    The method is told that the run has one epoch, so that a method with stages goes on to the next
    stage as soon as it can.
    """
    groups = method.parameter_groups(network, 0.05)
    optimiser = torch.optim.Adam(groups)
    losses = []
    for epoch in (1, 2):
        network.train()
        method.train()
        losses.append(
            method.loss(network, make_batch(images, task, seed=epoch), make_progress(epoch, 1))
        )
        losses[-1].total.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        method.after_step(network)
        with quiet():
            method.end_epoch(_SCORES, make_progress(epoch, 1))
        if epoch == 1:
            optimiser.zero_grad()
    return losses


def keeps_its_options(subject: Subject) -> None:
    """The constructor takes keyword arguments with defaults and stores each under its own name.

    It needs no data and builds no tables or networks; `setup` builds them.
    """
    cls, method = subject.cls, subject.build()
    expect(isinstance(getattr(cls, "title", None), str), "it has no title, the name in tables")
    expect(bool(cls.__doc__), "it has no docstring")
    unknown = sorted(method.needs - NEEDS)
    expect(
        not unknown,
        f"needs names {', '.join(unknown)}, which is none of {', '.join(sorted(NEEDS))}",
    )
    expect(not _takes_anything(cls), "it takes any option: ** hides names that are mistyped")
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    lost = [name for name in parameters if not hasattr(method, name)]
    expect(not lost, f"the option {', '.join(lost)} is not stored under its own name")
    options = options_of(method)
    defaults = {name: parameters[name].default for name in options}
    changed = [name for name, value in {**defaults, **subject.options}.items()
               if value is not inspect.Parameter.empty and options[name] != value]  # fmt: skip
    expect(not changed, f"the option {', '.join(changed)} is not stored as it was given")
    expect(options_of(cls(**options)) == options, "built again from its options, they differ")
    unknown = sorted(set(method.grid) - set(options))
    expect(not unknown, f"grid names {', '.join(unknown)}, which is not one of its options")
    unknown = sorted(method.frequencies - set(options))
    expect(not unknown, f"frequencies names {', '.join(unknown)}, which is not one of its options")
    unknown = sorted(set(method.fixed) - method.frequencies)
    expect(not unknown, f"fixed names {', '.join(unknown)}, which is not one of its frequencies")
    closed = [name for name in method.fixed if parameters[name].default is not None]
    expect(not closed, f"fixed names {', '.join(closed)}, whose default is not None")
    for name, values in method.grid.items():
        for value in values:
            stored = getattr(cls(**{**options, name: value}), name)
            expect(stored == value, f"{name}={value} of its grid is stored as {stored}")
    expect(not list(method.parameters()), "it has parameters before setup was called")


def _takes_anything(cls: type[Method]) -> bool:
    try:
        cls(no_such_option=1)
    except TypeError:
        return False
    return True


def declares_what_it_needs(subject: Subject) -> None:
    """Clean labels, priors and text are used only if `needs` declares them."""
    kind = "maps"

    def runs(given: frozenset[str]) -> Exception | None:
        network = subject.network(kind)
        try:
            method, task = subject.set_up(network, given=given)
            two_epochs(method, network, task, values_for(kind))
        except Exception as error:
            return error
        return None

    error = runs(subject.cls.needs)
    if error is None or runs(NEEDS) is not None:
        return  # a method that fails with everything given is reported by another check
    using = [n for n in sorted(NEEDS - subject.cls.needs) if runs(subject.cls.needs | {n}) is None]
    raise AssertionError(
        f"it works only where the task has {' or '.join(using) or 'more'}, which is not in its"
        f" needs ({error})"
    )


def trains_all_of_the_network(subject: Subject, kind: str) -> None:
    """Two steps give finite losses, and gradients reach all trained parameters and no others.

    `parameter_groups` must have every parameter of the network. Parameters of the method that are
    not in it must have no gradient.
    """
    if kind == "embeddings" and subject.build().head().on_map:
        return  # such a method refuses embeddings; another check makes sure of that
    network = subject.network(kind)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    method, task = subject.set_up(network, fresh=lambda seed: subject.network(kind, seed))
    for losses in two_epochs(method, network, task, values_for(kind)):
        expect(losses.total.dim() == 0, f"the loss has the shape {tuple(losses.total.shape)}")
        expect(bool(losses.total.isfinite()), f"the loss is {losses.total.item()}")
        expect(bool(losses.parts), "the loss names no parts for the history")
        broken = [name for name, part in losses.parts.items() if not part.isfinite().all()]
        expect(not broken, f"the part {', '.join(broken)} of the loss is not finite")
    for name, parameter in network.named_parameters():
        gradient = parameter.grad
        expect(gradient is not None, f"no gradient reaches {name} of the network")
        assert gradient is not None
        expect(bool(gradient.isfinite().all()), f"the gradient of {name} is not finite")
        expect(not torch.equal(parameter, before[name]), f"{name} of the network is not trained")
    trained = {id(p) for group in method.parameter_groups(network, 1.0) for p in group["params"]}
    left = [name for name, p in network.named_parameters() if id(p) not in trained]
    expect(not left, f"parameter_groups leaves out {', '.join(left)} of the network")
    for name, parameter in method.named_parameters():
        if id(parameter) not in trained:
            idle = not parameter.requires_grad and parameter.grad is None
            expect(idle, f"{name} of the method has a gradient and is in no parameter group")
    estimates = method.estimates()
    if estimates is not None:
        shapes = tuple(estimates.shape), tuple(OBSERVED.shape)
        expect(shapes[0] == shapes[1], f"estimates has the shape {shapes[0]}, not {shapes[1]}")


def leaves_the_batch_alone(subject: Subject) -> None:
    """A method does not change images and labels of a batch in place; it may change a copy.

    The same holds for the observed labels of the task.
    """
    network, images = subject.network(), values_for("maps")
    method, task = subject.set_up(network)
    batch = make_batch(images, task)
    names = ("images", "observed", "index", "truth")
    held = {name: value for name in names if (value := getattr(batch, name)) is not None}
    before = {name: value.clone() for name, value in held.items()}
    method.loss(network, batch, make_progress())
    for name, value in held.items():
        expect(torch.equal(value, before[name]), f"loss changes batch.{name} in place")
    expect(torch.equal(task.observed, OBSERVED), "it changes task.observed in place")


def draws_from_the_batch_alone(subject: Subject) -> None:
    """All random numbers come from `batch.generator`, or in `setup` from the task's seed.

    That generator draws the same numbers on all ranks; torch's global generator does not.
    """
    network, images = subject.network(), values_for("maps")
    network.eval()  # layers of the network may draw, the method may not
    with torch.random.fork_rng(devices=[]):
        before = _global_randomness()
        method, task = subject.set_up(network)
        for name, state in _global_randomness().items():
            expect(state == before[name], f"setup draws from the randomness of {name}")
        method.eval()
        method.loss(network, make_batch(images, task), make_progress())
        for name, state in _global_randomness().items():
            expect(state == before[name], f"loss draws from the randomness of {name}")


def _global_randomness() -> dict[str, bytes]:
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": pickle.dumps(np.random.get_state()),  # noqa: NPY002
        "Python": repr(random.getstate()).encode(),
    }


_RANDOM = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
HARD: Mapping[str, tuple[Tensor, Tensor]] = {
    "extreme logits": (
        torch.tensor([[60.0, -60.0, 60.0, -60.0]] * 3 + [[-60.0, 60.0, -60.0, 60.0]] * 3),
        OBSERVED,
    ),
    "a batch of one": (_RANDOM[:1], OBSERVED[:1]),
    "a class without positive": (_RANDOM, OBSERVED * torch.tensor([1, 1, 1, 0]).to(torch.int8)),
    "all positive": (_RANDOM, torch.ones_like(OBSERVED)),
    "nothing observed": (_RANDOM, torch.zeros_like(OBSERVED)),
    "all seen to be absent": (_RANDOM, -torch.ones_like(OBSERVED)),
    "half precision": (_RANDOM, OBSERVED),
}


def stays_finite(subject: Subject, case: str) -> None:
    """Loss and gradient are finite for any logits and any labels, in half precision too."""
    logits, observed = HARD[case]
    half = case == "half precision"
    network, peer = (FixedLogits(values, half=half) for values in (logits, logits.flip(1)))
    method, task = subject.set_up(network, observed, fresh=lambda seed: peer)
    for losses in two_epochs(method, network, task, torch.zeros(len(logits), 1)):
        expect(bool(losses.total.isfinite()), f"the loss is {losses.total.item()}")
    gradient = network.logits.grad
    expect(gradient is not None, "no gradient reaches the logits")
    assert gradient is not None
    expect(bool(gradient.isfinite().all()), "the gradient of the logits is not finite")


def keeps_its_state_in_a_checkpoint(subject: Subject) -> None:
    """Buffers, sub-modules and `get_extra_state` hold everything that a method remembers.

    A second instance that loads its `state_dict` continues with the same loss and status.
    """
    network, images = subject.network(), values_for("maps")
    method, task = subject.set_up(network)
    two_epochs(method, network, task, images)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.ckpt"
        torch.save([network.state_dict(), method.state_dict()], path)
        weights, state = torch.load(path, weights_only=True)
    twin_network = subject.network(seed=9)
    twin, _ = subject.set_up(twin_network)
    twin_network.load_state_dict(weights)
    twin.load_state_dict(state)
    expected = method.loss(network, make_batch(images, task, seed=5), make_progress(3, 4)).total
    loaded = twin.loss(twin_network, make_batch(images, task, seed=5), make_progress(3, 4)).total
    expect(
        torch.equal(expected, loaded),
        f"after loading its state the loss is {loaded.item()} instead of {expected.item()}",
    )
    expect(
        method.status() == twin.status(),
        f"after loading its state the status is {twin.status()} instead of {method.status()}",
    )


def says_in_one_line_what_is_missing(subject: Subject) -> None:
    """`setup` raises an error of one line if the task lacks something that `needs` declares.

    `super().setup(network, task)` raises it: call that first.
    """
    cls = subject.cls
    needs = cls.needs & {"truth", "priors", "text"}
    if not needs:
        subject.set_up(subject.network(), given=frozenset())
        return
    refused(
        lambda: subject.set_up(subject.network(), given=frozenset()),
        saying=f"{cls.title} needs ",
        otherwise=f"setup does not complain that the task has no {' and no '.join(sorted(needs))}",
    )
