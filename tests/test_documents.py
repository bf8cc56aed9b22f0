"""What the documents say of the code, held against the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import adagc

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALKS = PAGE.partition("## Four walks")[2].partition("\n## ")[0]
NAMED = sorted(set(re.findall(r"`(adagc(?:\.\w+)+)`", WALKS)))


def resolve(dotted: str) -> object:
    """The module, class or function of a dotted name."""
    words = dotted.split(".")
    for length in range(len(words), 0, -1):
        try:
            found: object = import_module(".".join(words[:length]))
        except ModuleNotFoundError:
            continue
        for name in words[length:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"there is no {dotted}")


@pytest.mark.parametrize("dotted", NAMED)
def test_the_walks_lead_through_what_exists(dotted):
    found = resolve(dotted)
    assert callable(found) or dotted == "adagc.training.records"


def test_there_are_four_walks_of_several_steps():
    assert len(re.findall(r"^[A-Z].*:$", WALKS, flags=re.MULTILINE)) == 4
    assert len(NAMED) > 25


def test_the_tree_of_the_house_names_every_room():
    tree = PAGE.partition("## The house")[2].partition("## Four walks")[0]
    rooms = {
        path.name
        for path in Path(adagc.__path__[0]).iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    missing = {room for room in rooms if f"{room}/" not in tree}
    assert not missing


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_files_and_folders_that_a_document_names_exist(page):
    """Such as `tests/machine.py` and, in the package, `training/views.py`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_.-]+)*(?:/|\.py|\.txt|\.lock))`", text))
    places = (ROOT, Path(adagc.__path__[0]))
    gone = {name for name in named if not any((place / name).exists() for place in places)}
    assert gone <= {"weights/", "validation/", "names.txt"}  # of a run, and of a user's array


PAGES = sorted(
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    if path.parent.name != "templates"
)


def anchors(page: Path) -> set[str]:
    """What the headings of a page can be called by in a link, as GitHub does."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    for target in targets:
        if "://" in target:
            continue
        place, _, anchor = target.partition("#")
        found = (page.parent / place).resolve() if place else page
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), target


def test_there_are_links_and_pictures_to_follow():
    everything = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert everything.count("](") > 50
    for picture in ("annotate.png", "annotate-phone.png", "review.png"):
        assert f"{picture})" in everything
