"""Folders, files and command lines as people have them, and as they are when something is wrong.

A world is a folder with images, label files, a split, a configuration, an array and a finished
run, and a command line that names them. At most three of these parts have flaws, so that commands
get far before they meet one. All of it is drawn by hypothesis, which shrinks what fails to
something small.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tifffile
import yaml
from hypothesis import strategies as st
from PIL import Image

CLASSES = ("field", "forest", "water")
NAMES = ("a", "b c", "ü", "x,y", "deep/er/d", "e.v2", "F", "f", "007")
SOUND_NAMES = tuple(f"{place}/{number}" for place in ("one", "two words") for number in range(15))
COUNT = 30  # rows of an array

# -- text that may stand where a value is expected ------------------------------------------------

words = st.sampled_from(
    ["", " ", "0", "1", "-1", "1e30", "nan", "inf", "true", "null", "a", "ü", "'", '"', "a,b", "[1",
     "{", "../x", "field", "FIELD", "train", "\t", "1.0", "99999999999999999999", "label", "%"]
)  # fmt: skip
noise = st.binary(max_size=40)


@st.composite
def damaged(draw: Callable, sound: bytes, flawed: bool = True) -> bytes:
    """Bytes that are nearly right: cut off, with bytes put in, taken out or doubled, or noise."""
    if not flawed or not sound:
        return sound
    how = draw(st.sampled_from(["sound"] * 4 + ["cut", "insert", "drop", "double", "noise"]))
    if how == "sound":
        return sound
    at = draw(st.integers(0, len(sound) - 1))
    if how == "cut":
        return sound[:at]
    if how == "insert":
        return sound[:at] + draw(noise) + sound[at:]
    if how == "drop":
        return sound[:at] + sound[at + draw(st.integers(1, 20)) :]
    if how == "double":
        return sound + sound[at:]
    return draw(noise)


# -- images ---------------------------------------------------------------------------------------


@st.composite
def image(draw: Callable, flawed: bool) -> tuple[str, bytes]:
    """The suffix and content of an image file."""
    kind = draw(st.sampled_from(["png", "jpg", "tif", "npy", *["txt"] * flawed]))
    side = draw(st.sampled_from([8, 8, 8, 5, 1] if flawed else [8]))
    bands = draw(st.sampled_from([1, 3, 3, 3, 4, 14] if flawed else [3]))
    dtype = draw(st.sampled_from([np.uint8, np.uint8, np.uint16, np.float32, np.int16]))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    values = (rng.random((side, side, bands)) * 200).astype(dtype)
    if dtype == np.float32 and flawed and draw(st.booleans()):
        values[0, 0] = draw(st.sampled_from([np.nan, np.inf, -9999.0]))
    target = io.BytesIO()
    if kind == "tif":
        colour = bands in (3, 4) and draw(st.booleans())
        tifffile.imwrite(
            target,
            values if bands > 1 else values[..., 0],
            photometric="rgb" if colour else "minisblack",
            planarconfig="contig" if bands > 1 else None,
        )
    elif kind == "npy":
        forms = [values.transpose(2, 0, 1), values[..., 0], values[None], values.ravel()]
        np.save(target, draw(st.sampled_from(forms if flawed else forms[:1])))
    elif kind == "txt":
        target.write(b"not an image")
    else:
        whole = np.nan_to_num(values, posinf=0, neginf=0).clip(0, 255).astype(np.uint8)
        shown = whole[..., :3] if bands >= 3 else whole[..., 0]
        Image.fromarray(shown).save(target, {"png": "PNG", "jpg": "JPEG"}[kind])
    return kind, draw(damaged(target.getvalue(), flawed))


# -- tables ---------------------------------------------------------------------------------------


@st.composite
def label_file(draw: Callable, names: list[str], flawed: bool, *, clean: bool) -> bytes:
    """A label file of one of the forms; with flaws some cells are not what they should be."""
    form = draw(st.sampled_from(["wide", "cell", "tab"] if clean else ["single"] * 3 + ["wide"]))
    used = [*names, *draw(st.lists(st.sampled_from(NAMES), max_size=flawed))]
    cell = st.sampled_from(CLASSES)
    value = st.sampled_from(["0", "1"])
    if flawed:
        cell, value = st.one_of(*[cell] * 9, words), st.one_of(*[value] * 9, words)
    lines = []
    if flawed and draw(st.integers(0, 9)) == 0:
        lines.append(f"# {draw(words)}: {draw(words)}")
    if form == "single":
        lines.append("image,label")
        lines += [f"{_quoted(name)},{draw(cell)}" for name in used]
    elif form == "cell":
        lines.append("image,labels")
        several = st.lists(cell, min_size=1, max_size=3, unique=not flawed).map(";".join)
        lines += [f"{_quoted(name)},{draw(several)}" for name in used]
    else:
        mark = "\t" if form == "tab" else ","
        lines.append(mark.join(["image", *CLASSES]))
        lines += [mark.join([_quoted(name), *(draw(value) for _ in CLASSES)]) for name in used]
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    odd = ["utf-16", "latin-1"] if flawed else []
    encoding = draw(st.sampled_from(["utf-8"] * 5 + ["utf-8-sig", *odd]))
    text = end.join(lines) + end
    return draw(damaged(text.encode(encoding, errors="replace"), flawed))


@st.composite
def split_file(draw: Callable, names: list[str], flawed: bool) -> bytes:
    """A file that says which image is for what."""
    part = st.sampled_from(["train", "train", "val", "test"])
    part = st.one_of(*[part] * 9, words) if flawed else part
    lines = ["image,split", *(f"{_quoted(name)},{draw(part)}" for name in names)]
    return draw(damaged("\n".join(lines).encode(), flawed))


def _quoted(name: str) -> str:
    return f'"{name}"' if "," in name else name


SETTINGS = {
    "learning_rate": 1e-3, "absent": "skip", "seed": 0, "split_seed": 1, "share": 0.9,
    "dropout": 0.2, "average": 0.9, "bands": ["r", "g", "b"], "skip_unreadable": True,
}  # fmt: skip


@st.composite
def config_file(draw: Callable, flawed: bool) -> bytes:
    """YAML with settings of a run; with flaws some are wrong or unknown."""
    strange = ["epohcs", "method", "base", "bench", "epochs"] if flawed else []
    keys = draw(st.lists(st.sampled_from([*SETTINGS, *strange]), max_size=4))
    anything = st.one_of(words, st.none(), st.integers(), st.floats(), st.lists(words), noise)
    values = {
        key: SETTINGS[key]
        if key in SETTINGS and not (flawed and draw(st.booleans()))
        else draw(anything)
        for key in keys
    }
    return draw(damaged(yaml.dump(values, allow_unicode=True).encode(errors="replace"), flawed))


@st.composite
def array_file(draw: Callable, flawed: bool) -> bytes:
    """Embeddings or images in one array; with flaws also arrays of things that are no numbers."""
    odd = [(COUNT,), (0, 4), (COUNT, 0), (2, 2, 2)] if flawed else []
    shape = draw(st.sampled_from([(COUNT, 6), (COUNT, 3, 8, 8), *odd]))
    dtype = draw(st.sampled_from([np.float32, np.uint8, *([bool, complex] if flawed else [])]))
    values = (np.random.default_rng(0).random(shape) * 9).astype(dtype)
    if values.size and flawed and dtype == np.float32 and draw(st.booleans()):
        values.flat[0] = draw(st.sampled_from([np.nan, np.inf]))
    target = io.BytesIO()
    if flawed and draw(st.integers(0, 4)) == 0:
        np.save(target, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    else:
        np.save(target, values)
    return draw(damaged(target.getvalue(), flawed))


# -- a world and a command line -------------------------------------------------------------------


@dataclass
class World:
    """What to write before the command, and the command."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    run_damage: tuple[str, bytes | None] | None = None  # a file of the run, and what it becomes
    patch_damage: tuple[str, bytes] | None = None  # the same of the copy of BigEarthNet
    command: list[str] = field(default_factory=list)

    def write(self, place: Path, run: Path) -> None:
        """Write everything into an empty folder; `run` is a finished run to copy."""
        for name, content in self.files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for name, target in self.links.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        shutil.copytree(run, place / "run")
        if self.command[0] == "prepare":
            shutil.copytree(run.parent / PATCHES, place / PATCHES)
            if self.patch_damage is not None:
                name, content = self.patch_damage
                (place / PATCHES / name).write_bytes(content)
        if self.run_damage is not None:
            name, content = self.run_damage
            if content is None:
                (place / "run" / name).unlink()
            else:
                (place / "run" / name).write_bytes(content)


