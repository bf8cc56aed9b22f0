"""Class names as people spell them, and the sentence that an encoder reads instead of a name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from adagc import suggest
from adagc.errors import UsageError

TEMPLATE = "a satellite image of {name}"
_PLACE = "{name}"


def same_name(name: str) -> str:
    """What is left of a name when case, blanks, hyphens and other signs do not matter.

    >>> same_name("Bare-soil") == same_name("bare_soil") == same_name("BareSoil")
    True
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(sign for sign in plain if sign.isalnum()) or plain


def locate(classes: Sequence[str], known: Sequence[str]) -> list[int | None]:
    """The place of each class among the known names, None where it is not there.

    The very spelling wins; another one counts only if no two known names fit it.
    """
    exact = {name: place for place, name in enumerate(known)}
    loose: dict[str, int | None] = {}
    for place, name in enumerate(known):
        loose[same_name(name)] = None if same_name(name) in loose else place
    return [exact.get(name, loose.get(same_name(name))) for name in classes]


def closest(name: str, known: Sequence[str]) -> str | None:
    """The known name that was probably meant."""
    spelled = {same_name(other): other for other in known}
    near = suggest.closest(same_name(name), spelled)
    return None if near is None else spelled[near]


def spoken(name: str) -> str:
    """A name as one would say it: no underscores, hyphens or capitals inside a word.

    >>> spoken("bare-soil"), spoken("BareLand"), spoken("Inland waters")
    ('bare soil', 'Bare Land', 'Inland waters')
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return " ".join(re.sub(r"[-_]", " ", apart).split())


def prompts(names: Sequence[str], template: str = TEMPLATE) -> list[str]:
    """The sentence of each name."""
    if _PLACE not in template:
        raise UsageError(f"the template {template!r} has no place for the name: add {_PLACE}")
    return [template.replace(_PLACE, spoken(name)) for name in names]
