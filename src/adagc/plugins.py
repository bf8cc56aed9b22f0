"""Modules from outside the package that register methods or data sets when they are imported.

They are named by ADAGC_PLUGINS (`ADAGC_PLUGINS=my_methods,my_data adagc bench ...`) or by entry
points of the group `adagc.plugins` of installed packages. If a program registers something itself,
the name of its module is remembered, so that worker processes and cluster jobs can import it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module

from adagc.errors import UsageError

VARIABLE = "ADAGC_PLUGINS"
GROUP = "adagc.plugins"

_remembered: dict[str, None] = {}  # modules that registered something, in order
_loaded: set[str] = set()  # values of the variable already handled; "" stands for entry points


def load() -> None:
    """Import the plug-ins of the variable and of entry points, each once.

    A registry calls this before it looks up a name.
    """
    listed = os.environ.get(VARIABLE, "")
    if listed and listed not in _loaded:
        _loaded.add(listed)  # before importing: a plug-in may look up a name while it is imported
        import_all(name.strip() for name in listed.split(",") if name.strip())
    if "" not in _loaded:
        _loaded.add("")
        _load_entry_points()


def remember(thing: object) -> None:
    """Note the module of something that was registered, so that other processes can import it.

    `thing` is a class, a function, or its place as "package.module:function".
    """
    named = isinstance(thing, str)  # "package.module:function"
    module = str(thing).partition(":")[0] if named else getattr(thing, "__module__", "")
    if module and module.partition(".")[0] != "adagc":
        _remembered[module] = None


def modules() -> tuple[str, ...]:
    """The modules that another process must import to have the same registrations.

    The main program is left out, because a spawned process imports it anyway.
    """
    return tuple(name for name in _remembered if name not in ("__main__", "__mp_main__"))


def import_all(names: Iterable[str]) -> None:
    """Import modules by name; UsageError names the one that cannot be imported, and why."""
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
        except Exception as error:  # the message must name the package that is at fault
            raise UsageError(
                f"the plug-in {point.name} ({point.value}) cannot be loaded ({error}): repair or"
                " uninstall its package"
            ) from error
