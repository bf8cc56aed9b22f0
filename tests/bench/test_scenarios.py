from __future__ import annotations

import pytest
import yaml

from adagc.bench.scenarios import SHIPPED, load, shipped
from adagc.cli import main
from adagc.errors import UsageError
from adagc.methods import registry
from adagc.training.files import options_in
from tiny import TINY, write_scenario

VARIABLES = ("ADAGC_DATA", "ADAGC_REBEN", "ADAGC_FEATURES", "ADAGC_LABELS", "ADAGC_TRUTH")


@pytest.fixture
def somewhere(monkeypatch):
    for name in VARIABLES:
        monkeypatch.setenv(name, "somewhere")


def test_the_scenarios_of_the_paper_and_more_are_there():
    wanted = {
        "demo-random", "demo-dominant", "aid-random", "aid-manual", "ucm-random", "reben-random",
        "reben-dominant", "folder", "mosaic-random", "mosaic-dominant", "mosaic-features-random",
        "mosaic-features-dominant",
    }  # fmt: skip
    assert wanted <= set(shipped())


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_can_be_loaded(name, somewhere):
    scenario = load(name)
    assert scenario.name == name
    assert len(scenario.seeds) >= 3
    assert scenario.config(7).seed == 7
    assert scenario.methods.keys() <= registry().keys()
    for title in scenario.methods:
        registry()[title](**scenario.told(title))


def test_a_scenario_takes_over_the_methods_of_the_one_it_stands_on(somewhere):
    below, above = load("aid-features"), load("aid-features-told")
    assert below.told("LL-R") == {}
    assert above.told("LL-R") == {"final": 0.25}
    assert below.told("AdaGC") == above.told("AdaGC") == {"weight": 9, "patience": 4}
    assert load("aid-manual").told("AdaGC")["weight"] == 8  # its own wins
    manual = load("aid-manual")
    assert (manual.settings["scheme"], manual.settings["size"]) == (None, 96)


def test_another_seed_draws_other_labels_unless_they_are_given_or_fixed(tmp_path):
    assert write_scenario(tmp_path / "a").config(3).label_seed == 3
    fixed = write_scenario(tmp_path / "b", {"redraw": False}, label_seed=5)
    assert (fixed.config(3).label_seed, fixed.config(3).seed) == (5, 3)
    (tmp_path / "labels.csv").write_text("image,label\n")
    given = write_scenario(tmp_path / "c", scheme=None, labels=str(tmp_path / "labels.csv"))
    assert given.config(3).label_seed == 0


def test_options_of_another_folder_win(tmp_path):
    scenario = write_scenario(tmp_path / "a")
    (tmp_path / "a" / "wan.yaml").write_text("method: {title: WAN, negative_weight: 0.5}")
    tuned = tmp_path / "tuned"
    tuned.mkdir()
    (tuned / "x.yaml").write_text("method: {title: ll-r, final: 0.3, tuned_on: noisy}")
    scenario = load(str(tmp_path / "a")).with_options(tuned)
    assert scenario.told("LL-R") == {"final": 0.3}
    assert scenario.told("WAN") == {"negative_weight": 0.5}
    assert scenario.told("AN") == {}
    assert [scenario.tuned_on(title) for title in ("LL-R", "WAN", "AN")] == ["noisy", None, None]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epoch": 3}, ("'epoch'", "epochs")),
        ({"root": "${ADAGC_NOWHERE}/x"}, ("ADAGC_NOWHERE", "not set")),
        ({"bench": {"seed": [1]}}, ("seed", "seeds")),
        ({"bench": {"seeds": [1, 1]}}, ("seeds", "twice")),
        ({"bench": {"title": [5]}}, ("title", "a word", "[5]")),
        ({"epochs": "ten"}, ("epochs", "a whole number", "'ten'")),
        ({"epochs": None}, ("epochs", "empty")),
        ({"schedule": "cosin"}, ("schedule", "constant or cosine", "'cosin'")),
        ({"scheme": "Random"}, ("scheme", "random, dominant or clean", "'Random'")),
        ({3: 4}, ("'3'",)),
    ],
)
def test_a_mistake_is_named(tmp_path, change, words):
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump({**TINY, **change}))
    with pytest.raises(UsageError) as error:
        load(str(tmp_path))
    assert all(word in str(error.value) for word in words)


