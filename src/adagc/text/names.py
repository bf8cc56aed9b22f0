"""Compare class names in different spellings, and make the sentences that are embedded."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from adagc import suggest
from adagc.errors import UsageError

TEMPLATE = "a satellite image of {name}"
_PLACE = "{name}"


def same_name(name: str) -> str:
    """A form of a name that is the same for all its spellings.

    Upper and lower case, spaces, hyphens and other punctuation make no difference.

    >>> same_name("Bare-soil") == same_name("bare_soil") == same_name("BareSoil")
    True
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(sign for sign in plain if sign.isalnum()) or plain


def locate(classes: Sequence[str], known: Sequence[str]) -> list[int | None]:
    """The position of each class among the known names; None for a class that is not among them.

    The exact spelling is preferred. Another spelling counts only if it matches just one known name.
    """
    exact = {name: place for place, name in enumerate(known)}
    loose: dict[str, int | None] = {}
    for place, name in enumerate(known):
        loose[same_name(name)] = None if same_name(name) in loose else place
    return [exact.get(name, loose.get(same_name(name))) for name in classes]


def closest(name: str, known: Sequence[str]) -> str | None:
    """The known name that is most similar to `name`; None if none is similar."""
    spellings = {same_name(known_name): known_name for known_name in known}
    near = suggest.closest(same_name(name), spellings)
    return None if near is None else spellings[near]


def spoken(name: str) -> str:
    """A name as separate words: no underscores, hyphens or capital letters inside a word.

    >>> spoken("bare-soil"), spoken("BareLand"), spoken("Inland waters")
    ('bare soil', 'Bare Land', 'Inland waters')
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return " ".join(re.sub(r"[-_]", " ", apart).split())


def prompts(names: Sequence[str], template: str = TEMPLATE) -> list[str]:
    """The sentence to embed for each name: the template with the name in place of {name}."""
    if _PLACE not in template:
        raise UsageError(f"the template {template!r} has no place for the name: add {_PLACE}")
    return [template.replace(_PLACE, spoken(name)) for name in names]
