"""Which runs were told how frequent labels are; all shipped options are gone through."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adagc.bench.jobs import make_job
from adagc.bench.scenarios import SHIPPED, load
from adagc.cli import main
from adagc.errors import UsageError
from adagc.methods import outline, outlines
from adagc.methods.told import caveat, told_by
from adagc.options import read
from adagc.training.files import method_of, read_file
from tiny import write_scenario

FILES = sorted(path for path in SHIPPED.rglob("*.yaml") if path.name != "scenario.yaml")
TUNED = "# Chosen by"  # how files begin that `adagc tune` writes
# What the explanation of an option says if its right value follows from the true labels.
TELLTALES = (
    r"number of labels per image|labels per image - 1|labels that are missing|in truth positive"
    r"|images that contain each class|that are soft negatives at the end"
)
# Words of a comment that derives a value from the true labels.
DERIVED = r"labels per image|missing labels|entries are negative|true number"


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


# -- the rule ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "options", "tuned_on", "told"),
    [
        ("LL-R", {}, None, ()),
        ("LL-R", {"final": 0.1}, None, ()),  # the default tells nothing
        ("LL-R", {"final": 0.25}, None, ("final",)),
        ("LL-R", {"final": 0.25}, "clean", ("final",)),
        ("LL-R", {"final": 0.25}, "noisy", ()),
        ("LL-R", {"final": 0.2, "largest": 0.25}, "noisy", ("largest",)),  # tune left it alone
        ("LL-Cp", {"delta": 0.4}, None, ("delta",)),
        ("BoostLU + LL-Ct", {"final": 0.25, "boost": 2.0}, None, ("final",)),
        ("RCML", {"keep": 0.7}, None, ("keep",)),
        ("ROLE", {"expected": 5.2}, None, ("expected",)),
        ("ROLE", {"expected": 5.0}, "noisy", ()),
        ("EM+APL", {"share": 0.7}, "noisy", ("share",)),
        ("EPR", {"expected": 5.2}, None, ("expected",)),
        ("AdaGC", {"weight": 9.0}, None, ()),  # says nothing by itself, ...
        ("AdaGC", {"weight": 9.0, "patience": 4}, "clean", ("weight", "patience")),  # unless told
        ("AN-LS", {"smoothing": 0.2}, "clean", ("smoothing",)),
    ],
)
def test_what_tells_and_what_does_not(title, options, tuned_on, told):
    assert told_by(outline(title), options, tuned_on) == told


@pytest.mark.parametrize("title", outlines())
def test_defaults_tell_nothing(title):
    defaults = {key: option.default for key, option in read(outline(title)).items()}
    assert told_by(outline(title), defaults) == ()


@pytest.mark.parametrize("title", outlines())
def test_every_option_that_follows_from_the_true_labels_is_declared(title):
    method = outline(title)
    for key, option in read(method).items():
        if re.search(TELLTALES, option.help):
            assert key in method.frequencies, f"{title}: {key}"


@pytest.mark.parametrize(
    ("title", "options", "said"),
    [
        ("LL-R", {"final": 0.1}, ""),
        ("LL-R", {"final": 0.25}, "by its option final, unless it was tuned on noisy validation"),
        ("LL-R", {"final": 0.2, "largest": 0.3}, "by its options final and largest, unless they"),
        ("EPR", {}, "EPR is told the true label frequencies or the mean number of labels per"),
        ("AdaGC", {"weight": 9.0}, ""),
    ],
)
def test_what_a_single_run_was_told_is_said(title, options, said):
    assert (
        (said in caveat(outline(title), options)) if said else not caveat(outline(title), options)
    )


# -- shipped files -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_shipped_file_tells_a_method_the_truth_unless_it_says_so(path):
    block = method_of(read_file(path)["method"], path)
    told = told_by(outline(block.title), block.options, block.tuned_on)
    if path.parent.name.endswith("-told"):
        assert block.tuned_on == "clean"
        assert told
        return
    assert block.tuned_on != "clean"
    assert not told, f"{', '.join(told)}: tune it, or move it to a scenario called ...-told"
    # Nobody but `adagc tune` may say that it was chosen by noisy labels, ...
    if outline(block.title).frequencies & block.options.keys():
        assert path.read_text(encoding="utf-8").startswith(TUNED)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_comment_of_a_shipped_file_derives_a_value_from_the_truth(path):
    derived = re.search(DERIVED, path.read_text(encoding="utf-8"))
    assert (derived is not None) == path.parent.name.endswith("-told")


def test_the_files_that_were_found_are_those_that_a_scenario_reads(monkeypatch):
    for variable in ("ADAGC_DATA", "ADAGC_FEATURES"):
        monkeypatch.setenv(variable, "somewhere")
    assert {name(path) for path in FILES} >= {"aid-features-told/ll-r", "ucm-random/adagc"}
    assert load("aid-features-told").tuned_on("LL-R") == "clean"
    assert load("aid-features-tuned").tuned_on("LL-R") == "noisy"
    assert load("aid-features-tuned").tuned_on("AN") is None


# -- from a file to a job, and to a reader ------------------------------------------------------


def job(folder: Path, text: str, **more):
    write_scenario(folder)
    (folder / "method.yaml").write_text(f"method: {{title: LL-R, {text}}}")
    return make_job(load(str(folder)), "LL-R", 0, folder, **more)


def test_a_job_knows_what_its_options_tell(tmp_path):
    by_hand = job(tmp_path / "a", "final: 0.25")
    tuned = job(tmp_path / "a", "final: 0.25, tuned_on: noisy")
    assert (by_hand.told, tuned.told) == (("final",), ())
    assert by_hand.folder == tuned.folder  # the same run, whoever chose its options
    assert "tuned_on" not in by_hand.options
    given = job(tmp_path / "a", "final: 0.1", options={"final": 0.3})
    trial = job(tmp_path / "a", "final: 0.1", options={"final": 0.3}, tuned_on="noisy")
    assert (given.told, trial.told) == (("final",), ())


def test_a_wrong_source_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"tuned_on must be noisy or clean, not 'test'"):
        job(tmp_path / "a", "final: 0.3, tuned_on: test")


def test_adagc_methods_says_which_options_tell(capsys):
    assert main(["methods", "LL-R"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"--method.{name} ᵃ" in shown for name in ("final", "delta", "largest"))
    assert "follows from how frequent labels are" in shown
    assert "tuned_on: noisy" in shown
    assert main(["methods", "WAN"]) == 0
    assert "frequent labels" not in capsys.readouterr().out
