"""One convention for the words of a command line, and every older spelling beside it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import adagc.text.command
from adagc.bench.jobs import plan
from adagc.bench.work import perform
from adagc.cli import COMMANDS, main
from adagc.training.command import parse_train
from tiny import write_scenario


def help_of(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.fixture
def truth(tmp_path) -> Path:
    path = tmp_path / "truth.csv"
    path.write_text("image,forest,water\na,1,1\nb,0,1\nc,1,0\n")
    return path


@pytest.fixture
def done(tiny, tmp_path) -> Path:
    """A finished run in the folder `out` of a bench."""
    (job,) = plan(tiny, ["AdaGC"], tmp_path / "out", [0])
    perform(job)
    return Path(job.folder)


# -- what is acted on is an argument -------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["photos"], ["--root", "photos"], ["--root=photos"]], ids=" ".join
)
def test_train_takes_its_data_as_an_argument_or_as_root(words):
    for line in ([*words, "--epochs", "3"], ["--epochs", "3", *words]):
        order = parse_train([*line, "--scheme", "random", "--out", "x"])
        assert (order.config.root, order.config.epochs) == ("photos", 3)


def test_a_config_may_name_the_data_and_the_command_line_another(tmp_path):
    (tmp_path / "c.yaml").write_text("root: old\nscheme: random\n")
    words = ["--config", str(tmp_path / "c.yaml"), "--out", "x"]
    assert parse_train(words).config.root == "old"
    assert parse_train([*words, "new"]).config.root == "new"


@pytest.mark.parametrize("word", ["", "--root"])
def test_inspect(capsys, tmp_path, word):
    np.save(tmp_path / "rows.npy", np.eye(6))
    assert main(["inspect", *filter(None, [word]), str(tmp_path / "rows.npy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"]


@pytest.mark.parametrize("word", ["", "--truth"])
def test_simulate(capsys, tmp_path, truth, word):
    out = tmp_path / "one.csv"
    words = [*filter(None, [word]), str(truth), "--out", str(out)]
    assert main(["simulate", *words]) == 0
    assert "b,water" in out.read_text()


@pytest.mark.parametrize("word", ["", "--classes"])
def test_text(capsys, tmp_path, monkeypatch, word):
    asked = []

    def embed(classes, out, *, encoder):
        asked.append((classes, out, encoder))
        return SimpleNamespace(to_dict=dict)

    monkeypatch.setattr(adagc.text.command, "embed_file", embed)
    words = [*filter(None, [word]), "river, lake", "--out", "names.csv", "--json"]
    assert main(["text", *words]) == 0
    assert asked == [("river, lake", Path("names.csv"), "minilm")]


def test_arguments_may_stand_between_options(capsys, tmp_path):
    for name in ("one", "two"):
        write_scenario(tmp_path / name)
    words = [str(tmp_path / "one"), "--dry-run", str(tmp_path / "two"), "--methods", "AN"]
    assert main(["bench", *words, "--seeds", "0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [job["run"] for job in told["to_do"]] == ["one · AN · seed 0", "two · AN · seed 0"]


# -- what is written is --out --------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["new", "old", "oldest"])
def test_figures(capsys, tmp_path, monkeypatch, done, spelling):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    words = {
        "new": ["--runs", "out", "--out", "figures"],
        "old": ["--out", "out", "--to", "figures"],
        "oldest": ["--out", "out"],  # figures go to figures/
    }[spelling]
    assert main(["figures", "tiny", "--seeds", "0", "--only", "trends", *words]) == 0
    assert (tmp_path / "figures" / "trends.pdf").exists()
    assert not (tmp_path / "out" / "trends.pdf").exists()
    assert ("call it --runs" in capsys.readouterr().err) == (spelling == "oldest")


def test_figures_beside_their_runs(tmp_path, monkeypatch, done):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    words = ["--runs", "out", "--out", "out", "--only", "trends"]
    assert main(["figures", "tiny", "--seeds", "0", *words]) == 0
    assert (tmp_path / "out" / "trends.pdf").exists()


@pytest.mark.parametrize("word", ["--out", "--to"])
def test_theory(tmp_path, done, word, capsys):
    pytest.importorskip("matplotlib")
    assert main(["theory", str(done), word, str(tmp_path / "figure")]) == 0
    assert list((tmp_path / "figure").glob("theory.*"))


@pytest.mark.parametrize("word", ["--tuned", "--to"])
def test_tune(tmp_path, capsys, word):
    pytest.importorskip("optuna")
    write_scenario(tmp_path / "tiny")
    words = ["--methods", "LL-R", "--trials", "1", "--epochs", "1", "--out", str(tmp_path / "out")]
    assert main(["tune", str(tmp_path / "tiny"), *words, word, str(tmp_path / "chosen")]) == 0
    assert (tmp_path / "chosen" / "ll-r.yaml").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_one_spelling_only(capsys, name):
    text = help_of(capsys, name)
    flags = {line.split()[0] for line in text.splitlines() if line.startswith("  --")}
    assert "--to" not in flags
    assert not any("_" in flag for flag in flags)
    positional = {
        "train": "root", "inspect": "root", "simulate": "truth", "text": "classes",
        "evaluate": "run", "report": "run", "theory": "run", "tune": "scenario",
    }  # fmt: skip
    if name in positional:
        assert f"\n  {positional[name].upper()} " in text
        assert f"--{positional[name]}" not in flags


# -- dashes, underscores, lists ------------------------------------------------------------------


@pytest.mark.parametrize("dash", ["-", "_"])
def test_dashes_and_underscores_are_the_same(dash, capsys, tmp_path):
    words = ["--batch-size", "7", "--label-seed=3", "--method.teacher-momentum", "0.5"]
    spelt = [word.replace("-", dash) if word.startswith("--") else word for word in words]
    spelt = [word.replace(dash * 2, "--", 1) for word in spelt]
    order = parse_train([*spelt, "--method", "AdaGC", "--scheme", "random", "--out", "x"])
    assert (order.config.batch_size, order.config.label_seed) == (7, 3)
    assert order.options["teacher_momentum"] == 0.5
    write_scenario(tmp_path / "tiny")
    studies = ["--studies", f"memory{dash}momentum", f"--dry{dash}run", "--json"]
    assert main(["ablate", str(tmp_path / "tiny"), "--seeds", "0", *studies]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == 4


@pytest.mark.parametrize(
    "words",
    [["red", "green", "nir"], ["red,green,nir"], ["[red,green,nir]"], ["[red,", "green,", "nir]"]],
    ids=" ".join,
)
def test_bands_may_be_written_in_any_way_for_inspect_too(capsys, tmp_path, words):
    (tmp_path / "photos").mkdir()
    for number in range(3):
        pixels = np.full((8, 8, 3), number, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    assert main(["inspect", str(tmp_path / "photos"), "--bands", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bands"] == ["red", "green", "nir"]


# -- help ----------------------------------------------------------------------------------------

FIRST = [
    "ROOT", "--labels", "--truth", "--data", "--size", "--epochs", "--method", "--out", "--resume",
    "--config",
]  # fmt: skip


def test_the_help_of_train_begins_with_what_a_first_run_needs(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(capsys, "train").splitlines()
    start = lines.index("for a first run:") + 1
    end = lines.index("", start)
    options = [line.split()[0] for line in lines[start:end] if line[2] != " "]
    assert options == FIRST
    assert end < 40  # on the first screen
    # As short as it was with 46 options on 169 lines.
    count = len([line for line in lines if line.startswith("  -")])
    assert count >= 46
    assert len(lines) <= count * 169 / 46
    assert max(map(len, lines)) <= 80
    headings = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    wanted = ["data", "labels", "network", "training", "scores", "method", "output"]
    assert headings == ["example", "for a first run", *wanted]
    # The options of a method are named where they are asked for.
    text = "\n".join(lines)
    assert "--method.patience" not in text
    assert not [line for line in lines if line.startswith("  --method.")]
    assert "adagc methods NAME" in " ".join(text.split())
    assert "  --method.patience N" in help_of(capsys, "train", "--method", "AdaGC")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_its_example_one_line(capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(capsys, name).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[lines.index("example:") + 1].startswith(f"  adagc {name}")


def test_the_overview_is_one_screen_and_has_every_command_once(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(listed) == sorted(COMMANDS)


def test_all_methods_fit_a_screen(capsys, monkeypatch):
    from adagc import console
    from adagc.methods import outlines

    monkeypatch.setattr(console.stdout, "width", 80)
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    for title, method in outlines().items():
        summary = (method.__doc__ or "").strip().partition("\n")[0]
        (line,) = [line for line in lines if line.startswith(f"  {title} ") and summary in line]
        # Frequencies are estimated, unless a method is about knowing the true ones.
        more = method.needs if method.oracle else method.needs - {"priors"}
        assert (" * " in line) == bool(more)
        assert method.family in lines
    assert main(["methods", "--long"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "needs class frequencies or labels per image; keeps pseudo-labels per image" in told


# -- names ---------------------------------------------------------------------------------------


def test_an_unknown_backbone_is_wrong_usage(capsys, tmp_path):
    words = ["--data", "synthetic", "--scenes", "8", "--size", "16", "--scheme", "random"]
    words += ["--absent", "skip", "--out", str(tmp_path / "run")]
    assert main(["train", *words, "--backbone", "resnt18"]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "there is no backbone 'resnt18'; did you mean 'resnet18'" in err
    assert not (tmp_path / "run").exists()
    write_scenario(tmp_path / "tiny", backbone="resnt18")
    bench = [str(tmp_path / "tiny"), "--methods", "LL-R", "--out", str(tmp_path / "out")]
    for command in ("bench", "tune"):
        assert main([command, *bench]) == 2
        assert "there is no backbone 'resnt18'" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_an_unknown_network_of_a_run_is_wrong_usage(capsys, done):
    pytest.importorskip("matplotlib")
    assert main(["theory", str(done), "--network", "teachr"]) == 2
    assert "has no network 'teachr'; did you mean 'teacher'?" in capsys.readouterr().err


# -- epochs that a method needs ------------------------------------------------------------------

QUICK = [
    "train", "--data", "synthetic", "--scenes", "24", "--size", "16", "--scheme", "random",
    "--absent", "skip", "--backbone", "test_resnet", "--weights", "none", "--batch-size", "8",
    "--report", "false",
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "AdaGC"], "calibration begins by force after epoch 1"),
        (["--method", "AdaGC", "--method.force-trigger", "none"], "begins after epoch 8 at the"),
        (["--method", "AdaGC", "--method.trigger-epoch", "1"], ""),
        (["--method", "AN"], ""),
    ],
)
def test_too_few_epochs_for_a_method_are_said_in_one_line(capsys, tmp_path, words, said):
    assert main([*QUICK, *words, "--epochs", "2", "--out", str(tmp_path / "run")]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "--epochs" in line]
    assert len(told) == (1 if said else 0)
    assert not said or (said in told[0] and told[0].startswith("warning: AdaGC: "))


@pytest.mark.parametrize(
    ("options", "enough"), [({}, 13), ({"patience": 2}, 8), ({"force_trigger": None}, 9)]
)
def test_as_many_epochs_as_are_asked_for_are_enough(options, enough):
    from adagc.methods.adagc import AdaGC

    for epochs in range(1, 30):
        remarks = list(AdaGC(**options).remarks(SimpleNamespace(epochs=epochs)))
        assert len(remarks) == (1 if epochs < enough else 0)


def test_a_method_is_explained_with_the_epochs_that_it_needs(capsys):
    assert main(["methods", "AdaGC"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "advice: It has two stages and needs epochs for both: 40 are a good start" in told
    assert "With fewer than 13" in told
    assert main(["methods", "AN", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advice"] == ""
