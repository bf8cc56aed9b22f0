"""How a command ends: exit codes, one line, and what an interruption leaves behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from adagc.bench.failures import reason
from adagc.cli import COMMANDS, main
from adagc.errors import shortage
from adagc.labels import LabelTable, write_labels
from conftest import CLASSES, make_collection, make_labels
from tiny import write_scenario

TRAIN = [
    "train", "--data", "synthetic", "--scenes", "60", "--size", "16", "--scheme", "random",
    "--backbone", "test_resnet", "--absent", "skip", "--report", "false", "--method", "AN",
]  # fmt: skip


# -- signals ---------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Let Ctrl-C work where it is ignored, as in whatever a shell starts in the background."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until it is ended."""
    command = [sys.executable, "-m", "adagc", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(folder: Path, name: str, process: subprocess.Popen[str]) -> None:
    """Wait until there is a file of this name somewhere in the folder."""
    until = time.monotonic() + 300
    while not list(folder.rglob(name)):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM")],
)
def test_a_signal_ends_training_with_one_line_and_nothing_half_written(
    tmp_path, number, code, said
):
    out = tmp_path / "run"
    with started(*TRAIN, "--epochs", "2000", "--out", str(out)) as process:
        wait_for(out, "last.ckpt", process)
        process.send_signal(number)
        _, error = process.communicate(timeout=120)
    assert process.returncode == code
    assert (
        error.splitlines()[-1] == f"adagc train: {said}; the same command with --resume continues"
    )
    assert "Traceback" not in error
    assert [path.name for path in out.rglob(".*")] == []
    assert not (out / "writer.json").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_comes_while_an_object_is_deleted_is_not_lost(
    monkeypatch, capsys, number, code
):
    class Deleted:
        def __del__(self) -> None:
            os.kill(os.getpid(), number)
            time.sleep(0.01)  # the handler raises here, where nothing can be raised

    def command(words: list[str]) -> None:
        del words
        there = Deleted()
        del there
        time.sleep(10)
        raise AssertionError("the signal was lost")

    monkeypatch.setitem(COMMANDS, "demo", command)
    assert main(["demo"]) == code
    assert capsys.readouterr().err.startswith("adagc demo: ")


def children(process: int) -> list[int]:
    """The processes that a process has started, as Linux lists them."""
    file = Path(f"/proc/{process}/task/{process}/children")
    if not file.exists():
        pytest.skip("the system does not list the children of a process")
    return [int(word) for word in file.read_text().split()]


def test_sigterm_ends_the_workers_of_a_bench_too(tmp_path):
    scenario = write_scenario(tmp_path / "tiny", bench={"seeds": [0]}, epochs=2000)
    assert scenario.name == "tiny"
    words = ["bench", str(tmp_path / "tiny"), "--methods", "AN", "--workers", "1"]
    with started(*words, "--out", str(tmp_path / "out")) as process:
        wait_for(tmp_path / "out", "last.ckpt", process)
        workers = children(process.pid)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=120)
    assert process.returncode == 143
    assert error.splitlines()[-1] == "adagc bench: ended by SIGTERM; the same command continues"
    assert workers
    until = time.monotonic() + 60  # Python's own helper process ends a moment later
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert not list((tmp_path / "out").rglob("*.failed.json"))


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "not enough memory: close other programs, or work on less at a time"),
        (
            MemoryError("Unable to allocate 1.20 TiB for an array with shape (9, 9)"),
            1,
            "not enough memory (1.20 TiB more are needed): close other programs",
        ),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate"
                " memory: you tried to allocate 4000000000 bytes. Error code 12"
            ),
            1,
            "not enough memory (4000000000 bytes more are needed)",
        ),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "not enough memory"),
        (OSError(errno.EMFILE, "Too many open files"), 1, "too many files are open: raise the"),
        (RuntimeError("can't start new thread"), 1, "the system starts no more processes"),
        (RecursionError("maximum recursion depth exceeded"), 1, "a file is nested too deeply"),
        (PermissionError(errno.EACCES, "Permission denied", "/etc/x"), 1, "/etc/x: Permission"),
        (OSError(errno.ENOSPC, "No space left", "/tmp/x"), 1, "/tmp/x cannot be written: "),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_the_machine_lacks_is_one_line(monkeypatch, capsys, error, code, said):
    def fail(_: list[str]) -> None:
        raise error

    monkeypatch.setitem(COMMANDS, "inspect", fail)
    assert main(["inspect", "x"]) == code
    printed = capsys.readouterr().err
    assert printed.startswith(f"adagc inspect: {said}")
    assert len(printed.splitlines()) == 1
    if isinstance(error, Exception):
        with pytest.raises(type(error)):
            main(["inspect", "x", "--debug"])


