"""The command line as a user meets it: what it prints where, exit codes, bad input."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from adagc.bench.scenarios import load
from adagc.cli import COMMANDS, main
from adagc.labels import LabelTable, flip_rates, read_labels, write_labels
from adagc.methods import DEFAULT, Method, find
from adagc.training.command import parse_train
from adagc.training.config import RunConfig
from adagc.training.experiment import options_of
from adagc.training.runs import Run
from conftest import CLASSES, make_collection, make_labels
from tiny import settings_of, write_scenario

CONFIGS = Path(__file__).parents[1] / "configs"
SHIPPED = sorted(path for path in CONFIGS.rglob("*.yaml") if path.stem != "scenario")


def run(capsys, *words: str | Path) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture
def table(tmp_path) -> Path:
    """A clean multi-label file."""
    truth = make_collection().truth
    names = tuple(f"image_{i}" for i in range(len(truth)))
    write_labels(LabelTable(names, CLASSES, truth.astype(np.int8)), tmp_path / "truth.csv")
    return tmp_path / "truth.csv"


@pytest.fixture
def arrays(tmp_path) -> tuple[Path, Path, Path]:
    """Embeddings, single labels of all images, and clean labels."""
    collection = make_collection()
    names = tuple(f"{i:05d}" for i in range(len(collection.images)))
    np.save(tmp_path / "embeddings.npy", collection.images.gather(np.arange(len(names))))
    truth = tmp_path / "clean.csv"
    write_labels(LabelTable(names, CLASSES, collection.truth.astype(np.int8)), truth)
    return tmp_path / "embeddings.npy", make_labels(collection, tmp_path / "one.csv"), truth


def train_words(arrays, out: Path, *more: str) -> list[str | Path]:
    root, labels, truth = arrays
    return [
        "train", "--data", "array", "--root", root, "--labels", labels, "--truth", truth,
        "--epochs", "3", "--out", out, *more,
    ]  # fmt: skip


def test_options_may_be_spelt_with_hyphens(capsys):
    words = ["bench", "demo-random", "--methods", "AN", "--dry-run"]
    assert main([*words, "--runs-per-job", "2"]) == 2
    assert "--runs-per-job is for --engine slurm" in capsys.readouterr().err
    assert main([*words, "--runs_per_job", "2"]) == 2
    assert "--runs-per-job is for --engine slurm" in capsys.readouterr().err


def test_the_overview_lists_every_command_with_a_sentence(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name in COMMANDS:
        line = next(line for line in out.splitlines() if line.startswith(f"  {name} "))
        assert line.endswith(".")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_has_an_example(capsys, name):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    assert f"adagc {name}" in capsys.readouterr().out.partition("example:")[2]


QUICK = [
    ["--help"],
    ["train", "--help"],
    ["train", "--epohcs", "3"],
    ["train", "--method", "AdaGCC", "--epochs", "3", "--out", "x"],
    ["train", "--method.weigth", "3"],
    ["train", "--epochs", "0", "--scheme", "random", "--out", "x"],
    ["train", "--config", str(CONFIGS / "demo-random" / "scenario.yaml"), "--size", "a"],
    ["train", "--data", "aid", "--scheme", "random", "--out", "x"],
    ["train", "--data", "synthetic", "--bands", "red", "--scheme", "random", "--out", "x"],
    ["bench", "nosuch"],
    ["bench", "demo-random", "--methods", "AdaGCC"],
    ["ablate", "demo-random", "--studies", "mixpu"],
    ["figures", "demo-random", "--only", "trend"],
    ["tune", "demo-random", "--methods", "AdaGCC"],
    ["methods", "AdaGCC"],
]


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_help_and_wrong_usage_are_quick_and_import_no_torch(words, tmp_path):
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
        "from adagc.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    ratios = []
    for _ in range(3):
        _, unit = timed("import numpy, yaml, rich.console", cwd=tmp_path)
        done, used = timed(code, *words, cwd=tmp_path)
        ratios.append(used / unit)
        assert done.returncode == (0 if "--help" in words else 2), done.stderr
        assert done.stderr.splitlines()[-1] == "False"
        if ratios[-1] < 5:
            break
    # Half a second where the imports that it cannot do without take a tenth; torch takes twenty.
    assert min(ratios) < 5


def timed(code: str, *words: str, cwd: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """What a new Python says to this code, and the seconds of CPU time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True, text=True, check=False, cwd=cwd, timeout=60,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_every_setting_has_one_place_in_the_help_of_train(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--method", "AN-LS", "--help"])
    out = capsys.readouterr().out
    groups = ("data:", "labels:", "network:", "training:", "scores:", "output:")
    assert all(f"\n{group}\n" in out for group in groups)
    assert "\noptions of AN-LS:\n" in out
    names = [*RunConfig.__dataclass_fields__, "method", "method.smoothing", "out", "config"]
    flags = [line.split()[0] for line in out.splitlines() if line.startswith("  --")]
    names.remove("root")  # an argument
    assert "\n  ROOT  " in out
    for name in names:
        assert flags.count(f"--{name.replace('_', '-')}") == 1, name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_texts_are_whole_sentences(capsys, name):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "==SUPPRESS==" not in text
    assert not any(f" {jargon}" in text for jargon in ("NoneType", "typing.", "<class"))
    for fragment in (
        "Of Adam.",
        "Of made-up data.",
        "At most so many",
        "Instead of the scenario's",
    ):
        assert fragment not in text


@pytest.mark.parametrize(
    "words",
    [
        ["red", "green", "nir"],
        ["red,green,nir"],
        ["[red, green, nir]"],
        ["[red,", "green,", "nir]"],
    ],
)
def test_a_list_may_be_written_in_any_way(words):
    order = parse_train(["--scheme", "random", "--out", "x", "--bands", *words])
    assert order.config.bands == ("red", "green", "nir")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--bands", "red", "near infrared"], ("red", "near infrared")),
        (["--bands", "near infrared"], ("near infrared",)),
        (["--bands", "red"], ("red",)),
        (["--bands", "null"], None),
        (["--bands=red,nir"], ("red", "nir")),
    ],
)
def test_words_of_a_list_keep_their_blanks(words, wanted):
    assert parse_train(["--scheme", "random", "--out", "x", *words]).config.bands == wanted


