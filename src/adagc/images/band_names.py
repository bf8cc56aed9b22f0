"""What the bands of images are called: by the user, by the files, or by their number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from adagc.errors import DataError

Named = tuple[str | None, ...]  # what a file calls its bands; None where it has no name
# Names that programs write where nothing is known.
_NUMBERED = re.compile(r"((band|layer)[ _-]?)?\d+", re.IGNORECASE)


def band_names(count: int, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names of `count` bands: those given, if there are as many and all differ.

    By default grey for one band, red, green and blue for three, otherwise band_1, band_2, ...
    """
    if given is None:
        usual = {1: ("grey",), 3: ("red", "green", "blue")}
        return usual.get(count) or tuple(f"band_{i}" for i in range(1, count + 1))
    if len(given) != count or len(set(given)) != count:
        raise DataError(
            f"{len(given)} band names ({', '.join(given)}) for images of {count} bands; "
            f"name every band once, in file order"
        )
    return tuple(given)


def agreed(named: Mapping[Named, str], count: int) -> tuple[str, ...] | None:
    """The names that all files have for their bands, as the first one spells them.

    None if a file leaves one out or only numbers them, calls two bands the same, or has other names
    than another file.

    >>> agreed({("B04", "B03"): "a.tif", ("b04", "b03"): "b.tif"}, 2)
    ('B04', 'B03')
    >>> agreed({("B04", "B03"): "a.tif", (): "b.png"}, 2) is None
    True

    Args:
        named: What files call their bands, and one file that does.
        count: The number of bands; files may have one more, which is left out.

    Raises:
        DataError: Files have the same bands in different orders.
    """
    found = {_key(names[:count]): (names[:count], file) for names, file in named.items()}
    if any(None in key or len(set(key)) < count for key in found):
        return None
    if set(found) == {band_names(count)}:
        return band_names(count)  # the usual ones in another spelling
    if len(found) == 1:
        return next(tuple(map(str, names)) for names, _ in found.values())
    if found and len(set(map(frozenset, found))) == 1:
        (one, first), (other, second) = list(found.values())[:2]
        raise DataError(
            f"bands in different orders: {first} has {', '.join(map(str, one))}, {second} has"
            f" {', '.join(map(str, other))}; write all files in one order, or say with --bands what"
            " the bands of all are"
        )
    return None


def _key(names: Named) -> Named:
    return tuple(
        None if name is None or _NUMBERED.fullmatch(name) else name.casefold() for name in names
    )
