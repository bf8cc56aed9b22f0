"""Going on from labels of a file: what is taken over, what stays, what the record says of it."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys

import pytest

from adagc.annotate.desk import Overlap
from adagc.annotate.exchange import read_events, read_label_studio, write_label_studio
from adagc.annotate.importing import import_labels, read_import
from adagc.annotate.measures import measure
from adagc.annotate.report import report
from adagc.annotate.store import Store, database_of
from adagc.annotate.store import read_events as kept_events
from adagc.cli import main
from adagc.errors import LabelFileError, NoSpaceError, UsageError
from adagc.labels import read_labels
from annotate.projects import CLASSES, Project
from annotate.served import Client, make_images

NAMES = ", ".join(CLASSES)


def bring(project: Project, text: str, name: str = "old.csv"):
    """Import a file into a project that is started again with it."""
    path = project.out.parent / name
    path.write_text(text, encoding="utf-8")
    found = read_import(path, project.names, project.rules)
    project.close()
    with Store(database_of(project.out)) as store:
        told = import_labels(found, store)
    project.open()
    return told


def left(project: Project, who: str = "ann") -> list[str]:
    """Answer all that is still offered to somebody."""
    shown = []
    while (view := project.desk.look(who)).image is not None:
        shown.append(view.image)
        project.choose(who)
    return shown


def test_imported_images_are_labelled_and_not_offered(tmp_path):
    project = Project(tmp_path, 6)
    told = bring(project, "image,label\ni4,town\ni1,forest\n")
    assert (told.taken, told.known, told.differing, told.elsewhere) == (2, 0, 0, ())
    assert project.labels() == {"i4": "town", "i1": "forest"}
    assert project.desk.progress == (2, 6)
    assert project.desk.look("ann").per_class["town"] == 1
    assert sorted(left(project)) == ["i0", "i2", "i3", "i5"]
    assert project.desk.progress == (6, 6)
    project.close()


def test_the_record_says_that_they_were_imported_and_rates_are_without_them(tmp_path):
    project = Project(tmp_path, 40)
    rows = "".join(f"i{n},forest\n" for n in range(15))
    bring(project, f"image,label\n{rows}")
    left(project)
    events = project.events
    assert {(e.kind, e.annotator) for e in events[:15]} == {("import", "old.csv")}
    assert all(e.candidates == () and e.key is None and e.seconds is None for e in events[:15])
    found = measure(events, CLASSES)
    assert (found.imported, found.images, found.answers, found.labels) == (15, 25, 25, 25)
    assert sum(rate.labels for rate in found.rates) == 25
    assert sum(found.keys.counts) == 25
    assert found.rates == measure(events[15:], CLASSES).rates
    assert [person.name for person in found.people] == ["ann"]
    assert "15 more images were imported" in report(events, CLASSES)
    assert "imported" not in report(events[15:], CLASSES)
    project.close()


def test_the_same_import_again_changes_nothing(tmp_path):
    project = Project(tmp_path, 6)
    text = "image,label\ni4,town\ni1,forest\n"
    bring(project, text)
    events, labels = project.events, project.out.read_bytes()
    told = bring(project, text)
    assert (told.taken, told.known, told.differing) == (0, 2, 0)
    assert (project.events, project.out.read_bytes()) == (events, labels)
    project.close()


def test_answers_of_people_stay(tmp_path):
    project = Project(tmp_path, 6)
    view = project.desk.look("ann")
    given = view.candidates[0]
    project.choose("ann")
    other = next(name for name in CLASSES if name != given)
    told = bring(project, f"image,label\n{view.image},{other}\n")
    assert (told.taken, told.known, told.differing) == (0, 1, 1)
    assert "Answers of 1 image stay as they were (1 differ from the file)" in str(told)
    assert project.labels() == {view.image: given}
    project.close()


def test_what_was_taken_back_or_skipped_is_no_answer(tmp_path):
    project = Project(tmp_path, 3)
    first = project.desk.look("ann").image
    project.choose("ann")
    project.desk.undo("ann")
    project.desk.answer("ann", first, "skip")
    told = bring(project, f"image,label\n{first},town\n")
    assert told.taken == 1
    assert project.labels() == {first: "town"}
    assert first not in left(project)
    project.close()


def test_an_image_that_is_before_somebody_leaves_them(tmp_path):
    project = Project(tmp_path, 3)
    image = project.desk.look("ann").image
    bring(project, f"image,label\n{image},town\n")
    assert project.desk.look("ann").image not in (None, image)
    assert len(left(project)) == 2
    assert project.labels()[image] == "town"
    project.restart()
    assert project.desk.progress == (3, 3)
    project.close()


def test_with_overlap_an_import_counts_as_one_answer(tmp_path):
    project = Project(tmp_path, 4, overlap=Overlap(2, 1.0))
    bring(project, "image,label\ni0,town\n")
    assert project.desk.progress == (0, 4)
    assert sorted(left(project, "ann")) == ["i0", "i1", "i2", "i3"]
    assert sorted(left(project, "bob")) == ["i1", "i2", "i3"]
    assert project.desk.progress == (4, 4)
    assert project.labels()["i0"] == "town", "the first answer counts"
    project.close()


def test_images_that_are_not_there_are_left_out_and_said(tmp_path):
    project = Project(tmp_path, 4)
    told = bring(project, "image,label\nelse/x.png,town\ni2.png,town\ny,town\n")
    assert (told.taken, told.elsewhere) == (1, ("else/x.png", "y"))
    assert "2 images that are not among yours, such as 'else/x.png'" in str(told)
    assert project.labels() == {"i2": "town"}
    project.close()


def test_several_and_absent_labels_need_rules_that_allow_them(tmp_path):
    path = tmp_path / "multi.csv"
    path.write_text("image,labels\ni0,forest;town;!water\n")
    plain, several, both = (
        Project(tmp_path / name, 3, **options).rules
        for name, options in {
            "a": {}, "b": {"several": True}, "c": {"several": True, "absent": True},
        }.items()
        if not (tmp_path / name).mkdir()
    )  # fmt: skip
    names = ["i0", "i1"]
    with pytest.raises(UsageError, match=r"multi.csv, line 2: 'i0' has several classes.*--several"):
        read_import(path, names, plain)
    with pytest.raises(UsageError, match=r"multi.csv, line 2: 'i0' has absent classes.*--absent"):
        read_import(path, names, several)
    assert read_import(path, names, both).table.values.tolist() == [[1, -1, 1, 0, 0, 0, 0, 0, 0]]


def test_nothing_is_taken_over_by_halves(tmp_path):
    project = Project(tmp_path, 300)
    rows = "".join(f"i{n},{'forest' if n % 2 else 'town'}\n" for n in range(300))
    path = tmp_path / "many.csv"
    path.write_text(f"image,label\n{rows}")
    found = read_import(path, project.names, project.rules)
    pages = project.store._database.execute("PRAGMA page_count").fetchone()[0]
    project.store._database.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(NoSpaceError):
        import_labels(found, project.store)
    assert project.events == []
    project.store._database.execute("PRAGMA max_page_count = 100000")
    assert import_labels(found, project.store).taken == 300
    project.close()


# -- Label Studio ----------------------------------------------------------------------------------


def test_labels_go_to_label_studio_and_back(tmp_path):
    project = Project(tmp_path, 8)
    for _ in range(6):
        project.choose("ann", seconds=2.5)
    project.desk.undo("ann")
    project.desk.answer("ann", project.desk.look("ann").image, "none")
    path = tmp_path / "tasks.json"
    files = {name: f"a b/{name}.tif" for name in project.names}
    assert write_label_studio(project.events, path, files=files) == 6
    tasks = json.loads(path.read_text())
    assert all(task["data"]["image"].startswith("/data/local-files/?d=a%20b/i") for task in tasks)
    assert [one["lead_time"] for task in tasks[:5] for one in task["annotations"]] == [2.5] * 5
    assert tasks[5]["annotations"][0]["result"] == [], "none of the classes is there"
    (tmp_path / "other").mkdir()
    other = Project(tmp_path / "other", 8)
    bring(other, path.read_text(), "tasks.json")
    assert other.labels() == project.labels()
    assert len(other.labels()) == 5
    project.close()
    other.close()


def test_every_person_is_an_annotation_in_label_studio(tmp_path):
    project = Project(tmp_path, 1, overlap=Overlap(2, 1.0))
    for who, place in (("ann", 0), ("bob", 2)):
        project.choose(who, place=place)
    path = tmp_path / "tasks.json"
    write_label_studio(project.events, path)
    (task,) = json.loads(path.read_text())
    chosen = [event.present for event in project.events if event.kind == "choose"]
    told = [one["result"][0]["value"]["choices"] for one in task["annotations"]]
    assert told == [list(names) for names in chosen]
    project.close()


def test_an_import_goes_on_to_label_studio_too(tmp_path):
    project = Project(tmp_path, 2)
    bring(project, "image,label\ni0,town\n")
    path = tmp_path / "tasks.json"
    assert write_label_studio(project.events, path) == 1
    assert read_label_studio(path, CLASSES).values.sum() == 1
    project.close()


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def images(tmp_path):
    make_images(tmp_path / "photos", 4)
    return tmp_path / "photos"


def look(client: Client) -> dict:
    return client.post("look", name="ann")


def session(*words: str, work=look) -> tuple[list[str], dict]:
    """Run the command and do some work at its page; what it said, and what the work gives."""
    process = subprocess.Popen(
        [sys.executable, "-m", "adagc", "annotate", *words, "--no-browser"],
        stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = [process.stdout.readline().strip()]
        while not said[-1].startswith("Label in the browser"):
            said.append(process.stdout.readline().strip())
            assert said[-1], "it has ended"
        view = work(Client(int(said[0].rstrip("/").rpartition(":")[2])))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    return said, view


def test_the_command_goes_on_from_a_file_and_hands_on_what_it_has(tmp_path, images, capsys):
    old, out = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("image,label\ni0.png,forest\ni2,water\ngone,water\n")
    told = [str(images), "--classes", NAMES, "--out", str(out), "--import", str(old)]
    said, view = session(*told)
    assert said[0].startswith("http://127.0.0.1:")
    assert "old.csv: labels of 2 images are taken over" in said[1]
    assert "such as 'gone'" in said[1]
    assert (view["finished"], view["total"]) == (2, 4)
    said, view = session(*told)
    assert "Answers of 2 images stay" in said[1]
    assert (view["finished"], view["total"]) == (2, 4)
    table = read_labels(out)
    assert dict(zip(table.images, table.values.argmax(axis=1), strict=True)) == {"i0": 0, "i2": 1}

    pytest.importorskip("pyarrow")
    made = [f"{tmp_path}/all.parquet", f"{tmp_path}/tasks.json"]
    words = ["--out", str(out), "--events", made[0], "--label-studio", made[1]]
    assert main(["annotate", str(images), *words]) == 0
    assert "2 tasks" in capsys.readouterr().out
    events, _ = kept_events(out.with_suffix(".sqlite"))
    assert read_events(tmp_path / "all.parquet") == events
    assert [event.kind for event in events][:2] == ["import", "import"]
    addresses = {
        task["data"]["image"] for task in json.loads((tmp_path / "tasks.json").read_text())
    }
    assert addresses == {"/data/local-files/?d=i0.png", "/data/local-files/?d=i2.png"}
    assert main(["annotate", *words]) == 0, "also when the images are elsewhere"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("gone.csv", None, "--import"),
        ("x.csv", "", "is empty"),
        ("x.csv", "image,label\n", "a header but no rows"),
        (
            "x.csv",
            "image,label\ni0,forst\n",
            "line 2: unknown class 'forst'; did you mean 'forest'",
        ),
        ("x.csv", "image,label\nj7,forest\n", "line 2: 'j7' is not among the 4 images"),
        ("x.csv", "image,label\ni0,forest\ni0.png,town\n", "are both the image 'i0'"),
        ("x.csv", "image,labels\ni0,forest;town\n", "line 2: 'i0' has several classes"),
        ("x.csv", "image,labels\ni0,!town\n", "line 2: 'i0' has absent classes"),
        ("x.csv", "\x00\x01\x02", "x.csv"),
        ("x.json", "[{", "no JSON"),
        ("x.json", '[{"image": "i0", "choice": "lake"}]', "no class 'lake'"),
        ("x.json", '[{"image": "j0", "choice": "town"}]', "x.json, row 1: 'j0' is not among"),
        ("x.json", '[{"image": "i0"}]', "holds no label"),
        ("x.json", "{}", "list of tasks"),
    ],
)
def test_damaged_imports_are_one_line_and_leave_nothing(
    tmp_path, images, capsys, name, content, says
):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    before = sorted(tmp_path.iterdir())
    words = [str(images), "--classes", NAMES, "--out", f"{tmp_path}/l.csv", "--import", str(path)]
    assert main(["annotate", *words]) in (1, 2)
    error = capsys.readouterr().err.strip()
    assert says in error
    assert name in error
    assert "\n" not in error
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--events", "{tmp}/e.parquet"], "--out is missing"),
        (["--out", "{tmp}/l.csv", "--events", "{tmp}/e.csv"], "end with .parquet"),
        (["--out", "{tmp}/l.csv", "--label-studio", "{tmp}/e.csv"], "end with .json"),
        (["--out", "{tmp}/none.csv", "--events", "{tmp}/e.parquet"], "no such file"),
        (["{tmp}/nowhere", "--out", "{tmp}/l.csv", "--label-studio", "{tmp}/e.json"], "IMAGES"),
        (["--report", "{tmp}/l.csv", "--events", "{tmp}/e.parquet"], "--report only measures"),
    ],
)
def test_mistakes_of_handing_on(tmp_path, capsys, words, says):
    with Store(tmp_path / "l.sqlite") as store:
        store.settle(classes=list(CLASSES))
    assert main(["annotate", *(word.format(tmp=tmp_path) for word in words)]) in (1, 2)
    error = capsys.readouterr().err.strip()
    assert says in error
    assert "\n" not in error


def test_files_of_the_first_format_are_read_and_go_on(tmp_path):
    project = Project(tmp_path, 4)
    project.choose("ann")
    events = project.events
    project.close()
    path = tmp_path / "labels.sqlite"
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("ALTER TABLE events DROP COLUMN gain")
    old.execute("PRAGMA user_version = 1")
    old.close()
    assert kept_events(path)[0] == events
    with Store(path) as store:
        assert store.events() == events
        assert store._database.execute("PRAGMA user_version").fetchone()[0] == 2
    project.open()
    project.choose("ann")
    assert len(project.labels()) == 2
    project.close()


def test_an_import_cannot_hold_no_label(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("image,labels\ni0,\n")
    with pytest.raises(LabelFileError, match="holds no label"):
        read_import(path, ["i0"], Project(tmp_path, 1).rules)