def test_names_and_paths_are_taken_as_they_are_typed(capsys, tmp_path):
    write_scenario(tmp_path / "my, tiny one")
    words = [tmp_path / "my, tiny one", "--out", tmp_path / "out", "--seeds", "0", "--dry-run"]
    code, out, err = run(capsys, "bench", *words, "--methods", "GT w/ BCE", "--json")
    assert code == 0, err
    (job,) = json.loads(out)["to_do"]
    assert job["run"] == "my, tiny one · GT w/ BCE · seed 0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "did you mean 'train'"),
        (["train", "--epoches", "3", "--out", "x"], "--epoches; did you mean '--epochs'?"),
        (["train", "--method", "AdaGCC", "--out", "x"], "did you mean 'AdaGC'?"),
        (["train", "--method.patiense", "3", "--out", "x"], "did you mean '--method.patience'?"),
        (
            ["train", "--method.memory-momentum", "0.5", "--out", "x"],
            "--method.memory-momentum is no option of Auto, but of AdaGC: name the method with"
            " --method",
        ),
        (
            ["train", "--method", "AdaGC", "--method.wieght", "3", "--out", "x"],
            "did you mean '--method.weight'?",
        ),
        (
            ["train", "--epochs", "many", "--out", "x"],
            "--epochs must be a whole number, not 'many'",
        ),
        (["train", "--epochs", "--out", "x"], "--epochs needs a value"),
        (["train", "--epochs", "0", "--out", "x"], "--epochs must be at least 1, not 0"),
        (
            ["train", "--method", "AdaGC", "--method.mixup", "-1e-3", "--out", "x"],
            "--method.mixup must be at least 0",
        ),
        (["train", "--epochs", "3"], "--out is missing"),
        (["train", "--schedule", "cosin", "--out", "x"], "did you mean 'cosine'?"),
        (["train", "--data", "foldr", "--out", "x"], "did you mean 'folder'?"),
        (["train", "photos", "more", "--out", "x"], "'more' is more than this command takes"),
        (["train", "photos", "--root", "more", "--out", "x"], "ROOT is given twice: leave --root"),
        (["train", "-epochs", "3", "--out", "x"], "no option -epochs; did you mean '--epochs'?"),
        (["evaluate", "run", "--split", "vall"], "--split must be train, val or test, not 'vall'"),
        (["evaluate", "run", "--splt", "val"], "did you mean '--split'?"),
        (["evaluate"], "RUN is missing"),
        (["bench", "demo-random", "--seeds", "one"], "--seeds must be a list of whole numbers"),
        (["bench", "demo-randm"], "did you mean 'demo-random'?"),
        (["bench", "demo-random", "--methods", "AdaG"], "did you mean 'AdaGC'?"),
        (["bench", "demo-random", "--json=yes"], "--json takes no value"),
        (["ablate", "demo-random", "--studies", "mixpu"], "did you mean 'mixup'?"),
        (["figures", "demo-random", "--only", "trend"], "did you mean 'trends'?"),
        (["tune", "demo-random", "--methods", "AdaG"], "did you mean 'AdaGC'?"),
        (["simulate", "--truth", "x.csv"], "--out is missing"),
        (["train", "--out", "x"], "--labels FILE or --scheme"),
        (["train", "--config", "nowhere.yaml", "--out", "x"], "nowhere.yaml"),
        (["methods", "nothing"], "there is no method 'nothing'; adagc methods lists them"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    if words[0] == "train" and "--labels" not in words and len(words) == 3:
        words = [*words, "--data", "synthetic", "--scenes", "4"]
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith(f"adagc {words[0]}: ")
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_methods_lists_and_explains(capsys):
    code, out, _ = run(capsys, "methods", "--json")
    assert code == 0
    listed = json.loads(out)
    assert listed["GT w/ BCE"]["needs"] == ["truth"]
    assert listed["AdaGC"]["cost"] == pytest.approx(5 / 3, abs=1e-3)
    code, out, _ = run(capsys, "methods", "adagc", "--json")
    explained = json.loads(out)["options"]
    assert explained["weight"]["default"] == 3.0
    assert explained["weight"]["grid"]
    assert all(option["meaning"] for option in explained.values())
    assert [title for title, one in listed.items() if one["default"]] == [DEFAULT]
    printed = run(capsys, "methods")[1]
    assert "AdaGC" in printed
    assert f"{DEFAULT} (default) " in printed
    assert "…" not in printed  # every line fits 80 columns
    assert "--method.memory-momentum" in run(capsys, "methods", "AdaGC")[1]


def test_datasets(capsys):
    assert "ucmerced" in run(capsys, "datasets")[1]
    assert set(json.loads(run(capsys, "datasets", "--json")[1])) >= {"folder", "aid", "array"}


def test_simulate_writes_a_hashed_file_and_prints_flip_rates(capsys, table, tmp_path):
    out = tmp_path / "one.csv"
    words = ["simulate", "--truth", table, "--scheme", "random", "--seed", "3", "--out", out]
    code, printed, _ = run(capsys, *words, "--json")
    assert code == 0
    clean, drawn = read_labels(table, kind="multi"), read_labels(out)
    assert drawn.meta["scheme"] == "random"
    assert drawn.meta["seed"] == "3"
    assert drawn.meta["source"] == f"sha256 {clean.hash}"
    told = json.loads(printed)
    assert told["hash"] == drawn.hash
    assert told["micro"] == pytest.approx(flip_rates(clean.positive, drawn.values).micro)
    first = out.read_bytes()
    code, printed, err = run(capsys, *words, "--force")
    assert "Micro average" in printed
    assert err == ""
    assert out.read_bytes() == first
    code, _, err = run(capsys, "simulate", out, "--out", tmp_path / "again.csv")
    assert code == 0
    assert "has more than one label, so nothing was dropped" in err


def test_simulate_replaces_a_file_only_on_request(capsys, table, tmp_path):
    out = tmp_path / "mine.csv"
    out.write_text("image,label\nimage_0,forest\n")
    words = ["simulate", "--truth", table, "--out", out]
    code, _, err = run(capsys, *words)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "--force" in err
    assert out.read_text() == "image,label\nimage_0,forest\n"
    assert run(capsys, *words, "--force")[0] == 0
    assert read_labels(out).meta["scheme"] == "random"


def test_simulate_dominant_from_maps_and_from_areas(capsys, table, tmp_path):
    clean = read_labels(table, kind="multi")
    maps = np.full((len(clean), 8, 8), 255, dtype=np.uint8)
    biggest = np.array([np.flatnonzero(row)[-1] for row in clean.positive])
    maps[:, :6] = biggest[:, None, None]
    maps[:, 6:] = np.array([np.flatnonzero(row)[0] for row in clean.positive])[:, None, None]
    np.save(tmp_path / "maps.npy", maps)
    words = ["simulate", "--truth", table, "--scheme", "dominant", "--out", tmp_path / "one.csv"]
    assert run(capsys, *words, "--areas", tmp_path / "maps.npy")[0] == 0
    assert (read_labels(tmp_path / "one.csv").values.argmax(axis=1) == biggest).all()

    rows = [",".join(["image", *CLASSES])]
    areas = (maps.reshape(len(clean), -1)[:, :, None] == np.arange(len(CLASSES))).mean(axis=1)
    rows += [",".join([n, *map(str, a)]) for n, a in zip(clean.images, areas, strict=True)]
    (tmp_path / "areas.csv").write_text("\n".join(rows))
    assert run(capsys, *words, "--areas", tmp_path / "areas.csv", "--force")[0] == 0
    assert (read_labels(tmp_path / "one.csv").values.argmax(axis=1) == biggest).all()
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "--areas" in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"image,forest\na,1\na,1\n", "line"),
        (b"image,forest\na,7\n", "line 2"),
        ("image,label\nä,forêt\n".encode("latin-1"), "UTF-8"),
    ],
)
def test_bad_clean_labels_name_file_and_leave_nothing(capsys, tmp_path, content, said):
    (tmp_path / "bad.csv").write_bytes(content)
    code, out, err = run(
        capsys, "simulate", "--truth", tmp_path / "bad.csv", "--out", tmp_path / "o.csv"
    )
    assert code == 1
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "bad.csv" in err
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


