from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adagc.errors import LabelFileError, NoSpaceError
from adagc.labels import LabelTable, read_labels, write_labels


def read(folder: Path, text: str | bytes, **options) -> LabelTable:
    path = folder / "labels.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_labels(path, **options)


# ---------------------------------------------------------------- the formats


def test_single(tmp_path):
    table = read(tmp_path, "image,label\na.tif,water\nb.tif,forest\nc.tif,\nd.tif,water\n")
    assert table.kind == "single"
    assert table.images == ("a.tif", "b.tif", "c.tif", "d.tif")
    assert table.classes == ("forest", "water")
    assert table.values.tolist() == [[0, 1], [1, 0], [0, 0], [0, 1]]
    assert table.lines.tolist() == [2, 3, 4, 5]
    assert table.unlabelled == 1


def test_wide(tmp_path):
    table = read(tmp_path, "image,water,forest\na,1,0\nb,,-1\nc,1.0,+1\n")
    assert table.kind == "multi"
    assert table.classes == ("water", "forest")
    assert table.values.tolist() == [[1, 0], [0, -1], [1, 1]]


def test_list(tmp_path):
    table = read(tmp_path, "image,labels\na,water; forest\nb,!water\nc,\nd,water;!sand;\n")
    assert table.kind == "multi"
    assert table.classes == ("forest", "sand", "water")
    assert table.values.tolist() == [[1, 0, 1], [0, 0, -1], [0, 0, 0], [0, -1, 1]]


@pytest.mark.parametrize("separator", ["\t", ",", ";"])
def test_image_label_tables(tmp_path, separator):
    lines = [["IMAGE\\LABEL", "dock", "label"], ["a00", "0", "1"], ["a01", "1", "0"]]
    table = read(tmp_path, "\r\n".join(separator.join(line) for line in lines))
    assert table.classes == ("dock", "label")
    assert table.values.tolist() == [[0, 1], [1, 0]]


def test_a_lone_class_called_label_in_an_image_label_table(tmp_path):
    assert read(tmp_path, "IMAGE\\LABEL,label\na,1\n").classes == ("label",)


def test_semicolons_between_cells_and_in_a_quoted_list(tmp_path):
    table = read(tmp_path, 'image;labels\na;"water;forest"\nb;forest\n')
    assert table.values.tolist() == [[1, 1], [1, 0]]


def test_comments_carry_meta(tmp_path):
    text = (
        "# made by hand\n#scheme: random\n# seed: 3\n# url: a:b\n#\n\n"
        '# classes: z,"a, b",m\n# kind: multi\nimage,label\n# 1.tif,m\n'
    )
    table = read(tmp_path, text)
    assert table.meta == {"scheme": "random", "seed": "3", "url": "a:b"}
    assert table.classes == ("z", "a, b", "m")
    assert table.kind == "multi"
    assert table.images == ("# 1.tif",)  # below the header nothing is a comment
    assert table.lines.tolist() == [10]


def test_names_stay_text(tmp_path):
    table = read(tmp_path, 'image,label\n007,01\n"a ""b"", c.tif",1\n')
    assert table.images == ("007", 'a "b", c.tif')
    assert table.classes == ("01", "1")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_byte_order_mark_and_blank_lines(tmp_path, end, mark):
    lines = ["Image , Label", "ä.tif , forêt", "", " ", ",", "b,water", ""]
    table = read(tmp_path, mark + end.join(lines).encode())
    assert table.images == ("ä.tif", "b")
    assert table.classes == ("forêt", "water")
    assert table.lines.tolist() == [2, 6]


# ---------------------------------------------------------------- given classes and kind


def test_given_classes_set_order_and_fill(tmp_path):
    classes = ("sand", "water", "forest")
    wide = read(tmp_path, "image,forest,water\na,1,-1\n", classes=classes)
    single = read(tmp_path, "# classes: water\nimage,label\na,water\n", classes=classes)
    assert wide.classes == single.classes == classes
    assert wide.values.tolist() == [[0, -1, 1]]
    assert single.values.tolist() == [[0, 1, 0]]


def test_given_kind(tmp_path):
    assert read(tmp_path, "image,a,b\n1,1,0\n", kind="single").kind == "single"
    assert read(tmp_path, "image,label\n1,a\n", kind="multi").kind == "multi"
    with pytest.raises(LabelFileError, match=r"labels.csv, line 3: image '2' has 2 positive"):
        read(tmp_path, "image,a,b\n1,1,0\n2,1,1\n", kind="single")


