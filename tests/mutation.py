"""Which mistakes the tests would not notice: changes the sources one place at a time and runs them.

Only tests that come by the changed line are run, found by one measured run of the suite; a change
that they all survive is printed. Changes that cannot matter (messages, types, docstrings) are not
made. It runs for as long as it is told, over places drawn at random, so that any stretch gives
a rate.

    python tests/mutation.py training methods/adagc.py methods/state.py ranks labels --minutes 60

Hundreds of tests come by a line that every run uses, so at first only the quickest are run. What
survived them is tried again with all tests that come by:

    python tests/mutation.py training ... --again RECORD
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "adagc"
MOST = 60  # tests per change; the quickest ones first
PATIENCE = 90  # seconds for the tests of one change; a loop without end is noticed too
THOROUGH = 240  # seconds of tests for a change that survived before

# Tests that come by in processes of their own, where the measured run does not see them.
ELSEWHERE = {
    "ranks": [
        f"tests/training/test_ranks.py::{name}"
        for name in (
            "test_spread_gives_the_values_and_gradients_of_one_process",
            "test_batch_normalisation_sees_the_whole_batch",
            "test_gradients_travel_while_the_backward_pass_is_under_way",
            "test_all_ranks_share_the_test_also_of_a_run_without_a_folder",
            "test_many_ranks_train_what_one_process_trains",
        )
    ]
}

COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One mistake in one place."""

    file: Path
    line: int
    what: str
    text: str  # the whole changed source


def changes(file: Path) -> Iterator[Change]:
    """All mistakes that this file could have, one at a time."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    places = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
    skipped = _irrelevant(tree)
    for number, node in enumerate(places):
        if id(node) in skipped:
            continue
        for variant in range(3):
            twin = copy.deepcopy(tree)
            other = [n for n in ast.walk(twin) if hasattr(n, "lineno")][number]
            what = _break(other, variant)
            if what is None:
                break
            yield Change(file, node.lineno, what, ast.unparse(ast.fix_missing_locations(twin)))


def _irrelevant(tree: ast.Module) -> set[int]:
    """Nodes inside messages, types, logs, docstrings and imports."""
    found: set[int] = set()

    def leave_out(node: ast.AST) -> None:
        found.update(id(inner) for inner in ast.walk(node))

    silent = (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Assert)
    for node in ast.walk(tree):
        if isinstance(node, silent) or _is_text(node):
            leave_out(node)
        elif isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            leave_out(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in (*node.decorator_list, node.returns):
                if part is not None:
                    leave_out(part)
    return found


def _is_text(node: ast.AST) -> bool:
    """Docstrings, what only the type checker reads, and what goes to a log."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        return getattr(node.test, "id", "") == "TYPE_CHECKING"
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).startswith(("log.", "warnings."))
    return False


def _break(node: ast.AST, variant: int) -> str | None:
    """Change a node in place and say how; None when there is nothing (more) to change."""
    if isinstance(node, ast.Compare) and variant == 0 and type(node.ops[0]) in COMPARE:
        old = type(node.ops[0])
        node.ops[0] = COMPARE[old]()
        return f"{old.__name__} -> {COMPARE[old].__name__}"
    if isinstance(node, ast.BinOp) and variant == 0 and type(node.op) in ARITHMETIC:
        before = type(node.op)
        node.op = ARITHMETIC[before]()
        return f"{before.__name__} -> {ARITHMETIC[before].__name__}"
    if isinstance(node, ast.BoolOp) and variant == 0:
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return "and <-> or"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and variant == 0:
        node.op = ast.UAdd()
        node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        return "not removed"
    if isinstance(node, ast.Constant) and variant == 0:
        if isinstance(node.value, bool):
            node.value = not node.value
            return "True <-> False"
        if isinstance(node.value, int | float):
            node.value = node.value + 1
            return "number + 1"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and variant == 0:
        said = ast.unparse(node.value)[:60]
        node.value = ast.Constant(None)
        return f"call removed: {said}"
    if isinstance(node, ast.Call) and variant < len(node.keywords):
        gone = node.keywords.pop(variant)
        return f"argument removed: {gone.arg} of {ast.unparse(node.func)[:40]}"
    if isinstance(node, ast.AugAssign) and variant == 0 and type(node.op) in ARITHMETIC:
        before = type(node.op)
        node.op = ARITHMETIC[before]()
        return f"{before.__name__}= -> {ARITHMETIC[before].__name__}="
    return None


def measured(
    tests: list[str], place: Path
) -> tuple[dict[tuple[str, int], set[str]], dict[str, float]]:
    """Which tests come by which line, and how long each takes, from one run of them."""
    place.mkdir(parents=True, exist_ok=True)
    settings = place / "coverage.ini"
    settings.write_text(
        f"[run]\nsource = {SOURCE}\ndynamic_context = test_function\ndata_file = {place}/coverage\n"
    )
    if not (place / "coverage").exists():
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
        command += ["-q", "-p", "no:cacheprovider", "--durations=0", "--durations-min=0.0", *tests]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        (place / "output").write_text(done.stdout)
        if done.returncode:
            raise SystemExit(done.stdout[-3000:])
    seconds: dict[str, float] = {}
    for text in (place / "output").read_text().splitlines():
        words = text.split()
        if len(words) == 3 and words[1] in ("call", "setup") and words[0].endswith("s"):
            seconds[words[2]] = seconds.get(words[2], 0.0) + float(words[0][:-1])
    by_function: dict[str, list[str]] = {}
    for test in seconds:
        file, _, name = test.partition("::")
        dotted = f"{Path(file).stem}.{name.partition('[')[0].replace('::', '.')}"
        by_function.setdefault(dotted, []).append(test)
    lines: dict[tuple[str, int], set[str]] = {}
    from coverage.numbits import numbits_to_nums

    with contextlib.closing(sqlite3.connect(place / "coverage")) as base:
        found = base.execute(
            "select file.path, context.context, numbits from line_bits"
            " join file on file.id = file_id join context on context.id = context_id"
        )
        for path, context, bits in found:
            tail = ".".join(context.split(".")[-2:]) if context else ""
            for line in numbits_to_nums(bits) if tail in by_function else ():
                lines.setdefault((path, line), set()).add(tail)
    expanded = {
        key: {test for name in names for test in by_function[name]} for key, names in lines.items()
    }
    return expanded, seconds