def test_train_evaluate_report(capsys, arrays, tmp_path):
    out = tmp_path / "run"
    code, printed, err = run(capsys, *train_words(arrays, out, "--method", "AdaGC", "--json"))
    assert code == 0, err
    result = json.loads(printed)
    assert result["run"] == str(out)
    for name in ("config.yaml", "environment.json", "labels.json", "history.jsonl", "last.ckpt",
                 "model.safetensors", "model.json", "scores.json", "report.html"):  # fmt: skip
        assert (out / name).stat().st_size > 0, name
    code, printed, _ = run(capsys, "evaluate", out, "--json")
    assert code == 0
    again = json.loads(printed)
    assert again == result["scores"]
    assert set(again["networks"]) == {"network", "teacher"}
    code, printed, _ = run(capsys, "evaluate", out)
    assert "student, last (3)" in printed
    assert "AdaGC: calibration was started by force (force_trigger)" in " ".join(printed.split())
    assert run(capsys, "evaluate", out, "--split", "val", "--json")[0] == 0
    assert (out / "scores-val.json").exists()
    code, printed, _ = run(capsys, "report", out, "--out", tmp_path / "page.html")
    assert code == 0
    assert "AdaGC" in (tmp_path / "page.html").read_text(encoding="utf-8")
    # A history that cannot be read is noticed before anything is written.
    (out / "scores-val.json").unlink()
    history = (out / "history.jsonl").read_text()
    (out / "history.jsonl").write_text(f"{history}]\n{history}")
    code, _, err = run(capsys, "evaluate", out, "--split", "val")
    assert code == 1
    assert "history.jsonl, line 4, is damaged" in err
    assert not (out / "scores-val.json").exists()


