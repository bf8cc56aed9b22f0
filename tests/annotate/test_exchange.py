"""Labels of annotators in files: what is written is what was said, and hostile files say so."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adagc.annotate.events import Event
from adagc.annotate.exchange import (
    events_of,
    image_name,
    labels_of,
    read_any,
    read_events,
    read_label_studio,
    write_events,
)
from adagc.errors import AdagcError, LabelFileError
from adagc.labels import read_labels, write_labels
from simulated_annotators import CLASSES, annotate, by_weights, scenes

AB = ("forest", "water", "road")


def said(number, image, kind="choose", who="ada", present=(), absent=(), undoes=None):
    return Event(number, float(number), who, image, kind, (), present, absent, undoes=undoes)


def test_labels_of_one_person_are_what_they_chose(tmp_path):
    truth, _ = scenes(60)
    events = annotate(truth, by_weights([1.0] * len(CLASSES)), candidates=4)
    table = labels_of(events, CLASSES)
    assert table.kind == "single"
    chosen = {e.image: e.present[0] for e in events if e.kind == "choose"}
    for row, image in enumerate(table.images):
        names = [CLASSES[c] for c in np.flatnonzero(table.values[row])]
        assert names == [chosen[image]]
    write_labels(table, tmp_path / "labels.csv")
    again = read_labels(tmp_path / "labels.csv")
    assert again.images == table.images
    assert again.kind == "single"


def test_several_labels_absences_reviews_and_what_was_taken_back():
    events = [
        said(1, "a", present=("forest",)),
        said(2, "a", present=("water",)),
        said(3, "a", "review", absent=("road",)),
        said(4, "b", present=("road",)),
        said(5, "b", "undo", undoes=4),
        said(6, "c", "skip"),
        said(7, "d", present=("road",)),
        said(8, "d", "absent", absent=("road",)),  # changed their mind
        said(9, "e", "none"),
        said(10, "f", "shown"),
    ]
    table = labels_of(events, AB)
    assert table.images == ("a", "c", "d", "e")
    assert table.kind == "multi"
    assert table.values.tolist() == [[1, 1, -1], [0, 0, 0], [0, 0, -1], [0, 0, 0]]


def test_of_several_people_the_majority_counts():
    events = [
        said(1, "a", who="ada", present=("forest",)),
        said(2, "a", "absent", who="bob", absent=("forest",)),
        said(3, "a", "absent", who="cy", absent=("forest",)),
        said(4, "b", who="ada", present=("water",)),
        said(5, "b", "absent", who="bob", absent=("water",)),
    ]
    assert labels_of(events, AB).values.tolist() == [[-1, 0, 0], [0, 1, 0]]
    with pytest.raises(LabelFileError, match="event 1 names the class 'forest'"):
        labels_of(events, ("water",))


def test_import_goes_round():
    events = [
        said(1, "a", present=("forest",), absent=("road",)),
        said(2, "b", "absent", absent=AB),
    ]
    table = labels_of(events, AB)
    again = labels_of(events_of(table, number=7), AB)
    assert again.images == table.images
    assert np.array_equal(again.values, table.values)
    assert events_of(table, number=7)[0].number == 7


def test_all_events_survive_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    truth, _ = scenes(20)
    events = annotate(truth, by_weights([1.0] * len(CLASSES)), candidates=4)
    events.append(said(10_000, "ü", "undo", undoes=3))
    write_events(events, tmp_path / "deep" / "events.parquet")
    assert read_events(tmp_path / "deep" / "events.parquet") == events
    write_events([], tmp_path / "none.parquet")
    assert read_events(tmp_path / "none.parquet") == []


@pytest.mark.parametrize("content", [b"", b"PAR1 nonsense PAR1", b"\0" * 4000])
def test_files_without_events_are_refused(tmp_path, content):
    pytest.importorskip("pyarrow")
    path = tmp_path / "events.parquet"
    path.write_bytes(content)
    with pytest.raises(LabelFileError, match="holds no events"):
        read_events(path)


def task(image, *answers, **more):
    """A task as Label Studio exports it."""
    results = [
        [{"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": one}}]
        for one in answers
    ]
    annotations = [
        {"id": i, "completed_by": i, "was_cancelled": False, "result": one, "lead_time": 3.2}
        for i, one in enumerate(results)
    ]
    return {"id": 1, "data": {"image": image}, "annotations": annotations, **more}


def test_exports_of_label_studio(tmp_path):
    path = tmp_path / "export.json"
    cancelled = task("/data/local-files/?d=set/c.tif", ["road"])
    cancelled["annotations"][0]["was_cancelled"] = True
    boxes = task("s3://bucket/d.png", ["road"])
    boxes["annotations"][0]["result"].append({"type": "rectanglelabels", "value": {"x": 1}})
    path.write_text(
        json.dumps(
            [
                task("/data/upload/1/0a1b2c3d-a.jpg", ["forest"]),
                task("https://host/x/b.jpg", ["water"], ["water"], ["road"]),
                cancelled,
                boxes,
                task("e.jpg", predictions=[{"result": [{"type": "choices"}]}]),
            ]
        )
    )
    table = read_any(path, AB)
    assert table.images == ("a.jpg", "x/b.jpg", "set/c.tif", "d.png", "e.jpg")
    assert table.values.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert table.kind == "single"


def test_short_exports_of_label_studio(tmp_path):
    path = tmp_path / "export.json"
    short = [
        {"image": "/data/upload/2/ffffffff-a.jpg", "id": 1, "choice": "forest", "annotator": 1},
        {"image": "b.jpg", "id": 2, "choice": {"choices": ["forest", "road"]}},
        {"image": "c.jpg", "id": 3},
    ]
    path.write_text(json.dumps(short))
    table = read_label_studio(path, AB)
    assert table.images == ("a.jpg", "b.jpg", "c.jpg")
    assert table.values.tolist() == [[1, 0, 0], [1, 0, 1], [0, 0, 0]]
    assert table.kind == "multi"


def test_a_label_file_is_imported_too(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("image,label\na,water\n")
    assert read_any(path, AB).values.tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no JSON"),
        (b"\xff\xfe\x00", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"{}", "list of tasks"),
        (b"[3]", "task 1: it must be an object"),
        (b'[{"data": 3}]', "data must be an object"),
        (b'[{"data": {"text": "x"}}]', "has no image"),
        (b'[{"data": {"image": "../.."}}]', "has no image"),
        (b'[{"data": {"image": "http://[x"}}]', "has no image"),
        (b'[{"data": {"image": "a"}, "annotations": 3}]', "annotations must be a list"),
        (b'[{"data": {"image": "a"}, "annotations": [3]}]', "no list of results"),
        (b'[{"image": "a", "choice": "watre"}]', "no class 'watre'; did you mean"),
        (b'[{"image": "a", "choice": [["x"]]}]', "list of class names"),
    ],
)
def test_hostile_exports_are_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "export.json"
    path.write_bytes(content)
    with pytest.raises(LabelFileError, match=message) as found:
        read_label_studio(path, AB)
    assert "\n" not in str(found.value)
    assert str(path) in str(found.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("water"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "image", "annotations", "result", "type", "value", "choices"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_json_is_labels_or_one_clear_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("ls") / "export.json"
    path.write_text(json.dumps(content))
    try:
        read_label_studio(path, AB)
    except AdagcError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_names_of_images_never_leave_the_folder():
    assert image_name("/data/local-files/?d=../../etc/passwd") == "etc/passwd"
    assert image_name("C:\\data\\a.tif").endswith("data/a.tif")
    assert image_name("file:///home/x/a.tif") == "home/x/a.tif"
