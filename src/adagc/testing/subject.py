"""The method that is being checked, and functions that all checks use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from adagc.errors import AdagcError
from adagc.methods.base import Method
from adagc.testing.tiny import make_classifier, make_task
from adagc.types import Task

# Six images and four classes, with one observed positive each; two entries are seen to be absent.
OBSERVED = torch.tensor(
    [[1, 0, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0], [0, 0, 0, 1], [1, -1, 0, 0], [0, 0, 1, 0]],
    dtype=torch.int8,
)
SHAPES = {"embeddings": (6,), "maps": (6, 2, 2), "images": (3, 64, 64)}


@dataclass(frozen=True)
class Subject:
    """The class of a method, and the options with which it is checked."""

    cls: type[Method]
    options: Mapping[str, Any]

    def build(self) -> Method:
        """A new instance of the method, before `setup`."""
        return self.cls(**self.options)

    def network(self, kind: str = "maps", seed: int = 0) -> nn.Module:
        """A small network with the head that the method needs; `kind` is a key of SHAPES."""
        backbone = "test_resnet" if kind == "images" else "mlp"
        head = self.build().head()
        return make_classifier(SHAPES[kind], backbone=backbone, head=head, seed=seed)

    def set_up(
        self,
        network: nn.Module,
        observed: Tensor = OBSERVED,
        *,
        given: frozenset[str] | None = None,
        fresh: Callable[[int], nn.Module] | None = None,
    ) -> tuple[Method, Task]:
        """A new instance after `setup`, and its task, which has what `needs` or `given` names."""
        task = make_task(
            observed.clone(),  # a method that writes into it must not change what others get
            oracle=self.cls.needs if given is None else given,
            fresh=fresh or (lambda seed: self.network("maps", seed)),
        )
        method = self.build()
        method.setup(network, task)
        return method, task


def values_for(kind: str, rows: int = 6) -> Tensor:
    """(rows, ...) random inputs of this kind, a key of SHAPES; the same in every call."""
    return torch.rand(rows, *SHAPES[kind], generator=torch.Generator().manual_seed(0))


def expect(condition: bool, otherwise: str) -> None:
    """Raise AssertionError(otherwise) unless the condition holds, also under `python -O`."""
    if not condition:
        raise AssertionError(otherwise)


def refused(act: Callable[[], object], *, saying: str, otherwise: str) -> None:
    """Expect that `act` raises an AdagcError of one line that begins with `saying`.

    AssertionError(otherwise) is raised if there is no error at all.
    """
    try:
        act()
    except AdagcError as error:
        message = str(error)
        expect(
            message.startswith(saying) and "\n" not in message,
            f'it says "{message}" instead of one line that begins with "{saying}"',
        )
        return
    raise AssertionError(otherwise)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings, which methods may give because the runs of these checks are so short."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
