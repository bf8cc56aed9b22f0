"""Named ways to show the bands of images as a picture: true colour, colour infrared, radar, ..."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adagc.images.spectral import roles

# Name of each composite of three bands, and the meanings of which it shows the first that is there.
_OPTICAL: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("true colour", (("red",), ("green",), ("blue",))),
    ("colour infrared", (("nir", "narrow nir"), ("red",), ("green",))),
    ("short-wave infrared", (("far swir", "swir"), ("nir", "narrow nir"), ("red",))),
)
_RADAR = (("vv", "vh"), ("hh", "hv"))


@dataclass(frozen=True)
class Composite:
    """One way to show images.

    Attributes:
        name: What it is called: "true colour".
        bands: What is shown as red, green and blue, by the names of the data set; one for a grey
            picture.
        channels: Numbers of these bands, counted from 0; a third one of -1 stands for the ratio of
            the first to the second.
    """

    name: str
    bands: tuple[str, ...]
    channels: tuple[int, ...]

    @property
    def title(self) -> str:
        """Name and bands in one line: "true colour (B04, B03, B02)"."""
        return self.name if self.bands == (self.name,) else f"{self.name} ({', '.join(self.bands)})"


def composites_of(bands: Sequence[str]) -> tuple[Composite, ...]:
    """All ways to show images with these bands, the most natural first; never none.

    Bands that fit into no composite are shown alone in grey. Three and more bands without any known
    meaning are shown by the first three together, and each alone.
    """
    known = roles(bands)
    found: list[Composite] = []
    for name, wanted in _OPTICAL:
        picked = [next((known[r] for r in one if r in known), None) for one in wanted]
        channels = tuple(band for band in picked if band is not None)
        if len(channels) == 3:
            found.append(Composite(name, tuple(bands[i] for i in channels), channels))
    for co, cross in _RADAR:
        if co in known and cross in known:
            first, second = bands[known[co]], bands[known[cross]]
            shown = (first, second, f"{first} / {second}")
            name = "radar" if co == "vv" else "radar, horizontal"
            found.append(Composite(name, shown, (known[co], known[cross], -1)))
    used = {channel for one in found for channel in one.channels}
    if not found and len(bands) >= 3:
        found.append(Composite("first three bands", tuple(bands[:3]), (0, 1, 2)))
    alone = [i for i in range(len(bands)) if i not in used]
    found += [Composite(bands[i], (bands[i],), (i,)) for i in alone]
    return tuple(found)


def natural(bands: Sequence[str]) -> tuple[int, int, int]:
    """Positions of the bands to show as red, green and blue, where there is one picture only.

    They are found by name; otherwise the first three bands, or three times the first.
    """
    known = roles(bands)
    if {"red", "green", "blue"} <= set(known):
        return known["red"], known["green"], known["blue"]
    return (0, 1, 2) if len(bands) >= 3 else (0, 0, 0)
