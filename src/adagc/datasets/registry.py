"""The data sets there are, by the word after --data.

A data set is one file in this folder with an entry `DATASET` and one line in `_BUILT_IN`; data sets
from outside the package call `register`. Whatever the program does with one of them (opening it,
listing it, looking at it before training, naming it in a report) is read from its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from adagc import plugins
from adagc.errors import UsageError
from adagc.images.scan import beside
from adagc.options import REQUIRED, Option, read
from adagc.suggest import hint

if TYPE_CHECKING:
    from adagc.datasets.collection import Collection
    from adagc.images.base import SceneDataset

# One file of this folder each, imported when it is asked for.
_BUILT_IN = ("folder", "aid", "ucmerced", "array", "synthetic")
DEFAULT: Final = "folder"

# What `adagc train` calls the options that it hands to the function that opens a data set.
SETTINGS: Final[Mapping[str, str]] = {
    "root": "root",
    "size": "size",
    "split_seed": "seed",
    "split": "split",
    "labels": "labels",
    "truth": "truth",
    "bands": "bands",
    "cache": "cache",
    "skip_unreadable": "skip_unreadable",
    "scenes": "scenes",
}
_PATHS = frozenset({"root", "split", "labels", "truth", "cache"})
_BESIDE = frozenset({"split", "labels", "truth"})  # may lie in the folder of the data


@dataclass(frozen=True)
class Recognised:
    """What `adagc inspect` needs to know of a copy of a data set."""

    kind: str  # what it is, in a few words
    place: Path  # the folder that has it all
    folders: tuple[str, ...] = ("",)  # those of `place` with images, if they are image files
    truth: Path | None = None  # its own table of clean labels
    # Opens what is not a folder of image files; takes the names of the bands, if they were given.
    images: Callable[[Sequence[str] | None], SceneDataset] | None = None


def _unrecognised(root: Path) -> Recognised | None:
    return None


def _no_files(settings: Mapping[str, Any]) -> dict[str, Path]:
    return {}


@dataclass(frozen=True)
class DataSet:
    """One kind of data.

    Attributes:
        name: The word after --data.
        about: One line for `adagc datasets`.
        home: The function that opens it, or where it is ("package.module:function"). Its parameters
            are the options of this data set, and None for any of them means its default.
        title: What reports call it; its name by default.
        named_by_root: Whether reports call it by the last part of its root instead: one's own data.
        brings_truth: Whether it has clean labels of its own.
        recognise: What is at this path, if it is a copy of this data set.
        files: Setting to file, for the files whose content is the data itself: a run that goes on
            must find the same. Folders of images are known by their names instead.
    """

    name: str
    about: str
    home: str | Callable[..., Collection]
    title: str = ""
    named_by_root: bool = False
    brings_truth: bool = False
    recognise: Callable[[Path], Recognised | None] = _unrecognised
    files: Callable[[Mapping[str, Any]], dict[str, Path]] = _no_files

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)

    @cached_property
    def opener(self) -> Callable[..., Collection]:
        """The function that opens it."""
        if callable(self.home):
            return self.home
        module, _, function = self.home.partition(":")
        found: Callable[..., Collection] = getattr(import_module(module), function)
        return found

    @property
    def options(self) -> Mapping[str, Option]:
        """What it takes, read from the signature of the function that opens it."""
        return read(self.opener)

    @property
    def settings(self) -> tuple[str, ...]:
        """Those of its options that `adagc train` has, as it calls them."""
        return tuple(told for told, option in SETTINGS.items() if option in self.options)

    def open(self, **options: Any) -> Collection:
        """Open it; None means not given, and what is given without being an option is refused.

        A label, truth or split file that is not where it says is looked for beside the data.
        """
        given = {name: value for name, value in options.items() if value is not None}
        strange = [_told(name) for name in given if name not in self.options]
        if strange:
            raise UsageError(f"--{strange[0]} means nothing for --data {self.name}: leave it out")
        for name, option in self.options.items():
            if name not in given and option.default is REQUIRED:
                need = f"where the {self.name} data is" if name == "root" else "what it should be"
                raise UsageError(f"--{_told(name)} is missing: say {need}")
        for name in given.keys() & _PATHS:
            if isinstance(given[name], str):
                given[name] = Path(given[name])
        for name in given.keys() & _BESIDE:
            if isinstance(given[name], Path) and "root" in given:
                given[name] = beside(given["root"], given[name])
        return self.opener(**given)


def _told(option: str) -> str:
    return next((told for told, name in SETTINGS.items() if name == option), option)


_registered: dict[str, DataSet] = {}


def register(entry: DataSet) -> DataSet:
    """Add a data set from outside the package; a name is given once.

    The command line and worker processes know it if its module is named in ADAGC_PLUGINS or in an
    entry point of the group `adagc.plugins`.
    """
    if entry.name in _BUILT_IN or _registered.get(entry.name, entry) is not entry:
        raise UsageError(f"there is a data set {entry.name!r} already: choose another name")
    _registered[entry.name] = entry
    plugins.remember(entry.home)
    return entry


def registry() -> dict[str, DataSet]:
    """All data sets by name, those from outside last."""
    return {name: find(name) for name in names()}


def names() -> tuple[str, ...]:
    """What --data may say."""
    plugins.load()
    return (*_BUILT_IN, *_registered)


def find(name: str) -> DataSet:
    """The data set of this name."""
    if name in _BUILT_IN:
        built_in: DataSet = import_module(f"adagc.datasets.{name}").DATASET
        return built_in
    plugins.load()
    if name not in _registered:
        close = hint(name, names()) or f": choose from {', '.join(names())}"
        raise UsageError(f"there is no data set {name!r}{close}")
    return _registered[name]


def open_collection(kind: str, root: Path | str | None = None, **options: Any) -> Collection:
    """Open a data set by its name.

    Args:
        kind: The word after --data; see `adagc datasets`.
        root: Where the data is, if it is anywhere.
        options: Of this data set: the parameters of the function that opens it.
    """
    return find(kind).open(root=root, **options)