def survives(change: Change, tests: list[str], tree: Path, patience: float) -> bool:
    """Whether these tests pass with the change; run in a fork that has the heavy imports."""
    target = tree / "adagc" / change.file.relative_to(SOURCE)
    target.write_text(change.text, encoding="utf-8")
    pid = os.fork()
    if pid == 0:
        _run_tests(tests, tree)
    began = time.monotonic()
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() - began > patience:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            status = 1
            break
        time.sleep(0.05)
    shutil.copy(change.file, target)
    return status == 0


def _run_tests(tests: list[str], tree: Path) -> None:
    os.setpgid(0, 0)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(tree)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.path.insert(0, str(tree))
    sink = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(sink, stream)
    code = 1
    with contextlib.suppress(BaseException):
        import pytest

        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
    os._exit(code)


def work(mine: list[Change], options: argparse.Namespace, lines, seconds, out: Path) -> None:
    """Try changes until the time is up; one line of JSON for each."""
    import hypothesis  # noqa: F401
    import numpy as np  # noqa: F401
    import pytest  # noqa: F401
    import torch

    from adagc.models.vision import import_timm

    import_timm()  # timm needs it, and is heavy too
    import timm  # noqa: F401

    torch.set_num_threads(1)
    for name in [name for name in sys.modules if name.partition(".")[0] == "adagc"]:
        del sys.modules[name]
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as place, out.open("a", encoding="utf-8") as record:
        tree = Path(place)
        shutil.copytree(SOURCE, tree / "adagc")
        for change in mine:
            if time.monotonic() > end:
                return
            known = sorted(lines.get((str(change.file), change.line), ()), key=seconds.__getitem__)
            known = known or ELSEWHERE.get(change.file.relative_to(SOURCE).parts[0], [])
            chosen, patience = known[:MOST], PATIENCE
            if options.again is not None:
                spent = itertools.accumulate(seconds.get(test, 0.0) for test in known)
                chosen = [test for test, at in zip(known, spent, strict=True) if at < THOROUGH]
                patience = 4 * THOROUGH
            fate = "not run"
            if known:
                fate = "survived" if survives(change, chosen, tree, patience) else "noticed"
            told = {"file": str(change.file.relative_to(SOURCE)), "line": change.line}
            record.write(json.dumps({**told, "what": change.what, "fate": fate}) + "\n")
            record.flush()


def main() -> None:
    """Measure once, then change and run on all cores."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("places", nargs="+", help="Files or folders below src/adagc.")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="Tests that may notice.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "adagc-mutation")
    parser.add_argument("--again", type=Path, help="Record whose survivors are tried again.")
    options = parser.parse_args()
    lines, seconds = measured(options.tests, options.keep)
    files = [
        file
        for place in options.places
        for file in (sorted((SOURCE / place).rglob("*.py")) or [SOURCE / place])
    ]
    everything = [change for file in files for change in changes(file)]
    random.Random(options.seed).shuffle(everything)
    if options.again is not None:
        record = [json.loads(line) for line in options.again.read_text().splitlines()]
        alive = {
            (fate["file"], fate["line"], fate["what"])
            for fate in record
            if fate["fate"] != "noticed"
        }
        everything = [
            change
            for change in everything
            if (str(change.file.relative_to(SOURCE)), change.line, change.what) in alive
        ]
    cores = len(os.sched_getaffinity(0))
    out = options.keep / f"fates-{int(time.time())}.jsonl"
    out.touch()
    crew = []
    for number in range(cores):
        pid = os.fork()
        if pid == 0:
            work(everything[number::cores], options, lines, seconds, out)
            os._exit(0)
        crew.append(pid)
    for pid in crew:
        os.waitpid(pid, 0)
    fates = [json.loads(line) for line in out.read_text().splitlines()]
    count = {
        fate: sum(f["fate"] == fate for f in fates) for fate in ("noticed", "survived", "not run")
    }
    tried = count["noticed"] + count["survived"]
    for fate in sorted(fates, key=lambda f: (f["file"], f["line"])):
        if fate["fate"] != "noticed":
            print(f"{fate['fate']:>8}  {fate['file']}:{fate['line']}  {fate['what']}")
    print(
        f"{len(fates)} of {len(everything)} changes tried: {count['noticed']} noticed,"
        f" {count['survived']} survived ({count['survived'] / max(tried, 1):.1%} of those that a"
        f" test comes by), {count['not run']} where none comes by in its own process; {out}"
    )


if __name__ == "__main__":
    main()
