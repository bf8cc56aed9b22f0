from __future__ import annotations

import csv
import inspect
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from adagc.bench.engines import Event, LocalEngine
from adagc.bench.estimate import seconds_left
from adagc.bench.jobs import plan
from adagc.bench.packs import unpack
from adagc.bench.results import collect
from adagc.bench.scenarios import AVERAGE, load
from adagc.bench.slurm.engine import SlurmEngine
from adagc.bench.work import perform
from adagc.cli import main
from adagc.commands.running import complain
from adagc.compare import render
from adagc.compare.recommendation import recommend
from adagc.compare.tables import build
from adagc.errors import AdagcError, UsageError
from adagc.metrics import METRICS
from adagc.paper.ablate import plan as plan_study
from adagc.paper.ablate import studies
from adagc.training.config import RunConfig
from adagc.training.views import VIEWS, View
from adagc.types import NetworkRole
from tiny import write_scenario


@pytest.fixture
def done(tiny, tmp_path):
    """A bench of two methods and one seed, run in this process: the command finds it finished."""
    for job in plan(tiny, ["AN", "AdaGC"], tmp_path / "out", [0]):
        perform(job)
    return tmp_path


def words(folder: Path, command: str = "bench", *more: str) -> list[str]:
    return [command, str(folder / "tiny"), "--out", str(folder / "out"), "--seeds", "0", *more]


def test_tables_are_made_of_the_folders_alone(done, capsys):
    assert main(words(done, "bench", "--methods", "AN", "AdaGC", "--json")) == 0
    found = json.loads(capsys.readouterr().out)["tiny"]
    views = [(table["network"], table["choice"]) for table in found["tables"]]
    assert views == [
        ("averaged", "last"), ("averaged", "best"), ("network", "last"), ("network", "best"),
    ]  # fmt: skip
    (run,) = (done / "out" / "tiny" / "an").glob("seed0-*/scores.json")
    scores = json.loads(run.read_text())["networks"]["averaged"]["best"]
    with (done / "out" / "tiny" / "table.csv").open(newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["label"] == "AN"]
    assert len(lines) == 4 * len(METRICS)
    value = next(
        float(line["mean"])
        for line in lines
        if (line["network"], line["epoch"], line["metric"]) == ("averaged", "best", "mean_f1")
    )
    assert value == pytest.approx(100 * scores["mean_f1"])
    texts = {path.suffix: path.read_text() for path in (done / "out" / "tiny").glob("table.*")}
    assert set(texts) == {".md", ".csv", ".tex", ".json"}
    assert found["verdict"]["sentence"] in texts[".md"]
    before = texts[".md"]
    assert main(words(done, "bench", "--methods", "AN", "AdaGC")) == 0
    assert (done / "out" / "tiny" / "table.md").read_text() == before
    shown = capsys.readouterr().out
    assert "Tiny (averaged network, last epoch)" in shown
    assert "table.md" in shown
    assert "mAP of AdaGC against averaged AN" in " ".join(shown.split())


@pytest.mark.parametrize("name", VIEWS)
def test_one_view_is_judged_and_comes_first(done, capsys, name):
    methods = ["--methods", "AN", "AdaGC"]
    assert main(words(done, "bench", *methods, "--judge", name)) == 0
    view = VIEWS[name]
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Tiny ({view.title})" in shown
    assert f"({view.networks}; " in shown
    folder = done / "out" / "tiny"
    lines = (folder / "table.md").read_text().splitlines()
    assert lines[0] == f"**Tiny ({view.title})**"
    assert lines[-1].startswith(("AN has the highest", "AdaGC has the highest"))
    found = json.loads((folder / "table.json").read_text())
    assert found["judge"] == found["verdict"]["view"] == name
    assert set(found["verdicts"]) == set(VIEWS)
    # Every view has its own leader, lead and gains, which are those of the scores in it.
    for other in VIEWS:
        scores = {}
        for label in ("an", "adagc"):
            (run,) = (folder / label).glob("seed0-*/scores.json")
            network, _, choice = other.partition("-")
            tested = json.loads(run.read_text())["networks"][network][choice]
            scores[label] = tested["mean_average_precision"]
        verdict = found["verdicts"][other]
        assert verdict["lead"]["mean"] == pytest.approx(abs(scores["adagc"] - scores["an"]))
        (table,) = [t for t in found["tables"] if f"{t['network']}-{t['choice']}" == other]
        gain = table["gains"]["AdaGC"]["AN"]
        assert gain["mean"] == pytest.approx(scores["adagc"] - scores["an"])