def test_a_worker_of_a_bench_says_the_same():
    error = RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
    )
    assert reason(error) == shortage(error)
    assert shortage(ValueError("a bug")) is None


def test_a_real_lack_of_memory(tmp_path):
    code = (
        "import resource, sys\n"
        "from adagc.cli import COMMANDS, main\n"
        "import torch\n"
        "def greedy(_):\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))\n"
        "    torch.empty(2**40, dtype=torch.uint8)\n"
        "COMMANDS['train'] = greedy\n"
        "sys.exit(main(['train']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "adagc train: not enough memory (1099511627776 bytes more are needed): close other"
        " programs, or work on less at a time; the same command with --resume continues\n"
    )


def test_a_bug_is_still_a_traceback(monkeypatch):
    def fail(_: list[str]) -> None:
        raise ValueError("a bug")

    monkeypatch.setitem(COMMANDS, "inspect", fail)
    with pytest.raises(ValueError, match="a bug"):
        main(["inspect", "x"])


# -- output ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["methods"], ["methods", "--json"], ["datasets"]])
def test_output_that_cannot_be_written_is_one_line(words):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full on this system")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "adagc", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "the output cannot be written (No space left on device)" in done.stderr


def test_a_reader_that_ends_early_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "adagc", "methods", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


def test_help_of_a_command_in_either_order(capsys):
    texts = []
    for words in (["inspect", "--help"], ["help", "inspect"], ["--help", "inspect"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] == texts[2]
    assert "usage: adagc inspect [ROOT]" in texts[0]
    assert main(["help"]) == 0
    assert "adagc COMMAND --help" in capsys.readouterr().out
    assert main(["help", "inspct"]) == 2
    assert "there is no command 'inspct'; did you mean 'inspect'?" in capsys.readouterr().err


# -- a wrong name is wrong usage, whatever it is the name of ---------------------------------


@pytest.fixture
def data(tmp_path) -> Path:
    collection = make_collection()
    np.save(tmp_path / "embeddings.npy", collection.images.gather(np.arange(64)))
    make_labels(collection, tmp_path / "one.csv")
    table = LabelTable(collection.images.names, CLASSES, collection.truth.astype(np.int8))
    write_labels(table, tmp_path / "truth.csv")
    return tmp_path


ARRAY = ["train", "--data", "array", "--root", "embeddings.npy", "--out", "run"]
LABELS = ["--labels", "one.csv"]
WRONG = [
    ([*ARRAY, *LABELS, "--method", "AdaGCC"], "did you mean 'AdaGC'"),
    ([*ARRAY, *LABELS, "--backbone", "reznet18"], "there is no backbone 'reznet18'; did you mean"),
    (
        [*TRAIN, "--backbone", "resnet5o", "--out", "run"],
        "there is no backbone 'resnet5o'; did you mean",
    ),
    ([*TRAIN, "--backbone", "resnet18.a9_in1k", "--out", "run"], "has no weights 'a9_in1k'"),
    ([*TRAIN, "--weights", "regstry", "--out", "run"], "no weights at regstry: give"),
    ([*ARRAY, "--labels", "on.csv"], "--labels on.csv: there is no such file or folder; did you"),
    ([*ARRAY, *LABELS, "--truth", "nothing"], "--truth nothing: there is no such file"),
    ([*ARRAY, *LABELS, "--split", "nothing"], "--split nothing: there is no such file"),
    ([*ARRAY, *LABELS, "--method", "LCR", "--text", "nothing"], "--text nothing: there is no such"),
    ([*ARRAY[:3], "--root", "embedings.npy", *LABELS, "--out", "run"], "mean 'embeddings.npy'"),
    (["train", "--data", "folder", "--root", "nothing", *LABELS, "--out", "run"], "--root nothing"),
    (["train", "--config", "bad.yaml", "--out", "run"], "there is no backbone 'reznet18'"),
    (["train", "--data", "synthetic", "--labels", "nothing", "--out", "run"], "--labels nothing"),
    (["evaluate", "nothing"], "nothing does not exist: give the folder of a run"),
    (["report", "nothing"], "nothing does not exist: give the folder of a run"),
    (["theory", "nothing"], "nothing does not exist: give the folder of a run"),
    (["inspect", "nothing"], "ROOT nothing: there is no such file or folder"),
    (["inspect", "embeddings.npy", "--labels", "nothing"], "--labels nothing: there is no such"),
    (["inspect", "embeddings.npy", "--pretrained", "resnet5o"], "there is no backbone 'resnet5o'"),
    (["simulate", "--truth", "nothing", "--out", "x.csv"], "TRUTH nothing: there is no such"),
    (
        ["simulate", "--truth", "truth.csv", "--scheme", "dominant", "--areas", "no", "--out", "x"],
        "--areas no: there is no such file",
    ),
    (["text", "--classes", "nothing.txt", "--out", "x.csv"], "nothing.txt: there is no such file"),
    (["bench", "nothing"], "there is no scenario 'nothing'"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=lambda value: " ".join(value)[-60:])
def test_a_wrong_name_is_code_2_and_leaves_nothing(data, monkeypatch, capsys, words, said):
    monkeypatch.chdir(data)
    (data / "bad.yaml").write_text(
        "data: array\nroot: embeddings.npy\nlabels: one.csv\nbackbone: reznet18\n"
    )
    before = sorted(data.rglob("*"))
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err.splitlines()[-1]
    assert sorted(data.rglob("*")) == before


# -- a dry run is quick ----------------------------------------------------------------------


def test_a_dry_run_does_without_torch(tmp_path):
    write_scenario(tmp_path / "tiny", bench={"seeds": [0]}, epochs=1)
    words = ["bench", str(tmp_path / "tiny"), "--methods", "AN", "--out", str(tmp_path / "out")]
    if os.environ.get("CUDA_VISIBLE_DEVICES") is None and Path("/dev/nvidiactl").exists():
        pytest.skip("only torch knows the GPUs of this machine")
    code = (
        "import sys\n"
        "from adagc.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "print('torch' in sys.modules, file=sys.stderr)\n"
        "sys.exit(code)"
    )

    def dry_run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *words, "--dry-run"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    done = dry_run()
    assert (done.returncode, done.stderr) == (0, "False\n")
    assert "1 runs, 0 finished, 1 to do" in done.stdout
    assert main([*words, "--workers", "1"]) == 0
    done = dry_run()
    assert (done.returncode, done.stderr) == (0, "False\n")
    assert "1 runs, 1 finished, 0 to do" in done.stdout


def test_ctrl_c_during_an_import_that_executes_text_is_130(tmp_path):
    # Python would end by the signal although it is caught; collections.namedtuple, say, does this.
    (tmp_path / "slow_plugin.py").write_text("exec('raise KeyboardInterrupt')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "adagc", "methods"], capture_output=True, text=True, check=False,
        env={**os.environ, "ADAGC_PLUGINS": "slow_plugin", "PYTHONPATH": path},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "adagc methods: interrupted\n")
