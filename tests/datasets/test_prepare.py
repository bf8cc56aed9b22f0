from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tifffile

from adagc.cli import main
from adagc.datasets.bigearthnet import prepare as preparing
from adagc.datasets.bigearthnet import writing
from adagc.datasets.bigearthnet.generate import Generated, generate
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.datasets.bigearthnet.verify import verify
from adagc.errors import DataError, NoSpaceError, UsageError
from adagc.images.bigearthnet.shards import allocate
from adagc.progress import Meter

CHUNK = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return generate(tmp_path_factory.mktemp("reben") / "reBEN", 18, cloudy=0)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (preparing, writing):
        monkeypatch.setattr(module, "CHUNK", CHUNK)


@pytest.fixture
def copy(made: Generated, tmp_path: Path) -> Path:
    shutil.copytree(made.root, tmp_path / "copy")
    return tmp_path / "copy"


def band_file(root: Path, name: str, band: str = "B03") -> Path:
    return next((root / "BigEarthNet-S2").glob(f"*/{name}/{name}_{band}.tif"))


def content(store: Path) -> dict[str, bytes]:
    """What readers see of a store; an LMDB store by its entries."""
    found = {
        path.name: path.read_bytes()
        for path in sorted(store.iterdir())
        if path.suffix in (".npy", ".safetensors") and ".part" not in path.name
    }
    for folder in store.glob("BigEarthNet-LMDB"):
        import lmdb

        with lmdb.open(str(folder), readonly=True, lock=False) as opened, opened.begin() as read:
            found |= {bytes(key).decode(): bytes(value) for key, value in read.cursor()}
    return found


