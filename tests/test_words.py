"""A method's own words are said in its file and in the room that reproduces the paper only.

Whatever else names a method would have to be changed for the next one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import adagc

ROOT = Path(adagc.__path__[0])
WORDS = re.compile(r"\bAdaGC\b|teacher|trigger", re.IGNORECASE)
# The package has the method's name; a role of networks is called like what most methods call it.
NEUTRAL = re.compile(r"\badagc\b|NetworkRole\.TEACHER")
ALLOWED = (
    "methods/adagc.py",
    "methods/__init__.py",  # the registry
    "paper/",
    "demo.py",
    "commands/",  # examples, and the commands of the paper's room
    "training/command.py",  # the method that is trained if none is named
)
# A line here and there: what must be said, and where.
SAID = {
    "web/ledger.py": (  # words of SQL
        "CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events",
        "CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events",
    ),
    "types.py": ('TEACHER = "teacher"  # what the deployed one learns from',),
    "training/records/common.py": (
        "# with a teacher beside it was shown as its student.",
        '"teacher": NetworkRole.TEACHER,',
    ),
}


def sources() -> list[str]:
    found = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.py"))]
    assert len(found) > 100
    return [name for name in found if not name.startswith(ALLOWED)]


def named(name: str, text: str) -> list[str]:
    """Lines of a source that say a word of a method."""
    plain = [line.strip() for line in text.splitlines()]
    wrong = [line for line in plain if WORDS.search(NEUTRAL.sub("", line))]
    return [line for line in wrong if line not in SAID.get(name, ())]


@pytest.mark.parametrize("name", sources())
def test_no_other_source_names_the_method_or_its_parts(name):
    assert named(name, (ROOT / name).read_text(encoding="utf-8")) == []


def test_the_search_finds_what_it_looks_for():
    for line in ('if name == "teacher":', "# of AdaGC alone", "status['triggered_after']"):
        assert named("training/loop.py", f"x = 1\n{line}\n") == [line]
    assert named("training/loop.py", "from adagc.types import NetworkRole\n") == []
    assert named("methods/adagc.py", (ROOT / "methods" / "adagc.py").read_text("utf-8"))
    for name, lines in SAID.items():  # an exception that is not needed any more
        text = (ROOT / name).read_text(encoding="utf-8")
        assert all(line in text for line in lines), name