def test_a_view_that_is_not_there_is_refused(done, capsys):
    assert main(words(done, "bench", "--judge", "averaged")) == 2
    assert "averaged-last" in capsys.readouterr().err


def test_every_method_keeps_an_average_unless_the_scenario_says_no(tmp_path, capsys):
    scenario = write_scenario(tmp_path / "tiny", epochs=1)
    text = (tmp_path / "tiny" / "scenario.yaml").read_text()
    (tmp_path / "tiny" / "scenario.yaml").write_text(text.replace("average: 0.9\n", ""))
    assert load(str(tmp_path / "tiny")).settings["average"] == AVERAGE
    (tmp_path / "tiny" / "scenario.yaml").write_text(text.replace("0.9\n", "null\n"))
    scenario = load(str(tmp_path / "tiny"))
    assert scenario.settings["average"] is None
    for job in plan(scenario, ["AN", "WAN"], tmp_path / "out", [0]):
        perform(job)
    # Then all methods are judged by their trained networks.
    assert main(words(tmp_path, "bench", "--methods", "AN", "WAN")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Tiny (trained network, last epoch)" in shown
    assert "(trained networks after the last epoch; " in shown
    assert main(words(tmp_path, "bench", "--methods", "AN", "WAN", "--judge", "averaged-last")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "no run has test scores of its averaged network: choose another view with --judge" in shown
    )


def test_a_dry_run_says_what_is_missing_and_does_nothing(done, capsys):
    arguments = words(done, "bench", "--methods", "AN", "WAN", "--dry-run", "--json")
    before = sorted(done.rglob("*"))
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == 2
    (missing,) = told["to_do"]
    assert missing["status"] == "missing"
    assert "WAN" in missing["run"]
    assert told["seconds"] > 0
    assert sorted(done.rglob("*")) == before


def test_the_estimate_goes_by_what_is_finished(tiny, done):
    jobs = plan(tiny, ["AN", "WAN", "AdaGC"], done / "out", [0, 1])
    known = collect("tiny", jobs)
    (own,) = known.of("AN")
    (missing,) = [job for job in jobs if job.method == "AN" and job.seed == 1]
    assert seconds_left([missing], [known], 1) == pytest.approx(own.seconds)
    assert seconds_left([missing] * 4, [known], 2) == pytest.approx(2 * own.seconds)
    # No number of workers makes one run shorter.
    assert seconds_left([missing], [known], 8) == pytest.approx(own.seconds)
    (wan,) = [job for job in jobs if job.method == "WAN" and job.seed == 1]
    assert seconds_left([wan], [known], 1) > 0
    other = write_scenario(done / "other")
    assert seconds_left(plan(other, ["AN"], done / "out", [0]), [known], 1) is None


def test_a_failed_run_is_in_the_table_and_in_the_exit_code(tmp_path, capsys):
    write_scenario(tmp_path / "tiny", epochs=1)
    (tmp_path / "tiny" / "an-ls.yaml").write_text("method: {title: AN-LS, smoothing: -1}")
    assert main(words(tmp_path, "bench", "--methods", "AN", "AN-LS", "--workers", "1")) == 1
    streams = capsys.readouterr()
    assert "1 run(s) failed" in streams.err
    assert "smoothing" in streams.err
    text = (tmp_path / "out" / "tiny" / "table.md").read_text()
    assert "failed" in text
    (run,) = (tmp_path / "out" / "tiny" / "an").glob("seed0-*/scores.json")
    score = 100 * json.loads(run.read_text())["networks"]["network"]["last"]["mean_f1"]
    assert f"{score:.2f}" in text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("scores.json", '{"networks": {'),
        ("scores.json", '{"networks": {"network": {"last": {"mean_f1": 1}}}}'),
        ("model.json", "{}"),
        ("config.yaml", "]["),
    ],
)
def test_a_damaged_run_is_named_and_the_others_have_their_table(done, capsys, name, content):
    (run,) = (done / "out" / "tiny" / "an").glob("seed0-*/")
    (run / name).write_text(content)
    assert main(words(done, "bench", "--methods", "AN", "AdaGC")) == 1
    told = capsys.readouterr()
    assert f"{run} is damaged" in told.err
    assert "delete it" in told.err
    assert "AdaGC" in (done / "out" / "tiny" / "table.md").read_text()


