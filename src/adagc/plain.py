"""Plain equivalents of characters that a terminal or a pipe cannot show.

Whatever adagc prints may contain arrows, Greek letters or names in any language, and the encoding
of the output may be ASCII or Latin-1 (LC_ALL=C, PYTHONIOENCODING). Files are always UTF-8.
"""

from __future__ import annotations

import codecs
import sys
import unicodedata

_NAME = "adagc.plain"
_EQUIVALENTS = {
    "→": "->", "←": "<-", "↑": "^", "↓": "v", "±": "+-", "×": "x", "·": "-", "•": "*", "▸": ">",
    "−": "-", "–": "-", "—": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "′": "'", "½": "1/2",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "∞": "inf", "√": "sqrt", "∫": "int", "ℓ": "l",
    "‖": "||", "†": "+", "✓": "+", "✗": "x", "○": "o", "◉": "*", "█": "#", "ß": "ss", "æ": "ae",
    "⁻": "-", "⌈": "[", "⌉": "]", "⌊": "[", "⌋": "]", "λ": "lambda", "Λ": "Lambda", "Æ": "AE",
    "∏": "prod", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L",
}  # fmt: skip


def use_plain_output() -> None:
    """Print plain equivalents on stdout and stderr where a character cannot be encoded.

    Without this, such a character ends the program with an error.
    """
    codecs.register_error(_NAME, _replace)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # a test or a library may replace them
        if reconfigure is not None:
            reconfigure(errors=_NAME)


def plain(text: str) -> str:
    """The text in ASCII, as close to the original as possible.

    >>> plain("mAP ↑, α ≥ 0.5, forêt 100 m²")
    'mAP ^, alpha >= 0.5, foret 100 m2'
    """
    return "".join(char if char.isascii() else _equivalent(char) for char in text)


def _equivalent(char: str) -> str:
    known = _EQUIVALENTS.get(char)
    if known is not None:
        return known
    if unicodedata.combining(char):
        return ""  # the letter before it is printed without the accent
    parts = unicodedata.normalize("NFKD", char).encode("ascii", "ignore").decode()
    if parts:
        return parts
    name = unicodedata.name(char, "")
    if name.startswith("GREEK") and " LETTER " in name:
        letter = name.partition(" LETTER ")[2].split()[0].lower()
        return letter.capitalize() if char.isupper() else letter
    if name.startswith("BOX DRAWINGS"):
        return {"HORIZONTAL": "-", "VERTICAL": "|"}.get(name.split()[-1], "+")
    return "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    """The handler that codecs call for characters that they cannot encode."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return plain(error.object[error.start : error.end]), error.end
