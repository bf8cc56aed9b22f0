"""What bands show, by the names that people give them: red, near infrared, radar, ..."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Sentinel-2 and Landsat 8/9 use the same numbers for these three bands.
_ALIASES = {
    **{"r": "red", "b04": "red"},
    **{"g": "green", "b03": "green"},
    **{"b": "blue", "b02": "blue"},
}

# Names in words, without anything between the letters: STAC's common names and what people write.
_WORDS = {
    **dict.fromkeys(("red", "r"), "red"),
    **dict.fromkeys(("green", "g"), "green"),
    **dict.fromkeys(("blue", "b"), "blue"),
    **dict.fromkeys(("nir", "nir1", "nearinfrared", "infrared", "ir"), "nir"),
    **dict.fromkeys(("nir08", "nir8a", "narrownir", "nirnarrow", "nir2"), "narrow nir"),
    **dict.fromkeys(("swir", "swir1", "swir16", "shortwaveinfrared", "mir"), "swir"),
    **dict.fromkeys(("swir2", "swir22"), "far swir"),
    **dict.fromkeys(("pan", "panchromatic"), "pan"),
    **{name: name for name in ("vv", "vh", "hh", "hv")},
}
# Numbers of bands; only where they are used do they say what a band shows.
_SENTINEL_2 = {
    **{"2": "blue", "3": "green", "4": "red", "8": "nir"},
    **{"8a": "narrow nir", "11": "swir", "12": "far swir"},
}
_LANDSAT_8 = {"2": "blue", "3": "green", "4": "red", "5": "nir", "6": "swir", "7": "far swir"}

_NUMBERED = re.compile(r"(?:^|[\W_])b0*(\d{1,2}a?)(?=$|[\W_])", re.IGNORECASE)


def canonical_band(name: str) -> str:
    """The standard spelling of a band's name.

    >>> [canonical_band(name) for name in ("B04", "R", "Red", "B5", "b05", "B8a", "VV")]
    ['red', 'red', 'red', 'b05', 'b05', 'b8a', 'vv']
    """
    lowered = name.strip().lower()
    if len(lowered) == 2 and lowered[0] == "b" and lowered[1].isdigit():
        lowered = f"b0{lowered[1]}"
    return _ALIASES.get(lowered, lowered)


def roles(bands: Sequence[str]) -> dict[str, int]:
    """Where the bands with a known meaning are, the first one of each.

    Meanings are red, green, blue, nir, narrow nir, swir (1.6 µm), far swir (2.2 µm), pan, vv, vh,
    hh and hv. Case does not count, nor what stands around: `SR_B4`, `B04_10m` and `red` are all
    red. Numbered bands are those of Sentinel-2, unless they are numbered as on Landsat 8 and 9,
    which have B5, B6 and B7 and no B8A or B12.

    >>> roles(("B02", "B03", "B04", "B08"))
    {'blue': 0, 'green': 1, 'red': 2, 'nir': 3}
    """
    numbers = [_number(band) for band in bands]
    known = {number for number in numbers if number is not None}
    landsat = {"5", "6"} <= known and not known & {"8a", "12"}
    meaning = _LANDSAT_8 if landsat else _SENTINEL_2
    found: dict[str, int] = {}
    for place, (band, number) in enumerate(zip(bands, numbers, strict=True)):
        role = _WORDS.get(re.sub(r"[\W_]", "", band.casefold()))
        if role is None and number is not None:
            role = meaning.get(number)
        if role is not None:
            found.setdefault(role, place)
    return found


def _number(band: str) -> str | None:
    found = _NUMBERED.search(band.strip())
    return None if found is None else found[1].casefold()
