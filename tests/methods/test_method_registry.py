"""The registry: what is read from sources is what the classes say, and outsiders may register."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adagc import methods, options, plugins
from adagc.errors import UsageError
from adagc.methods.assume_negative import AssumeNegative, LabelSmoothing
from adagc.methods.catalogue import describe
from tiny import write_scenario

CONSTANTS = [name for name in methods.Method.__annotations__ if not name.startswith("_")]
OUTSIDE = '''
from typing import ClassVar, Literal
from adagc.methods import register
from adagc.methods.assume_negative import LabelSmoothing

@register
class Mine(LabelSmoothing):
    """A method from outside.

    Args:
        smoothing: How much.
        form: Which way.
    """
    title: ClassVar[str] = "Mine!"
    family: ClassVar[str] = "New ideas"

    def __init__(self, *, smoothing: float = 0.2, form: Literal["a", "b"] = "a") -> None:
        super().__init__(smoothing=smoothing)
        self.form = form
'''


@pytest.fixture
def alone(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(methods, "_registered", {})
    monkeypatch.setattr(plugins, "_remembered", {})


@pytest.mark.parametrize("title", methods.titles())
def test_an_outline_says_what_its_class_says(title):
    outline, found = methods.outline(title), methods.find(title)
    assert outline is not found
    assert found.title == outline.title == title
    assert (outline.__name__, outline.__module__) == (found.__name__, found.__module__)
    assert outline.__doc__ == found.__doc__
    assert {"title", "family", "needs", "grid", "ranges", "aliases", "frequencies"} <= set(
        CONSTANTS
    )
    for name in CONSTANTS:
        assert getattr(outline, name) == getattr(found, name), name
    assert options.read(outline) == options.read(found)
    assert all(option.help for option in options.read(found).values())


def test_an_outline_cannot_be_built():
    with pytest.raises(TypeError, match="outline"):
        methods.outline("AdaGC")()


def test_titles_and_outlines_import_no_torch():
    code = (
        "import sys; from adagc import methods, options\n"
        "for method in methods.outlines().values(): options.read(method)\n"
        "methods.outline('gt'); methods.titles(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_alias_is_the_class_s_own():
    assert methods.find("gt").aliases == ("GT",)
    assert methods.outline("GT").title == "GT w/ BCE"


def test_a_registered_method_is_one_of_the_others(alone):
    @methods.register
    class Mine(AssumeNegative):
        """Mine."""

        title = "My own"
        aliases = ("mo",)

    assert methods.titles()[-1] == "My own"
    assert methods.registry()["My own"] is methods.find("my-own") is methods.find("mo") is Mine
    assert methods.outline("Mine") is Mine
    assert describe()["My own"]["summary"] == "Mine."
    assert plugins.modules() == (__name__,)
    assert methods.register(Mine) is Mine  # its module may be imported twice


@pytest.mark.parametrize("title", ["AN", "an", "L L-R"])
def test_a_title_that_is_taken_is_refused(alone, title):
    with pytest.raises(UsageError, match="already a method"):
        methods.register(type("Mine", (AssumeNegative,), {"title": title}))
    assert title not in methods._registered


def test_two_classes_cannot_share_a_title(alone):
    methods.register(type("One", (AssumeNegative,), {"title": "X"}))
    with pytest.raises(UsageError, match="already a method with the title 'X'"):
        methods.register(type("Two", (LabelSmoothing,), {"title": "X"}))


def test_a_method_without_a_title_is_refused(alone):
    with pytest.raises(UsageError, match="Nameless has no title"):
        methods.register(type("Nameless", (AssumeNegative,), {"title": ""}))


def adagc(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    script = folder / "program.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=folder,
        timeout=300, env={**os.environ, "PYTHONPATH": path, **variables},
    )  # fmt: skip


def program(words: list[str], *, first: str = "") -> str:
    return f"{first}\nfrom adagc.cli import main\nif __name__ == '__main__':\n    main({words!r})\n"


@pytest.mark.parametrize("road", ["variable", "import"])
def test_a_method_from_outside_goes_through_bench_and_report(tmp_path, road):
    """Worker processes know it, whether a variable names its module or the program imported it."""
    write_scenario(tmp_path / "tiny", epochs=1)
    (tmp_path / "tiny" / "mine.yaml").write_text("method: {title: Mine!, form: b}")
    (tmp_path / "my_methods.py").write_text(OUTSIDE)
    first = "import my_methods" if road == "import" else ""
    variables = {"ADAGC_PLUGINS": "my_methods"} if road == "variable" else {}
    words = ["bench", "tiny", "--out", "out", "--methods", "mine", "AN", "--seeds", "0"]
    done = adagc(tmp_path, program([*words, "--workers", "1", "--json"], first=first), **variables)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["tiny"]["tables"][0]
    groups = {group["name"]: group["rows"] for group in found["groups"]}
    assert list(groups) == ["Baseline methods", "New ideas"]
    assert groups["New ideas"][0]["cells"]
    (run,) = (tmp_path / "out" / "tiny" / "mine-").glob("seed0-*/")
    assert "form: b" in (run / "config.yaml").read_text()
    done = adagc(tmp_path, program(["report", str(run)], first=first), **variables)
    assert done.returncode == 0, done.stderr
    assert "Mine!" in (run / "report.html").read_text(encoding="utf-8")


def test_a_plug_in_that_cannot_be_imported_is_named(tmp_path):
    done = adagc(tmp_path, program(["methods"]), ADAGC_PLUGINS="no_such_module")
    assert "plug-in 'no_such_module' cannot be imported" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_installed_package_may_bring_a_method(tmp_path):
    (tmp_path / "my_methods.py").write_text(OUTSIDE)
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[adagc.plugins]\nmine = my_methods\n")
    done = adagc(tmp_path, program(["methods", "Mine!", "--json"]))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["options"]["form"]["meaning"] == "Which way."