RUN_FILES = (
    "config.yaml", "split.csv", "labels.json", "history.jsonl", "model.json", "scores.json",
    "model.safetensors", "predictions.safetensors", "inputs.json", "labels.csv",
    "weights/network-last.safetensors", "validation/network-best.safetensors",
)  # fmt: skip


PATCHES = "reben"  # a small copy of BigEarthNet beside the run
PARTS = ("images", "labels", "truth", "split", "config", "array", "run", "links", "command")


@st.composite
def worlds(draw: Callable, run: Path) -> World:
    """A world in which at most three parts have flaws."""
    flaws = draw(st.sets(st.sampled_from(PARTS), max_size=3))
    world = World()
    flawed = "images" in flaws
    names = draw(st.lists(st.sampled_from(NAMES), unique=True)) if flawed else SOUND_NAMES
    kind, content = draw(image(False))
    given = []
    for name in names:
        if flawed and draw(st.integers(0, 3)) == 0:
            kind, content = draw(image(True))
        world.files[f"photos/{name}.{kind}"] = content
        given.append(draw(st.sampled_from([name, f"{name}.{kind}"])) if flawed else name)
    rows = [f"{row:05d}" for row in range(COUNT)]  # how the rows of an array are called
    on_array = draw(st.integers(0, 3)) == 0
    named = rows if on_array else given
    world.files["labels.csv"] = draw(label_file(named, "labels" in flaws, clean=False))
    world.files["truth.csv"] = draw(label_file(named, "truth" in flaws, clean=True))
    world.files["split.csv"] = draw(split_file(named, "split" in flaws))
    world.files["config.yaml"] = draw(config_file("config" in flaws))
    world.files["array.npy"] = draw(array_file("array" in flaws))
    world.files["empty/.keep"] = b""
    if "labels" in flaws:
        world.files["labels.sqlite"] = draw(noise)  # where annotate keeps what happened
    if "links" in flaws:
        target = draw(st.sampled_from([".", "..", "missing", "photos", "../photos", "../empty"]))
        world.links["photos/link"] = target
    if "run" in flaws:
        name = draw(st.sampled_from(RUN_FILES))
        sound = (run / name).read_bytes()
        broken = damaged(sound)
        if name.endswith(".json"):
            broken = st.one_of(broken, st.just(_other_json(sound, draw)))
        world.run_damage = name, draw(st.one_of(st.none(), broken))
    world.command = draw(command_line("command" in flaws, on_array))
    if world.command[0] == "prepare" and "images" in flaws:
        copy = run.parent / PATCHES
        files = sorted(path for path in copy.rglob("*") if path.is_file())
        path = draw(st.sampled_from(files))
        world.patch_damage = str(path.relative_to(copy)), draw(damaged(path.read_bytes()))
    return world


