"""A data set is one file and one entry: everything else reads the entry."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import adagc
from adagc.cli import main
from adagc.datasets import (
    Collection,
    DataSet,
    Recognised,
    SceneDataset,
    collect,
    find,
    open_collection,
    register,
)
from adagc.datasets import registry as registry_module
from adagc.datasets.registry import registry
from adagc.errors import UsageError
from adagc.labels import LabelTable
from adagc.testing.tiny import make_truth
from adagc.training.config import RunConfig
from adagc.training.contents import contents
from adagc.training.inputs import open_configured
from conftest import CLASSES

SOURCES = Path(adagc.__path__[0])


class Toys(SceneDataset):
    """Stripes of grey, one file of numbers per data set."""

    def __init__(self, root: Path, size: int) -> None:
        self.values = np.loadtxt(root / "toys.txt").astype(np.float32)
        self.names = tuple(f"toy{i}" for i in range(len(self.values)))
        self.bands, self.shape, self.dtype = ("grey",), (1, size, size), np.dtype(np.float32)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        columns = self.values[rows][:, np.arange(self.shape[-1]) % self.values.shape[1]]
        return np.broadcast_to(columns[:, None, None], (len(rows), *self.shape)).copy()


def open_toys(root: Path, *, size: int = 8, seed: int = 0, shiny: bool = True) -> Collection:
    images = Toys(root, size)
    truth = LabelTable(images.names, CLASSES, make_truth(len(images)).astype(np.int8))
    return collect(images, truth=truth, seed=seed, description=f"toys, shiny: {shiny}")


def recognise_toys(root: Path) -> Recognised | None:
    if not (root / "toys.txt").is_file():
        return None
    return Recognised("a box of toys", root, images=lambda bands: Toys(root, 8))


def toy_files(settings: Any) -> dict[str, Path]:
    return {"root": Path(settings["root"]) / "toys.txt"}


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A registered data set, and a copy of it."""
    monkeypatch.setattr(registry_module, "_registered", {})
    register(
        DataSet(
            name="toys",
            about="stripes of grey",
            home=open_toys,
            title="Toys of 2026",
            brings_truth=True,
            recognise=recognise_toys,
            files=toy_files,
        )
    )
    box = tmp_path / "box"
    box.mkdir()
    np.savetxt(box / "toys.txt", make_truth(64) + np.linspace(0, 1, 4))
    return box


