"""What is being checked, and the few words that all checks share."""

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

# Six images, four classes; one that was seen to be absent, one image with nothing but that.
OBSERVED = torch.tensor(
    [[1, 0, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0], [0, 0, 0, 1], [1, -1, 0, 0], [0, 0, 1, 0]],
    dtype=torch.int8,
)
SHAPES = {"embeddings": (6,), "maps": (6, 2, 2), "images": (3, 64, 64)}


@dataclass(frozen=True)
class Subject:
    """A class of methods and the options that it is to be checked with."""

    cls: type[Method]
    options: Mapping[str, Any]

    def build(self) -> Method:
        """A new one, before `setup`."""
        return self.cls(**self.options)

    def network(self, kind: str = "maps", seed: int = 0) -> nn.Module:
        """A small network with the head that the method asks for."""
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
        """The method after `setup`, with a task that has what it declares (or what is given)."""
        task = make_task(
            observed.clone(),  # a method that writes into it must not change what others get
            oracle=self.cls.needs if given is None else given,
            fresh=fresh or (lambda seed: self.network("maps", seed)),
        )
        method = self.build()
        method.setup(network, task)
        return method, task


def values_for(kind: str, rows: int = 6) -> Tensor:
    """Images of this kind."""
    return torch.rand(rows, *SHAPES[kind], generator=torch.Generator().manual_seed(0))


def expect(condition: bool, otherwise: str) -> None:
    """An assertion that is not lost when Python optimises, with words for people."""
    if not condition:
        raise AssertionError(otherwise)


def refused(act: Callable[[], object], *, saying: str, otherwise: str) -> None:
    """Expect an error in one line that begins with these words."""
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
    """Methods may warn about runs as short as those of these checks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