def test_all_variables_that_are_not_set_are_named_at_once(monkeypatch, capsys):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert main(["bench", "folder", "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert "ADAGC_DATA (the data), ADAGC_LABELS (the file of labels), ADAGC_TRUTH" in told


def test_numbers_are_numbers_however_yaml_reads_them(tmp_path):
    (tmp_path / "scenario.yaml").write_text("data: synthetic\nlearning_rate: 1e-3\ndropout: 0\n")
    config = load(str(tmp_path)).config(0)
    assert (config.learning_rate, config.dropout) == (0.001, 0.0)
    assert isinstance(config.dropout, float)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("method: 5", "which method"),
        ("method: {title: 7}", "which method"),
        ("method: {weight: 3}", "which method"),
        ("method: WAN\nlearning_rate: 0.5", "sets learning_rate, which all methods"),
    ],
)
def test_a_method_file_says_its_method_and_nothing_that_all_share(tmp_path, content, words):
    write_scenario(tmp_path / "tiny")
    (tmp_path / "tiny" / "one.yaml").write_text(content)
    with pytest.raises(UsageError, match=rf"one\.yaml .*{words}"):
        load(str(tmp_path / "tiny"))


def test_a_folder_of_runs_does_not_hide_the_scenario_it_is_named_after(tmp_path, monkeypatch):
    (tmp_path / "demo-random" / "an").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert load("demo-random").settings["data"] == "synthetic"
    write_scenario(tmp_path / "demo-dominant", epochs=7)
    assert load("demo-dominant").settings["epochs"] == 7


def test_an_unknown_scenario_is_answered_with_the_nearest(capsys):
    assert main(["bench", "aid-rndom"]) == 2
    assert "did you mean 'aid-random'?" in capsys.readouterr().err


def test_train_reads_the_method_files_of_a_scenario(tmp_path):
    write_scenario(tmp_path / "a")
    (tmp_path / "a" / "wan.yaml").write_text("base: scenario.yaml\nmethod: WAN\n")
    out = tmp_path / "run"
    assert main(["train", "--config", str(tmp_path / "a" / "wan.yaml"), "--out", str(out)]) == 0
    assert yaml.safe_load((out / "config.yaml").read_text())["method"]["title"] == "WAN"


def test_shipped_files_lie_in_the_package():
    assert SHIPPED.is_dir()
    assert SHIPPED.parent.name == "adagc"


@pytest.mark.parametrize("place", ["nowhere", "tiny"])  # tiny holds a scenario and no method
def test_a_folder_without_options_is_not_taken_for_tuned(tmp_path, capsys, place):
    write_scenario(tmp_path / "tiny")
    words = ["bench", str(tmp_path / "tiny"), "--tuned", str(tmp_path / place), "--dry-run"]
    assert main(words) == 2
    assert "adagc tune" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", [3, [], ["a"], [1.5]])
def test_seeds_must_be_a_list_of_whole_numbers(tmp_path, seeds):
    with pytest.raises(UsageError, match=r"\[0, 1, 2\]"):
        write_scenario(tmp_path / "tiny", {"seeds": seeds})


def test_scenes_are_for_made_up_data(somewhere, capsys):
    assert main(["bench", "aid-random", "--scenes", "50", "--dry-run"]) == 2
    assert "made-up" in capsys.readouterr().err


def test_a_scenario_takes_over_what_its_base_says_about_the_bench(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "scenario.yaml").write_text(
        "data: synthetic\nbench: {title: A, seeds: [7, 8], paper: aid-random}\n"
    )
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "scenario.yaml").write_text(
        "base: ../a/scenario.yaml\nbench: {paper: reben-random}\n"
    )
    found = load(str(tmp_path / "b"))
    assert found.seeds == (7, 8)
    assert found.paper == "reben-random"
    assert found.title == "b"  # not that of another table


def test_a_bench_block_that_is_no_block(tmp_path):
    (tmp_path / "scenario.yaml").write_text("data: synthetic\nbench: [1, 2]\n")
    with pytest.raises(UsageError, match="bench must hold settings"):
        load(str(tmp_path))


def test_a_folder_of_options_that_is_missing_is_an_error(tmp_path):
    """Silence would train all methods with their defaults."""
    with pytest.raises(UsageError, match=r"gone: no such folder of method options"):
        options_in(tmp_path / "gone", "AN")
    scenario = write_scenario(tmp_path / "tiny")
    with pytest.raises(UsageError, match="no such folder"):
        scenario.with_options(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has no options of any method: run  adagc tune  first"):
        scenario.with_options(tmp_path / "empty")
