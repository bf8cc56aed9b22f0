from __future__ import annotations

import re

import pytest

from adagc.errors import LabelFileError
from adagc.labels import read_labels

CLASSES = ("forest", "water", "bare-soil")


def complaint(path, data=None, **options) -> str:
    if data is not None:
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(LabelFileError) as caught:
        read_labels(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("image,label\na,forest\nb,Water\n", 3, "unknown class 'Water'; did you mean 'water'?"),
        ("image,label\na,forrest\n", 2, "did you mean 'forest'?"),
        ("image,label\na,zzz\n", 2, "the classes are: forest, water, bare-soil"),
        ("image,labels\na,forest\nb,forest;watr\n", 3, "did you mean 'water'?"),
        ("# seed: 1\nimage,forest,baresoil\na,1,0\n", 2, "did you mean 'bare-soil'?"),
        ("image,label\na,forest\nb,water\na,water\n", 4, "'a' is already on line 2"),
        ("image,label\na,forest;water\n", 2, "several labels in a single-positive file"),
        ("image,forest,water\na,1,0\nb,1\n", 3, "2 cells, but the header has 3"),
        ("image,label\na,forest\nb, c,water\n", 3, "3 cells, but the header has 2; put names"),
        ("image,forest,water\na,1,0\n\nb,0,yes\n", 4, "'yes' in column 'water'"),
        ("image,forest\na,2\n", 2, "'2' in column 'forest' is not a label; write 1"),
        ("image,forest\n,1\n", 2, "no image name"),
        ("image,labels\na,forest;!forest\n", 2, "both present and absent"),
        ("image,labels\na,forest;!\n", 2, "no class name after '!'"),
        ("a,forest\nb,water\n", 1, "must be a header"),
        ("filename,label\nb,water\n", 1, "must be a header"),
        ("image\na\n", 1, "must be a header"),
        ("images/a.tif,label\na,forest\n", 1, "must be a header"),
        ("image,forest,forest\na,1,1\n", 1, "'forest' is there twice"),
        ("image,forest,\na,1,1\n", 1, "class name ''"),
        ('image,"forest\na,1\n', 1, "quotation mark"),
        ("# kind: both\nimage,label\na,forest\n", 1, "write single or multi"),
        ('# classes: "a\nimage,label\na,forest\n', 1, "quotation mark"),
        ("# x: y\n# classes: a,a\nimage,label\na,forest\n", 2, "'a' is there twice"),
        ('image,label\na,forest\n"b,water\nc,water\n', 3, "quotation mark"),
        ('image,label\na,forest\n"b\nb",water\nc,water\n', 3, "quotation mark"),
        ('image,label\na,forest\n"b"b,water\n', 3, "quotation mark"),
        ("image,label\r\na,forest\r\nb,watr\r\n", 3, "did you mean 'water'?"),
    ],
)
def test_bad_lines(tmp_path, text, line, words):
    message = complaint(tmp_path / "labels.csv", text, classes=CLASSES)
    assert f"labels.csv, line {line}: " in message
    assert words in message


def test_several_labels_need_no_list_of_classes_to_be_noticed(tmp_path):
    message = complaint(tmp_path / "labels.csv", "image,label\na,b\nc,d;e\n")
    assert "line 3" in message
    assert "name the column 'labels'" in message


@pytest.mark.parametrize("text", ["", "\n \n", "# seed: 1\n", b"\xef\xbb\xbf"])
def test_empty(tmp_path, text):
    assert "is empty; add a header" in complaint(tmp_path / "labels.csv", text)


@pytest.mark.parametrize("text", ["image,label\n", "image,a,b\n,,\n\n", "image,labels"])
def test_header_only(tmp_path, text):
    assert "has a header but no rows" in complaint(tmp_path / "labels.csv", text)


def test_not_a_single_label(tmp_path):
    assert "names no label at all" in complaint(tmp_path / "labels.csv", "image,label\na,\n")


def test_encodings(tmp_path):
    path = tmp_path / "labels.csv"
    text = "image,label\na,forest\nb,forêt\n"
    message = complaint(path, text.encode("latin-1"))
    assert "line 3: byte 26 (0xea) is not UTF-8; save it as UTF-8" in message
    assert "line 3: byte 28" in complaint(path, text.replace("\n", "\r\n").encode("latin-1"))
    assert "line 3: byte 26" in complaint(path, text.replace("\n", "\r").encode("latin-1"))
    assert "UTF-16" in complaint(path, text.encode("utf-16"))
    assert "line 1: NUL at byte 1" in complaint(path, text.encode("utf-16-le"))


def test_binary(tmp_path):
    assert "not a text file" in complaint(tmp_path / "labels.csv", "image,label\na,b\0\n")
    assert "line 2: NUL at byte 15" in complaint(tmp_path / "labels.csv", "image,label\na,b\0\n")
    assert "save it as UTF-8" in complaint(tmp_path / "a.jpg", b"\xff\xd8\xff\xe0\x10JFIF")
    assert "workbook" in complaint(tmp_path / "a.xlsx", b"PK\x03\x04\x14\x00")


def test_no_such_file(tmp_path):
    (tmp_path / "labels.csv").touch()
    assert "did you mean 'labels.csv'?" in complaint(tmp_path / "lables.csv")
    assert "correct the path" in complaint(tmp_path / "zzzzzzzzzzz")
    assert "there is no folder" in complaint(tmp_path / "none" / "labels.csv")
    assert "is a folder" in complaint(tmp_path)


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "labels.csv").touch()
    message = complaint(tmp_path / "labels.csv" / "x.csv")
    assert re.search("cannot be read|no folder", message)


def test_far_down(tmp_path):
    """Line numbers stay right over many blocks, blank lines and all."""
    path = tmp_path / "labels.csv"
    rows = [f"{i:06d},{'forest' if i % 2 else 'water'}" for i in range(100_000)]
    rows[50_000] = ""
    path.write_text("# seed: 1\nimage,label\n" + "\n".join(rows) + "\n")
    table = read_labels(path, classes=CLASSES)
    assert len(table) == 99_999
    assert table.lines[[0, 49_999, 50_000, -1]].tolist() == [3, 50_002, 50_004, 100_002]
    assert table.images[-1] == "099999"
    assert table.counts.tolist() == [50_000, 49_999, 0]
    for bad, words in [
        ("x,watre", "did you mean 'water'"),
        ("x", "1 cells"),
        ("000007,water", "already on line 10"),
        ('"x,water', "quotation mark"),
    ]:
        rows[99_990] = bad
        message = complaint(path, "# seed: 1\nimage,label\n" + "\n".join(rows), classes=CLASSES)
        assert "line 99993: " in message
        assert words in message


def test_far_down_in_a_wide_file(tmp_path):
    path = tmp_path / "labels.csv"
    rows = [f"{i},1,0,,-1" for i in range(45_000)]
    rows[44_998] = "x,1,0,O,1"
    message = complaint(path, "image,a,b,c,d\n" + "\n".join(rows))
    assert "line 45000: 'O' in column 'c'" in message


def test_a_very_long_cell_is_not_called_a_quotation_mark(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(f"image,label\na,x\nb,{'x' * 200_000}\n")
    with pytest.raises(LabelFileError, match=r"line 3: a cell has more than 131,072 characters"):
        read_labels(path)
    path.write_text('image,label\na,x\nb,"y\n' + "c,x\n" * 50_000)
    with pytest.raises(LabelFileError, match="line 3: a quotation mark opens a cell"):
        read_labels(path)
