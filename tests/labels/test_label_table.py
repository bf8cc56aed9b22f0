from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adagc.errors import LabelFileError
from adagc.labels import LabelTable


def make(
    values=((1, 0, -1), (0, 1, 0)), images=("a.tif", "b.tif"), classes=("x", "y", "z"), **more
):
    return LabelTable(tuple(images), tuple(classes), np.array(values), **more)


@given(order=st.permutations(range(5)))
def test_hash_ignores_the_order_of_rows(order):
    rng = np.random.default_rng(3)
    table = make(rng.integers(-1, 2, (5, 3)), images=[f"{i}.tif" for i in range(5)])
    assert table.take(np.array(order)).hash == table.hash


def test_hash_sees_every_part_of_the_content():
    tables = [
        make(),
        make(values=((1, 0, -1), (0, 1, 1))),
        make(images=("a.tif", "c.tif")),
        make(images=("b.tif", "a.tif")),
        make(classes=("x", "y", "w")),
        make(classes=("y", "x", "z")),
        make(classes=("x", 'y", "z'), values=((1, 0), (0, 1))),
    ]
    assert len({table.hash for table in tables}) == len(tables)
    assert len(tables[0].hash) == 64
    assert make(meta={"seed": "1"}).hash == make().hash


def test_values_are_a_frozen_copy():
    values = np.array([[1, 0, -1], [0, 1, 0]])
    table = make(values)
    values[0, 0] = 0
    assert table.values[0, 0] == 1
    assert table.values.dtype == np.int8
    with pytest.raises(ValueError, match="read-only"):
        table.values[0, 0] = 0


def test_summaries():
    table = make(((1, 0, -1), (1, 1, 0), (0, -1, 0)), images="abc")
    assert len(table) == 3
    assert table.counts.tolist() == [2, 1, 0]
    assert table.unlabelled == 1
    assert table.positive.tolist() == [[True, False, False], [True, True, False], [False] * 3]


def test_take_and_select():
    table = make(lines=np.array([2, 7]))
    taken = table.take(np.array([1]))
    assert taken.images == ("b.tif",)
    assert taken.values.tolist() == [[0, 1, 0]]
    assert taken.where(0) == "label table, line 7"
    assert table.select(["z", "x"]).values.tolist() == [[-1, 1], [0, 0]]
    with pytest.raises(LabelFileError, match="no class 'X'; did you mean 'x'"):
        table.select(["X"])


def test_equality_is_of_content():
    assert make() == make()
    assert make() != make(kind="single")
    assert make() != make(meta={"seed": "1"})
    assert make() != make(values=((1, 0, 0), (0, 1, 0)))
    assert make() != "something else"


@pytest.mark.parametrize("bad", [257, 2, -2, 0.5, np.nan])
def test_other_values_are_refused(bad):
    with pytest.raises(ValueError, match="only -1, 0 and"):
        make(values=((bad, 0, 0), (0, 0, 0)))


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        make(values=((1, 0), (0, 1)))
    with pytest.raises(ValueError, match="lines"):
        make(lines=np.array([1]))
    with pytest.raises(ValueError, match="kind"):
        make(kind="several")


def test_single_has_one_positive_in_a_row():
    assert make(kind="single").kind == "single"
    with pytest.raises(
        LabelFileError, match=r"row 2: image 'b.tif' has 2 positive labels \(x, y\)"
    ):
        make(values=((1, 0, 0), (1, 1, 0)), kind="single")


@pytest.mark.parametrize("bad", ["", " b", "b ", "b\nc", "b\rc", "b\0c", "\ud800"])
@pytest.mark.parametrize("what", ["images", "classes"])
def test_names_that_no_file_gives_back_are_refused(bad, what):
    names = ("a", bad) if what == "images" else ("a", bad, "z")
    with pytest.raises(LabelFileError, match=f"{'image' if what == 'images' else 'class'} name"):
        make(**{what: names})


def test_names_twice_are_refused():
    with pytest.raises(LabelFileError, match="image name 'a' is there twice"):
        make(images=("a", "a"))
    with pytest.raises(LabelFileError, match="class name 'y' is there twice"):
        make(classes=("x", "y", "y"))


@pytest.mark.parametrize(
    "meta", [{"": "v"}, {"a:b": "v"}, {"Classes": "v"}, {"kind": "v"}, {"k": "a\nb"}, {"k": " v"}]
)
def test_meta_that_no_comment_gives_back_is_refused(meta):
    with pytest.raises(ValueError, match="meta"):
        make(meta=meta)
