"""`adagc methods`: a table of all methods, or the description and options of one."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from adagc.errors import flag
from adagc.methods import outline, outlines
from adagc.options import in_words, read

if TYPE_CHECKING:
    from adagc.methods import Method

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
        }
        for option in read(method).values()
    }


def render(name: str | None = None) -> RenderableType:
    """The same as `describe`, laid out for the terminal."""
    if name is None:
        table = Table(header_style="bold")
        for heading in ("method", "in one line", "needs besides one label", "keeps", "cost"):
            table.add_column(heading, justify="right" if heading == "cost" else "left")
        for title, method in outlines().items():
            table.add_row(
                Text(title),
                Text(_first_line(method)),
                Text(", ".join(NEEDS[need] for need in sorted(method.needs)) or "–"),
                Text(method.keeps or "–"),
                f"{method.cost:.2f}",
            )
        return Group(
            table,
            Text(
                "Keeps: what it remembers from step to step besides the network. Cost: arithmetic"
                " of a training step relative to AN.\nadagc methods NAME explains one method and"
                " its options."
            ),
        )
    one = describe(name)
    table = Table(header_style="bold", title="options", title_justify="left")
    for heading in ("option", "default", "meaning", "worth trying"):
        table.add_column(heading, no_wrap=heading in ("option", "default"))
    for option, facts in one["options"].items():
        grid = ", ".join(map(str, facts["grid"]))
        table.add_row(flag(f"method.{option}"), str(facts["default"]), Text(facts["meaning"]), grid)
    needs = ", ".join(NEEDS[need] for need in one["needs"]) or "nothing but observed labels"
    head = Text.assemble(
        (one["title"], "bold"), "\n", one["paper"], "\n\n", one["description"], "\n\n",
        ("needs: ", "bold"), needs,
        ("\nkeeps: ", "bold"), one["keeps"] or "nothing from step to step",
        ("\ncost of a step: ", "bold"), f"{one['cost']:.2f} times AN\n",
    )  # fmt: skip
    return Group(head, table) if one["options"] else head


def _summary(method: type[Method]) -> dict[str, Any]:
    return {
        "summary": _first_line(method),
        "paper": method.paper,
        "needs": sorted(method.needs),
        "keeps": method.keeps,
        "cost": round(method.cost, 3),
    }


def _first_line(method: type[Method]) -> str:
    return (method.__doc__ or "").strip().partition("\n")[0]
