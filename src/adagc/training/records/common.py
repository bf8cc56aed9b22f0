"""Parts of several records: the format number, the roles of networks, and metrics of a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from adagc.errors import AdagcError
from adagc.types import NetworkRole, Reported

FORMAT = 1  # raise it when readers of the previous format would misunderstand a file

# Files of the first format have no roles: they follow from the names of the networks. A network
# with a teacher beside it was shown as its student.
_FIRST_ROLES = {
    "network": NetworkRole.DEPLOYED,
    "teacher": NetworkRole.TEACHER,
    "averaged": NetworkRole.AVERAGE,
}
_FIRST_TITLES = {"network": "student"}


class NewerFormatError(AdagcError):
    """A file has a newer format than this version of adagc knows; the file is not damaged."""


class Record(Protocol):
    """A dataclass that is written to a file and read back."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make the record from the content of a file."""


R = TypeVar("R", bound=Record)


def check_format(values: Mapping[str, Any], what: str) -> None:
    """Raise NewerFormatError if a newer version of adagc wrote these values."""
    number = values.get("format", 0)
    if int(number) > FORMAT:
        raise NewerFormatError(
            f"{what} was written by a newer adagc (format {number}): update adagc"
        )


def parse(kind: type[R], values: Any, what: str, remedy: str) -> R:
    """Make a record from the content of a file.

    Args:
        kind: Class of the record.
        values: Content of the file.
        what: Name of the file, for error messages.
        remedy: What to do if the file is damaged, for error messages.

    Raises:
        NewerFormatError: If a newer version of adagc wrote the file.
        AdagcError: If the file is damaged.
    """
    try:
        if not isinstance(values, Mapping):
            raise TypeError(f"it contains a {type(values).__name__}, not values by name")
        check_format(values, what)
        return kind.from_dict(values)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise AdagcError(f"{what} is damaged ({reason}): {remedy}") from error


@dataclass(frozen=True)
class NamedRole:
    """The role of a reported network, and its name in tables."""

    role: NetworkRole
    title: str

    @classmethod
    def of(cls, reported: Reported) -> NamedRole:
        """Role and title of a reported network, without the network itself."""
        return cls(reported.role, reported.title)

    def to_dict(self) -> dict[str, str]:
        """The values as a dictionary for JSON."""
        return {"role": self.role.value, "title": self.title}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NamedRole:
        """The inverse of `to_dict`."""
        return cls(NetworkRole(values["role"]), str(values["title"]))


def roles_of(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, NamedRole]:
    """The roles of these networks, from the content of a file.

    Files of the first format have no roles; there they are inferred from the names.
    """
    names = list(names)
    given = values.get("roles")
    if given is not None:
        recorded = {name: NamedRole.from_dict(one) for name, one in given.items()}
        return {name: recorded.get(name, NamedRole(NetworkRole.OTHER, name)) for name in names}
    roles = {name: _FIRST_ROLES.get(name, NetworkRole.OTHER) for name in names}
    titles = _FIRST_TITLES if NetworkRole.TEACHER in roles.values() else {}
    return {name: NamedRole(role, titles.get(name, name)) for name, role in roles.items()}


def roles_to_dict(roles: Mapping[str, NamedRole]) -> dict[str, dict[str, str]]:
    """The roles by name of the network, as a dictionary for JSON."""
    return {name: one.to_dict() for name, one in roles.items()}


@dataclass(frozen=True)
class Summary:
    """The metrics of one network, none per class, by the keys of `adagc.metrics.METRICS`."""

    values: Mapping[str, float]

    def __getitem__(self, metric: str) -> float:
        """The value of a metric; NaN if the version that wrote the file did not know it."""
        return self.values.get(metric, math.nan)

    @property
    def mean_average_precision(self) -> float:
        """The mean of the average precisions of all classes."""
        return self["mean_average_precision"]

    @property
    def mean_f1(self) -> float:
        """The mean of the F1 scores of all classes."""
        return self["mean_f1"]

    def to_dict(self) -> dict[str, float]:
        """The values as a dictionary for JSON."""
        return dict(self.values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Summary:
        """The inverse of `to_dict`."""
        return cls({str(key): float(value) for key, value in values.items()})
