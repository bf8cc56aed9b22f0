from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from adagc.errors import DataError, NoSpaceError
from adagc.images.cached import CachedScenes
from adagc.images.decode import load
from adagc.images.moments import tally_images
from adagc.images.normalisation import measure
from adagc.images.scan import find_images
from adagc.images.store import build as store_build
from adagc.images.store import cache as store
from adagc.images.store import moments as store_moments
from adagc.images.store import place as cachedir
from adagc.images.store.cache import ImageCache, open_cache
from fakes import picture
from full_disk import small_disk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for i in range(12):
        picture(tmp_path / "images" / f"{i % 3}" / f"{i:02d}.png", seed=i, side=(16, 16))
    return tmp_path / "images"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were decoded."""
    seen: list[str] = []

    def counting(path: Path, **how: Any) -> np.ndarray:
        seen.append(path.name)
        return load(path, **how)

    monkeypatch.setattr(store_build, "load", counting)
    return seen


def open_all(root: Path, cache: Path, **options: object) -> ImageCache:
    return open_cache(root, find_images(root), cache=cache, **options)  # type: ignore[arg-type]


def assert_equals_the_files(cache: ImageCache, root: Path) -> None:
    values = cache.gather(np.arange(len(cache)))
    for file, image in zip(cache.files, values, strict=True):
        np.testing.assert_array_equal(image, load(root / file, cache.shape[-1]), err_msg=file)


def test_holds_the_decoded_images(root: Path, tmp_path: Path, decoded: list[str]) -> None:
    first = open_all(root, tmp_path / "c")
    assert (first.shape, first.dtype, len(first)) == ((3, 16, 16), np.uint8, 12)
    assert first.files == find_images(root)
    assert_equals_the_files(first, root)
    assert len(decoded) == 12
    assert_equals_the_files(open_all(root, tmp_path / "c"), root)
    assert len(decoded) == 12  # nothing is decoded again
    rows = np.array([5, 0, 5])
    picked = first.gather(rows)
    np.testing.assert_array_equal(picked, first.gather(np.arange(12))[rows])
    picked[:] = 0  # the caller may change what it got
    assert_equals_the_files(first, root)


def test_only_what_changed_is_decoded(root: Path, tmp_path: Path, decoded: list[str]) -> None:
    old = open_all(root, tmp_path / "c")
    before = old.gather(np.arange(12))
    decoded.clear()
    picture(root / "0" / "00.png", seed=99)  # changed
    os.utime(root / "0" / "00.png", ns=(1, 1))
    picture(root / "new" / "added.png", seed=100)
    (root / "1" / "01.png").unlink()
    new = open_all(root, tmp_path / "c")
    assert sorted(decoded) == ["00.png", "added.png"]
    assert len(new) == 12
    assert_equals_the_files(new, root)
    np.testing.assert_array_equal(old.gather(np.arange(12)), before)  # a reader keeps its view
    assert len(list((tmp_path / "c").glob("*/images-*"))) == 1  # the old array is gone


def test_same_content_but_new_time_is_noticed(root: Path, tmp_path: Path) -> None:
    open_all(root, tmp_path / "c")
    image = Image.new("RGB", (16, 16), "red")
    image.save(root / "0" / "00.png")
    assert open_all(root, tmp_path / "c").gather(np.array([0]))[0, 0].min() == 255


def test_sizes_have_their_own_cache(root: Path, tmp_path: Path) -> None:
    small, large = open_all(root, tmp_path / "c", size=8), open_all(root, tmp_path / "c", size=24)
    assert (small.shape, large.shape) == ((3, 8, 8), (3, 24, 24))
    assert_equals_the_files(small, root)
    assert_equals_the_files(large, root)


def test_mixed_sizes_come_to_the_median_at_most_256(tmp_path: Path) -> None:
    root = tmp_path / "images"
    for i, side in enumerate([(10, 10), (20, 20), (40, 40)]):
        picture(root / f"{i}.png", side=side)
    assert open_all(root, tmp_path / "c").shape == (3, 20, 20)
    for i in range(3):
        picture(root / f"large{i}.png", side=(300 + i, 310))
    (root / "0.png").unlink()
    cache = open_all(root, tmp_path / "c")
    assert cache.shape == (3, 256, 256)
    assert_equals_the_files(cache, root)


def test_mixed_bands_and_depths_name_two_examples(root: Path, tmp_path: Path) -> None:
    picture(root / "0" / "grey.png", bands=1)
    with pytest.raises(DataError, match=r"different bands: 0/00\.png has 3, 0/grey\.png has 1"):
        open_all(root, tmp_path / "c")
    (root / "0" / "grey.png").unlink()
    np.save(root / "0" / "deep.npy", np.zeros((3, 16, 16), np.uint16))
    with pytest.raises(DataError, match=r"different depths: 0/00.* uint8, 0/deep.* uint16"):
        open_all(root, tmp_path / "c")


def test_unreadable_files(root: Path, tmp_path: Path) -> None:
    whole = (root / "0" / "03.png").read_bytes()
    for name in ("03", "06", "09", "00"):
        (root / "0" / f"{name}.png").write_bytes(whole[: len(whole) // 2])
    (root / "1" / "01.png").write_bytes(b"")
    message = r"5 of 12 images cannot be read \(0/00.png, 0/03.png, 0/06.png, ...\); run adagc"
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            open_all(root, tmp_path / "c")
    cache = open_all(root, tmp_path / "c", skip_unreadable=True)
    assert len(cache) == 7
    assert "0/03.png" not in cache.files
    assert_equals_the_files(cache, root)
    stat = (root / "0" / "03.png").stat()
    (root / "0" / "03.png").write_bytes(whole)
    assert stat.st_size != len(whole)
    assert len(open_all(root, tmp_path / "c", skip_unreadable=True)) == 8


def test_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"1 of 1 images cannot be read"):
        open_all(tmp_path, tmp_path / "c", skip_unreadable=True)
    with pytest.raises(DataError, match="no images found"):
        open_cache(tmp_path, [], cache=tmp_path / "c")


def test_a_damaged_cache_is_rebuilt(root: Path, tmp_path: Path, decoded: list[str]) -> None:
    cache = open_all(root, tmp_path / "c")
    with cache.path.open("r+b") as file:
        file.truncate(1000)
    assert_equals_the_files(open_all(root, tmp_path / "c"), root)
    index = next((tmp_path / "c").glob("*/index.safetensors"))
    index.write_bytes(index.read_bytes()[:100])
    assert_equals_the_files(open_all(root, tmp_path / "c"), root)
    content = index.read_bytes()
    assert content.count(b'\\"version\\": 4') == 1
    index.write_bytes(content.replace(b'\\"version\\": 4', b'\\"version\\": 0'))
    assert_equals_the_files(open_all(root, tmp_path / "c"), root)
    assert len(decoded) == 48


def test_an_interrupted_build_is_taken_up(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: list[str]
) -> None:
    monkeypatch.setattr(store_build, "CHUNK", 4)
    counting = store_build.load

    def failing(path: Path, **how: Any) -> np.ndarray:
        if len(decoded) >= 6:
            raise KeyboardInterrupt
        return counting(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(store_build, "load", failing)
        patch.setattr(store_build, "WORKERS", 1)
        with pytest.raises(KeyboardInterrupt):
            open_all(root, tmp_path / "c")
    assert not list((tmp_path / "c").glob("*/index.safetensors"))
    decoded.clear()
    assert_equals_the_files(open_all(root, tmp_path / "c"), root)
    assert len(decoded) == 8  # the first chunk of four was flushed and noted
    assert not list((tmp_path / "c").glob("*/*.jsonl"))


KILLED = """
import sys, time
from pathlib import Path
from adagc.images.store import build as store_build
from adagc.images.scan import find_images
from adagc.images.store.cache import open_cache
store_build.CHUNK = 2
real = store_build.load
def slow(*args, **options):
    time.sleep(0.05)
    return real(*args, **options)