def test_train_and_evaluate_say_what_the_run_was_told(capsys, arrays, tmp_path):
    words = train_words(arrays, tmp_path / "run", "--method", "LL-R", "--method.final", "0.25")
    said = "LL-R is told how frequent labels are by its option final, unless it was tuned on noisy"
    for command in (words, ["evaluate", tmp_path / "run"]):
        code, printed, err = run(capsys, *command)
        assert code == 0, err
        assert said in " ".join(printed.split())


def test_the_config_of_a_run_repeats_it(capsys, arrays, tmp_path):
    words = train_words(arrays, tmp_path / "one", "--method", "AN-LS", "--method.smoothing", "0.2")
    assert run(capsys, *words, "--report", "false")[0] == 0
    config = tmp_path / "one" / "config.yaml"
    assert yaml.safe_load(config.read_text())["method"] == {"title": "AN-LS", "smoothing": 0.2}
    code, _, err = run(
        capsys, "train", "--config", config, "--out", tmp_path / "two", "--report", "false"
    )
    assert code == 0, err
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    # Another method on the command line wins, and takes no options of the first.
    code, _, err = run(
        capsys, "train", "--config", config, "--method", "WAN", "--out", tmp_path / "three",
        "--report", "false", "--epochs", "1",
    )  # fmt: skip
    assert code == 0, err
    assert yaml.safe_load((tmp_path / "three" / "config.yaml").read_text())["epochs"] == 1


def test_a_second_run_into_the_same_folder_is_refused_and_resume_accepts(capsys, arrays, tmp_path):
    words = train_words(arrays, tmp_path / "run", "--method", "AN", "--report", "false")
    assert run(capsys, *words)[0] == 0
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "--resume" in err
    assert run(capsys, *words, "--resume")[0] == 0
    code, _, err = run(capsys, *words, "--resume", "--learning_rate", "0.1")
    assert code == 2
    assert "learning_rate" in err


