"""`adagc methods`: a table of all methods, or the description and options of one."""

from __future__ import annotations

import inspect
import textwrap
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from adagc.errors import flag
from adagc.methods import DEFAULT, outline, outlines
from adagc.methods.told import MARK
from adagc.options import in_words, read

if TYPE_CHECKING:
    from adagc.methods import Method

_TELLING = (
    "Its right value follows from how frequent labels are, which one label per image does not say:"
    " --priors says where that is known from, by default an estimate. If it is set here and not"
    " tuned on noisy labels (tuned_on: noisy in the YAML file that sets it), tables mark the run as"
    " told, and it is not recommended."
)
NEEDS = {
    "truth": "clean training labels",
    "priors": "class frequencies or labels per image",
    "text": "embeddings of the class names",
    "feature_map": "a spatial feature map",
}


def describe(name: str | None = None) -> dict[str, Any]:
    """What can be written as JSON about every method, or about one with all of its options."""
    if name is None:
        return {title: _summary(method) for title, method in outlines().items()}
    method = outline(name)
    return {
        "title": method.title,
        **_summary(method),
        "description": inspect.cleandoc(method.__doc__ or "").partition("\nArgs:")[0].strip(),
        "options": options(method),
    }


def options(method: type[Method]) -> dict[str, dict[str, Any]]:
    """Every option with its default, what it means, and the values worth trying."""
    return {
        option.name: {
            "default": option.default,
            "type": in_words(option.kind),
            "meaning": option.help,
            "grid": list(method.grid.get(option.name, ())),
            "frequency": option.name in method.frequencies,
        }
        for option in read(method).values()
    }


def render(name: str | None = None, *, long: bool = False) -> RenderableType:
    """The same as `describe`, laid out for the terminal.

    Args:
        name: The method to explain; all are listed without it.
        long: List with each method what it needs, what it keeps and what it costs.
    """
    return _listed(long) if name is None else _explained(name)


def _listed(long: bool) -> RenderableType:
    """Every method in a line, which fits 80 columns, below the heading of its family."""
    names = {
        title: title + " *" * _wants_more(method) + " (default)" * (title == DEFAULT)
        for title, method in outlines().items()
    }
    width = max(map(len, names.values()))
    lines: list[Text] = []
    family = ""
    for title, method in outlines().items():
        if method.family != family:
            family = method.family
            lines.append(Text(family, style="bold"))
        lines.append(Text(f"  {names[title]:<{width}}  {_first_line(method)}"))
        if long:
            facts = (
                "needs " + ", ".join(NEEDS[need] for need in sorted(method.needs)),
                f"keeps {method.keeps}",
                f"cost {method.cost:.2f}",
            )
            said = "; ".join(fact for fact in facts if not fact.endswith(" "))
            parts = textwrap.wrap(said, 76 - width, break_on_hyphens=False)
            lines += [Text(f"  {'':<{width}}  {part}", style="dim") for part in parts]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    notes = ["* needs more than one observed label per image: adagc methods --long says what."]
    if long:
        notes = [
            "* Needs: more than one observed label per image. Keeps: what it remembers from step to"
            " step besides the network. Cost: arithmetic of a training step relative to AN."
        ]
    notes.append(f"adagc methods NAME explains one; adagc train takes {DEFAULT} if none is named.")
    return Group(*lines, *map(Text, notes))


def _wants_more(method: type[Method]) -> bool:
    """Whether it needs more than observed labels, from which frequencies can be estimated."""
    return bool(method.needs if method.oracle else method.needs - {"priors"})


def _explained(name: str) -> RenderableType:
    one = describe(name)
    needs = ", ".join(NEEDS[need] for need in one["needs"]) or "nothing but observed labels"
    head = Text.assemble(
        (one["title"], "bold"), "\n", one["paper"], "\n\n", _flowing(one["description"]), "\n\n",
        ("needs: ", "bold"), needs,
        ("\nkeeps: ", "bold"), one["keeps"] or "nothing from step to step",
        ("\ncost of a step: ", "bold"), f"{one['cost']:.2f} times AN",
        *((("\nadvice: ", "bold"), one["advice"]) if one["advice"] else ()), "\n",
    )  # fmt: skip
    if not one["options"]:
        return head
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for option, facts in one["options"].items():
        told = f"{facts['meaning']} (default: {_shown(facts['default'])}"
        grid = ", ".join(map(_shown, facts["grid"]))
        table.add_row(
            Text(flag(f"method.{option}") + (f" {MARK}" if facts["frequency"] else "")),
            Text(f"{told}; worth trying: {grid})" if grid else f"{told})"),
        )
    parts: list[RenderableType] = [head, Text("options", style="bold"), table]
    if any(facts["frequency"] for facts in one["options"].values()):
        parts.append(Text(f"{MARK} {_TELLING}"))
    return Group(*parts)


def _flowing(text: str) -> str:
    """The text with every paragraph of prose in one line; equations keep their lines.

    Lines of prose are filled, and columns of equations are apart by several blanks.
    """
    paragraphs = text.split("\n\n")
    for number, lines in enumerate(part.splitlines() for part in paragraphs):
        if all("  " not in line for line in lines) and all(len(line) > 70 for line in lines[:-1]):
            paragraphs[number] = " ".join(lines)
    return "\n\n".join(paragraphs)


def _shown(value: Any) -> str:
    """A value as it is typed on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return str(value)


def _summary(method: type[Method]) -> dict[str, Any]:
    return {
        "summary": _first_line(method),
        "default": method.title == DEFAULT,
        "paper": method.paper,
        "needs": sorted(method.needs),
        "keeps": method.keeps,
        "advice": method.advice,
        "cost": round(method.cost, 3),
    }


def _first_line(method: type[Method]) -> str:
    return (method.__doc__ or "").strip().partition("\n")[0]