def test_nothing_else_names_a_data_set() -> None:
    """Outside of datasets/ no line of code knows one; the demo is made of synthetic scenes."""
    names = set(registry()) - {registry_module.DEFAULT}
    assert len(names) >= 4
    for path in sorted(SOURCES.rglob("*.py")):
        place = path.relative_to(SOURCES)
        if place.parts[0] in ("datasets", "configs", "demo.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant):
                assert node.value not in names, f"{place}, line {node.lineno}: {node.value!r}"


def test_a_new_data_set_is_listed_and_recognised(toys: Path, capsys) -> None:
    assert main(["datasets"]) == 0
    assert "stripes of grey" in capsys.readouterr().out
    assert main(["datasets", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["toys"]
    assert found == {"about": "stripes of grey", "options": ["root", "size", "split_seed"]}
    assert main(["inspect", str(toys), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["kind"], seen["images"], seen["shapes"]) == (
        "a box of toys",
        64,
        {"1 x 8 x 8": 64},
    )


def test_a_new_data_set_is_trained_on_and_reported(toys: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    words = [
        "train", "--data", "toys", "--root", str(toys), "--scheme", "random", "--method", "AN",
        "--backbone", "linear", "--epochs", "1", "--batch_size", "8", "--absent", "skip",
    ]  # fmt: skip
    assert main([*words, "--out", str(run)]) == 0, capsys.readouterr().err
    assert json.loads((run / "scores.json").read_text())["images"] > 0
    page = (run / "report.html").read_text()
    assert "<title>AN on Toys of 2026</title>" in page
    assert "toys, shiny: True" in page
    assert main(["evaluate", str(run)]) == 0  # opened again by what the run remembers
    assert main([*words, "--truth", "x.csv", "--out", str(tmp_path / "x")]) == 2
    assert "--truth means nothing for --data toys: leave it out" in capsys.readouterr().err
    # its file counts by content, as the entry says
    (toys / "toys.txt").write_text((toys / "toys.txt").read_text().replace("1.", "2.", 1))
    assert main([*words, "--out", str(run), "--resume"]) == 2
    assert "the content of root" in capsys.readouterr().err


def test_a_run_of_a_data_set_that_is_not_here_has_a_report(toys: Path, tmp_path, monkeypatch):
    run = tmp_path / "run"
    words = ["--backbone", "linear", "--epochs", "1", "--absent", "skip", "--out", str(run)]
    where = ["--data", "toys", "--root", str(toys), "--scheme", "random", "--report", "false"]
    assert main(["train", "--method", "AN", *where, *words]) == 0
    monkeypatch.setattr(registry_module, "_registered", {})
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "<title>AN on toys</title>" in page
    assert "there is no data set &#x27;toys&#x27;" in page


def test_options_of_its_own_reach_the_opener(toys: Path) -> None:
    assert open_collection("toys", toys, shiny=False).description == "toys, shiny: False"
    assert open_collection("toys", str(toys), size=12).images.shape == (1, 12, 12)
    assert open_collection("toys", toys, size=None).images.shape == (1, 8, 8)  # its own default
    with pytest.raises(UsageError, match="--colour means nothing for --data toys"):
        open_collection("toys", toys, colour="red")
    with pytest.raises(UsageError, match="--root is missing: say where the toys data is"):
        open_collection("toys")


def test_names_are_given_once_and_misspelt_ones_are_guessed(toys: Path) -> None:
    for name in ("toys", "folder"):
        with pytest.raises(UsageError, match=f"there is a data set '{name}' already"):
            register(DataSet(name=name, about="", home=open_toys))
    assert register(find("toys")) is find("toys")  # the same entry once more is no mistake
    assert list(registry())[-1] == "toys"
    with pytest.raises(UsageError, match="there is no data set 'tois'; did you mean 'toys'"):
        find("tois")
    with pytest.raises(
        UsageError, match="choose from folder, aid, ucmerced, array, geoparquet, synth"
    ):
        RunConfig(data="zzz")


def test_an_opener_may_be_named_instead_of_imported(toys: Path) -> None:
    entry = DataSet(name="far", about="", home="adagc.datasets.array:array_collection")
    assert "names" in entry.options
    assert (entry.title, entry.settings[0]) == ("far", "root")


@pytest.mark.parametrize("name", ["folder", "aid", "ucmerced", "array", "synthetic", "mosaic"])
def test_every_entry_says_what_it_is(name: str) -> None:
    entry = find(name)
    assert entry.name == name
    assert entry.about
    assert set(entry.settings) <= set(registry_module.SETTINGS)
    assert entry.brings_truth == ("truth" not in entry.options)


@pytest.mark.parametrize(
    ("data", "settings", "said"),
    [
        ("array", {"size": 9}, "--size"),
        ("aid", {"truth": "x"}, "--truth"),
        ("folder", {"scenes": 9}, "--scenes"),
        ("synthetic", {"skip_unreadable": True}, "--skip-unreadable"),
    ],
)
def test_settings_that_mean_nothing_are_refused(data, settings, said) -> None:
    with pytest.raises(UsageError, match=f"{said} means nothing for --data {data}: leave it out"):
        open_configured(RunConfig(data=data, **settings))


def test_labels_and_cache_go_with_any_data_set() -> None:
    config = RunConfig(data="synthetic", scenes=4, size=16, labels="x.csv", cache="elsewhere")
    assert len(open_configured(config).images) == 10


def test_files_are_looked_for_beside_the_data(tmp_path: Path, monkeypatch) -> None:
    """Of any data set, and alike for opening and for the record of what was opened."""
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "images"
    root.mkdir()
    for i in range(20):
        np.save(root / f"{i:02d}.npy", np.full((3, 8, 8), i, np.uint8))
    rows = "".join(f"{i:02d},{'ab'[i % 2]}\n" for i in range(20))
    (root / "one.csv").write_text("image,label\n" + rows)
    settings = {"data": "folder", "root": str(root), "labels": "one.csv"}
    found = open_configured(RunConfig(**settings))
    assert found.observed is not None
    assert found.observed.source == root / "one.csv"
    assert contents(settings) == contents({**settings, "labels": str(root / "one.csv")})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.csv").write_text("image,label\n03,a\n04,b\n")  # where it says comes first
    nearer = open_configured(RunConfig(**settings)).observed
    assert nearer is not None
    assert len(nearer) == 2


def test_the_checklist_names_what_there_is() -> None:
    """CONTRIBUTING's words for a new data set are words of the code."""
    text = (SOURCES.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    part = text.partition("## Add a data set")[2].partition("\n## ")[0]
    for path in re.findall(r"`(src/[\w/]+\.py|tests/[\w/]+\.py)`", part):
        assert (SOURCES.parents[1] / path).exists(), path
    for word in ("DATASET", "_BUILT_IN", "register"):
        assert word in part
