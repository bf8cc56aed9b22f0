"""The registry: every way to learn, by the title that tables print.

Importing a method imports torch. Who only asks what a method is called, needs and can be told takes
its `outline`, which is read from the source; who trains takes the class with `find`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from adagc import plugins
from adagc.errors import UsageError
from adagc.outline import outline as outline_of
from adagc.suggest import hint

if TYPE_CHECKING:
    from adagc.methods.base import Method

    Registered = TypeVar("Registered", bound=type[Method])

# Title to module and class, in the order of the paper's tables. A new method is a line here.
_BUILT_IN = {
    "GT w/ BCE": "ground_truth:GroundTruth",
    "IUN": "ground_truth:IgnoreUnobserved",
    "AN": "assume_negative:AssumeNegative",
    "AN-LS": "assume_negative:LabelSmoothing",
    "WAN": "assume_negative:WeakAssumeNegative",
    "EPR": "expected_positives:ExpectedPositives",
    "ELR": "early_learning:EarlyLearning",
    "LL-Cp": "large_loss:LargeLossPermanent",
    "LL-Ct": "large_loss:LargeLossTemporary",
    "LL-R": "large_loss:LargeLossRejection",
    "BoostLU + LL-Ct": "boost:BoostLU",
    "Dist-PU": "dist_pu:DistPU",
    "ROLE": "role:Role",
    "ROLE-oracle": "role:RoleOracle",
    "GR": "generalized_robust:GeneralizedRobust",
    "LAC": "lac:LAC",
    "MIME": "mime:MIME",
    "RCML": "rcml:RCML",
    "LCR": "label_correlation:LabelCorrelation",
    "ASL": "asymmetric:AsymmetricLoss",
    "EM": "entropy_maximisation:EntropyMaximisation",
    "EM+APL": "entropy_maximisation:AsymmetricPseudoLabels",
    "AdaGC": "adagc:AdaGC",
}
_registered: dict[str, type[Method]] = {}  # from outside this package


def titles() -> list[str]:
    """All titles, in the order of the tables; quick."""
    plugins.load()
    return [*_BUILT_IN, *_registered]


def find(name: str) -> type[Method]:
    """A method by its title, class name or alias; case, blanks and hyphens do not matter."""
    title = _title(name)
    if title in _registered:
        return _registered[title]
    module, _, own = _BUILT_IN[title].partition(":")
    found: type[Method] = getattr(import_module(f"{__name__}.{module}"), own)
    return found


def outline(name: str) -> type[Method]:
    """What `find` would return, to be asked but not built: without importing torch.

    It has the constants, the docstring and the constructor's signature of the class.
    """
    title = _title(name)
    if title in _registered:
        return _registered[title]
    module, _, own = _BUILT_IN[title].partition(":")
    return outline_of(f"{__name__}.{module}", own)


def outlines() -> dict[str, type[Method]]:
    """Title to outline of every method, in the order of the tables."""
    return {title: outline(title) for title in titles()}


def registry() -> dict[str, type[Method]]:
    """Title to class, in the order of the tables; imports all methods."""
    return {title: find(title) for title in titles()}


def register(method: Registered) -> Registered:
    """Make a method of your own known by its title; a decorator for the class.

    Tables, bench, tune and report then treat it as one of ours. Put it into a module that can be
    imported by its name, and name that module in ADAGC_PLUGINS (or in an entry point of the group
    `adagc.plugins`) for it to be known on the command line.
    """
    title = getattr(method, "title", "")
    if not isinstance(title, str) or not title:
        raise UsageError(f"{method.__name__} has no title: add  title: ClassVar[str] = ...")
    for other in (*_BUILT_IN, *_registered):
        again = other in _registered and _place(_registered[other]) == _place(method)
        if _key(other) == _key(title) and not again:  # folders of runs are named alike, too
            raise UsageError(f"there is already a method with the title {other!r}: choose another")
    _registered[title] = method
    plugins.remember(method)
    return method


def _title(name: str) -> str:
    key = _key(name)
    for title, names in _names():
        if key in map(_key, names):
            return title
    known = titles()
    raise UsageError(f"unknown method {name!r}{hint(name, known)} ({', '.join(known)})")


def _names() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Titles and what else they are called by; aliases last, since they are in the sources."""
    for title in titles():
        own = _registered[title].__name__ if title in _registered else _BUILT_IN[title]
        yield title, (title, own.rpartition(":")[2])
    for title in titles():
        yield title, outline(title).aliases


def _place(method: type[Method]) -> tuple[str, str]:
    return method.__module__, method.__qualname__


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def __getattr__(name: str) -> Any:
    if name == "Method":  # the base class, which imports torch
        return import_module(f"{__name__}.base").Method
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Method", "find", "outline", "outlines", "register", "registry", "titles"]
