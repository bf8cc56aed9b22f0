"""One reader of signatures and one validator of values, on every road."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adagc.bench.jobs import make_job
from adagc.bench.scenarios import load
from adagc.errors import UsageError
from adagc.methods import find
from adagc.options import REQUIRED, Choices, Option, convert, in_words, read
from adagc.training.command import parse_train
from adagc.training.config import RunConfig
from adagc.training.settings import DataSettings, LabelSettings, ModelSettings, Settings
from tiny import TINY


@dataclass
class Base:
    """A base.

    Args:
        first: The first thing, which
            goes on in another line.
    """

    first: int = 1


@dataclass
class Derived(Base):
    """More.

    Args:
        second: The second (with a colon: here).

    Note: this is no option.
    """

    second: Literal["a", "b"] | None = None


def test_a_dataclass_brings_what_it_inherits():
    assert dict(read(Derived)) == {
        "first": Option("first", int, 1, "The first thing, which goes on in another line."),
        "second": Option(
            "second", Literal["a", "b"] | None, None, "The second (with a colon: here)."
        ),
    }


def test_functions_have_options_too():
    def function(root: str, *rest: int, size: float = 2, **more: int) -> None:
        """Does.

        Args:
            size: How large.
        """

    assert dict(read(function)) == {
        "root": Option("root", str, REQUIRED, ""),
        "size": Option("size", float, 2, "How large."),
    }


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (int, "3", 3),
        (int, 3, 3),
        (int, 32.0, 32),
        (int, "32.0", 32),
        (int, "1e3", 1000),
        (int, " 12345678901234567891 ", 12345678901234567891),
        (int | None, "null", None),
        (int | None, "None", None),
        (int | None, None, None),
        (float, 3, 3.0),
        (float, "1e-3", 0.001),
        (float | None, "-2", -2.0),
        (str, 2018, "2018"),
        (str, date(2018, 6, 1), "2018-06-01"),
        (str, "none", "none"),
        (str | None, "none", None),
        (str | None, "3", "3"),
        (bool, "Yes", True),
        (bool, "false", False),
        (bool, False, False),
        (Literal["a", "none"] | None, "none", "none"),
        (Literal["a", "b"] | None, "null", None),
        (list[str], "a b", ["a", "b"]),
        (list[str], "a,b", ["a", "b"]),
        (list[str], "[a, 'b c']", ["a", "b c"]),
        (list[str], ["a", "b c"], ["a", "b c"]),
        (list[str], ["near infrared"], ["near infrared"]),
        (list[str], ["a,b"], ["a,b"]),  # a list of YAML is one already
        (list[str], [1, 2], ["1", "2"]),
        (list[str], "[]", []),
        (list[float] | None, "0.1 2", [0.1, 2.0]),
        (list[float] | None, None, None),
        (list[int], 3, [3]),
        (tuple[str, ...] | None, ["a"], ("a",)),
        (tuple[int, float], "3 4", (3, 4.0)),
        (Annotated[str, Choices(lambda: ["x", "y"])], "x", "x"),
        (Any, {"as": "it is"}, {"as": "it is"}),
    ],
)
def test_a_value_becomes_what_was_meant(kind, value, wanted):
    found = convert(Option("size", kind), value, "--size")
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (int, "abc", "--size must be a whole number, not 'abc'"),
        (int, 1.5, "--size must be a whole number, not 1.5"),
        (int, True, "--size must be a whole number, not True"),
        (int, float("inf"), "--size must be a whole number, not inf"),
        (int, None, "--size is empty: give a value, or leave it out"),
        (int, "null", "--size must be a whole number, not 'null'"),
        (float | None, "off", "--size must be a number (or null for none), not 'off'"),
        (float, [1], "--size must be a number, not [1]"),
        (str, [1], "--size must be a word, not [1]"),
        (str, True, "--size must be a word, not True"),
        (bool, 1, "--size must be true or false, not 1"),
        (bool, "maybe", "--size must be true or false, not 'maybe'"),
        (Literal["one", "two"], "Two", "must be one or two, not 'Two'; did you mean 'two'?"),
        (Literal["one", "two", "three"], 1, "--size must be one, two or three, not 1"),
        (
            list[Literal["onnx", "torch"]] | None,
            ["onnx", "torhc"],
            "--size must be some of onnx, torch (or null for none), not 'onnx torhc'; did you mean"
            " 'torch'?",
        ),
        (list[float], ["1", "x"], "--size must be a list of numbers, not '1 x'"),
        (list[str], {"a": 1}, "--size must be a list of words, not {'a': 1}"),
        (tuple[int, int], "3", "--size must be a list of whole numbers, not '3'"),
        (Annotated[str, Choices(lambda: ["xx1", "y"])], "xx2", "xx1 or y, not 'xx2'; did"),
    ],
)
def test_a_wrong_value_is_said_in_plain_words(kind, value, said):
    with pytest.raises(UsageError) as error:
        convert(Option("size", kind), value, "--size")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.text(), st.booleans(), st.none()))
def test_any_value_is_converted_or_refused(value):
    for kind in (int, float | None, str, bool, Literal["a"], list[int], tuple[float, ...] | None):
        try:
            found = convert(Option("size", kind), value, "--size")
        except UsageError:
            continue
        again = convert(Option("size", kind), found, "--size")
        assert again == found or found != found  # the word "nan" is a number that no range accepts
        assert "typing" not in in_words(kind)


# -- the four roads ------------------------------------------------------------------------------


def by_command_line(folder: Path, name: str, text: str) -> Any:
    words = [] if name in ("scheme", "labels") else ["--scheme", "random"]
    return getattr(parse_train([f"--{name}", text, *words, "--out", "x"]).config, name)


def by_config(folder: Path, name: str, text: str) -> Any:
    (folder / "config.yaml").write_text(f"{name}: {text}\n")
    words = [] if name in ("scheme", "labels") else ["--scheme", "random"]
    order = parse_train(["--config", str(folder / "config.yaml"), *words, "--out", "x"])
    return getattr(order.config, name)


def by_scenario(folder: Path, name: str, text: str) -> Any:
    rest = yaml.safe_dump({key: value for key, value in TINY.items() if key != name})
    (folder / "scenario.yaml").write_text(f"{rest}{name}: {text}\n")
    scenario = load(str(folder))
    return getattr(scenario.config(scenario.seeds[0]), name)


@pytest.mark.parametrize("road", [by_command_line, by_config, by_scenario])
@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("root", "2018", "2018"),
        ("seed", "3", 3),
        ("seed", "3.0", 3),
        ("size", "32.0", 32),
        ("size", "null", None),
        ("dropout", "0", 0.0),
        ("learning_rate", "1e-3", 0.001),
        ("oracle", "no", False),
        ("bands", "[red, 2]", ("red", "2")),
        ("bands", "red,nir", ("red", "nir")),
        ("data", "array", "array"),
        ("scheme", "clean", "clean"),
    ],
)
def test_a_setting_means_the_same_on_every_road(tmp_path, road, name, text, wanted):
    found = road(tmp_path, name, text)
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize("road", [by_command_line, by_config, by_scenario])
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("seed", "3.5", "seed must be a whole number, not"),
        ("size", "large", "size must be a whole number (or null for none), not 'large'"),
        ("data", "foldr", "data must be folder"),
        ("data", "foldr", "not 'foldr'; did you mean 'folder'?"),
        ("schedule", "Cosine", "schedule must be constant or cosine, not 'Cosine'; did you mean"),
        ("epochs", "0", "--epochs must be at least 1, not 0"),
        ("epohcs", "3", "did you mean"),
    ],
)
def test_a_mistake_is_answered_alike_on_every_road(tmp_path, road, name, text, said):
    with pytest.raises(UsageError) as error:
        road(tmp_path, name, text)
    assert said in str(error.value)
    jargon = ("Parser key", "typing", "Union", "NoneType", "Literal")
    assert not any(word in str(error.value) for word in jargon)


def option_by_command_line(folder: Path, title: str, name: str, text: str) -> Any:
    words = ["--method", title, f"--method.{name}", text, "--scheme", "random", "--out", "x"]
    return parse_train(words).options[name]


def option_by_config(folder: Path, title: str, name: str, text: str) -> Any:
    (folder / "config.yaml").write_text(f"method: {{title: {title}, {name}: {text}}}\n")
    words = ["--config", str(folder / "config.yaml"), "--scheme", "random", "--out", "x"]
    return parse_train(words).options[name]


def option_by_scenario(folder: Path, title: str, name: str, text: str) -> Any:
    (folder / "scenario.yaml").write_text(yaml.safe_dump(TINY))
    (folder / "it.yaml").write_text(f"method: {{title: {title}, {name}: {text}}}\n")
    return make_job(load(str(folder)), title, 0, folder).options[name]


def option_by_tuned_file(folder: Path, title: str, name: str, text: str) -> Any:
    (folder / "scenario.yaml").write_text(yaml.safe_dump(TINY))
    (folder / "tuned").mkdir()
    (folder / "tuned" / "it.yaml").write_text(f"method: {{title: {title}, {name}: {text}}}\n")
    return make_job(load(str(folder)).with_options(folder / "tuned"), title, 0, folder).options[
        name
    ]


ROADS = [option_by_command_line, option_by_config, option_by_scenario, option_by_tuned_file]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("title", "name", "text", "wanted"),
    [
        ("AdaGC", "weight", "5", 5.0),
        ("AdaGC", "patience", "4.0", 4),
        ("AdaGC", "restore", "no", False),
        ("AdaGC", "force_trigger", "null", None),
        ("AdaGC", "mixup_mask", "soft", "soft"),
        ("Dist-PU", "priors", "[0.5, 1]", [0.5, 1.0]),
        ("GR", "offset_end", "-2", -2.0),
        ("MIME", "bottleneck", "1e-3", 0.001),
    ],
)
def test_an_option_of_a_method_means_the_same_on_every_road(
    tmp_path, road, title, name, text, wanted
):
    found = road(tmp_path, title, name, text)
    assert found == wanted
    assert type(found) is type(wanted)
    find(title)(**{name: found})


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("weight", "much", "weight must be a number, not 'much'"),
        ("mixup_mask", "strickt", "mask must be strict, soft or partners, not 'strickt'; did you"),
        ("wieght", "3", "weight'?"),
    ],
)
def test_a_wrong_option_of_a_method_is_answered_alike(tmp_path, road, name, text, said):
    with pytest.raises(UsageError) as error:
        road(tmp_path, "AdaGC", name, text)
    assert said in str(error.value)


# -- the parts of a configuration ----------------------------------------------------------------


def test_a_configuration_is_flat_frozen_and_hashable():
    config = RunConfig(data="array", bands=["a", "b"], epochs=3, hidden=7)
    assert hash(config) == hash(RunConfig(data="array", bands=("a", "b"), epochs=3, hidden=7))
    assert config.to_dict()["bands"] == ["a", "b"]
    assert RunConfig(**config.to_dict()) == config
    with pytest.raises(AttributeError):
        config.epochs = 4


def test_parts_hold_what_they_decide():
    config = RunConfig(data="array", bands=["a", "b"], epochs=3, hidden=7, share=0.5, labels="l")
    assert DataSettings.of(config) == DataSettings(data="array", bands=("a", "b"), labels="l")
    assert Settings.of(config) == Settings(epochs=3)
    assert ModelSettings.of(config) == ModelSettings(hidden=7)
    assert LabelSettings.of(config) == LabelSettings(data="array", share=0.5, labels="l")
    same = RunConfig(data="array", bands=["a", "b"], labels="l")
    assert DataSettings.of(config) == DataSettings.of(same)


def test_the_order_of_settings_is_that_of_run_folders_of_old():
    """config.yaml is written in this order, and has been since the first run.

    Settings that came later may stand between those of then.
    """
    fixture = next(Path(__file__).parent.glob("**/fixtures/**/config.yaml"))
    before = [name for name in yaml.safe_load(fixture.read_text()) if name != "method"]
    assert [name for name in RunConfig().to_dict() if name in before] == before


def test_every_setting_says_what_it_means():
    assert all(option.help.endswith(".") for option in read(RunConfig).values())
