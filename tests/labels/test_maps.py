"""Areas of classes from maps: right numbers from any kind of file, counted once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from adagc.errors import DataError
from adagc.images.maps import count_codes, read_map
from adagc.labels import maps
from adagc.labels.map_counts import CountsFile, keys_of
from adagc.labels.maps import class_areas

CODES = {111: 0, 112: 0, 311: 1, 512: 2}  # 999 is not labelled


def slow_areas(pixels, codes, classes):
    """One map, pixel by pixel."""
    totals = [0] * classes
    for value in pixels.reshape(-1).tolist():
        if value in codes:
            totals[codes[value]] += 1
    labelled = sum(totals)
    return [total / labelled if labelled else 0.0 for total in totals]


def make(folder, count=7, *, seed=0, size=12):
    rng = np.random.default_rng(seed)
    pictures = rng.choice(np.array([111, 112, 311, 512, 999], np.uint16), (count, size, size))
    files = []
    for i, pixels in enumerate(pictures):
        files.append(folder / f"patch{i:03d}.tif")
        tifffile.imwrite(files[-1], pixels, compression="zlib")
    return files, pictures


@pytest.fixture
def counted(monkeypatch):
    """The files that were counted, not taken from a cache."""
    seen = []

    def spy(path):
        seen.append(path)
        return count_codes(path)

    monkeypatch.setattr(maps, "count_codes", spy)
    return seen


@pytest.mark.parametrize("workers", [1, 3])
def test_areas_are_shares_of_labelled_pixels(tmp_path, workers, monkeypatch):
    monkeypatch.setattr(maps, "_TOGETHER", 2)
    files, pictures = make(tmp_path)
    tifffile.imwrite(files[2], np.full((12, 12), 999, np.uint16))
    pictures[2] = 999
    told = []
    areas = class_areas(files, CODES, 3, workers=workers, progress=lambda *done: told.append(done))
    assert areas.dtype == np.float32
    np.testing.assert_allclose(areas, [slow_areas(p, CODES, 3) for p in pictures], rtol=1e-6)
    assert not areas[2].any()
    assert told == [(2, 7), (4, 7), (6, 7), (7, 7)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([-3, 0, 1, 7, 70_000]), min_size=1, max_size=9), max_size=6),
    st.dictionaries(st.sampled_from([-3, 0, 1, 7, 70_000, 5]), st.integers(0, 3), max_size=6),
)
def test_areas_of_any_maps_are_those_of_the_slow_twin(tmp_path_factory, rows, codes):
    folder = tmp_path_factory.mktemp("maps")
    files = []
    for i, row in enumerate(rows):
        files.append(folder / f"{i}.npy")
        np.save(files[-1], np.array([row], dtype=np.int32))
    expected = [slow_areas(np.array(row), codes, 4) for row in rows]
    for _ in range(2):  # counted, then from the file
        areas = class_areas(files, codes, 4, cache=folder / "counts")
        np.testing.assert_allclose(areas, np.array(expected).reshape(-1, 4), rtol=1e-6)


def test_every_kind_of_file_gives_the_numbers_that_are_in_it(tmp_path):
    pixels = np.arange(60).reshape(6, 10) % 4
    expected = dict(enumerate([15, 15, 15, 15]))
    palette = Image.fromarray(pixels.astype(np.uint8), "L")
    palette.putpalette([200, 10, 10, 10, 200, 10, 10, 10, 200, 90, 90, 90])
    palette.save(tmp_path / "palette.png", bits=2)
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(pixels.astype(np.uint16)).save(tmp_path / "deep.png")
    two_bits = np.array([[0, 1, 2, 3] * 3], np.uint8)
    (tmp_path / "two.png").write_bytes(_grey_png(two_bits, 2))
    np.save(tmp_path / "array.npy", pixels)
    np.save(tmp_path / "float.npy", np.where(pixels == 3, np.nan, pixels).astype(np.float32))
    np.save(tmp_path / "one_band.npy", pixels[None])
    colours = np.zeros((3, 256), np.uint16)
    kinds = {
        "plain.tif": {},
        "palette.tif": {"photometric": "palette", "colormap": colours},
        "tiles.tif": {"tile": (16, 16), "compression": "lzw"},
        "nodata.tif": {"extratags": [(42113, "s", 0, "0", True)]},
    }
    for name, options in kinds.items():
        tifffile.imwrite(tmp_path / name, pixels.astype(np.uint8), **options)
    with tifffile.TiffWriter(tmp_path / "overview.tif") as writer:
        writer.write(pixels.astype(np.uint16), subifds=1)
        writer.write(pixels[::2, ::2].astype(np.uint16), subfiletype=1)
    for path in tmp_path.iterdir():
        codes, counts = count_codes(path)
        found = dict(zip(codes.tolist(), counts.tolist(), strict=True))
        if path.name == "float.npy":
            assert found == {0: 15, 1: 15, 2: 15}, path
        elif path.name == "two.png":
            assert found == {0: 3, 1: 3, 2: 3, 3: 3}, path
        else:
            assert found == expected, path
            assert (read_map(path) == pixels).all(), path


def _grey_png(pixels, bits):
    """A PNG with grey values of a few bits, which Pillow does not write."""
    import struct
    import zlib

    def chunk(kind, content):
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    height, width = pixels.shape
    rows = b""
    for row in pixels:
        each = 8 // bits
        packed = [
            sum(int(v) << (8 - bits * (k + 1)) for k, v in enumerate(row[i : i + each]))
            for i in range(0, width, each)
        ]
        rows += b"\0" + bytes(packed)
    head = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    content = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + content


def test_files_that_the_fast_decoder_does_not_read_are_read_otherwise(tmp_path, monkeypatch):
    files, pictures = make(tmp_path, 1)

    def refuse(*_, **__):
        raise imagecodecs.TiffError("not built with this compression")

    monkeypatch.setattr(imagecodecs, "tiff_decode", refuse)
    assert (read_map(files[0]) == pictures[0]).all()


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("colour.png", lambda p: Image.new("RGB", (4, 4)).save(p), "one band"),
        ("photo.jpg", lambda p: Image.new("L", (4, 4)).save(p), "cannot be a .jpg"),
        ("parts.npy", lambda p: np.save(p, np.array([[0.5, 1]])), "holds 0.5"),
        ("huge.npy", lambda p: np.save(p, np.array([[2**40]])), "below 2\\^31"),
        ("many.npy", lambda p: np.save(p, np.arange(70_000)[None]), "70,000 different numbers"),
        ("words.npy", lambda p: np.save(p, np.array([["a"]])), "whole numbers"),
        ("objects.npy", lambda p: np.save(p, np.array([{}]), allow_pickle=True), "no NumPy file"),
        ("empty.tif", lambda p: p.write_bytes(b""), "cannot be read"),
        ("gone.tif", lambda p: None, "no such file"),
    ],
)
def test_what_is_no_map_is_refused(tmp_path, name, write, reason):
    path = tmp_path / name
    write(path)
    with pytest.raises(DataError, match=reason):
        class_areas([path], CODES, 3)


def test_each_map_that_cannot_be_read_is_named_in_a_line(tmp_path, counted):
    files, pictures = make(tmp_path)
    files[1].write_bytes(files[1].read_bytes()[:-40])
    files[4].unlink()
    cache = tmp_path / "counts"
    with pytest.raises(DataError) as caught:
        class_areas(files, CODES, 3, cache=cache)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("2 of 7 maps cannot be used")
    assert [line.partition(":")[0] for line in lines[1:]] == [str(files[1]), str(files[4])]

    # the others are in the cache; those two are tried again
    counted.clear()
    told = {}
    areas = class_areas(files, CODES, 3, cache=cache, broken=lambda p, why: told.update({p: why}))
    assert counted == [files[1]]
    assert set(told) == {files[1], files[4]}
    pictures[[1, 4]] = 999
    np.testing.assert_allclose(areas, [slow_areas(p, CODES, 3) for p in pictures], rtol=1e-6)


def test_a_map_is_counted_once_for_any_classes(tmp_path, counted):
    files, pictures = make(tmp_path)
    cache = tmp_path / "deep" / "counts"
    first = class_areas(files[:4], CODES, 3, cache=cache, root=tmp_path)
    class_areas(files, CODES, 3, cache=cache, root=tmp_path)
    assert counted == files
    again = class_areas(files[::-1], {999: 1}, 2, cache=cache, root=tmp_path)
    assert counted == files
    np.testing.assert_array_equal(again[:, 1], [999 in p for p in pictures[::-1]])
    np.testing.assert_array_equal(class_areas(files[:4], CODES, 3), first)


def test_a_map_that_changes_is_counted_again(tmp_path, counted):
    files, _ = make(tmp_path)
    cache = tmp_path / "counts"
    class_areas(files, CODES, 3, cache=cache)
    counted.clear()
    tifffile.imwrite(files[3], np.full((12, 12), 311, np.uint16))
    os.utime(files[5], ns=(1, 1))
    areas = class_areas(files, CODES, 3, cache=cache)
    assert counted == [files[3], files[5]]
    assert areas[3].tolist() == [0, 1, 0]
    counted.clear()
    assert class_areas(files, CODES, 3, cache=cache)[3].tolist() == [0, 1, 0]
    assert counted == []


def test_maps_of_the_same_name_in_other_folders_are_apart(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files = [tmp_path / folder / "1.npy" for folder in "ab"]
    for i, path in enumerate(files):
        np.save(path, np.full((4, 4), (111, 311)[i]))
        os.utime(path, ns=(5, 5))
    for _ in range(2):
        areas = class_areas(files, CODES, 3, cache=tmp_path / "counts")
        assert areas.argmax(axis=1).tolist() == [0, 1]


def test_a_file_that_was_cut_off_is_read_up_to_there(tmp_path, counted, monkeypatch):
    monkeypatch.setattr(maps, "_TOGETHER", 2)
    monkeypatch.setattr(maps, "_SAVED", 2)
    files, _ = make(tmp_path, 6)
    cache = tmp_path / "counts"
    whole = class_areas(files, CODES, 3, cache=cache)
    content = cache.read_bytes()
    for damaged in (content[:-5], content[:-60], content[:-3] + b"xyz", content + b"adagcM"):
        cache.write_bytes(damaged)
        counted.clear()
        np.testing.assert_array_equal(class_areas(files, CODES, 3, cache=cache), whole)
        assert counted == ([] if damaged.startswith(content) else files[4:])
        counted.clear()
        np.testing.assert_array_equal(class_areas(files, CODES, 3, cache=cache), whole)
        assert counted == []


def test_another_file_is_not_overwritten(tmp_path):
    files, _ = make(tmp_path, 1)
    other = tmp_path / "labels.csv"
    other.write_text("image,label\n")
    with pytest.raises(DataError, match="is no file of counted maps"):
        class_areas(files, CODES, 3, cache=other)
    assert other.read_text() == "image,label\n"


def test_a_killed_count_goes_on_where_it_was(tmp_path, counted):
    files, pictures = make(tmp_path, 300, size=6)
    cache = tmp_path / "counts"
    code = f"""
