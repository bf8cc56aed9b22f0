"""Whatever the encoding of the terminal, every command prints; files are always UTF-8."""

from __future__ import annotations

import doctest
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adagc import plain
from adagc.cli import COMMANDS, main
from adagc.labels import LabelTable, read_labels, write_labels
from adagc.methods import titles
from conftest import make_collection, make_labels
from tiny import write_scenario

NAMES = ("forêt → 1", "été · α", "水", "plage ≥ 2")  # no encoding but UTF-8 has all of these
ENCODINGS = ("ascii", "latin-1", "cp1252")


def run(monkeypatch, encoding: str, *words: str | Path) -> tuple[int, str, str]:
    """Exit code and output of a command whose terminal has this encoding."""
    streams = {}
    for name in ("stdout", "stderr"):
        streams[name] = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
        monkeypatch.setattr(sys, name, streams[name])
    try:
        code: object = main([str(word) for word in words])
    except SystemExit as stopped:
        code = stopped.code
    for stream in streams.values():
        stream.flush()
    monkeypatch.undo()
    raw = [stream.buffer.getvalue().decode(encoding) for stream in streams.values()]
    return code, raw[0], raw[1]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Embeddings, one label each, and clean labels, with names that few encodings know."""
    folder = tmp_path_factory.mktemp("données")
    collection = make_collection()
    images = tuple(f"bild-ä{i}" for i in range(64))
    np.save(folder / "embeddings.npy", collection.images.gather(np.arange(64)))
    (folder / "names.txt").write_text("\n".join(images), encoding="utf-8")
    write_labels(LabelTable(images, NAMES, collection.truth.astype(np.int8)), folder / "truth.csv")
    single = read_labels(make_labels(collection, folder / "one.csv"))
    rows = [int(name) for name in single.images]
    write_labels(
        LabelTable(tuple(images[row] for row in rows), NAMES, single.values, kind="single"),
        folder / "one.csv",
    )
    return folder


def train_words(data: Path, out: Path, method: str = "AdaGC") -> list[str | Path]:
    return [
        "train", "--data", "array", "--root", data, "--labels", data / "one.csv", "--truth",
        data / "truth.csv", "--epochs", "2", "--method", method, "--out", out,
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_help_methods_and_data_sets(monkeypatch, encoding):
    for words in (["--help"], *([name, "--help"] for name in COMMANDS), ["methods"], ["datasets"]):
        code, out, err = run(monkeypatch, encoding, *words)
        assert (code, err) == (0, ""), words
        assert "?" not in out, words
    for title in titles():
        code, out, err = run(monkeypatch, encoding, "methods", title)
        assert (code, err) == (0, ""), title
        assert "?" not in out, title


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_commands_that_read_and_write_data(monkeypatch, tmp_path, data, encoding):
    for out, words in {
        "inspect": ["inspect", data, "--labels", data / "one.csv", "--truth", data / "truth.csv"],
        "simulate": ["simulate", "--truth", data / "truth.csv", "--out", tmp_path / "drawn.csv"],
        "train": train_words(data, tmp_path / "one é"),
        "again": train_words(data, tmp_path / "two", "AN"),
        "evaluate": ["evaluate", tmp_path / "two"],
        "json": ["evaluate", tmp_path / "two", "--json"],
        "theory": ["theory", tmp_path / "one é"],
        "report": ["report", tmp_path / "one é", "--against", tmp_path / "two"],
    }.items():
        code, printed, err = run(monkeypatch, encoding, *words)
        assert code == 0, (out, err)
        assert printed, out
    code, _, err = run(monkeypatch, encoding, *train_words(data, tmp_path / "one é"))
    assert code == 2
    assert "already holds a run" in err.splitlines()[-1]
    # What was written does not depend on the terminal.
    assert read_labels(tmp_path / "drawn.csv").classes == NAMES
    assert json.loads((tmp_path / "two" / "scores.json").read_bytes())["classes"] == list(NAMES)
    assert "bild-ä0,train" in (tmp_path / "two" / "split.csv").read_text(encoding="utf-8")
    assert "forêt → 1" in (tmp_path / "one é" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ENCODINGS[:2])
def test_commands_of_a_bench(monkeypatch, tmp_path, encoding):
    write_scenario(tmp_path / "tiny α", bench={"title": "Tiny → α", "seeds": [0]}, epochs=1)
    words = [tmp_path / "tiny α", "--out", tmp_path / "out"]
    chosen = ["--methods", "AN", "WAN"]
    code, out, err = run(monkeypatch, encoding, "bench", *words, *chosen, "--dry-run")
    assert code == 0, err
    assert "alpha - AN - seed 0" in out.replace("·", "-")
    code, out, err = run(monkeypatch, encoding, "bench", *words, *chosen, "--workers", "1")
    assert code == 0, err
    assert "WAN" in out
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    code, out, err = run(monkeypatch, encoding, "figures", *words, "--to", tmp_path / "figures")
    assert code in (0, 1), err
    assert "Traceback" not in err


def test_a_real_process_with_the_locale_of_c(tmp_path, data):
    """Python then takes file names for ASCII, too."""
    environment = {
        **os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
    }  # fmt: skip
    environment.pop("PYTHONIOENCODING", None)

    def start(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "adagc", *words],
            capture_output=True, check=False, env=environment, timeout=120,
        )  # fmt: skip

    done = start("methods", "AdaGC")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"lambda" in done.stdout
    done = start(*train_words(data, tmp_path / "é"))
    assert done.returncode == 0, done.stderr
    assert b"mAP" in done.stdout
    assert b"foret -> 1" in start("inspect", data, "--labels", data / "one.csv").stdout
    assert read_labels(tmp_path / "é" / "labels.csv").classes == NAMES


def test_names_that_are_not_utf_8_are_one_line(monkeypatch, capsys):
    """Such a name cannot be written into a file; on a terminal it can."""
    bad = os.fsdecode(b"w\xe4ld.png")

    def write(_: list[str]) -> None:
        print(bad)
        f"image,split\n{bad},train\n".encode()

    monkeypatch.setitem(COMMANDS, "inspect", write)
    assert main(["inspect"]) == 1
    printed = capsys.readouterr()
    said = "adagc inspect: the name 'w\\udce4' is not valid UTF-8: rename it"
    assert printed.err == f"{said}\n"
    assert printed.out == "w?ld.png\n"
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    assert main(["inspect"]) == 1
    assert capsys.readouterr().err == f"{said}, or try again with PYTHONUTF8=1\n"


def test_a_run_with_a_name_that_is_not_utf_8_leaves_no_folder(tmp_path, capsys):
    folder = tmp_path / "photos"
    rng = np.random.default_rng(0)
    rows = ["image,label"]
    folder.mkdir()
    for i in range(20):
        pixels = rng.integers(0, 255, (3, 32, 32), dtype=np.uint8)
        np.save(folder / f"{i:02d}.npy", pixels)
        rows.append(f"{i:02d},{'ab'[i % 2]}")
    np.save(folder / os.fsdecode(b"w\xe4ld.npy"), pixels)
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    words = ["train", folder, "--labels", tmp_path / "labels.csv", "--out", tmp_path / "run"]
    words += ["--backbone", "linear", "--method", "AN", "--epochs", "1"]
    assert main([str(word) for word in words]) == 1
    assert "is not valid UTF-8: rename it" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_plain_equivalents():
    assert doctest.testmod(plain).failed == 0
    assert (
        plain.plain("λ, Λ: 3 ± 1; “a” – ½ … x̃ ┃━┏") == 'lambda, Lambda: 3 +- 1; "a" - 1/2 ... x |-+'
    )