def test_damaged_predictions_cost_the_sentence_and_nothing_else(done, capsys):
    (run,) = (done / "out" / "tiny" / "an").glob("seed0-*/")
    path = run / "predictions.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    assert main(words(done, "bench", "--methods", "AN", "AdaGC")) == 0
    told = capsys.readouterr().out
    assert f"{path} is damaged" in told.replace("\n", " ")
    assert "no recommendation" in told


def test_a_damaged_history_of_an_unfinished_run_does_not_stop_the_bench(done, capsys):
    (job,) = plan(load(str(done / "tiny")), ["AN"], done / "out", [0])
    (Path(job.folder) / "bench.json").unlink()
    (Path(job.folder) / "history.jsonl").write_text("garbage\n")
    assert main(words(done, "bench", "--methods", "AN", "AdaGC", "--dry-run")) == 0
    assert "1 to do" in capsys.readouterr().out


def test_runs_with_different_networks_are_not_mixed(tmp_path, capsys):
    """What "auto" means depends on the packages that are there."""
    scenario = write_scenario(tmp_path / "tiny", epochs=1, weights="auto", backbone="test_resnet")
    for job in plan(scenario, ["AN", "WAN"], tmp_path / "out", [0]):
        perform(job)
    assert main(words(tmp_path, "bench", "--methods", "AN", "WAN")) == 0
    (config,) = (tmp_path / "out" / "tiny" / "wan").glob("seed0-*/config.yaml")
    config.write_text(config.read_text().replace("weights: none", "weights: registry"))
    assert main(words(tmp_path, "bench", "--methods", "AN", "WAN")) == 1
    told = capsys.readouterr().err
    assert "weights none" in told
    assert "with registry" in told
    assert "set weights in scenario.yaml" in told


def test_ablate_knows_tuned_options_and_needs_no_plots(tiny, tmp_path, capsys, monkeypatch):
    tuned = tmp_path / "tuned"
    tuned.mkdir()
    (tuned / "adagc.yaml").write_text("method: {title: AdaGC, weight: 7}")
    studies_ = ["--studies", "mixup", "--tuned", str(tuned)]
    with_options = load(str(tmp_path / "tiny")).with_options(tuned)
    for group in plan_study(with_options, ["mixup"], tmp_path / "out", [0]).values():
        for job in group:
            perform(job)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(words(tmp_path, "ablate", *studies_)) == 0
    told = capsys.readouterr()
    assert "without Mixup" in told.out
    assert "no figure of the ablation mixup" in told.err
    found = json.loads((tmp_path / "out" / "tiny" / "ablations" / "mixup.json").read_text())
    assert found["options"]["with Mixup"]["weight"] == 7


def test_a_method_that_lacks_something_is_left_out_unless_asked_for(tmp_path):
    scenario = write_scenario(
        tmp_path / "tiny", epochs=1, backbone="linear", size=None, scenes=RunConfig.scenes
    )
    values = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    labels = ["image,x,y,z", *(f"{i:05d},{i % 2},{(i + 1) % 2},1" for i in range(60))]
    np.save(tmp_path / "embeddings.npy", values)
    (tmp_path / "truth.csv").write_text("\n".join(labels))
    scenario = scenario.with_settings(
        data="array", root=str(tmp_path / "embeddings.npy"), truth=str(tmp_path / "truth.csv")
    )
    jobs = plan(scenario, ["AN", "WAN", "LCR"], tmp_path / "out", [0])
    events: list[Event] = []
    LocalEngine(1).run(jobs, events.append)
    assert [event.kind for event in events if event.job.label == "LCR"] == ["started", "unsuited"]
    found = collect("tiny", jobs)
    assert not found.failed
    assert [result.label for result in found.finished] == ["AN", "WAN"]
    assert "adagc text" in found.unsuited["LCR"][0]
    table = build(found)
    (row,) = [row for row in table.rows if row.label == "LCR"]
    assert row.state.startswith("left out: needs text")
    said = recommend(found, resamples=20)
    assert (said.planned, said.failed, said.unfinished) == (2, 0, 0)
    complain([found], asked=False)
    with pytest.raises(AdagcError, match="LCR needs text"):
        complain([found], asked=True)


