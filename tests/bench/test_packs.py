"""A pack must give the tables and the recommendation of the run folders it was made from."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from dataclasses import replace
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
from adagc.errors import AdagcError, UsageError
from adagc.metrics.exact import average_precision
from adagc.training.views import VIEWS
from fake_results import with_told
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
        known = after.run.read_json("environment.json")
        assert known == before.run.read_json("environment.json")
        assert {"git", "packages", "threads"} <= known.keys()
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
    with pytest.raises(UsageError, match=r"not a pack of results.*adagc bench --pack"):
        unpack(tmp_path)
    _, folder = made
    with pytest.raises(UsageError, match=f"not a pack of results.*; give {folder}$"):
        unpack(folder.parent)
    with pytest.raises(UsageError, match=r"pack.json is a file: give the folder"):
        unpack(folder / "pack.json")
    with pytest.raises(UsageError, match=r"PACK .*pakc: there is no such .*did you mean 'pack'"):
        unpack(folder.with_name("pakc"))
    index = json.loads((folder / "pack.json").read_text())
    (tmp_path / "pack.json").write_text(json.dumps({**index, "format": 99}))
    with pytest.raises(AdagcError, match="newer adagc"):
        unpack(tmp_path)
    (tmp_path / "pack.json").write_text(json.dumps(index))
    for name in index["rows"].values():
        (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(AdagcError, match="damaged"):
        unpack(tmp_path)


def changed(folder: Path, tmp_path: Path, change) -> Path:
    """A copy of a pack, after a function was applied to the content of its pack.json."""
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / "pack.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    return tmp_path / "copy"


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.clear(),
        lambda index: index.pop("rows"),
        lambda index: index.update(rows=None),
        lambda index: index.update(format="x"),
        lambda index: index["scenario"].pop("title"),
        lambda index: index.update(planned=["x"]),
        lambda index: index.update(failed=3),
    ],
)
def test_a_damaged_index_is_named(made, tmp_path, change):
    with pytest.raises(AdagcError, match=r"copy.pack\.json is damaged \(.+\): pack the results"):
        unpack(changed(made[1], tmp_path, change))


@pytest.mark.parametrize("member", ["job.json", "order.safetensors", "config.yaml", "scores.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"{1"])
def test_a_damaged_file_of_a_run_is_named(made, tmp_path, member, content):
    shutil.copytree(made[1], tmp_path / "copy")
    path = tmp_path / "copy" / "an.zip"
    with zipfile.ZipFile(path) as file:
        files = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, old in files.items():
            file.writestr(name, content if name == f"seed0/{member}" else old)
    with pytest.raises(AdagcError, match=r"copy.an\.zip(:| is damaged \()"):
        unpack(tmp_path / "copy")


def test_a_wrong_bit_is_noticed_unless_nothing_reads_it(made, tmp_path, capsys):
    """Most bits of a ZIP file are compressed data, for which Python has an error of its own."""
    assert main(["tables", str(made[1])]) == 0
    wanted = capsys.readouterr().out
    noticed = 0
    shutil.copytree(made[1], tmp_path / "copy")
    path = tmp_path / "copy" / "an.zip"
    whole = path.read_bytes()
    for place in np.linspace(40, len(whole) // 2, 30).astype(int):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        wrong = main(["tables", str(tmp_path / "copy")])
        shown = capsys.readouterr()
        if wrong:
            (said,) = shown.err.strip().splitlines()
            assert "an.zip" in said
        else:
            assert shown.out == wanted
        noticed += wrong
    assert noticed > 15


def test_rows_whose_names_differ_in_signs_only_are_kept_apart(made, tmp_path):
    results, folder = made
    other = {"AN": "A+", "WAN": "A-"}
    renamed = replace(
        results,
        jobs=tuple(replace(job, label=other.get(job.label, job.label)) for job in results.jobs),
        finished=tuple(replace(run, label=other[run.label]) for run in results.finished),
    )
    pack(unpack(folder)[0], renamed, tmp_path, KEPT)
    again = unpack(tmp_path)[1]
    assert [run.method for run in again.of("A+")] == ["AN", "AN"]
    assert [run.method for run in again.of("A-")] == ["WAN", "WAN"]


def test_messages_and_tuned_options_name_no_place_either(made, tmp_path):
    results, folder = made
    scenario = replace(unpack(folder)[0], tuned="/home/somebody/tuned")
    job = results.jobs[-1]
    jobs = tuple(
        replace(one, settings={**one.settings, "labels": "/data/of/somebody/labels.csv"})
        for one in results.jobs
    )
    text = f"seed 1: {job.folder} is damaged, /data/of/somebody/labels.csv is missing"
    broken = replace(results, jobs=jobs, failed={"AdaGC": [text]}, unsuited={"LCR": [text]})
    pack(scenario, broken, tmp_path, KEPT)
    said = f"seed 1: {Path(job.folder).name} is damaged, labels.csv is missing"
    again = unpack(tmp_path)
    assert (again[1].failed, again[1].unsuited) == ({"AdaGC": [said]}, {"LCR": [said]})
    assert again[0].tuned == "tuned"
    assert "somebody" not in (tmp_path / "pack.json").read_text()


def test_a_pack_without_predictions_has_tables_and_says_why_nothing_is_recommended(made, tmp_path):
    results, folder = made
    pack(unpack(folder)[0], results, tmp_path, views=())
    again = unpack(tmp_path)[1]
    view = KEPT[0]
    assert render.markdown(tables.build(again, view=view)) == render.markdown(
        tables.build(results, view=view)
    )
    said = "There is no recommendation yet: this pack has no predictions of test images, which"
    assert recommend(again, view).sentence.startswith(said)


def test_an_order_that_contradicts_the_scores_is_noticed(made, tmp_path):
    """The table shows the scores, and the recommendation is made from the order."""
    shutil.copytree(made[1], tmp_path / "copy")
    path = tmp_path / "copy" / "an.zip"
    with zipfile.ZipFile(path) as file:
        files = {name: file.read(name) for name in file.namelist()}
    files["seed1/order.safetensors"] = files["seed0/order.safetensors"]
    with zipfile.ZipFile(path, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    found = recommend(unpack(tmp_path / "copy")[1], KEPT[0])
    assert re.search(
        r"yet: AN, seed 1, has predictions with another mAP \(\S+\) than its scores \(\S+\): pack"
        r" the results again",
        found.sentence,
    )


def test_runs_that_were_told_stay_marked(made, tmp_path):
    results, folder = made
    told = with_told(results, "WAN", "weight")
    pack(unpack(folder)[0], told, tmp_path, KEPT)
    again = unpack(tmp_path)[1]
    assert again.told("WAN") == ("weight",)
    assert "WANᵃ" in render.markdown(tables.build(again, view=KEPT[0]))


def test_tables_are_judged_as_the_bench_was(made, tmp_path, capsys):
    place = made[1].parent
    line = ["bench", str(place / "tiny"), "--out", str(place / "out"), "--seeds", "0", "1"]
    line += ["--methods", "AN", "WAN", "--judge", "network-last", "--pack", str(tmp_path)]
    assert main(line) == 0
    printed = capsys.readouterr().out
    assert "trained network, last epoch" in printed
    assert main(["tables", str(tmp_path / "tiny")]) == 0
    assert capsys.readouterr().out.strip() in printed
    assert main(["tables", str(tmp_path / "tiny"), "--judge", "averaged-last"]) == 0
    assert "averaged network, last epoch" in capsys.readouterr().out
    # A pack of an earlier version does not say it.
    old = changed(tmp_path / "tiny", tmp_path, lambda index: index.pop("views"))
    assert main(["tables", str(old)]) == 0
    assert "averaged network, last epoch" in capsys.readouterr().out


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
