"""The list of all data sets, by the word after --data.

A built-in data set is one file in this folder that defines `DATASET`, and its name in `_BUILT_IN`;
data sets from outside the package call `register`. Everything that the program needs in order to
open, list, inspect or name a data set is in its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from adagc import plugins
from adagc.errors import UsageError, flag
from adagc.images.scan import beside
from adagc.options import REQUIRED, Option, read
from adagc.suggest import hint, require_path

if TYPE_CHECKING:
    from adagc.datasets.collection import Collection
    from adagc.images.base import SceneDataset

# Each is a module of this package, which is imported when the data set is used.
_BUILT_IN = (
    *("folder", "aid", "ucmerced", "array", "geoparquet", "synthetic", "mosaic", "bigearthnet"),
)
DEFAULT: Final = "folder"

# Option of `adagc train` -> parameter of the function that opens a data set.
SETTINGS: Final[Mapping[str, str]] = {
    "root": "root",
    "size": "size",
    "split_seed": "seed",
    "split": "split",
    "labels": "labels",
    "truth": "truth",
    "bands": "bands",
    "nodata": "nodata",
    "cache": "cache",
    "skip_unreadable": "skip_unreadable",
    "scenes": "scenes",
    "maps": "maps",
    "map_classes": "map_classes",
    "map_share": "map_share",
    "split_by_place": "split_by_place",
    "cloudy": "cloudy",
    "resample": "resample",
}
_PATHS = frozenset({"root", "split", "labels", "truth", "cache", "maps", "map_classes"})
# Files that are also searched in `root`.
_BESIDE = frozenset({"split", "labels", "truth", "maps", "map_classes"})


@dataclass(frozen=True)
class Recognised:
    """A data set that was recognised at a path, as `adagc inspect` needs it."""

    kind: str  # name of the data set for the report
    place: Path  # folder or file of the data set
    folders: tuple[str, ...] = ("",)  # folders in `place` to search for image files
    truth: Path | None = None  # the table of clean labels that comes with the data set
    # Opens data that is not a folder of image files; takes the number that stands for missing
    # values, or None.
    images: Callable[[float | None], SceneDataset] | None = None
    # Opens data whose splits and clean labels are worth telling too, with whatever pixels are
    # there; takes the same, and options of the data set.
    collection: Callable[..., Collection] | None = None


def _unrecognised(root: Path) -> Recognised | None:
    return None


def _no_files(settings: Mapping[str, Any]) -> dict[str, Path]:
    return {}


@dataclass(frozen=True)
class DataSet:
    """The entry of one data set (or kind of data, such as a folder of images).

    Attributes:
        name: The word after --data.
        about: One line for `adagc datasets`.
        home: The function that opens the data set, or its import path "package.module:function".
            Its parameters are the options of the data set; None as a value means the default.
        title: The name of the data set in reports; `name` by default.
        named_by_root: Whether reports use the last part of the path of the data instead of `title`,
            as is best for a user's own data.
        brings_truth: Whether the data set comes with clean labels.
        licence: Under which terms its images may be used, in a sentence, which model cards quote;
            empty if that is not known, as of a user's own data.
        recognise: Function that describes the data at a path, or returns None if it is not a copy
            of this data set.
        files: Function from settings to the files (by setting) whose content is the data itself: a
            resumed run checks that they are unchanged. Of a folder of images the names are checked
            instead.
    """

    name: str
    about: str
    home: str | Callable[..., Collection]
    title: str = ""
    named_by_root: bool = False
    brings_truth: bool = False
    licence: str = ""
    recognise: Callable[[Path], Recognised | None] = _unrecognised
    files: Callable[[Mapping[str, Any]], dict[str, Path]] = _no_files

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)

    @cached_property
    def opener(self) -> Callable[..., Collection]:
        """The function that opens the data set, imported if `home` is an import path."""
        if callable(self.home):
            return self.home
        module, _, name = self.home.partition(":")
        function: Callable[..., Collection] = getattr(import_module(module), name)
        return function

    @property
    def options(self) -> Mapping[str, Option]:
        """The options of the data set, read from the signature of the function that opens it."""
        return read(self.opener)

    @property
    def settings(self) -> tuple[str, ...]:
        """The options of `adagc train` that this data set uses."""
        return tuple(setting for setting, option in SETTINGS.items() if option in self.options)

    def open(self, **options: Any) -> Collection:
        """Open the data set.

        A label, truth or split file that does not exist at its path is also searched beside the
        data.

        Args:
            options: Options of this data set; None means that one is not given.

        Raises:
            UsageError: An option is missing, is not an option of this data set, or names a file
                that does not exist.
        """
        given = {name: value for name, value in options.items() if value is not None}
        unknown = [_setting(name) for name in given if name not in self.options]
        if unknown:
            raise UsageError(
                f"{flag(unknown[0])} means nothing for --data {self.name}: leave it out"
            )
        for name, option in self.options.items():
            if name not in given and option.default is REQUIRED:
                need = f"where the {self.name} data is" if name == "root" else "what it should be"
                raise UsageError(f"{flag(_setting(name))} is missing: say {need}")
        for name in given.keys() & _PATHS:
            if isinstance(given[name], str):
                given[name] = Path(given[name])
        for name in given.keys() & _BESIDE:
            if isinstance(given[name], Path) and "root" in given:
                given[name] = beside(given["root"], given[name])
        for name in sorted(given.keys() & _PATHS - {"cache"}):
            if isinstance(given[name], Path):
                require_path(_setting(name), given[name])
        return self.opener(**given)


def _setting(option: str) -> str:
    """The option of `adagc train` that sets this option of a data set."""
    return next((setting for setting, name in SETTINGS.items() if name == option), option)


_registered: dict[str, DataSet] = {}


def register(entry: DataSet) -> DataSet:
    """Add a data set from outside the package, whose name must not be in use.

    The command line and worker processes find it only if its module is named in the environment
    variable ADAGC_PLUGINS or in an entry point of the group `adagc.plugins`.
    """
    if entry.name in _BUILT_IN or _registered.get(entry.name, entry) is not entry:
        raise UsageError(f"there is a data set {entry.name!r} already: choose another name")
    _registered[entry.name] = entry
    plugins.remember(entry.home)
    return entry


def registry() -> dict[str, DataSet]:
    """All data sets by name, first the built-in ones."""
    return {name: find(name) for name in names()}


def names() -> tuple[str, ...]:
    """The names of all data sets: the values that --data accepts."""
    plugins.load()
    return (*_BUILT_IN, *_registered)


def find(name: str) -> DataSet:
    """The entry of the data set with this name; an unknown name is a UsageError."""
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

    Example:
        >>> from adagc import open_collection
        >>> scenes = open_collection("synthetic", scenes=8, size=16)
        >>> scenes.images.bands[:3], scenes.classes[0]
        (('VV', 'VH', 'B01'), 'Urban fabric')

    Args:
        kind: The word after --data; see `adagc datasets`.
        root: Folder or file of the data; None for data that is generated.
        options: Options of this data set: the parameters of the function that opens it.
    """
    return find(kind).open(root=root, **options)
