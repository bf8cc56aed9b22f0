"""Files are written whole or not at all, and a full disk is explained in one line."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from adagc import atomic
from adagc.errors import NoSpaceError
from full_disk import FullDisk, small_disk


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")}


def write(*targets: Path, content: bytes, times: int = 1, error: Exception | None = None) -> None:
    with atomic.replacing(*targets) as files:
        for file in files:
            for _ in range(times):
                file.write(content)
        if error is not None:
            raise error


def test_several_files_are_replaced_together(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"old")
    with atomic.replacing(one, two) as (first, second):
        first.write(b"new ")
        first.write(np.arange(3, dtype=np.uint8))  # any buffer
        second.write(b"2")
        assert one.read_bytes() == b"old"
    assert listing(tmp_path) == {"one": b"new \x00\x01\x02", "two": b"2"}


def test_an_error_in_the_block_leaves_everything_as_it_was(tmp_path):
    (tmp_path / "one").write_bytes(b"old")
    with pytest.raises(ValueError, match="of the block"):
        write(tmp_path / "one", tmp_path / "two", content=b"new", error=ValueError("of the block"))
    assert listing(tmp_path) == {"one": b"old"}


@pytest.mark.parametrize("failing", ["one", "two"])
def test_a_full_disk_names_the_file_and_what_is_needed(tmp_path, monkeypatch, failing):
    (tmp_path / "one").write_bytes(b"old")
    FullDisk(monkeypatch, f".{failing}.")
    with pytest.raises(NoSpaceError) as caught:
        write(tmp_path / "one", tmp_path / "two", content=bytes(100_000), times=9)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / failing} cannot be written: it needs 1.8 MB, and ")
    assert message.endswith(" is free on its disk; free some space")
    assert listing(tmp_path) == {"one": b"old"}


def test_a_library_that_writes_from_compiled_code_gives_the_same_line(tmp_path, monkeypatch):
    state = {"weights": torch.zeros(100_000)}
    whole = io.BytesIO()
    torch.save(state, whole)
    FullDisk(monkeypatch)
    with (
        pytest.raises(
            NoSpaceError, match=rf"last\.ckpt .* it needs {len(whole.getvalue()) // 1000}"
        ),
        atomic.replacing(tmp_path / "last.ckpt") as (file,),
    ):
        torch.save(state, file)
    assert listing(tmp_path) == {}


def test_an_error_that_follows_from_a_full_disk_does_not_hide_it(tmp_path, monkeypatch):
    FullDisk(monkeypatch)
    error = RuntimeError("[enforce fail at inline_container.cc]")
    with pytest.raises(NoSpaceError, match="one cannot be written"):
        write(tmp_path / "one", content=b"content", error=error)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EDQUOT, "it needs 7 bytes, and your quota on this disk is used up; delete files"),
        (errno.EFBIG, "its disk takes no file of this size; raise the limit, or use another disk"),
    ],
)
def test_other_limits_are_named_too(tmp_path, monkeypatch, code, said):
    FullDisk(monkeypatch, code=code)
    with pytest.raises(NoSpaceError) as caught:
        atomic.write_text(tmp_path / "one", "content")
    assert said in str(caught.value)


def test_other_errors_name_the_file_and_stay_what_they_are(tmp_path, monkeypatch):
    FullDisk(monkeypatch, code=errno.EIO)
    with pytest.raises(OSError, match="one") as caught:
        atomic.write_text(tmp_path / "one", "content")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(tmp_path / "one"))
    with pytest.raises(FileNotFoundError) as missing:
        atomic.write_text(tmp_path / "no" / "one", "content")
    assert missing.value.filename == str(tmp_path / "no" / "one")


def test_an_appended_line_is_there_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "history.jsonl"
    atomic.append(path, b"first\n")
    disk = FullDisk(monkeypatch)
    with pytest.raises(NoSpaceError, match=r"history\.jsonl cannot be written: it needs 7 bytes"):
        atomic.append(path, b"second\n")
    assert path.read_bytes() == b"first\n"
    disk.free()
    atomic.append(path, b"second\n")
    assert path.read_bytes() == b"first\nsecond\n"


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(tmp_path):
    names = [".last.ckpt.0123abcd.tmp", ".notes.tmp", "a.tmp", ".report.html.0123abcd.tmp", ".x"]
    for name in names:
        (tmp_path / name).touch()
    atomic.remove_leftovers(tmp_path, but="report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
    atomic.remove_leftovers(tmp_path / "nowhere", but="")


@pytest.mark.system("mount", "umount")
def test_a_disk_that_is_really_full(tmp_path):
    with small_disk(tmp_path / "disk", 100) as disk:
        (disk / "one").write_bytes(b"old")
        with pytest.raises(NoSpaceError) as caught:
            atomic.write_bytes(disk / "one", bytes(200_000))
        assert "one cannot be written: it needs 200.0 kB, and 98.3 kB is free" in str(caught.value)
        with pytest.raises(NoSpaceError, match=r"needs 110\.0 kB"):
            atomic.append(disk / "one", bytes(110_000))
        assert listing(disk) == {"one": b"old"}
        atomic.write_bytes(disk / "one", bytes(50_000))  # what fits is still written


def test_a_disk_without_room_for_another_file(tmp_path, monkeypatch):
    FullDisk(monkeypatch)
    real = os.statvfs

    def no_inodes(path):
        return os.statvfs_result([0 if i == 7 else value for i, value in enumerate(real(path))])

    monkeypatch.setattr(os, "statvfs", no_inodes)
    with pytest.raises(NoSpaceError, match=r"its disk takes no more files \(df -i\)"):
        atomic.write_text(tmp_path / "one", "content")


def test_a_limit_on_the_size_of_files(tmp_path):
    """A real one: the system sends SIGXFSZ, which Python turns into an error."""
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from adagc import atomic\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    atomic.write_bytes(Path(sys.argv[1]), bytes(1500))\n"
        "except atomic.NoSpaceError as error:\n"
        "    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "one"], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        f"{tmp_path / 'one'} cannot be written: it needs 1.5 kB, and no file may have more than"
        " 1.0 kB (ulimit -f); raise the limit, or use another disk\n"
    )
    assert listing(tmp_path) == {}
