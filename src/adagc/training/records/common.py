"""What all records share: the format number, the roles of networks, and a network's numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from adagc.errors import AdagcError
from adagc.types import NetworkRole, Reported

FORMAT = 1  # raise it when a reader of the format before would misunderstand a file

# The first format says no roles: these were the names, and whoever had a teacher was its student.
_FIRST_ROLES = {
    "network": NetworkRole.DEPLOYED,
    "teacher": NetworkRole.TEACHER,
    "averaged": NetworkRole.AVERAGE,
}
_FIRST_TITLES = {"network": "student"}


class NewerFormatError(AdagcError):
    """A file is of a format that this version does not know; nothing is wrong with the file."""


class Record(Protocol):
    """A dataclass that is written into a file and read back."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From what a file holds."""


R = TypeVar("R", bound=Record)


def check_format(values: Mapping[str, Any], what: str) -> None:
    """Refuse what a newer version wrote."""
    number = values.get("format", 0)
    if int(number) > FORMAT:
        raise NewerFormatError(
            f"{what} was written by a newer adagc (format {number}): update adagc"
        )


def parse(kind: type[R], values: Any, what: str, remedy: str) -> R:
    """A record from what a file holds; errors name the file (`what`) and the remedy."""
    try:
        if not isinstance(values, Mapping):
            raise TypeError(f"it holds {type(values).__name__}, not settings by name")
        check_format(values, what)
        return kind.from_dict(values)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else error
        raise AdagcError(f"{what} is damaged ({why}): {remedy}") from error


@dataclass(frozen=True)
class NamedRole:
    """What a reported network is for, and how tables call it."""

    role: NetworkRole
    title: str

    @classmethod
    def of(cls, reported: Reported) -> NamedRole:
        """Without the network itself."""
        return cls(reported.role, reported.title)

    def to_dict(self) -> dict[str, str]:
        """JSON-ready."""
        return {"role": self.role.value, "title": self.title}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NamedRole:
        """The inverse of `to_dict`."""
        return cls(NetworkRole(values["role"]), str(values["title"]))


def roles_of(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, NamedRole]:
    """The role of every network that a record names; in the first format by their names."""
    names = list(names)
    given = values.get("roles")
    if given is not None:
        told = {name: NamedRole.from_dict(one) for name, one in given.items()}
        return {name: told.get(name, NamedRole(NetworkRole.OTHER, name)) for name in names}
    roles = {name: _FIRST_ROLES.get(name, NetworkRole.OTHER) for name in names}
    titles = _FIRST_TITLES if NetworkRole.TEACHER in roles.values() else {}
    return {name: NamedRole(role, titles.get(name, name)) for name, role in roles.items()}


def roles_to_dict(roles: Mapping[str, NamedRole]) -> dict[str, dict[str, str]]:
    """JSON-ready."""
    return {name: one.to_dict() for name, one in roles.items()}


@dataclass(frozen=True)
class Summary:
    """One network's numbers without the table of classes, by the keys of `adagc.types.METRICS`."""

    values: Mapping[str, float]

    def __getitem__(self, metric: str) -> float:
        """NaN for a metric that the writer of the file did not know."""
        return self.values.get(metric, math.nan)

    @property
    def mean_average_precision(self) -> float:
        """The metric that noisy validation goes by."""
        return self["mean_average_precision"]

    @property
    def mean_f1(self) -> float:
        """At the threshold."""
        return self["mean_f1"]

    def to_dict(self) -> dict[str, float]:
        """JSON-ready."""
        return dict(self.values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Summary:
        """The inverse of `to_dict`."""
        return cls({str(key): float(value) for key, value in values.items()})
