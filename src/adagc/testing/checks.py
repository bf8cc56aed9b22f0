"""The conformance suite: what the training loop expects of every method, built-in or your own."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from adagc.methods.base import Method
from adagc.testing import runs, steps
from adagc.testing.subject import SHAPES, Subject


class NotCheckedWarning(UserWarning):
    """Warns that a check could not be made here; the method may still fail it elsewhere."""


@dataclass(frozen=True)
class Check:
    """One check: call it with a class and options, and it raises if the class does not pass."""

    name: str
    expects: str  # what is expected of the method, in plain words
    test: Callable[[Subject], None]

    def __call__(self, cls: type[Method], /, **options: Any) -> None:
        """Check one class, built with these options.

        Raises:
            AssertionError: If it fails; names the check, what is wrong and what is expected.
        """
        try:
            self.test(Subject(cls, options))
        except runs.CannotCheckError as reason:
            warnings.warn(f"{self.name}: {reason}", NotCheckedWarning, stacklevel=2)
        except Exception as error:
            what = str(error) if isinstance(error, AssertionError) else f"{error!r}"
            raise AssertionError(
                f"{cls.__name__} fails the check {self.name!r}: {what}\n\nExpected: {self.expects}"
            ) from error


def method_checks() -> Iterator[tuple[str, Check]]:
    """Every check by name, the quick ones first; for parametrised tests of many methods.

    Example:
        >>> import pytest
        >>> from adagc.methods import registry
        >>> checks = dict(method_checks())
        >>> @pytest.mark.parametrize("method", registry().values(), ids=registry().keys())
        ... @pytest.mark.parametrize("check", checks.values(), ids=checks.keys())
        ... def test_method(method, check):
        ...     check(method)
    """
    # A method that does not run at all should first fail the check that explains it best.
    yield from (_named(test) for test in _FIRST)
    yield from (_named(steps.trains_all_of_the_network, kind=kind) for kind in SHAPES)
    yield from (_named(test) for test in _STEPS)
    yield from (_named(steps.stays_finite, case=case) for case in steps.HARD)
    yield from (_named(test) for test in _RUNS)


_FIRST = (
    steps.keeps_its_options,
    steps.declares_what_it_needs,
    steps.says_in_one_line_what_is_missing,
)
_STEPS = (
    steps.leaves_the_batch_alone,
    steps.draws_from_the_batch_alone,
    steps.keeps_its_state_in_a_checkpoint,
)
_RUNS = (
    runs.sees_clean_labels_only_if_declared,
    runs.stops_before_a_folder_exists,
    runs.refuses_embeddings_where_positions_matter,
    runs.gives_the_same_weights_for_the_same_seed,
    runs.ends_alike_after_interruptions,
    runs.trains_on_two_ranks_what_one_process_trains,
)


def _named(test: Callable[..., None], **case: str) -> tuple[str, Check]:
    name = ", ".join([test.__name__.replace("_", " "), *case.values()])
    return name, Check(name, inspect.getdoc(test) or "", partial(test, **case))


def check_method(cls: type[Method], /, **options: Any) -> None:
    """Check that a class does everything that is expected of a method; takes some seconds.

    The class need not be registered. One check starts two processes, which import the class by
    name: in a script, call this below `if __name__ == "__main__":`.

    Args:
        cls: A subclass of `adagc.methods.Method`.
        options: Options of its constructor, where other values than the defaults are checked.

    Raises:
        AssertionError: At the first check that fails, with its name, what is wrong, and what is
            expected in plain words.

    Example:
        >>> from adagc.methods import Method
        >>> from adagc.types import Losses
        >>> class Forgetful(Method):
        ...     '''Stores its option under another name.'''
        ...     title = "Forgetful"
        ...     def __init__(self, *, weight: float = 1.0) -> None:
        ...         super().__init__()
        ...         self.w = weight
        ...     def loss(self, network, batch, progress):
        ...         total = self.w * network(batch.images).square().mean()
        ...         return Losses(total, {"square": total.detach()})
        >>> check_method(Forgetful)
        Traceback (most recent call last):
            ...
        AssertionError: Forgetful fails the check 'keeps its options': the option weight is not \
stored under its own name
        ...
    """
    for _, check in method_checks():
        check(cls, **options)
