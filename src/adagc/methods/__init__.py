"""The registry of methods, each under the title that tables print.

Importing a method imports torch, which is slow. Code that only needs a method's name, requirements
and options takes its `outline`, which is read from the source; training takes the class with
`find`.
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

DEFAULT = "Auto"  # what is trained if nobody names a method
FULL = "GT w/ BCE"  # what learns from all labels of an image, with which others are compared
# Title to module and class, in the order of the paper's tables. A new method needs a line here.
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
    "Random label": "random_label:RandomLabel",
    "Area label": "area_label:AreaLabel",
    "Random cover": "random_cover:RandomCover",
    "Cover label": "cover_label:CoverLabel",
    "Completion": "completion:Completion",
    "Auto": "auto:Auto",
}
_registered: dict[str, type[Method]] = {}  # methods that other packages have registered


def titles() -> list[str]:
    """All titles, in the order of the tables; imports no built-in method, so it is quick."""
    plugins.load()
    return [*_BUILT_IN, *_registered]


def find(name: str) -> type[Method]:
    """The class of a method by its title, class name or alias.

    Case, blanks and punctuation in the name do not matter. Raises UsageError for an unknown name.
    """
    title = _title(name)
    if title in _registered:
        return _registered[title]
    module, _, class_name = _BUILT_IN[title].partition(":")
    method: type[Method] = getattr(import_module(f"{__name__}.{module}"), class_name)
    return method


def outline(name: str) -> type[Method]:
    """A stand-in for the class that `find` would return, made without importing torch.

    It has the constants, the docstring and the constructor's signature of the class, but no
    instance of it can be made.
    """
    title = _title(name)
    if title in _registered:
        return _registered[title]
    module, _, class_name = _BUILT_IN[title].partition(":")
    return outline_of(f"{__name__}.{module}", class_name)


def outlines() -> dict[str, type[Method]]:
    """Title to outline of every method, in the order of the tables."""
    return {title: outline(title) for title in titles()}


def registry() -> dict[str, type[Method]]:
    """Title to class, in the order of the tables; imports all methods.

    Example:
        >>> from adagc import registry
        >>> registry()["AdaGC"](weight=5.0).weight
        5.0
    """
    return {title: find(title) for title in titles()}


def register(method: Registered) -> Registered:
    """Class decorator that adds a method of your own to the registry, under its title.

    Tables, bench, tune and report then treat it like a built-in method. To use it on the command
    line, put it into a module that can be imported by name, and name that module in ADAGC_PLUGINS
    (or in an entry point of the group `adagc.plugins`).
    """
    title = getattr(method, "title", "")
    if not isinstance(title, str) or not title:
        raise UsageError(f"{method.__name__} has no title: add  title: ClassVar[str] = ...")
    for known in (*_BUILT_IN, *_registered):
        again = known in _registered and _place(_registered[known]) == _place(method)
        if _key(known) == _key(title) and not again:  # their run folders would have the same name
            raise UsageError(f"there is already a method with the title {known!r}: choose another")
    _registered[title] = method
    plugins.remember(method)
    return method


def _title(name: str) -> str:
    key = _key(name)
    for title, names in _names():
        if key in map(_key, names):
            return title
    near = hint(name, titles()) or "; adagc methods lists them"
    if "," in name:  # AN,WAN: that would be taken for a misspelt WAN
        near = f"; separate names with blanks: {' '.join(name.replace(',', ' ').split())}"
    raise UsageError(f"there is no method {name!r}{near}")


def _names() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each title with the names it is known by; aliases last, as they must be read from source."""
    for title in titles():
        place = _registered[title].__name__ if title in _registered else _BUILT_IN[title]
        yield title, (title, place.rpartition(":")[2])
    for title in titles():
        yield title, outline(title).aliases


def _place(method: type[Method]) -> tuple[str, str]:
    return method.__module__, method.__qualname__


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def __getattr__(name: str) -> Any:
    if name == "Method":  # imported only when used, because the base class imports torch
        return import_module(f"{__name__}.base").Method
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DEFAULT",
    "FULL",
    "Method",
    "find",
    "outline",
    "outlines",
    "register",
    "registry",
    "titles",
]
