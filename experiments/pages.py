"""Write docs/results/*.md and the results in README.md from the committed records.

    python experiments/pages.py            (make pages)
    python experiments/pages.py --check    (exit code 1 if a page is not what the records say)

A page is a Jinja template in docs/results/templates. Its tables, sentences and numbers are
expressions over the records in docs/results/data: packs that `adagc bench --pack` wrote, and files
with one run per line. So no number is typed by hand. Decimal numbers and percentages outside of
expressions and code are refused, unless the first comment of the template lists them as settings
or as values of the paper.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import jinja2

from adagc.atomic import write_text

sys.path.insert(0, str(Path(__file__).parent))
import beyond
import bought
import completed
import ends
import fidelity
import frequencies
import liked
import thresholds
import variants
import views
from lines import made
from records import DATA, Lines, Pack, Printed, Selection, Tuning
from scale import ASSUMED, PUBLISHED, Scale
from study import Study, made_together
from words import one, plus, reflowed, two, whole

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
TEMPLATES = RESULTS / "templates"
README = ROOT / "README.md"
BEGIN, END = "<!-- written by make pages -->", "<!-- end -->"

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*\.\d+(?![\w.])|(?<![\w.])\d+(?= %)")


def environment() -> jinja2.Environment:
    """Where templates find what they may say."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        autoescape=False,  # the pages are Markdown
    )
    found.filters |= {"one": one, "two": two, "plus": plus, "whole": whole}
    found.globals |= {
        "pack": cache(Pack),
        "study": cache(Study),
        "made": made,
        "made_together": made_together,
        "lines": cache(Lines),
        "tuning": cache(Tuning),
        "printed": cache(Printed),
        "scale": cache(Scale),
        "assumed": ASSUMED,
        "published": PUBLISHED,
        "selection": cache(Selection),
        "beyond": beyond,
        "completed": completed,
        "ends": ends,
        "variants": variants,
        "fidelity": fidelity,
        "frequencies": frequencies,
        "liked": liked,
        "thresholds": thresholds,
        "views": views,
        "bought": bought,
        "min": min,
        "max": max,
    }
    return found


def pages(names: str = "*.md") -> Iterator[tuple[Path, str]]:
    """Every page and what it should say; README.md with the results between its two marks."""
    templates = environment()
    for path in sorted(TEMPLATES.glob(names)):
        needed = re.match(r"\{# Needs: (\S+)\.", path.read_text(encoding="utf-8"))
        if needed and not (DATA / needed[1]).exists():
            continue  # nothing is measured yet
        check_numbers(path)
        text = reflowed(templates.get_template(path.name).render())
        if path.name == README.name:
            before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
            _, _, after = rest.partition(END)
            yield README, f"{before}{BEGIN}\n{text.strip()}\n{END}{after}"
        else:
            yield RESULTS / path.name, f"{text.strip()}\n"


def check_numbers(path: Path) -> None:
    """Raise ValueError if a template has a number that no record is behind.

    Numbers in code, and those that the first comment of the template lists, are settings or values
    of the paper.
    """
    text = path.read_text(encoding="utf-8")
    allowed = set(_NUMBER.findall(text.partition("#}")[0])) if text.startswith("{#") else set()
    for pattern in (r"\{#.*?#\}", r"\{\{.*?\}\}", r"\{%.*?%\}", r"```.*?```", r"`[^`\n]*`"):
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    typed = [number for number in _NUMBER.findall(text) if number not in allowed]
    if typed:
        raise ValueError(f"{path.name} has numbers without a record: {', '.join(typed)}")


def changed() -> Iterable[tuple[Path, str]]:
    """The pages that differ from what the records say, and what they should say."""
    for path, text in pages():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    told = parser.parse_args()
    differing = list(changed())
    for path, text in differing:
        print(f"{'differs' if told.check else 'written'}: {path.relative_to(ROOT)}")
        if not told.check:
            write_text(path, text)
    sys.exit(1 if told.check and differing else 0)
