"""Modules from outside the package that register methods or data sets when they are imported.

They are named by ADAGC_PLUGINS (`ADAGC_PLUGINS=my_methods,my_data adagc bench ...`) or by entry
points of the group `adagc.plugins` of installed packages. What a program registers by itself is
remembered by its module, so that worker processes and jobs of a cluster can import it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module

from adagc.errors import UsageError

VARIABLE = "ADAGC_PLUGINS"
GROUP = "adagc.plugins"

_remembered: dict[str, None] = {}  # in order; modules that registered something
_loaded: set[str] = set()  # values of the variable that were dealt with; "" is the entry points


def load() -> None:
    """Import the plug-ins that are named; called by a registry before it looks something up."""
    told = os.environ.get(VARIABLE, "")
    if told and told not in _loaded:
        _loaded.add(told)  # first: a plug-in may look something up while it is imported
        import_all(name.strip() for name in told.split(",") if name.strip())
    if "" not in _loaded:
        _loaded.add("")
        _load_entry_points()


def remember(thing: object) -> None:
    """Note the module that something registered is from, to be imported by other processes."""
    named = isinstance(thing, str)  # "package.module:function"
    module = str(thing).partition(":")[0] if named else getattr(thing, "__module__", "")
    if module and module.partition(".")[0] != "adagc":
        _remembered[module] = None


def modules() -> tuple[str, ...]:
    """The modules that another process must import to know what this one knows.

    Not the program itself: a spawned process runs it again by its own means.
    """
    return tuple(name for name in _remembered if name not in ("__main__", "__mp_main__"))


def import_all(names: Iterable[str]) -> None:
    """Import modules by name; one that cannot be imported is named with the reason."""
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise UsageError(
                f"the plug-in {name!r} cannot be imported ({error}): check {VARIABLE} and"
                " PYTHONPATH"
            ) from None


def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # somebody else's package must not look like our fault
            raise UsageError(
                f"the plug-in {point.name} ({point.value}) cannot be loaded ({error}): repair or"
                " uninstall its package"
            ) from error