def test_data_that_is_not_there_is_said_once_and_before_anything(tmp_path, capsys):
    write_scenario(tmp_path / "tiny", data="folder", root=str(tmp_path / "nowhere"), size=None)
    assert main(words(tmp_path, "bench", "--dry-run")) == 2
    assert "nowhere: no such data, which tiny asks for" in capsys.readouterr().err


def test_a_bench_without_clean_labels_says_so_before_training(tmp_path, capsys):
    (tmp_path / "labels.csv").write_text("image,label\n")
    (tmp_path / "photos").mkdir()
    write_scenario(
        tmp_path / "tiny", data="folder", root=str(tmp_path / "photos"), size=None, scheme=None,
        labels=str(tmp_path / "labels.csv"),
    )  # fmt: skip
    assert main(words(tmp_path, "bench", "--dry-run")) == 0
    assert "tiny has no clean labels" in capsys.readouterr().err
    write_scenario(tmp_path / "tiny")
    assert main(words(tmp_path, "bench", "--dry-run")) == 0
    assert "no clean labels" not in capsys.readouterr().err


def test_tables_and_dry_runs_say_what_a_reader_must_know(tiny, tmp_path, capsys):
    assert main(words(tmp_path, "bench", "--methods", "AN", "--dry-run")) == 0
    told = capsys.readouterr().out
    assert "to do     tiny · AN · seed 0" in told
    assert "the time needed is not known" in told
    for job in plan(tiny, ["AN"], tmp_path / "out", [0]):
        perform(job)
    assert main(words(tmp_path, "bench", "--methods", "AN", "--dry-run")) == 0
    assert "about" not in capsys.readouterr().out
    assert main(words(tmp_path, "bench", "--methods", "AN")) == 0
    table = (tmp_path / "out" / "tiny" / "table.md").read_text()
    assert "Settings: 2 epochs, batches of 8, 24 training scenes." in table
    found = json.loads((tmp_path / "out" / "tiny" / "table.json").read_text())
    (folder,) = found["runs"].values()
    assert (Path(folder) / "scores.json").exists()
    assert found["options"] == {"AN": {}}


def test_figures_of_runs_with_other_settings_say_so(tiny, tmp_path, capsys):
    for job in plan(tiny, ["AN"], tmp_path / "out", [0]):
        perform(job)
    arguments = words(tmp_path, "figures", "--to", str(tmp_path / "f"))
    assert main([*arguments, "--epochs", "3"]) == 1
    assert "other settings" in capsys.readouterr().err
    assert main([*arguments, "--only", "ranks"]) == 1  # one method has no rank
    assert "ranks was not drawn" in capsys.readouterr().err


def test_ablations_share_runs_that_are_the_same(tiny, tmp_path):
    planned = plan_study(tiny, ["trigger", "pseudo-labels", "mixup"], tmp_path, [0])
    labels = {study.name: [job.label for job in jobs] for study, jobs in planned.items()}
    assert labels["pseudo-labels"] == ["T + S", "T", "S", "T + S'", "S'"]
    assert labels["mixup"] == ["with Mixup", "without Mixup"]
    jobs = [job for group in planned.values() for job in group]
    whole = {job.folder for job in jobs if job.label in ("adaptive", "T + S", "with Mixup")}
    assert len(whole) == 1
    assert len({job.folder for job in jobs}) == len(jobs) - 2
    with pytest.raises(UsageError, match="pseudo-labels"):
        plan_study(tiny, ["pseudolabels"], tmp_path)


