"""Which bands of a file a model gets: found by name, refused by name, or counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adagc.errors import DataError, UsageError, examples
from adagc.images.band_names import band_names


@dataclass(frozen=True)
class Chosen:
    """The bands of a file that a model gets."""

    numbers: tuple[int, ...]  # counted from 0, in the order of the model
    note: str = ""  # what was assumed or changed, in a sentence without its full stop


def choose(
    wanted: Sequence[str],
    named: Sequence[str | None],
    *,
    given: Sequence[str] | None = None,
    colours: Sequence[str | None] = (),
    place: str = "the input",
) -> Chosen:
    """Find the bands of a model among those of a file.

    Names are compared without regard to case. Bands in another order are put into that of the
    model, and more than it needs are left out. If the file names no band, or the model was trained
    on bands without names, their number must be the same, and the note says what is assumed.

    Args:
        wanted: The bands of the model, in its order.
        named: What the file calls its bands; None where it has no name.
        given: Names that the user gives to the bands of the file, in its order.
        colours: What the bands are shown as. Files of any three bands may say red, green and blue,
            so this counts only where bands have no names and the model asks for these colours.
        place: The file, for messages.
    """
    if given is not None:
        if len(given) != len(named):
            raise UsageError(
                f"--bands names {len(given)} bands ({', '.join(given)}), and {place} has"
                f" {len(named)}: name every band of the file, in its order"
            )
        named = list(given)
    elif not any(named) and _has(colours, wanted):
        named = colours
    if _has(named, wanted):
        return _by_name(wanted, named, place)
    # A file with some of these very names means them, and has another band in place of the rest.
    shared = any(name.casefold() in _keys(named) for name in wanted)
    unnamed = tuple(wanted) == band_names(len(wanted)) and not shared
    if given is None and (unnamed or not any(named)):
        return _by_number(wanted, named, unnamed, place)
    missing = [name for name in wanted if name.casefold() not in _keys(named)]
    has = ", ".join(name or "(no name)" for name in named)
    raise DataError(
        f"{place} has no band {' and no band '.join(missing)}, which the model needs (it has"
        f" {has}): give a file with these bands, or say with --bands what its bands are"
    )


def _keys(named: Sequence[str | None]) -> list[str | None]:
    return [None if name is None else name.casefold() for name in named]


def _has(named: Sequence[str | None], wanted: Sequence[str]) -> bool:
    keys = _keys(named)
    return all(name.casefold() in keys for name in wanted)


def _by_name(wanted: Sequence[str], named: Sequence[str | None], place: str) -> Chosen:
    keys = _keys(named)
    twice = [name for name in wanted if keys.count(name.casefold()) > 1]
    if twice:
        raise DataError(f"{place} has two bands called {twice[0]}: say with --bands which is which")
    numbers = tuple(keys.index(name.casefold()) for name in wanted)
    notes = []
    if list(numbers) != sorted(numbers):
        notes.append(f"bands are put into the order of the model ({', '.join(wanted)})")
    left = [named[i] or f"band {i + 1}" for i in range(len(named)) if i not in numbers]
    if left:
        notes.append(f"{examples(left)} {'is' if len(left) == 1 else 'are'} not used")
    return Chosen(numbers, "; ".join(notes))


def _by_number(
    wanted: Sequence[str], named: Sequence[str | None], unnamed: bool, place: str
) -> Chosen:
    if len(named) != len(wanted):
        remedy = (
            "give images with as many bands"
            if unnamed
            else "say with --bands what its bands are, in its order"
        )
        raise DataError(
            f"{place} has {len(named)} bands, and the model takes {len(wanted)}"
            f" ({examples(wanted, 20)}): {remedy}"
        )
    numbers = tuple(range(len(wanted)))
    if unnamed and not any(named):
        return Chosen(numbers)  # as in training: nothing has a name
    why = "the model was trained on bands without names" if unnamed else "the bands have no names"
    return Chosen(numbers, f"{why}: they are taken to be in the order {', '.join(wanted)}")