store_build.load = slow
root = Path(sys.argv[1])
open_cache(root, find_images(root), cache=Path(sys.argv[2]))
"""


def test_a_killed_build_leaves_no_zeros(root: Path, tmp_path: Path) -> None:
    job = subprocess.Popen([sys.executable, "-c", KILLED, str(root), str(tmp_path / "c")])
    deadline = time.monotonic() + 30
    while not any(p.stat().st_size for p in (tmp_path / "c").glob("*/*.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    job.send_signal(signal.SIGKILL)
    job.wait()
    cache = open_all(root, tmp_path / "c")
    assert len(cache) == 12
    assert_equals_the_files(cache, root)
    assert len(list((tmp_path / "c").glob("*/images-*"))) == 1


def build_in_process(root: Path, cache: Path, results: multiprocessing.Queue[int]) -> None:
    opened = open_all(root, cache)
    assert_equals_the_files(opened, root)
    results.put(len(opened))


def test_builders_side_by_side(root: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[int] = context.Queue()
    jobs = [
        context.Process(target=build_in_process, args=(root, tmp_path / "c", results))
        for _ in range(4)
    ]
    for job in jobs:
        job.start()
    assert [results.get(timeout=30) for _ in jobs] == [12] * 4
    for job in jobs:
        job.join()
    assert len(list((tmp_path / "c").glob("*/images-*.npy"))) == 1


def test_falls_back_when_the_place_cannot_be_written(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cachedir._temporary_base.cache_clear()
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert_equals_the_files(open_all(root, tmp_path / "file" / "cache"), root)
    assert len(caplog.records) == 1
    assert "set ADAGC_CACHE" in caplog.text


def test_place_from_the_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "env"))
    cache = open_cache(root, find_images(root))
    assert (tmp_path / "env") in cache.path.parents
    monkeypatch.delenv("ADAGC_CACHE")
    assert cachedir.default_base() == Path.home() / ".cache" / "adagc"


def test_pickle_carries_the_path_not_the_pixels(root: Path, tmp_path: Path) -> None:
    cache = open_all(root, tmp_path / "c", size=64)
    data = pickle.dumps(cache)
    assert len(data) < 5_000
    assert_equals_the_files(pickle.loads(data), root)


def test_no_room_is_an_error(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(NoSpaceError, match=r"images-.*it needs .* is free .*ADAGC_CACHE"):
        open_all(root, tmp_path / "c")
    assert not list((tmp_path / "c").glob("*/images-*"))


@pytest.mark.system("mount", "umount")
@pytest.mark.parametrize("kilobytes", [8, 12, 16, 20])
def test_a_disk_that_is_really_full(root: Path, tmp_path: Path, kilobytes: int) -> None:
    """It has room for nothing, or for images of 9 kB only, or for their journal or moments too."""
    with small_disk(tmp_path / "disk", kilobytes) as disk:
        with pytest.raises(NoSpaceError, match=r"it needs .* is free .*ADAGC_CACHE"):
            open_all(root, disk)
        assert [path.name for path in disk.rglob("*") if path.is_file()] == ["lock"]
        subprocess.run(["mount", "-o", "remount,size=9m", str(disk)], check=True)
        assert_equals_the_files(open_all(root, disk), root)


def test_a_finished_cache_needs_no_place_to_write(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_all(root, tmp_path / "c")

    def refuse(*_: object) -> Path:
        raise AssertionError("asked for a writable folder")

    monkeypatch.setattr(store, "open_folder", refuse)
    assert_equals_the_files(open_all(root, tmp_path / "c"), root)


# -- moments beside the images ---------------------------------------------------------------


def assert_moments(cache: ImageCache) -> None:
    rows = np.array([4, 0, 9])
    found = cache.measured(rows).combined().statistics("rgb")
    values = cache.gather(rows).astype(np.float64)
    np.testing.assert_allclose(found.mean, values.mean(axis=(0, 2, 3)), rtol=1e-14)
    np.testing.assert_allclose(found.std, values.std(axis=(0, 2, 3)), rtol=1e-13)
    assert found.count.tolist() == [3 * 16 * 16] * 3


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images were measured by those who found no moments, time after time."""
    seen: list[int] = []

    def counting(images: np.ndarray) -> np.ndarray:
        seen.append(len(images))
        return tally_images(images)

    monkeypatch.setattr(store_moments, "tally_images", counting)
    return seen


