"""Numbers and Markdown as the pages of docs/results write them."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Sequence

WIDTH = 112


def one(value: float) -> str:
    """A number with one decimal, which is never -0.0."""
    return f"{round(value, 1) + 0.0:.1f}"


def two(value: float) -> str:
    """A number with two decimals."""
    return f"{round(value, 2) + 0.0:.2f}"


def plus(value: float) -> str:
    """A number with one decimal and its sign."""
    return f"{round(value, 1) + 0.0:+.1f}"


def whole(value: float) -> str:
    """A number without decimals."""
    return f"{value:.0f}"


def spread(values: Sequence[float], decimals: int = 2) -> str:
    """Mean, and unbiased standard deviation in brackets."""
    mean = f"{statistics.fmean(values):.{decimals}f}"
    return mean if len(values) == 1 else f"{mean} ({statistics.stdev(values):.{decimals}f})"


def error(gaps: Sequence[float]) -> str:
    """The mean of differences, one per seed, and its standard error: "+5.8 ± 0.6"."""
    mean = plus(statistics.fmean(gaps))
    return mean if len(gaps) == 1 else f"{mean} ± {one(statistics.stdev(gaps) / len(gaps) ** 0.5)}"


def quoted(text: str) -> str:
    """Text as a quotation, in lines."""
    return "\n".join(f"> {line}" for line in _wrapped(text, WIDTH - 2))


def reflowed(text: str) -> str:
    """Markdown with paragraphs and lists in lines of equal width; all else stays as it is.

    A template has an expression where the page has a number, so its own lines are no guide.
    """
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if number % 2 else _reflowed(part) for number, part in enumerate(parts))


def _reflowed(text: str) -> str:
    blocks = re.split(r"(\n{2,})", text)
    return "".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    """One paragraph, list, table, heading, quotation or space between them."""
    if not block.strip() or block.lstrip()[0] in "|#>!<":
        return block
    # A number at the start of a line is only in a list the mark of an item.
    mark = r"\d+\. " if re.match(r"\d+\. ", block) else "- "
    items = re.split(rf"\n(?={mark})", block)
    return "\n".join("\n".join(_item(item)) for item in items)


def _item(text: str) -> list[str]:
    """A paragraph, or an item of a list, whose further lines are indented like its words."""
    mark = re.match(r"- |\d+\. |", text)
    assert mark is not None
    return _wrapped(text, WIDTH, " " * mark.end())


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