SLOWLY = f"""
import sys, time
from adagc.datasets.bigearthnet import prepare, writing
for module in (prepare, writing):
    module.CHUNK = {CHUNK}
write = writing.Writer.write
def slow(self, chunk):
    time.sleep(0.15)
    return write(self, chunk)
writing.Writer.write = slow
from adagc.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("form", ["memmap", "lmdb"])
def test_a_killed_process_loses_what_it_was_at_and_nothing_else(made, tmp_path, monkeypatch, form):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = ["prepare", str(made.root), "--form", form, "--out"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, *command, str(killed)], stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    journal = killed / "journal.jsonl"
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") >= 2:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = {json.loads(line)[0] for line in journal.read_text().splitlines()}
    assert 2 <= len(done) < 5  # of five chunks
    with pytest.raises(DataError, match="is not finished: give the same adagc prepare again"):
        bigearthnet_collection(killed)
    with journal.open("a") as file:
        file.write("[12, [")  # as if it had been killed in the middle of a line

    written: list[int] = []
    write = writing.Writer.write
    monkeypatch.setattr(
        writing.Writer, "write",
        lambda self, chunk: written.append(chunk.start) or write(self, chunk),
    )  # fmt: skip
    assert main([*command, str(killed)]) == 0
    assert sorted(written) == [start for start in range(0, 18, CHUNK) if start not in done]
    written.clear()
    assert main([*command, str(killed)]) == 0  # finished: nothing is left to do
    assert written == []

    prepare(made.root, whole, form=form)
    assert content(whole) == content(killed)
    assert verify(killed).damaged == ()


@pytest.mark.parametrize("form", ["memmap", "lmdb"])
def test_several_processes_write_the_same(made, tmp_path, form):
    prepare(made.root, tmp_path / "one", form=form)
    done = prepare(made.root, tmp_path / "two", form=form, workers=2)
    assert (done.patches, done.written, done.left_out) == (18, 18, {})
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_the_lmdb_form_is_what_other_programs_read(made, tmp_path):
    import lmdb
    from safetensors.numpy import load, save

    prepare(made.root, tmp_path / "store", form="lmdb")
    folder = str(tmp_path / "store" / "BigEarthNet-LMDB")
    with lmdb.open(folder, readonly=True, lock=False) as opened, opened.begin() as read:
        assert read.stat()["entries"] == 36
        entry = read.get(made.names[3].encode())
        found = load(entry)
        assert set(found) == {f"B{n:02d}" for n in (*range(1, 10), 11, 12)} | {"B8A"}
        for band, values in found.items():
            wanted = tifffile.imread(band_file(made.root, made.names[3], band))
            assert values.dtype == wanted.dtype
            assert (values == wanted).all()
        again = load(save(found))
        assert all((again[band] == found[band]).all() for band in found)
        radar = load(read.get(made.radar[3].encode()))
        assert {band: values.dtype for band, values in radar.items()} == {
            "VV": np.float32, "VH": np.float32,
        }  # fmt: skip
    assert (tmp_path / "store" / "metadata.parquet").exists()
    # It is a copy of BigEarthNet in its own right.
    (tmp_path / "moved").mkdir()
    shutil.move(folder, tmp_path / "moved")
    shutil.copy(tmp_path / "store" / "metadata.parquet", tmp_path / "moved")
    data = bigearthnet_collection(tmp_path / "moved")
    assert (data.truth == made.labels).all()
    tree = bigearthnet_collection(made.root)
    rows = np.array([17, 2])
    assert (data.images.gather(rows) == tree.images.gather(rows)).all()


def damage(root: Path, made: Generated) -> None:
    path = band_file(root, made.names[5])
    path.write_bytes(path.read_bytes()[:1000])
    band_file(root, made.names[9], "B11").unlink()
    tifffile.imwrite(band_file(root, made.names[10]), np.zeros((60, 60), np.uint16))


@pytest.mark.parametrize("form", ["memmap", "lmdb"])
def test_broken_files_are_listed_and_their_patches_left_out(made, copy, tmp_path, capsys, form):
    damage(copy, made)
    out = tmp_path / "store"
    command = ["prepare", str(copy), "--out", str(out), "--form", form]
    assert main([*command, "--strict"]) == 1
    said = capsys.readouterr().err
    assert "3 of 18 patches are not whole or cannot be read, and were left out" in said
    lines = (out / "left_out.csv").read_text().splitlines()
    assert lines[0] == "patch,reason"
    reasons = ("_B03.tif", "_B11.tif: no such file", "uint16 of 60 x 60 pixels instead of")
    assert [line.split(",")[0] for line in lines[1:]] == [made.names[i] for i in (5, 9, 10)]
    assert all(reason in line for reason, line in zip(reasons, lines[1:], strict=True))

    data = bigearthnet_collection(out)
    left = [i for i in range(18) if i not in (5, 9, 10)]
    assert data.images.names == tuple(made.names[i] for i in left)
    assert (data.truth == made.labels[left]).all()
    tree = bigearthnet_collection(made.root)
    assert (data.images.gather(np.arange(15)) == tree.images.gather(np.array(left))).all()
    kept, own = data.images.moments(np.arange(15)), tree.images.moments(np.array(left))
    np.testing.assert_allclose(
        kept.statistics(data.images.bands).mean, own.statistics(data.images.bands).mean
    )
    assert verify(out).damaged == ()

    # Files that were repaired are read when the same command is given again.
    shutil.copy(band_file(made.root, made.names[9], "B11"), band_file(copy, made.names[9], "B05")
                .with_name(f"{made.names[9]}_B11.tif"))  # fmt: skip
    assert main(command) == 0
    assert "2 patches are not whole or cannot be read" in capsys.readouterr().out
    assert len(bigearthnet_collection(out).images) == 16


def test_a_patch_of_which_one_half_is_there_is_listed(made, copy, tmp_path, capsys):
    for half, name in (("S2", made.names[4]), ("S1", made.radar[7]), ("S1", made.radar[8])):
        shutil.rmtree(next((copy / f"BigEarthNet-{half}").glob(f"*/{name}")))
    shutil.rmtree(next((copy / "BigEarthNet-S2").glob(f"*/{made.names[8]}")))  # both halves
    command = ["prepare", str(copy), "--out", str(tmp_path / "store")]
    assert main(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3 of 18 patches of the metadata are not there, 2 of them in one half only" in said
    assert "2 patches are not whole or cannot be read, and were left out" in said
    lines = (tmp_path / "store" / "left_out.csv").read_text().splitlines()[1:]
    assert lines == [
        f"{made.names[4]},its Sentinel-2 patch is not there: {made.names[4]}",
        f"{made.names[7]},its Sentinel-1 patch is not there: {made.radar[7]}",
    ]
    assert main([*command, "--strict"]) == 1
    # Another folder than the one it was begun with, now that they are back.
    shutil.copytree(made.root, copy, dirs_exist_ok=True)
    assert main(command) == 2
    assert "was begun with other patches than are here now" in capsys.readouterr().err


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    made, tmp_path, monkeypatch
):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 10**6, 10**6))
    for form in ("memmap", "lmdb"):
        out = tmp_path / form
        with pytest.raises(NoSpaceError, match=r"it needs 0\.0 GB, and 0\.0 GB is free"):
            prepare(made.root, out, form=form)
        assert not out.exists()


def test_room_is_looked_for_again_when_a_store_is_continued(made, tmp_path, monkeypatch):
    write = writing.Writer.write

    def once(self, chunk):
        if chunk.start:
            raise KeyboardInterrupt
        return write(self, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(writing.Writer, "write", once)
        with pytest.raises(KeyboardInterrupt):
            prepare(made.root, tmp_path / "store", form="lmdb")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(NoSpaceError, match="cannot be prepared"):
        prepare(made.root, tmp_path / "store", form="lmdb")


def test_the_space_of_shards_is_reserved(tmp_path):
    allocate(tmp_path, 6, ("s2",))
    found = (tmp_path / "s2-00000.npy").stat()
    assert found.st_size == 128 + 6 * 12 * 28_800
    assert found.st_blocks * 512 >= found.st_size


@pytest.mark.parametrize("form", ["memmap", "lmdb"])
def test_a_changed_byte_is_found(made, tmp_path, capsys, form):
    out = tmp_path / "store"
    prepare(made.root, out, form=form)
    assert main(["inspect", str(out), "--verify"]) == 0
    assert "18 patches have the values that were written" in capsys.readouterr().out
    if form == "memmap":
        path = out / "s2-00000.npy"
        place = path.stat().st_size - 12 * 28_800 * (18 - 6) - 5  # at the end of patch 5
    else:
        path = out / "BigEarthNet-LMDB" / "data.mdb"
        wanted = tifffile.imread(band_file(made.root, made.names[5])).tobytes()
        place = path.read_bytes().index(wanted) + 77
    with path.open("r+b") as file:
        file.seek(place)
        (old,) = file.read(1)
        file.seek(place)
        file.write(bytes([old ^ 4]))
    assert main(["inspect", str(out), "--verify"]) == 1
    assert f"1 of 18 patches have other values than were written ({made.names[5]})" in (
        capsys.readouterr().err
    )


def test_every_option_of_the_command_is_handed_on(made, tmp_path, monkeypatch, capsys):
    found = {}

    def note(root, out, **options):
        found.update(options, root=root, out=out)
        return preparing.Prepared(out, "lmdb", 3, 3, {}, 1.0, ())

    monkeypatch.setattr(preparing, "prepare", note)
    words = ["--form", "lmdb", "--workers", "3", "--resample", "bicubic", "--cloudy", "--strict"]
    assert main(["prepare", str(made.root), "--out", str(tmp_path / "store"), *words]) == 0
    assert found == {
        "root": made.root, "out": tmp_path / "store", "form": "lmdb", "workers": 3,
        "resample": "bicubic", "cloudy": True, "strict": True,
    }  # fmt: skip


def test_two_calls_at_once_do_the_work_once(made, tmp_path, monkeypatch):
    written: list[int] = []
    write = writing.Writer.write

    def slow(self, chunk):
        time.sleep(0.05)
        written.append(chunk.start)
        return write(self, chunk)

    monkeypatch.setattr(writing.Writer, "write", slow)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(prepare, made.root, tmp_path / "store") for _ in range(2)]
        done = [call.result() for call in calls]
    assert sorted(written) == list(range(0, 18, CHUNK))
    assert sorted(one.written for one in done) == [0, 18]
    assert verify(tmp_path / "store").damaged == ()


def test_workers_end_with_a_command_that_is_killed(made, tmp_path):
    store = tmp_path / "store"
    command = ["prepare", str(made.root), "--out", str(store), "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, *command], stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while time.monotonic() < end and not (store / "journal.jsonl").exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    def alive() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    end = time.monotonic() + 20
    while time.monotonic() < end and alive():
        time.sleep(0.05)
    assert not alive()


def test_progress_says_the_rate(made, tmp_path, capsys, monkeypatch):
    notes: list[str] = []
    update = Meter.update
    monkeypatch.setattr(
        Meter, "update",
        lambda self, done, **more: notes.append(more.get("note", "")) or update(self, done, **more),
    )  # fmt: skip
    prepare(made.root, tmp_path / "store")
    assert any("18 of 18 patches" in note and "per second" in note for note in notes)


def test_half_a_copy_is_prepared_and_the_command_that_trains_on_it_names_the_half(
    made, copy, tmp_path, capsys
):
    shutil.rmtree(copy / "BigEarthNet-S1")
    assert main(["prepare", str(copy), "--out", str(tmp_path / "store")]) == 0
    said = capsys.readouterr().out
    assert "the Sentinel-1 half (BigEarthNet-S1) is missing" in said
    command = next(line for line in said.splitlines() if "adagc train" in line)
    assert "--bands s2 --scheme random" in command
    with pytest.raises(DataError, match="--bands s2"):
        bigearthnet_collection(tmp_path / "store")
    data = bigearthnet_collection(tmp_path / "store", bands=["s2"])
    tree = bigearthnet_collection(copy, bands=["s2"])
    assert (data.images.gather(np.arange(18)) == tree.images.gather(np.arange(18))).all()


def test_what_cannot_be_is_refused(made, tmp_path, capsys):
    out = tmp_path / "store"
    prepare(made.root, out)
    with pytest.raises(UsageError, match="was begun with another --form: choose"):
        prepare(made.root, out, form="lmdb")
    with pytest.raises(UsageError, match="another --resample"):
        prepare(made.root, out, resample="bicubic")
    with pytest.raises(DataError, match="prepared with --resample nearest"):
        bigearthnet_collection(out, resample="bicubic")
    with pytest.raises(DataError, match=r"prepared without the patches with snow.* --cloudy"):
        bigearthnet_collection(out, cloudy=True)
    with pytest.raises(UsageError, match="is prepared already"):
        prepare(out, tmp_path / "again")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds something else"):
        prepare(made.root, tmp_path / "full")
    assert main(["inspect", str(made.root), "--verify"]) == 2
    assert "which" in capsys.readouterr().err
    assert main(["prepare", str(made.root), "--out", str(out), "--workers", "0"]) == 2


def test_the_paper_s_configurations_train_on_a_prepared_store(tmp_path, monkeypatch):
    made = generate(tmp_path / "reBEN", 64, seed=3, cloudy=0)
    prepare(made.root, tmp_path / "store")
    monkeypatch.setenv("ADAGC_REBEN", str(tmp_path / "store"))
    configs = Path(preparing.__file__).parents[2] / "configs"
    tiny = ["--backbone", "test_resnet", "--epochs", "1", "--batch-size", "16", "--report", "false"]
    for scenario, method in (("reben-random", "AN"), ("reben-dominant", "AdaGC")):
        run = tmp_path / scenario
        config = str(configs / scenario / "scenario.yaml")
        words = ["train", "--config", config, "--out", str(run), "--method", method]
        assert main([*words, *tiny]) == 0
        labels = json.loads((run / "labels.json").read_text())
        assert labels["scheme"] == scenario.removeprefix("reben-")
        model = json.loads((run / "model.json").read_text())
        assert len(model["spec"]["bands"]) == 14
        assert json.loads((run / "scores.json").read_text())
    # The labels are those of the largest areas.
    written = (tmp_path / "reben-dominant" / "labels.csv").read_text()
    areas = bigearthnet_collection(tmp_path / "store").areas
    assert areas is not None
    classes = bigearthnet_collection(tmp_path / "store").classes
    chosen = classes[int(areas[0].argmax())]
    line = next(line for line in written.splitlines() if line.startswith(made.names[0]))
    assert chosen in line