def test_moments_are_kept_when_images_are_decoded(
    root: Path, tmp_path: Path, measured: list[int]
) -> None:
    for _ in range(2):
        cache = open_all(root, tmp_path / "c")
        assert_moments(cache)
        assert_moments(pickle.loads(pickle.dumps(cache)))
    picture(root / "0" / "00.png", seed=99)
    os.utime(root / "0" / "00.png", ns=(1, 1))
    changed = open_all(root, tmp_path / "c")
    assert_moments(changed)  # of rows that were decoded, and of those taken over
    assert measured == []
    assert len(list((tmp_path / "c").glob("*/moments-*.npy"))) == 1  # the old ones are gone


def test_statistics_of_cached_images_read_no_pixel(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_all(root, tmp_path / "c")
    wanted = cache.gather(np.arange(5)).mean(axis=(0, 2, 3))

    def refuse(*_: object) -> np.ndarray:
        raise AssertionError("pixels were read")

    monkeypatch.setattr(ImageCache, "gather", refuse)
    found = measure(CachedScenes(cache, cache.files), np.arange(5))
    np.testing.assert_allclose(found.mean, wanted)


def test_moments_of_an_older_cache_are_measured_once(
    root: Path, tmp_path: Path, measured: list[int], decoded: list[str]
) -> None:
    open_all(root, tmp_path / "c")
    file = next((tmp_path / "c").glob("*/moments-*.npy"))
    for damage in (file.unlink, lambda: file.write_bytes(b"torn"), lambda: np.save(file, [1, 2])):
        damage()
        measured.clear()
        for _ in range(2):
            assert_moments(open_all(root, tmp_path / "c"))
        assert measured == [12]
    assert len(decoded) == 12


def test_a_cache_of_others_without_moments_can_be_used(
    root: Path, tmp_path: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_all(root, tmp_path / "c")
    next((tmp_path / "c").glob("*/moments-*.npy")).unlink()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store_moments, "replacing", refuse)
    cache = open_all(root, tmp_path / "c")
    assert_moments(cache)
    assert_moments(cache)
    assert measured == [12]  # once per process


def test_replaced_images_leave_no_moments_behind(root: Path, tmp_path: Path) -> None:
    old = open_all(root, tmp_path / "c")
    picture(root / "new.png", seed=100)
    new = open_all(root, tmp_path / "c")
    assert_moments(old)  # measured on what it still sees
    assert_moments(new)
    assert len(list((tmp_path / "c").glob("*/moments-*"))) == 1