# ---------------------------------------------------------------- round trip

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), min_size=1, max_size=12
).filter(lambda name: name == name.strip())
tricky = st.sampled_from(
    [
        *("a,b", '"', 'say "x"', "'", "007", "1", "x y", "a\tb", "a\x0bb", "a\u2028b", "\ufeffq"),
        *("#1", "# a: b", "a;b", "!a", "-a", "é/ü.tif", "a\\b.tif"),
        *("label", "labels", "image", "IMAGE\\LABEL"),
    ]
)
some_names = st.lists(names | tricky, min_size=1, max_size=6, unique=True)
metas = st.dictionaries(
    names.filter(lambda key: ":" not in key and key.lower() not in ("classes", "kind")),
    names | st.just(""),
    max_size=3,
)


@st.composite
def tables(draw):
    images, classes = draw(some_names), draw(some_names)
    kind = draw(st.sampled_from(["single", "multi"]))
    values = np.zeros((len(images), len(classes)), dtype=np.int8)
    for row in values:
        if kind == "single":
            row[:] = draw(st.sampled_from([0, -1]))
            row[draw(st.integers(0, len(classes) - 1))] = draw(st.sampled_from([0, 1]))
        else:
            row[:] = draw(st.lists(st.integers(-1, 1), min_size=len(row), max_size=len(row)))
    return LabelTable(tuple(images), tuple(classes), values, kind, draw(metas))


@given(table=tables(), layout=st.sampled_from([None, "single", "wide", "list"]))
def test_what_is_written_is_read(table, layout):
    values = table.values
    if layout == "list" and any(";" in name or name[0] == "!" for name in table.classes):
        layout = "wide"
    if layout == "single" and ((values < 0).any() or ((values == 1).sum(axis=1) > 1).any()):
        layout = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        write_labels(table, path, format=layout)
        again = read_labels(path)
        assert os.listdir(folder) == ["labels.csv"]  # noqa: PTH208
    assert again == table
    assert again.hash == table.hash
    assert again.source == path


def table_of(values, classes=("x", "y"), **more) -> LabelTable:
    return LabelTable(tuple(str(i) for i in range(len(values))), classes, np.array(values), **more)


def test_what_a_file_looks_like(tmp_path):
    path = tmp_path / "out.csv"
    write_labels(table_of([[1, 0], [0, 0]], kind="single", meta={"seed": "4"}), path)
    assert path.read_text() == "# seed: 4\n# classes: x,y\nimage,label\n0,x\n1,\n"
    write_labels(table_of([[1, 0], [1, -1]]), path)
    assert path.read_text() == "image,x,y\n0,1,0\n1,1,-1\n"
    write_labels(table_of([[1, 1], [1, -1]]), path, format="list")
    assert path.read_text() == "# classes: x,y\nimage,labels\n0,x;y\n1,x;!y\n"


def test_formats_refuse_what_they_cannot_say(tmp_path):
    path = tmp_path / "out.csv"
    with pytest.raises(LabelFileError, match="cannot say that a class is absent"):
        write_labels(table_of([[1, -1]]), path, format="single")
    with pytest.raises(LabelFileError, match="image '1' has several labels"):
        write_labels(table_of([[1, 0], [1, 1]]), path, format="single")
    with pytest.raises(LabelFileError, match="class 'a;b' cannot stand in a list"):
        write_labels(table_of([[1, 0]], classes=("a;b", "c")), path, format="list")
    with pytest.raises(LabelFileError, match="class '!a' cannot stand in a list"):
        write_labels(table_of([[1, 0]], classes=("!a", "c")), path, format="list")
    with pytest.raises(LabelFileError, match="no image to write"):
        write_labels(LabelTable((), ("a",), np.zeros((0, 1))), path)
    with pytest.raises(ValueError, match="format"):
        write_labels(table_of([[1, 0]]), path, format="json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write_labels(table_of([[1, 0]]), path)
    before = path.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("adagc.labels.files.os.replace", full)
    with pytest.raises(NoSpaceError, match=r"out\.csv cannot be written: it needs 16 bytes, and"):
        write_labels(table_of([[0, 1]]), path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_writing_to_a_folder_or_into_nowhere(tmp_path):
    with pytest.raises(LabelFileError, match="is a folder"):
        write_labels(table_of([[1, 0]]), tmp_path)
    with pytest.raises(LabelFileError, match="check that its folder exists"):
        write_labels(table_of([[1, 0]]), tmp_path / "none" / "out.csv")