def test_labels_that_do_not_fit_the_images_are_named(capsys, arrays, tmp_path):
    root, _, truth = arrays
    bad = tmp_path / "bad.csv"
    bad.write_text("image,label\n00000,forest\nnowhere,water\n")
    code, _, err = run(
        capsys, "train", "--data", "array", "--root", root, "--labels", bad, "--truth", truth,
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 1
    assert "bad.csv" in err
    assert "nowhere" in err
    assert not (tmp_path / "run").exists()


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(Exception, match="not a run folder"):
        main(["evaluate", str(tmp_path), "--debug"])
    assert main(["evaluate", str(tmp_path)]) == 1


def configured(config: Path, *more: str) -> tuple[RunConfig, Method]:
    told = settings_of(config)
    labels = [] if told.get("labels") or told.get("scheme") else ["--scheme", "random"]
    order = parse_train(["--config", str(config), "--out", "x", *labels, *more])
    return order.config, order.build()


@pytest.mark.parametrize("config", SHIPPED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_shipped_configs_are_understood_and_say_only_what_differs(config, monkeypatch):
    for name in ("ADAGC_DATA", "ADAGC_FEATURES", "ADAGC_LABELS", "ADAGC_REBEN", "ADAGC_TRUTH"):
        monkeypatch.setenv(name, "somewhere")
    settings, built = configured(config)
    asked = settings_of(config)
    asked.pop("bench", None)
    options = asked.pop("method", {"title": DEFAULT})
    options = {"title": options} if isinstance(options, str) else options
    assert built.title == options.pop("title")
    assert options.pop("tuned_on", None) in (None, "noisy", "clean")
    plain, tuned = type(built)(), config.parent.name.endswith("-tuned")
    for name, value in options.items():
        assert getattr(built, name) == value
        # Tuning may find that the default is best, and says so.
        assert tuned or getattr(plain, name) != value, f"{name} is the default"
    for name, value in asked.items():
        assert getattr(settings, name) == value


@pytest.mark.parametrize("name", ["aid-random", "ucm-random", "reben-random", "demo-random"])
def test_a_scenario_says_only_what_differs(name, monkeypatch):
    monkeypatch.setenv("ADAGC_DATA", "somewhere")
    monkeypatch.setenv("ADAGC_REBEN", "somewhere")
    settings = settings_of(CONFIGS / name / "scenario.yaml")
    settings.pop("bench")
    assert settings.pop("method") == "AdaGC"  # the paper's, which is not the default
    assert all(getattr(RunConfig(), name) != value for name, value in settings.items())


def test_no_shipped_file_says_nothing_but_its_method():
    for path in SHIPPED:
        told = yaml.safe_load(path.read_text())
        told.pop("base", None)
        method = told.pop("method")
        assert told or not isinstance(method, str), path


@pytest.mark.parametrize(
    ("scenario", "method", "options"),
    [
        ("aid-features-told", "LL-R", {"final": 0.25}),  # ll-r.yaml beside it
        ("aid-features-told", "AdaGC", {"weight": 9.0}),  # beside the one that it is based on
        ("aid-manual", "AdaGC", {"weight": 8.0}),  # its own wins
        ("aid-random", "WAN", {"negative_weight": None}),  # no file: the defaults
        ("aid-random", None, {"weight": 9.0}),  # AdaGC, which the scenario names
        ("aid-manual", None, {"weight": 8.0}),  # named by the one that it is based on
    ],
)
def test_train_gives_a_method_what_the_scenario_has_for_it(scenario, method, options, monkeypatch):
    for name in ("ADAGC_DATA", "ADAGC_LABELS", "ADAGC_FEATURES", "ADAGC_REBEN"):
        monkeypatch.setenv(name, "somewhere")
    more = [] if method is None else ["--method", method]
    settings, built = configured(CONFIGS / scenario / "scenario.yaml", *more)
    assert built.title == (method or "AdaGC")
    assert options.items() <= options_of(built).items()
    assert settings.data == ("array" if "features" in scenario else "aid")


def test_without_a_method_the_default_is_trained_and_says_what_it_chose(capsys, arrays, tmp_path):
    words = train_words(arrays, tmp_path / "run", "--report", "false")
    code, out, err = run(capsys, *words)
    assert code == 0, err
    trained = Run.open(tmp_path / "run")
    assert trained.settings.method == DEFAULT == "Auto"
    kept = trained.history[-1].status["kept_epoch"]
    said = "Auto took the label for any class present (few places to compete for) and kept epoch"
    assert f"{said} {kept}" in " ".join(out.split())


def test_a_run_is_resumed_as_what_it_is(capsys, arrays, tmp_path):
    words = train_words(arrays, tmp_path / "run", "--report", "false")
    assert run(capsys, *words, "--method", "AdaGC")[0] == 0
    (tmp_path / "run" / "model.json").unlink()
    # As it is typed by those who began it when AdaGC was the default.
    code, out, err = run(capsys, *words, "--resume")
    assert (code, "AdaGC: test" in out) == (0, True), err
    assert Run.open(tmp_path / "run").settings.method == "AdaGC"
    code, _, err = run(capsys, *words, "--resume", "--method", DEFAULT)
    assert (code, "method.title = 'AdaGC', now it is 'Auto'" in err) == (2, True), err
    code, _, err = run(capsys, *train_words(arrays, tmp_path / "none", "--resume"))
    assert code == 0, err
    assert Run.open(tmp_path / "none").settings.method == DEFAULT


@pytest.mark.parametrize(("method", "said"), [("AdaGC", "Warm-up"), ("AN", None)])
def test_the_story_of_a_method_is_told_where_it_has_one(capsys, arrays, tmp_path, method, said):
    words = train_words(arrays, tmp_path / "run", "--method", method, "--report", "false")
    code, out, _ = run(capsys, *words, "--json")
    story = json.loads(out)["story"]
    assert (code, story and story[:7]) == (0, said)


def test_a_file_on_a_scenario_that_names_a_method_is_no_method_file(tmp_path):
    (tmp_path / "scenario.yaml").write_text("data: synthetic\nscheme: random\nmethod: AdaGC\n")
    (tmp_path / "longer.yaml").write_text("base: scenario.yaml\nepochs: 50\n")
    (tmp_path / "adagc.yaml").write_text("base: scenario.yaml\nmethod: {title: AdaGC, weight: 7}\n")
    assert set(load(str(tmp_path)).methods) == {"AdaGC"}
    settings, built = configured(tmp_path / "longer.yaml")
    assert (settings.epochs, built.title, built.weight) == (50, "AdaGC", 7)
    # What the scenario itself says of the method wins over the file beside it.
    (tmp_path / "scenario.yaml").write_text("scheme: random\nmethod: {title: AdaGC, weight: 2}\n")
    assert configured(tmp_path / "scenario.yaml")[1].weight == 2


def test_options_of_the_command_line_win_over_those_of_a_scenario(monkeypatch):
    monkeypatch.setenv("ADAGC_DATA", "somewhere")
    monkeypatch.setenv("ADAGC_REBEN", "somewhere")
    words = ["--method", "LL-R", "--method.final", "0.5"]
    assert configured(CONFIGS / "aid-random" / "scenario.yaml", *words)[1].final == 0.5


def test_a_config_may_stand_on_another_but_not_on_itself(tmp_path, capsys):
    (tmp_path / "scenario.yaml").write_text("epochs: 7\nseed: 3\n")
    (tmp_path / "one.yaml").write_text("base: scenario.yaml\nseed: 4\nmethod: WAN\n")
    settings, method = configured(tmp_path / "one.yaml")
    assert (settings.epochs, settings.seed, method.title) == (7, 4, "WAN")
    (tmp_path / "scenario.yaml").write_text("base: one.yaml\n")
    code, _, err = run(capsys, "train", "--config", tmp_path / "one.yaml", "--out", tmp_path / "r")
    assert code == 2
    assert "leads back to it" in err
    (tmp_path / "one.yaml").write_text("base: nowhere.yaml\n")
    code, _, err = run(capsys, "train", "--config", tmp_path / "one.yaml", "--out", tmp_path / "r")
    assert code == 2
    assert "nowhere.yaml" in err


def test_a_folder_of_a_users_images(capsys, tmp_path):
    """Two kinds of pictures, one label each, some images without a label, no clean labels."""
    rng = np.random.default_rng(0)
    lines = ["image,label"]
    for i in range(40):
        colour = (40, 160, 60) if i % 2 else (30, 60, 200)
        pixels = (np.array(colour) + rng.integers(-20, 20, (12 + i % 3, 12, 3))).clip(0, 255)
        path = tmp_path / "photos" / f"day{i % 4}" / f"p{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        if i < 36:
            lines.append(f"p{i},{'forest' if i % 2 else 'water'}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    words = ["--root", tmp_path / "photos", "--labels", tmp_path / "labels.csv"]
    code, _, err = run(
        capsys, "train", "--data", "folder", *words, "--backbone", "test_resnet", "--size", "32",
        "--method", "AN", "--epochs", "2", "--out", tmp_path / "run", "--cache", tmp_path / "cache",
    )  # fmt: skip
    assert code == 0, err
    assert "4 of 40" in err
    assert not (tmp_path / "run" / "scores.json").exists()
    assert (tmp_path / "run" / "report.html").exists()
    described = json.loads((tmp_path / "run" / "labels.json").read_text())
    assert described["images"]["left_out"] == 4
    code, out, _ = run(capsys, "inspect", tmp_path / "photos", "--labels", words[3], "--json")
    assert code == 0
    assert "forest" in out
    assert run(capsys, "inspect", tmp_path / "photos")[0] == 0


@pytest.mark.parametrize(
    "text",
    [
        "method: {title: AdaGC, pseudo_labels: duel}",
        "schedule: cosin",
        "epochs: forty",
        "method: {title: AdaGC, weight: five}",
        "lerning_rate: 1",
        "- a list",
        "epochs: [",
    ],
)
def test_a_config_is_checked_like_the_command_line(capsys, arrays, tmp_path, text):
    (tmp_path / "bad.yaml").write_text(text)
    words = train_words(arrays, tmp_path / "run", "--config", tmp_path / "bad.yaml")
    words = [word for word in words if word not in ("--epochs", "3")]
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_the_demo_config_is_the_demo():
    from adagc.demo import METHODS, SETTINGS

    for title, options in METHODS.items():
        settings, method = configured(CONFIGS / "demo-random" / "scenario.yaml", "--method", title)
        assert settings == RunConfig(**SETTINGS)
        assert options_of(method) == options_of(find(title)(**options))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--truth", "nowhere.csv"], "nowhere.csv"),
        (["--seed", "-1"], "--seed"),
        (["--scheme", "dominant", "--areas", "floats.npy"], "whole numbers"),
        (["--scheme", "dominant", "--areas", "areas.csv"], "line 2"),
    ],
)
def test_simulate_never_shows_a_traceback(capsys, table, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    np.save("floats.npy", np.zeros((64, 4, 4)))
    Path("areas.csv").write_text(",".join(["image", *CLASSES]) + "\nimage_0,nan,1,1,1\n")
    Path("o.csv").write_text("mine")
    code, _, err = run(capsys, "simulate", "--truth", table, "--out", "o.csv", *words)
    assert code in (1, 2)
    assert len(err.splitlines()) == 1
    assert said in err
    assert Path("o.csv").read_text() == "mine"


def test_maps_with_a_value_that_is_no_class(capsys, table, tmp_path):
    maps = np.zeros((64, 4, 4), dtype=np.int64)
    maps[:, 0] = 99
    np.save(tmp_path / "maps.npy", maps)
    words = ["simulate", "--truth", table, "--scheme", "dominant", "--out", tmp_path / "o.csv",
             "--areas", tmp_path / "maps.npy"]  # fmt: skip
    assert run(capsys, *words)[0] == 1
    assert run(capsys, *words, "--ignore", "99")[0] == 0


@pytest.mark.parametrize("name", ["a [red] run", "[/b]"])
def test_brackets_in_names_are_printed_as_they_are(capsys, arrays, tmp_path, name):
    out = tmp_path / name
    code, said, _ = run(capsys, *train_words(arrays, out, "--method", "AN", "--report", "false"))
    assert code == 0
    assert f"Run folder: {out}" in said
    code, said, err = run(capsys, "theory", out, "--out", tmp_path / "figures" / name)
    assert (code, err) == (0, "")
    assert str(tmp_path / "figures" / name / "theory.pdf") in said


def test_out_that_is_a_file_is_refused(capsys, arrays, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, _, err = run(capsys, *train_words(arrays, tmp_path / "file", "--method", "AN"))
    assert code == 2
    assert "is a file" in err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "demo-random"),
        ("ablate", "demo-random"),
        ("tune", "demo-random", "--methods", "LL-R"),
        ("figures", "demo-random"),
        ("tables", "pack"),
        ("theory", "run"),
        ("demo",),
        ("train", "--data", "synthetic", "--scheme", "random"),
    ],
    ids=lambda words: words[0],
)
def test_no_command_begins_to_work_for_a_folder_that_cannot_be_made(capsys, tmp_path, words):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "deeper"):
        code, _, err = run(capsys, *words, "--out", out)
        assert (code, err.splitlines()) == (
            2, [f"adagc {words[0]}: {tmp_path / 'file'} is a file: choose another --out"]
        )  # fmt: skip
    if words[0] != "figures":  # whose default is another folder
        for nothing in ("", " "):
            code, _, err = run(capsys, *words, "--out", nothing)
            assert (code, "--out is empty: give a folder, or leave it out" in err) == (2, True)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_folder_is_checked_before_the_data_is_opened(capsys, arrays, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    arrays[0].write_bytes(b"not an array")
    code, _, err = run(capsys, *train_words(arrays, tmp_path / "mine"))
    assert (code, "is not empty and not a run: choose another --out" in err) == (2, True)


def test_report_against_other_runs(capsys, arrays, tmp_path):
    for name in ("AN", "WAN"):
        words = train_words(arrays, tmp_path / name, "--method", name, "--report", "false")
        assert run(capsys, *words)[0] == 0
    code, out, _ = run(capsys, "report", tmp_path / "AN", "--against", tmp_path / "WAN", "--json")
    assert code == 0
    assert "WAN" in Path(json.loads(out)["report"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epochs: 2\nseed: 1\nepochs: 3\n", ", line 3: epochs is set a second time; remove one"),
        ("batch_size: 2\nbatch-size: 3\n", ", line 2: batch_size is set a second time"),
        ("epochs: 2\n\tseed: 1\n", ", line 2, is not valid YAML (found character"),
        ("labels: 2020-13-45\n", " is not valid YAML (month must be in 1..12)"),
        ("seed: !!bool maybe\n", " is not valid YAML ('maybe')"),
        ("[" * 3000 + "]" * 3000, " is nested too deeply"),
        ("epochs: 2\n".encode("utf-16"), " is not text in UTF-8: save it as UTF-8"),
        ("epochs: \0\n", " is not valid YAML (special characters are not allowed)"),
    ],
)
def test_a_fault_of_a_yaml_file_is_told_by_its_line(capsys, tmp_path, text, said):
    config = tmp_path / "c.yaml"
    config.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, err = run(capsys, "train", "--config", config, "--out", tmp_path / "run")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{config}{said}" in err
    assert "unicode string" not in err


def test_names_in_yaml_files_may_have_dashes(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("scheme: random\nbatch-size: 5\nmethod: {title: AdaGC, ramp-epochs: 3}\n")
    order = parse_train(["--data", "synthetic", "--config", str(config), "--out", "x"])
    assert (order.config.batch_size, order.options["ramp_epochs"]) == (5, 3)


@pytest.mark.parametrize("flag", ["--jobs", "--format", "--foo"])
def test_what_only_shares_its_dashes_is_not_suggested(capsys, flag):
    code, _, err = run(capsys, "bench", "demo-random", flag, "2")
    assert (code, "did you mean" in err) == (2, False)


def test_help_of_help_is_the_overview(capsys):
    assert run(capsys, "help", "help") == run(capsys, "--help")


@pytest.mark.parametrize("value", [1e300, -1e39])
def test_values_that_no_network_can_take_are_named(capsys, arrays, tmp_path, value):
    root, _, _ = arrays
    values = np.load(root).astype(np.float64)
    values[3, 1] = value
    np.save(root, values)
    code, _, err = run(capsys, *train_words(arrays, tmp_path / "run"))
    assert (code, (tmp_path / "run").exists()) == (1, False)
    assert "1 of 64 images have infinite values, or values beyond 3.4e+38 (00003)" in err
    assert "overflow" not in err
    code, out, err = run(capsys, "inspect", root)
    assert (code, err) == (0, "")
    assert "values beyond 3.4e+38, with which training stops: 00003" in " ".join(out.split())


def test_an_array_that_does_not_exist_is_called_so(capsys, tmp_path):
    (tmp_path / "scenario.yaml").write_text("data: array\nroot: nowhere.npy\nscheme: random\n")
    code, _, err = run(capsys, "bench", tmp_path, "--methods", "AN", "--dry-run")
    assert (code, "--root nowhere.npy: there is no such file or folder" in err) == (2, True)


def test_training_says_what_inspect_would_about_labels(capsys, arrays, tmp_path):
    root, labels, truth = arrays
    words = ["--method", "AN", "--report", "false", "--epochs", "1"]
    code, _, err = run(capsys, *train_words(arrays, tmp_path / "good", *words))
    assert (code, "warning" in err) == (0, False)
    table = read_labels(truth)
    never = np.where(table.values[:, 0] == 0, table.classes[0], "")
    rows = [f"{image},{name}" for image, name in zip(table.images, never, strict=True)]
    labels.write_text("\n".join(["image,label", *rows]))
    code, _, err = run(capsys, *train_words(arrays, tmp_path / "wrong", *words))
    assert (code, "labels (100%) contradict the truth, for example" in err) == (0, True)
    rows = [f"{image},{'Forest' if i % 2 else 'forest'}" for i, image in enumerate(table.images)]
    labels.write_text("\n".join(["image,label", *rows]))
    alone = ["train", root, "--data", "array", "--labels", labels, *words]
    code, _, err = run(capsys, *alone, "--out", tmp_path / "case")
    assert "Forest and forest may be one class in different spellings" in err
    labels.write_text(labels.read_text().replace("Forest", "forest"))
    code, _, err = run(capsys, *alone, "--out", tmp_path / "single")
    assert "forest is the only class; a classifier needs two or more" in err
    np.save(root, np.ones_like(np.load(root)))
    code, _, err = run(capsys, *alone, "--out", tmp_path / "same")
    assert "every band is constant or has no value: there is nothing to learn from" in err


def test_methods_with_a_comma_between_them_are_understood_as_such(capsys):
    code, _, err = run(capsys, "bench", "demo-random", "--methods", "AN,WAN", "--dry-run")
    assert (code, "no method 'AN,WAN'; separate names with blanks: AN WAN" in err) == (2, True)