def _other_json(sound: bytes, draw: Callable) -> bytes:
    """The same keys with another value for one of them."""
    values = json.loads(sound)
    if isinstance(values, dict) and values:
        key = draw(st.sampled_from(sorted(values)))
        values[key] = draw(st.one_of(st.none(), words, st.integers(), st.lists(words)))
    return json.dumps(values).encode()


PACK = Path(__file__).parents[2] / "docs" / "results" / "data" / "aid-random-70"
PLACES = ("photos", "array.npy", "labels.csv", "missing", "empty", "run", "config.yaml", "photos/")
TABLES = ("labels.csv", "truth.csv", "split.csv", "missing.csv", "photos", "array.npy")
FILE = st.sampled_from(TABLES)
PLACE = st.sampled_from(PLACES)


@st.composite
def command_line(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    """The words after `adagc`; without flaws they could all work."""
    only = os.environ.get("ADAGC_FUZZ_ONLY")
    usual = ["train"] * 4 + ["inspect", "simulate", "evaluate", *_LINES]
    name = draw(st.sampled_from(only.split(",") if only else usual))
    line = _LINES[name](draw, flawed, on_array)
    for _ in range(draw(st.integers(0, 2)) if flawed else 0):
        how = draw(st.sampled_from(["value", "option", "drop", "swap"]))
        at = draw(st.integers(0, max(len(line) - 1, 0)))
        if how == "value":
            line.insert(at, draw(words))
        elif how == "option":
            line += ["--" + draw(st.sampled_from(["json", "epohcs", "seed", "method", "debugg"]))]
        elif how == "drop" and line:
            del line[at]
        elif line:
            line[at] = draw(words)
    return [name, *line]


def _train(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    def or_else(right: str, *wrong: str) -> str:
        return draw(st.sampled_from([right] * 4 + list(wrong) * flawed))

    data = or_else("array" if on_array else "folder", "aid", "synthetic", "ucm", "array")
    line = ["--data", data, "--root", or_else("array.npy" if on_array else "photos", *PLACES)]
    if draw(st.integers(0, 3)):
        line += ["--labels", or_else("labels.csv", *TABLES)]
        if draw(st.booleans()):
            line += ["--truth", or_else("truth.csv", *TABLES)]
    else:
        line += ["--scheme", "random", "--truth", or_else("truth.csv", *TABLES)]
    if draw(st.integers(0, 3)) == 0:
        line += ["--split", or_else("split.csv", *TABLES)]
    if draw(st.integers(0, 2)) == 0:
        line += ["--config", or_else("config.yaml", *TABLES)]
    if draw(st.booleans()):
        line += ["--skip-unreadable", "true"]
    method = or_else(draw(st.sampled_from(["AN", "WAN", "AdaGC", "LL-R", "GT w/ BCE"])), "Nobody")
    line += ["--epochs", "1", "--batch-size", "8", "--backbone", "auto" if on_array else SMALLEST]
    line += [] if on_array else ["--size", "8", "--weights", "none"]
    line += ["--scenes", "8"] if data == "synthetic" else []
    line += ["--method", method, "--out", or_else("new", "run", "photos", "labels.csv")]
    return line + draw(st.sampled_from([[], [], ["--resume"], ["--json"], ["--report", "false"]]))


SMALLEST = "test_resnet"  # timm's own network for tests


def _inspect(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    line = [draw(PLACE) if flawed else "array.npy" if on_array else "photos"]
    for option, name in (("--labels", "labels.csv"), ("--truth", "truth.csv")):
        if draw(st.booleans()):
            line += [option, draw(FILE) if flawed else name]
    if draw(st.booleans()):
        line = _opened(draw, flawed, on_array, line)
    more = [["--bands", "r", "g"]] if flawed else []
    return line + draw(st.sampled_from([[], ["--json"], *more]))


def _opened(draw: Callable, flawed: bool, on_array: bool, line: list[str]) -> list[str]:
    """A line of `inspect` that says what kind of data it is; synthetic scenes need no files."""
    right = ["array" if on_array else "folder", "synthetic"]
    kind = draw(st.sampled_from(right + ["aid", "ucm", "mosaic", "array", "Nothing"] * flawed))
    if kind == "synthetic":
        line = draw(st.sampled_from([[], line])) if flawed else []
        line = [
            *line,
            "--scenes",
            draw(st.sampled_from(["4", *["0", "x"] * flawed])),
            "--size",
            "8",
        ]
    if draw(st.booleans()):
        line = [*line, "--split-seed", draw(st.sampled_from(["1", *["-1", "x"] * flawed]))]
    return [*line, "--data", kind]


def _simulate(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    if not flawed:
        return ["--truth", "truth.csv", "--out", "new.csv"]
    line = ["--truth", draw(FILE), "--out", draw(st.sampled_from(["new.csv", *PLACES]))]
    scheme = draw(st.sampled_from(["random", "random", "dominant", "none"]))
    if scheme == "dominant":
        line += ["--areas", draw(FILE)]
    return [*line, "--scheme", scheme, "--seed", draw(st.sampled_from(["0", "1", "-1", "x"]))]


def _on_run(*more: list[str]) -> Callable[..., list[str]]:
    def line(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
        where = draw(st.sampled_from(["run"] * 6 + ["photos", "missing"] * flawed))
        return [where, *draw(st.sampled_from([[], *more]))]

    return line


def _tune(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    """Lines that are refused, because trials of any sound one take minutes."""
    scenarios = ["demo-random", "config.yaml", "photos", "nosuch", "labels.csv"]
    mistakes = [
        ["--methods", "AN"],
        ["--methods", "Nobody"],
        ["--trials", "0"],
        ["--share", "2"],
        ["--seeds", "x"],
        ["--select", "luck"],
        ["--out", "labels.csv"],
    ]
    return [draw(st.sampled_from(scenarios)), *draw(st.sampled_from(mistakes))]


def _tables(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    places = [str(PACK)] if PACK.exists() and not flawed else ["run", "photos", "labels.csv", "no"]
    more = [[], ["--json"], ["--judge", "network-last"], ["--out", "tables"]]
    if flawed:
        more += [["--judge", "best"], ["--out", "labels.csv"]]
    return [draw(st.sampled_from(places)), *draw(st.sampled_from(more))]


def _bench(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    scenarios = ["demo-random", *["folder", "config.yaml", "photos", "nosuch"] * flawed]
    places = ["runs", *["photos", "labels.csv"] * flawed]
    more = [[], ["--methods", "AN"], *[["--methods", "A N"], ["--seeds", "x"]] * flawed]
    line = [draw(st.sampled_from(scenarios)), "--dry-run", "--out", draw(st.sampled_from(places))]
    return line + draw(st.sampled_from(more))


def _predict(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    where = draw(st.sampled_from(["run"] * 6 + ["photos", "missing"] * flawed))
    given = draw(PLACE) if flawed else "array.npy"
    outs = ["new.csv", "new.json", *["new.tif", "new.gpkg", "photos", "new", "labels.csv/x.csv"]]
    out = draw(st.sampled_from(outs if flawed else outs[:2]))
    more = [[], ["--thresholds", "half"]]
    if flawed:
        more += [["--thresholds", draw(FILE)], ["--stride", "0"], ["--bands", "a", "b"]]
        more += [["--nodata", "x"], ["--workers", "-1"], ["--windows", "always"]]
    return [where, given, "--out", out, *draw(st.sampled_from(more))]


def _complete(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    where = draw(st.sampled_from(["run"] * 6 + ["photos", "missing"] * flawed))
    outs = ["done.csv", "done.parquet", "done.json"]
    bad = ["done.xlsx", "done.gpkg", "photos", "labels.csv/x.csv", "done"] * flawed
    line = [where, "--out", draw(st.sampled_from(outs + bad))]
    more = [[], ["--part", "val"], ["--precision", "0.5"], ["--wide"], ["--json"]]
    more += [["--thresholds", "half"], ["--absence", "0.9"], ["--folds", "2", "--part", "train"]]
    if flawed:
        more += [["--thresholds", draw(FILE)], ["--images", draw(PLACE)], ["--truth", draw(FILE)]]
        more += [["--precision", draw(words)], ["--folds", draw(words)], ["--part", "none"]]
        more += [["--root", draw(PLACE)], ["--figure", "photos"], ["--images", "array.npy"]]
    for chosen in draw(
        st.lists(st.sampled_from(more), max_size=2, unique_by=lambda one: tuple(one[:1]))
    ):
        line += chosen
    return line


def _export(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    """Mostly without ONNX, which takes a second."""
    where = draw(st.sampled_from(["run"] * 6 + ["photos", "missing"] * flawed))
    outs = ["model", *["photos", "labels.csv", "empty", "labels.csv/x", "run"] * flawed]
    formats = [["torch"], ["onnx"], *[["timm"], ["torch", "tim"], [""]] * flawed]
    line = [where, "--out", draw(st.sampled_from(outs))]
    line += ["--formats", *draw(st.sampled_from(formats))]
    more = [[], ["--json"], *[["--for", "deepness"], ["--overwrite"]] * flawed]
    return line + draw(st.sampled_from(more))


def _embed(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    given = draw(PLACE) if flawed else "photos"
    outs = [
        "new.npy",
        "new.npz",
        *["new.parquet", "new.txt", "photos", "labels.csv/x.npy"] * flawed,
    ]
    line = [given, "--out", draw(st.sampled_from(outs)), "--backbone", SMALLEST, "--size", "8"]
    more = [[], ["--json"], ["--batch-size", "4"], ["--dtype", "float16"]]
    if flawed:
        more += [["--bands", "r"], ["--nodata", "x"], ["--data", "array"], ["--batch-size", "0"]]
        more += [["--skip-unreadable", "true"], ["--backbone", "nosuch"], ["--force"]]
    weights = draw(st.sampled_from(["none"] * 4 + ["auto", "labels.csv"] * flawed))
    return [*line, "--weights", weights, *draw(st.sampled_from(more))]


def _budget(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    """Lines that are refused or only plan, because the runs of any sound one take minutes."""
    scenarios = ["demo-random", *["config.yaml", "photos", "nosuch", "labels.csv"] * flawed]
    line = [draw(st.sampled_from(scenarios)), "--dry-run", "--out", draw(PLACE) if flawed else "r"]
    more = [[], *[["--cost", "0"], ["--shares", "2"], ["--seeds", "x"]] * flawed]
    return line + draw(st.sampled_from(more))


def _annotate(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    """Lines that open everything; the suite takes out the server itself."""
    if draw(st.integers(0, 3)) == 0:
        line = ["--report", draw(FILE) if flawed else "run/labels.csv"]
        more = [[], ["--json"], ["--truth", draw(FILE)], *[["--out", "x.csv"]] * flawed]
        return line + draw(st.sampled_from(more))
    given = draw(PLACE) if flawed else "array.npy" if on_array else "photos"
    classes = ["field, forest, water", *["truth.csv", "a,a", "", "photos", "missing.txt"] * flawed]
    outs = ["new.csv", *["photos", "labels.csv", "missing/x.csv", "new.sqlite"] * flawed]
    line = [given, "--classes", draw(st.sampled_from(classes))]
    line += ["--out", draw(st.sampled_from(outs)), "--no-browser"]
    more = [[], ["--candidates", "2"], ["--all-classes"], ["--several", "--absent"], ["--repeats"]]
    if flawed:
        more += [["--candidates", draw(words)], ["--overlap", "0"], ["--port", "70000"]]
        more += [
            ["--bands", "r"],
            ["--nodata", "x"],
            ["--host", "nowhere.invalid"],
            ["--seed", "x"],
        ]
    return line + draw(st.sampled_from(more))


def _prepare(draw: Callable, flawed: bool, on_array: bool) -> list[str]:
    given = draw(st.sampled_from([PATCHES] * 6 + [*PLACES] * flawed))
    outs = ["new", *["photos", "labels.csv", "labels.csv/x", PATCHES, "empty"] * flawed]
    line = [given, "--out", draw(st.sampled_from(outs))]
    more = [
        [],
        ["--form", "lmdb"],
        ["--json"],
        ["--cloudy"],
        ["--strict"],
        ["--resample", "bicubic"],
    ]
    more += [["--form", "zip"], ["--workers", "0"], ["--workers", "x"]] * flawed
    return line + draw(st.sampled_from(more))


_LINES: dict[str, Callable[..., list[str]]] = {
    "train": _train,
    "inspect": _inspect,
    "simulate": _simulate,
    "evaluate": _on_run(["--split", "val"], ["--json"]),
    "report": _on_run(["--against", "run"]),
    "theory": _on_run(),
    "priors": _on_run(["--json"]),
    "predict": _predict,
    "complete": _complete,
    "export": _export,
    "embed": _embed,
    "budget": _budget,
    "annotate": _annotate,
    "prepare": _prepare,
    "tables": _tables,
    "tune": _tune,
    "ablate": lambda draw, flawed, on_array: [
        *_bench(draw, flawed, on_array)[:4],
        *draw(st.sampled_from([[], ["--studies", "mixup"], *[["--studies", "x"]] * flawed])),
    ],
    # A sound demo takes minutes.
    "demo": lambda draw, *_: [
        *draw(st.sampled_from([["--out", "labels.csv"], ["--seed", "x"], ["--out", "photos"]]))
    ],
    "bench": _bench,
    "figures": lambda draw, *_: [
        *("demo-random", "--out", "runs"),
        *draw(st.sampled_from([[], ["--only", "gap"]])),
    ],
    "methods": lambda draw, *_: draw(st.sampled_from([[], ["AdaGC"], ["adagc"], ["Nobody"]])),
    "datasets": lambda draw, *_: draw(st.sampled_from([[], ["--json"]])),
    "text": lambda draw, *_: [
        *("--classes", draw(st.sampled_from(["a, b", *TABLES])), "--out", "n.csv")
    ],
}
