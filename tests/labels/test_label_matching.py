from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adagc.errors import DataError, LabelFileError
from adagc.labels import LabelTable, locate, match, read_labels


def table_of(*images: str, **more) -> LabelTable:
    """Row i carries its own number in binary, so that every row is recognised."""
    values = np.array([[(i + 1) >> bit & 1 for bit in range(4)] for i in range(len(images))])
    return LabelTable(images, ("a", "b", "c", "d"), values.reshape(len(images), 4), **more)


@pytest.mark.parametrize(
    "written",
    [
        *("scene/one/x.tif", "scene\\one\\x.tif", "./scene/one/x.tif", "scene/one/x", "one/x.tif"),
        *("one\\x", "x", "x.tif", "x.jpg", "data/set/scene/one/x.tif", "/scene/one/x"),
    ],
)
def test_ways_to_write_one_image(written):
    names = ["scene/two/y.tif", "scene/one/x.tif"]
    assert locate(table_of(written), names).tolist() == [-1, 0]
    assert match(table_of(written), names).tolist() == [[0] * 4, [1, 0, 0, 0]]


paths = st.lists(
    st.tuples(st.sampled_from(["", "a/", "a/b/", "c d/"]), st.sampled_from(["", ".tif", ".JPG"])),
    min_size=1,
    max_size=8,
)


@given(paths=paths, data=st.data())
def test_rows_find_their_images_in_any_order_and_spelling(paths, data):
    names = [f"{folder}img_{i}.{i}{suffix}" for i, (folder, suffix) in enumerate(paths)]
    order = data.draw(st.permutations(range(len(names))))
    written = []
    for i in order:
        folder, suffix = paths[i]
        name = data.draw(st.sampled_from(["", folder])) + f"img_{i}.{i}"
        name += data.draw(st.sampled_from(["", suffix, ".png"]))
        written.append(name.replace("/", "\\") if data.draw(st.booleans()) else name)
    located = locate(table_of(*written), names)
    assert located.tolist() == [order.index(i) for i in range(len(names))]


def test_rows_for_is_match_and_images_without_a_row_get_zeros():
    table = table_of("b", "a")
    assert table.rows_for(["a.tif", "z.tif", "b.tif"]).tolist() == [
        [0, 1, 0, 0],
        [0, 0, 0, 0],
        [1, 0, 0, 0],
    ]
    assert table.rows_for(["a.tif"], unknown="ignore").tolist() == [[0, 1, 0, 0]]


def test_an_exact_path_wins():
    assert locate(table_of("x.tif"), ["a/x.tif", "x.tif"]).tolist() == [-1, 0]
    assert locate(table_of("a/x"), ["a/x.tif", "b/a/x.tif"]).tolist() == [0, -1]
    assert locate(table_of("x.tif"), ["a/x.jpg", "a/x.tif"]).tolist() == [-1, 0]


def test_folders_tell_equal_names_apart():
    names = ["forest/001.tif", "water/001.tif"]
    assert locate(table_of("water/001", "forest/001"), names).tolist() == [1, 0]
    assert locate(table_of("water/001"), names[:1], unknown="ignore").tolist() == [-1]


def test_a_dot_is_not_always_an_extension():
    assert (
        locate(table_of("patch.3"), ["patch.1", "patch.2"], unknown="ignore").tolist() == [-1] * 2
    )
    assert locate(table_of("patch.2", "patch.1"), ["patch.1.tif", "patch.2.tif"]).tolist() == [1, 0]


def test_accents_in_either_form():
    one, other = (unicodedata.normalize(form, "forêt.tif") for form in ("NFC", "NFD"))
    assert one != other
    assert locate(table_of(one), [other]).tolist() == [0]


def test_ambiguous(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("image,label\nz,u\nx,u\n")
    with pytest.raises(LabelFileError) as caught:
        match(read_labels(path), ["a/x.tif", "z.tif", "b/x.tif"])
    assert "labels.csv, line 3: image 'x' may be 'a/x.tif' or 'b/x.tif'" in str(caught.value)


def test_two_rows_for_one_image(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("image,label\nx,u\nz,u\na/x.tif,u\n")
    with pytest.raises(LabelFileError) as caught:
        match(read_labels(path), ["a/x.tif", "z.tif"])
    assert "line 2: 'x' and 'a/x.tif' (line 4) are both the image 'a/x.tif'" in str(caught.value)


def test_unknown_images(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("image,label\nz,u\np1,u\np2,u\np3,u\np4,u\n")
    table = read_labels(path)
    with pytest.raises(LabelFileError) as caught:
        match(table, ["z.tif"], what="patches")
    message = str(caught.value)
    assert "line 3: 'p1' is not among the 1 patches" in message
    assert "4 of 5 rows ('p1', 'p2', 'p3', ...)" in message
    assert "p4" not in message
    assert match(table, ["z.tif"], unknown="ignore").tolist() == [[1]]
    with pytest.raises(ValueError, match="unknown"):
        match(table, ["z.tif"], unknown="skip")


def test_case_and_misspelling_are_suggested():
    with pytest.raises(LabelFileError, match=r"did you mean 'S/Airport_1.tif'\?"):
        match(table_of("airport_1"), ["S/Airport_1.tif", "S/Airport_2.tif"])
    with pytest.raises(LabelFileError, match=r"did you mean 'S/Airport_1.tif'\?"):
        match(table_of("Airprot_1.tif"), ["S/Airport_1.tif", "S/dock.tif"])


def test_names_must_differ():
    with pytest.raises(DataError, match="same name"):
        match(table_of("a"), ["a/b.tif", "a\\b.tif"])


def test_names_that_only_look_the_same_are_spelt_out():
    """An accent is one character on Linux and two on macOS; on the screen they are the same."""
    one, two = "caf\u00e9.tif", "cafe\u0301.tif"
    with pytest.raises(DataError, match=r"'caf\\xe9\.tif' and 'cafe\\u0301\.tif'"):
        match(table_of("a"), [one, two])
    with pytest.raises(LabelFileError, match=r"'caf\\xe9\.tif' and 'cafe\\u0301\.tif' .*both"):
        match(table_of(one, two), ["caf\u00e9.tif"])


def test_rows_of_images_that_are_left_out_are_ignored():
    table = table_of("a", "b.png", "x/c")
    aligned = match(table, ["b.png"], left_out=["a.png", "c.png"])
    assert (aligned == table.values[1:2]).all()
    with pytest.raises(LabelFileError, match="'a' is not among the 1 images"):
        match(table, ["b.png"], left_out=["c.png"])
    with pytest.raises(LabelFileError, match=r"may be 'p/a\.png' or 'q/a\.png'"):
        match(table_of("a"), ["p/a.png"], left_out=["q/a.png"])


def test_no_names_and_no_rows():
    assert match(table_of(), ["a"]).tolist() == [[0] * 4]
    assert match(table_of("a"), [], unknown="ignore").shape == (0, 4)