import time
from pathlib import Path
from adagc.labels import maps
maps._TOGETHER, maps._SAVED = 10, 20
maps.class_areas(sorted(Path({str(tmp_path)!r}).glob("*.tif")), {CODES}, 3,
                 cache=Path({str(cache)!r}), progress=lambda done, total: time.sleep(0.05))
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    while not cache.exists() or cache.stat().st_size < 2000:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    known = len(CountsFile(cache).read()[0])
    assert 0 < known < 300
    areas = class_areas(files, CODES, 3, cache=cache)
    assert len(counted) == 300 - known
    np.testing.assert_allclose(areas, [slow_areas(p, CODES, 3) for p in pictures], rtol=1e-6)


def test_the_file_is_small(tmp_path):
    files, pictures = make(tmp_path, 50)
    class_areas(files, CODES, 3, cache=tmp_path / "counts")
    entries = sum(len(np.unique(picture)) for picture in pictures)
    assert (tmp_path / "counts").stat().st_size == 20 + 12 * 50 + 8 * entries


def test_keys_are_relative_to_the_folder(tmp_path):
    files, _ = make(tmp_path, 2)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in files:
        os.link(path, moved / path.name)
    here, missing = keys_of(files, tmp_path)
    there, _ = keys_of([moved / path.name for path in files], moved)
    assert not missing
    np.testing.assert_array_equal(here, there)
    assert keys_of([tmp_path / "gone.tif"], tmp_path)[1] == [0]


def test_codes_must_mean_classes(tmp_path):
    with pytest.raises(ValueError, match="classes 0 to 2"):
        class_areas([], {1: 3}, 3)
    assert class_areas([], CODES, 3).shape == (0, 3)
