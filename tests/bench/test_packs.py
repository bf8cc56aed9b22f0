"""A pack must give the tables and the recommendation of the run folders it was made from."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adagc.bench.engines import LocalEngine
from adagc.bench.jobs import plan
from adagc.bench.packs import pack, ranks_of, unpack
from adagc.bench.results import collect
from adagc.cli import main
from adagc.compare import render, tables
from adagc.compare.recommendation import recommend
from adagc.errors import AdagcError
from adagc.metrics.exact import average_precision
from adagc.training.views import VIEWS
from tiny import write_scenario

KEPT = [VIEWS["averaged-best"]]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of four runs and of two that were never trained, and their pack."""
    place = tmp_path_factory.mktemp("packs")
    scenario = write_scenario(place / "tiny")
    jobs = plan(scenario, ["AN", "WAN", "AdaGC"], place / "out", [0, 1])
    todo = [job for job in jobs if job.method != "AdaGC"]
    LocalEngine(1).run(todo, lambda event: None)
    results = collect("tiny", jobs)
    assert len(results.finished) == 4
    pack(scenario, results, place / "pack", KEPT)
    return results, place / "pack"


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_tables_are_the_same(made, view):
    results, folder = made
    one, two = (
        render.markdown(tables.build(which, view=view, title="Tiny"))
        for which in (results, unpack(folder)[1])
    )
    assert one == two
    assert "AdaGC" in one  # also what was planned and not run


def test_the_recommendation_is_the_same(made):
    results, folder = made
    view = VIEWS["averaged-best"]
    wanted = recommend(results, view, resamples=50)
    assert recommend(unpack(folder)[1], view, resamples=50) == wanted
    assert wanted.lead is not None


def test_the_command_prints_what_the_bench_printed(made, tmp_path, capsys):
    place = made[1].parent
    line = ["bench", str(place / "tiny"), "--out", str(place / "out"), "--seeds", "0", "1"]
    assert main([*line, "--methods", "AN", "WAN", "--pack", str(tmp_path / "packs")]) == 0
    printed = capsys.readouterr().out
    assert main(["tables", str(tmp_path / "packs" / "tiny"), "--out", str(tmp_path / "new")]) == 0
    again = capsys.readouterr().out
    assert again.strip() in printed
    assert "mAP" in again
    written, before = (
        (place / "tiny" / "table.md").read_text() for place in (tmp_path / "new", place / "out")
    )
    # Views whose predictions are not in the pack, those of the trained network, have no intervals.
    assert written.split("\n\n")[:6] == before.split("\n\n")[:6]


def test_histories_settings_and_the_environment_are_kept(made):
    results, folder = made
    for before, after in zip(
        sorted(results.finished, key=lambda run: (run.label, run.seed)),
        sorted(unpack(folder)[1].finished, key=lambda run: (run.label, run.seed)),
        strict=True,
    ):
        assert after.run.history == before.run.history
        assert after.run.settings.options == before.run.settings.options
        assert after.run.read_json("environment.json")["git"]
        digests = after.run.read_json("predictions.sha256.json")
        assert {"file", "network-last", "averaged-best"} <= digests.keys()


def test_the_same_results_give_the_same_bytes_and_old_rows_go(made, tmp_path):
    results, folder = made
    (tmp_path / "gone.zip").write_bytes(b"")
    pack(unpack(folder)[0], results, tmp_path, KEPT)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_no_place_of_this_machine_is_in_a_pack(made):
    results, folder = made
    place = str(Path(results.jobs[0].folder).parents[2])
    assert place not in (folder / "pack.json").read_text()
    for path in folder.glob("*.zip"):
        with zipfile.ZipFile(path) as file:
            assert all(place.encode() not in file.read(name) for name in file.namelist())


def test_what_is_not_a_pack_is_said(tmp_path, made):
    with pytest.raises(AdagcError, match=r"not a pack of results.*adagc bench --pack"):
        unpack(tmp_path)
    _, folder = made
    index = json.loads((folder / "pack.json").read_text())
    (tmp_path / "pack.json").write_text(json.dumps({**index, "format": 99}))
    with pytest.raises(AdagcError, match="newer adagc"):
        unpack(tmp_path)
    (tmp_path / "pack.json").write_text(json.dumps(index))
    for name in index["rows"].values():
        (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(AdagcError, match="damaged"):
        unpack(tmp_path)


@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=2, max_size=2), min_size=2)
)
def test_places_give_the_average_precision_of_the_probabilities(rows):
    values = np.array(rows, np.float32)
    truth = np.random.default_rng(0).random(values.shape) < 0.5
    truth[0] = True
    np.testing.assert_array_equal(
        average_precision(truth, ranks_of(values).astype(np.float32)),
        average_precision(truth, values),
    )
