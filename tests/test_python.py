"""The names that `import adagc` offers: each has an example that runs, and is in docs/python.md."""

from __future__ import annotations

import ast
import doctest
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import adagc
from adagc.prediction.models import home_of, opener

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
NAMES = [name for name in adagc.__all__ if name != "__version__"]
EXTRAS = {
    "ExportedModel": ("onnx", "onnxscript", "onnxruntime"),
    "SinglePositiveClassifier": ("sklearn",),
    "export": ("onnx", "onnxscript", "onnxruntime"),
}


def example(name: str) -> doctest.DocTest:
    """The example in the docstring of a public name, with nothing defined beforehand."""
    text = getattr(adagc, name).__doc__ or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, None, None)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_an_example_that_runs(name, tmp_path, monkeypatch):
    for package in EXTRAS.get(name, ()):
        pytest.importorskip(package, reason=f"needs {package}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    test = example(name)
    assert test.examples, f"adagc.{name} has no example"
    whole = "".join(one.source for one in test.examples)
    assert re.search(rf"\bfrom adagc import\b[^\n]*\b{name}\b", whole), "as a reader would type it"
    told: list[str] = []
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append).failed
    assert not failed, "".join(told)


def test_what_is_offered_is_what_is_documented():
    table = PAGE.partition("| name |")[2].partition("\n\n")[0]
    documented = re.findall(r"^\| `(\w+)", table, flags=re.MULTILINE)
    assert sorted(documented) == sorted(NAMES)
    assert sorted(adagc.__all__) == sorted({*adagc._HOMES, "__version__"})
    assert set(adagc.__all__) <= set(dir(adagc))


def test_type_checkers_see_what_is_offered():
    """The imports that only type checkers run name the same things, from the same places."""
    tree = ast.parse(Path(adagc.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {name.name for node in block.body for name in node.names}
    assert seen == set(NAMES)


def test_the_page_runs(tmp_path, monkeypatch):
    """All its code, from top to bottom, as in a notebook."""
    for package in ("onnx", "onnxscript", "onnxruntime", "pandas", "pyarrow", "sklearn"):
        pytest.importorskip(package, reason=f"needs {package}")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) > 4
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))
    place: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), place)


def test_the_readme_names_the_page_and_nothing_that_is_not_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## From Python")[2].partition("\n## ")[0]
    assert "docs/python.md" in section
    imported = re.findall(r"^from adagc import ([\w, ]+)", section, flags=re.MULTILINE)
    assert imported
    assert {name for line in imported for name in line.split(", ")} <= set(NAMES)


def test_a_name_is_loaded_only_when_it_is_used():
    code = "import adagc, sys; adagc.RunConfig; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = adagc.trian


# -- what objects say of themselves, and what functions take --------------------------------------

CONFIG = adagc.RunConfig(
    data="synthetic", scenes=24, size=16, scheme="random", epochs=2, backbone="test_resnet",
    weights="none",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return adagc.train(CONFIG, "an", tmp_path_factory.mktemp("runs") / "first")


def test_a_run_says_where_it_is_and_how_good(run):
    map_ = run.scores.final.mean_average_precision
    assert repr(run) == f"Run({str(run)!r}: AN, 2 epochs, test mAP {100 * map_:.1f})"
    assert repr(adagc.Run("nowhere")) == "Run('nowhere')"


def test_a_damaged_run_can_still_be_shown(run, tmp_path):
    import shutil

    shutil.copytree(run.folder, tmp_path / "copy")
    (tmp_path / "copy" / "history.jsonl").write_text('{"epoch": "x"}\n{}\n')
    damaged = adagc.Run.open(tmp_path / "copy")
    assert repr(damaged) == f"Run({str(tmp_path / 'copy')!r})"
    (tmp_path / "copy" / "config.yaml").write_text("- 1")
    assert repr(adagc.Run.open(tmp_path / "copy")) == f"Run({str(tmp_path / 'copy')!r})"


def test_methods_are_named_or_given(run):
    from adagc.methods.assume_negative import AssumeNegative

    again = adagc.train(CONFIG, AssumeNegative)
    assert again.scores.final == run.scores.final
    with pytest.raises(adagc.AdagcError, match="no method 'ANN'; did you mean"):
        adagc.train(CONFIG, "ANN")


def test_functions_take_a_run_or_its_folder(run):
    values = np.random.default_rng(0).integers(0, 3000, (7, 14, 16, 16), dtype=np.uint16)
    expected = adagc.predict(run.folder, values).probabilities
    np.testing.assert_array_equal(adagc.predict(run, values).probabilities, expected)
    in_memory = adagc.train(CONFIG, "AN")
    np.testing.assert_allclose(adagc.predict(in_memory, values).probabilities, expected, atol=1e-6)
    elsewhere = pickle.loads(pickle.dumps(opener(home_of(in_memory))))  # as workers get it
    np.testing.assert_allclose(elsewhere(1)(values), expected, atol=1e-6)
    whole = adagc.evaluate(str(run), split="val").final
    assert whole == adagc.evaluate(run, split="val").final
    assert len(adagc.complete(run.folder)) == len(adagc.complete(run))


def test_scores_as_a_table(run):
    table = run.scores.table()
    assert list(table["network"]) == ["network", "network"]
    assert list(table["weights"]) == ["last", "best"]
    assert table["epoch"][0] == 2
    final = run.scores.final
    assert table["mean_average_precision"][0] == final.mean_average_precision
    assert "19 classes" in repr(final)
    assert f"mean_f1={final.mean_f1:.4g}" in repr(run.scores)
    frame = pytest.importorskip("pandas", reason="needs pandas") and table.frame()
    assert list(frame.columns) == list(table.columns)
    assert frame["mean_f1"][0] == final.mean_f1


def test_arrays_are_collected():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 6)).astype(np.float32)
    truth = rng.random((50, 3)) < 0.5
    truth[:, 0] |= ~truth.any(axis=1)
    data = adagc.collect(X, truth=truth, classes=["a", "b", "c"])
    assert data.classes == ("a", "b", "c")
    np.testing.assert_array_equal(data.truth, truth)
    assert repr(data).endswith("clean labels)")
    with pytest.raises(adagc.AdagcError, match="array of 49 x 3 for 50 images"):
        adagc.collect(X, labels=truth[:-1])
    with pytest.raises(adagc.AdagcError, match="3 columns for 2 classes"):
        adagc.collect(X, labels=truth, classes=["a", "b"])
    with pytest.raises(adagc.AdagcError, match="other values than -1, 0 and 1"):
        adagc.collect(X, labels=3 * truth)