def test_fixed_triggers_keep_the_paper_s_share_of_the_run():
    names = list(studies(70)["trigger"].variants)
    assert names == ["adaptive", "after epoch 10", "after epoch 20", "after epoch 30"]
    assert all(study.variants for study in studies(2).values())


def test_ablate_figures_and_theory_from_finished_runs(tiny, tmp_path, capsys):
    for job in plan_study(tiny, ["mixup"], tmp_path / "out", [0]).popitem()[1]:
        perform(job)
    packs = ["--pack", str(tmp_path / "packs")]
    assert main(words(tmp_path, "ablate", "--studies", "mixup", "--json", *packs)) == 0
    (study,) = json.loads(capsys.readouterr().out)
    rows = [row for group in study["tables"][0]["groups"] for row in group["rows"]]
    assert [row["label"] for row in rows] == ["with Mixup (teacher)", "without Mixup (teacher)"]
    assert study["tables"][0]["network"] == "teacher"
    written = {path.name for path in (tmp_path / "out" / "tiny" / "ablations").iterdir()}
    assert written == {f"mixup.{kind}" for kind in ("md", "csv", "tex", "json", "pdf", "png")}
    _, packed = unpack(tmp_path / "packs" / "tiny" / "mixup")
    again = build(packed, view=View(NetworkRole.TEACHER))
    assert json.loads(json.dumps(render.json([again])))[0]["groups"] == study["tables"][0]["groups"]

    to = tmp_path / "figures"
    assert main(words(tmp_path, "figures", "--to", str(to), "--json")) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert (to / "trends.pdf").exists()
    assert (to / "trends.png").exists()
    assert isinstance(drawn["gap"], str)  # no GT, no AN: it says so

    (run,) = {Path(job.folder) for job in plan(tiny, ["AdaGC"], tmp_path / "out", [0])}
    assert main(["theory", str(run), "--json"]) == 0
    theory = json.loads(capsys.readouterr().out)
    assert Path(theory["figure"][0]).exists()


@pytest.mark.parametrize("name", [None, "network-best"])
def test_figures_are_drawn_in_the_view_that_is_judged(done, monkeypatch, name):
    told = []

    def draw(results, out, only, *, view):
        told.append(view)
        return {}

    monkeypatch.setattr("adagc.paper.figures.draw_all", draw)
    judge = [] if name is None else ["--judge", name]
    assert main(words(done, "figures", "--to", str(done / "figures"), *judge)) == 0
    assert told == [VIEWS[name or "averaged-last"]]


def test_figures_without_runs_say_what_to_do(tiny, tmp_path, capsys):
    assert main(words(tmp_path, "figures", "--to", str(tmp_path / "figures"))) == 1
    assert "adagc bench" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--partition", "short"], "--engine slurm"),
        (["--engine", "slurm", "--workers", "2"], "--parallel"),
        (["--methods", "AdaGX"], "AdaGC"),
        (["--workers", "0"], "at least 1"),
    ],
)
def test_contradictions_are_refused(tiny, tmp_path, capsys, more, told):
    assert main(words(tmp_path, "bench", *more)) == 2
    assert told in capsys.readouterr().err


def test_help_says_the_defaults_of_slurm(capsys):
    with pytest.raises(SystemExit) as end:
        main(["bench", "--help"])
    assert end.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    numbers = {
        name: parameter.default
        for name, parameter in inspect.signature(SlurmEngine).parameters.items()
        if type(parameter.default) is int
    }
    assert {"minutes", "cpus", "gpus", "runs_per_job", "parallel", "requeues"} == numbers.keys()
    for name, default in numbers.items():
        about = told.split(f" --{name.replace('_', '-')} ")[-1].split(" --")[0]
        assert f", {default} by default" in about, name


def test_a_table_of_the_paper_that_is_not_there_is_named_before_any_run(tmp_path, capsys):
    write_scenario(tmp_path / "tiny", bench={"paper": "reben-randm"})
    out = tmp_path / "out"
    assert main(["bench", str(tmp_path / "tiny"), "--methods", "AN", "--out", str(out)]) == 2
    assert "reben-randm" in (said := capsys.readouterr().err)
    assert "reben-random" in said
    assert not out.exists()
