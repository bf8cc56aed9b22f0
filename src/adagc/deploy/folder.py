"""The folder that an export writes: all of its files, or none."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from adagc.atomic import remove_leftovers, replacing
from adagc.deploy.stac import STAC
from adagc.errors import UsageError, examples


def check_place(folder: Path, *, overwrite: bool, ours: frozenset[str]) -> None:
    """Raise UsageError if a model may not be written here.

    An empty folder may be used, and one that holds nothing but an earlier export, which is
    replaced. Other files are left alone, and have to be allowed.

    Args:
        folder: The folder, which need not exist.
        overwrite: Other files may be in it.
        ours: Names of all files that an export may write.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: choose another --out")
    others = _others(folder, ours)
    if others and not overwrite:
        raise UsageError(
            f"{folder} holds other files ({examples(others)}): choose another --out, or add"
            " --overwrite to write beside them"
        )


def write(folder: Path, files: Mapping[str, bytes], *, ours: frozenset[str]) -> None:
    """Write the files; all appear at the end, the item with their checksums as the last one.

    Files of an earlier export that this one does not have are deleted.

    Args:
        folder: The folder, created if need be.
        files: Their contents by name.
        ours: Names of all files that an export may write.
    """
    alone = not _others(folder, ours)
    order = sorted(files, key=lambda name: name == STAC)
    with ExitStack() as undo:
        for made in _missing(folder):
            made.mkdir()
            undo.callback(_remove_empty, made)
        with replacing(*(folder / name for name in order)) as outputs:
            for name, output in zip(order, outputs, strict=True):
                output.write(files[name])
        undo.pop_all()
    if alone:
        for name in ours - files.keys():
            (folder / name).unlink(missing_ok=True)
        remove_leftovers(folder, but="")


def _others(folder: Path, ours: frozenset[str]) -> list[str]:
    """Names of what is not of an export; without its item none of the files is taken for ours."""
    if not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir())
    exported = STAC in names
    return [
        name
        for name in names
        if not (exported and name in ours) and not (name.startswith(".") and name.endswith(".tmp"))
    ]


def _missing(folder: Path) -> list[Path]:
    """Folders to be made, the outermost first."""
    return [path for path in (*reversed(folder.parents), folder) if not path.exists()]


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
