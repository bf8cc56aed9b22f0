"""uv.lock and the two constraints files say what pyproject.toml says; `make lock` writes them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
OUT_OF_DATE = "pyproject.toml has changed: run make lock"


def declared() -> dict[str, list[Requirement]]:
    """What pyproject.toml asks for, by extra; the core dependencies under the empty name."""
    extras = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    return {extra: [Requirement(line) for line in lines] for extra, lines in extras.items()}


def direct(*, without: str | None = None) -> list[Requirement]:
    """Packages that are asked for by name, but for those of an extra."""
    found = [line for extra, lines in declared().items() if extra != without for line in lines]
    return [requirement for requirement in found if requirement.name != PROJECT["name"]]


def locked() -> dict[str, Version]:
    packages = [package for package in LOCK["package"] if package["name"] != PROJECT["name"]]
    versions = {package["name"]: Version(package["version"]) for package in packages}
    assert len(versions) == len(packages), "two versions of one package: see fork-strategy"
    return versions


def constraints(name: str) -> dict[str, Version]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    pins = {canonicalize_name(pin.name): str(pin.specifier) for pin in found}
    assert all(re.fullmatch(r"==[^,*]+", pin) for pin in pins.values())
    return {name: Version(pin.removeprefix("==")) for name, pin in pins.items()}


def test_the_lock_is_made_from_todays_dependencies():
    (own,) = [package for package in LOCK["package"] if package["name"] == PROJECT["name"]]
    there = set()
    for entry in own["metadata"]["requires-dist"]:
        extra = ""
        if "marker" in entry:
            (extra,) = re.findall(
                r"extra == '(\w+)'", str(Marker(entry["marker"])).replace('"', "'")
            )
        extras = tuple(sorted(entry.get("extras", ())))
        there.add((extra, entry["name"], extras, entry.get("specifier", "")))
    here = {
        (extra, canonicalize_name(line.name), tuple(sorted(line.extras)), str(line.specifier))
        for extra, lines in declared().items()
        for line in lines
    }
    assert there == here, OUT_OF_DATE
    assert LOCK["requires-python"] == PROJECT["requires-python"], OUT_OF_DATE
    assert sorted(own["metadata"]["provides-extras"]) == sorted(PROJECT["optional-dependencies"])


def test_every_dependency_is_locked_at_a_version_that_it_allows():
    versions = locked()
    assert len(versions) > 100
    for requirement in direct():
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, OUT_OF_DATE


def test_constraints_are_the_versions_of_the_lock():
    assert constraints("constraints.txt") == locked(), "run make lock"


def test_files_come_from_the_public_index_and_are_known_by_their_content():
    for package in LOCK["package"]:
        if package["name"] == PROJECT["name"]:
            assert package["source"] == {"editable": "."}
            continue
        assert package["source"] == {"registry": "https://pypi.org/simple"}
        files = [*package.get("wheels", []), *filter(None, [package.get("sdist")])]
        assert files
        for file in files:
            # The folders of a file are the digest of its content.
            place = r"https://files\.pythonhosted\.org/packages/\w{2}/\w{2}/\w{60}/[^/]+"
            assert re.fullmatch(place, file["url"])
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"])


# The extra `text` is left out: gigabytes for one slow test.
@pytest.mark.parametrize("requirement", direct(without="text"), ids=lambda line: line.name)
def test_the_lowest_versions_are_the_bounds(requirement):
    (bound,) = requirement.specifier
    assert bound.operator == ">=", "a lower bound and nothing else"
    lowest = constraints("constraints-lowest.txt")[canonicalize_name(requirement.name)]
    assert lowest == Version(bound.version), "run make lock"
