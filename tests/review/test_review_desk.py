"""The desk and its record: whatever people do, events, label file and page say the same."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adagc.errors import BusyError, DataError, LabelFileError, NoSpaceError, UsageError
from adagc.labels import LabelTable, read_labels
from adagc.review.desk import TAKEN, UNDO_TAKEN
from adagc.review.measures import measure
from adagc.review.questions import Question, Suggestion, from_plain, joined, to_plain
from adagc.review.record import Store, read_record
from adagc.review.report import report
from adagc.review.speed import per_hour
from adagc.review.table_file import TableFile
from full_disk import FullDisk
from review.reviews import CLASSES, Review, check_events, make_plan, make_table, values_of


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=40, deadline=None)
def test_whatever_three_people_do_all_say_the_same(seed, blind):
    luck = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        review = Review(Path(folder), 5, blind=blind, patience=30)
        for _ in range(60):
            who = luck.choice("abc")
            view = review.desk.look(who)
            act = luck.choice(["answer"] * 5 + ["next", "next", "accept", "undo", "undo", "wait"])
            if act == "undo":
                view = review.desk.undo(who)
            elif act == "wait":
                review.clock.now += luck.choice([1, 40])
            elif view.image is None:
                assert view.questions == ()
            elif act == "answer":
                asked = luck.choice(view.questions)
                view = review.desk.answer(who, view.image, asked.label, luck.choice([1, -1, 0]))
            elif act == "next":
                image = view.image
                view = review.desk.go_on(who, image)
                assert view.image != image
            elif act == "accept" and not blind:
                view = review.desk.accept(who, view.image, luck.randrange(1, 101))
            said = values_of(review.events)
            if view.image is not None:
                assert {each.label: each.value for each in view.questions} == {
                    each.label: said.get(view.image, {}).get(each.label) for each in view.questions
                }
            flat = [value for of in said.values() for value in of.values()]
            assert (view.yes, view.answers) == (flat.count(1), len(flat) - flat.count(0))
            if luck.random() < 0.1:
                before = review.desk.progress
                review.restart()
                assert review.desk.progress == before
        review.check()
        review.close()


def test_answers_next_and_what_is_skipped(tmp_path):
    review = Review(tmp_path, 3)
    view = review.desk.look("ann")
    first = view.image
    labels = [each.label for each in view.questions]
    view = review.desk.answer("ann", first, labels[0], 1, seconds=2.5)
    view = review.desk.answer("ann", first, labels[1], -1)
    assert [each.value for each in view.questions][:3] == [1, -1, None]
    assert (view.finished, view.total, view.answers, view.yes, view.mine) == (0, 3, 2, 1, 2)
    table = read_labels(review.out)
    row = table.values[table.images.index(first)]
    assert row[CLASSES.index(labels[0])] == 1
    assert row[CLASSES.index(labels[1])] == -1
    assert row[CLASSES.index(view.marked[0])] == 1
    upcoming = view.upcoming
    view = review.desk.go_on("ann", first)
    assert (view.image, view.finished) == (upcoming, 1)
    said = values_of(review.events)[first]
    assert [said[label] for label in labels] == [1, -1] + [0] * (len(labels) - 2)
    assert view.per_class[labels[2]] == (0, 0, 1)
    assert [event.kind for event in review.events] == ["shown", "answer", "answer", "next", "shown"]
    assert review.events[1].seconds == 2.5
    review.check()
    review.close()


def test_the_last_answer_counts_and_undo_brings_the_one_before_back(tmp_path):
    review = Review(tmp_path, 2)
    view = review.desk.look("ann")
    image, label = view.image, view.questions[0].label
    values = []
    for value in (1, 1, -1, 0):
        view = review.desk.answer("ann", image, label, value)
        values.append(view.questions[0].value)
    assert values == [1, 1, -1, 0]
    for expected in (-1, 1, None):
        assert review.desk.undo("ann").questions[0].value == expected
        review.check()
    view = review.desk.undo("ann")  # nothing is left
    assert not view.undoable
    assert [event.kind for event in review.events].count("undo") == 3  # the same twice is no event
    review.close()


def test_undo_goes_back_to_the_image_before(tmp_path):
    review = Review(tmp_path, 3)
    view = review.desk.look("ann")
    first, label = view.image, view.questions[0].label
    review.desk.answer("ann", first, label, 1)
    second = review.desk.go_on("ann", first).image
    view = review.desk.undo("ann")
    assert view.image == first
    assert view.finished == 0
    assert [each.value for each in view.questions][:2] == [1, None]
    assert review.desk.look("ben").image == second, "it is free again"
    review.check()
    view = review.desk.undo("ann")
    assert view.questions[0].value is None
    review.close()


def test_accepting_takes_what_is_open_from_the_threshold_on(tmp_path):
    questions = tuple(
        Question(name, p) for name, p in zip(CLASSES, (0.95, 0.895, 0.9, 0.2), strict=False)
    )
    review = Review(tmp_path, ["a"], plan=[Suggestion("a", ("park",), questions)])
    review.desk.look("ann")
    review.desk.answer("ann", "a", "forest", -1)
    view = review.desk.accept("ann", "a", 90)
    # .895 is shown as 90 %, and 90 % is accepted
    assert [each.value for each in view.questions] == [
        -1,
        1 if questions[1].percent >= 90 else None,
        1,
        None,
    ]
    assert [each.percent for each in view.questions] == [each.percent for each in questions]
    events = review.events
    assert review.desk.accept("ann", "a", 90).answers == view.answers
    assert review.events == events, "nothing to accept is no event"
    view = review.desk.undo("ann")
    assert [each.value for each in view.questions] == [-1, None, None, None]
    review.check()
    review.close()


def test_in_blind_mode_nobody_sees_probabilities_or_accepts(tmp_path):
    review = Review(tmp_path, 3, blind=True)
    view = review.desk.look("ann")
    assert {each.percent for each in view.questions} == {None}
    assert not hasattr(view.questions[0], "blind")
    with pytest.raises(UsageError, match="blind"):
        review.desk.accept("ann", view.image, 1)
    review.close()


def test_a_request_that_is_sent_twice_counts_once(tmp_path):
    review = Review(tmp_path, 3)
    view = review.desk.look("ann")
    image, label = view.image, view.questions[0].label
    for _ in range(2):
        review.desk.answer("ann", image, label, 1, request="request-1")
    for _ in range(2):
        view = review.desk.go_on("ann", image, request="request-2")
    assert view.image != image
    review.restart()
    assert review.desk.go_on("ann", image, request="request-2").image == view.image
    for _ in range(2):
        assert review.desk.undo("ann", "request-3").image == image
    kinds = [event.kind for event in review.events]
    assert kinds == ["shown", "answer", "next", "shown", "undo", "shown"]
    review.close()


def test_two_people_never_have_the_same_image(tmp_path):
    review = Review(tmp_path, 4)
    held = [review.desk.look(who).image for who in "abcd"]
    assert sorted(held) == sorted(review.names)
    assert review.desk.look("late").image is None
    view = review.desk.go_on("a", held[0])
    assert view.image is None  # the others are before somebody
    review.clock.now += 200
    assert review.desk.look("late").image in held[1:]
    review.check()
    review.close()


def test_what_somebody_left_goes_to_others_and_they_are_told(tmp_path):
    review = Review(tmp_path, 1)
    view = review.desk.look("ann")
    image, label = view.image, view.questions[0].label
    review.desk.answer("ann", image, label, 1)
    review.clock.now += 200
    assert review.desk.look("ben").image == image
    view = review.desk.answer("ann", image, label, -1)
    assert view.notice == TAKEN
    assert review.desk.undo("ann").notice == UNDO_TAKEN
    assert values_of(review.events)[image] == {label: 1}
    review.check()
    review.close()


@pytest.mark.parametrize("asked", ["answer", "undo"])
def test_whoever_asks_for_anything_is_not_away(tmp_path, asked):
    review = Review(tmp_path, 4)
    view = review.desk.look("ann")
    label = view.questions[0].label
    review.desk.answer("ann", view.image, label, 1)
    review.clock.now += 60  # of a patience of 100
    if asked == "answer":
        review.desk.answer("ann", view.image, label, -1)
    else:
        review.desk.undo("ann")
    review.clock.now += 60
    assert review.desk.look("bob").image != view.image
    assert review.desk.answer("ann", view.image, label, 0).notice == ""
    review.close()


def test_questions_that_are_not_asked_are_refused(tmp_path):
    review = Review(tmp_path, 2)
    view = review.desk.look("ann")
    for label, value in ((view.marked[0], 1), ("sea", 1), (view.questions[0].label, 2)):
        with pytest.raises(UsageError, match="not asked"):
            review.desk.answer("ann", view.image, label, value)
    assert len(review.events) == 1
    review.close()


def test_a_full_disk_is_told_and_made_good(tmp_path, monkeypatch):
    review = Review(tmp_path, 2)
    view = review.desk.look("ann")
    image, label = view.image, view.questions[0].label
    before = review.out.read_bytes()
    disk = FullDisk(monkeypatch, "reviewed.csv")
    with pytest.raises(NoSpaceError):
        review.desk.answer("ann", image, label, 1, request="request-1")
    assert review.out.read_bytes() == before
    with pytest.raises(NoSpaceError):
        review.desk.answer("ann", image, label, 1, request="request-1")
    disk.free()
    review.desk.answer("ann", image, label, 1, request="request-1")
    review.check()
    assert [event.kind for event in review.events] == ["shown", "answer"]
    review.close()


# -- files -----------------------------------------------------------------------------------------


def test_nothing_in_the_record_can_be_changed(tmp_path):
    review = Review(tmp_path, 2)
    review.desk.look("ann")
    review.close()
    database = sqlite3.connect(tmp_path / "reviewed.sqlite")
    for statement in ("DELETE FROM events", "UPDATE events SET image = 'x'"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            database.execute(statement)
    database.close()


def test_records_of_others_are_refused(tmp_path):
    from adagc.annotate.store import Store as Labels

    with Labels(tmp_path / "labels.sqlite"):
        pass
    with pytest.raises(DataError, match="not a file of adagc review"):
        Store(tmp_path / "labels.sqlite")
    with pytest.raises(DataError, match="no such file"):
        read_record(tmp_path / "none.csv")
    with Store(tmp_path / "x.sqlite"):
        with pytest.raises(BusyError, match="another adagc review"):
            Store(tmp_path / "x.sqlite")
        with pytest.raises(DataError, match="has not begun"):
            read_record(tmp_path / "x.csv")


def test_names_of_images_in_the_labels_stay_and_new_ones_are_added(tmp_path):
    table = LabelTable(("folder/a.tif", "b"), ("one", "two, or more"), [[1, 0], [0, 0]], "multi")
    file = TableFile(tmp_path / "x.csv", table, {"a": 0, "b": 1})
    file.fill({"a": {"two, or more": -1}, "new": {"one": 1}})
    found = read_labels(tmp_path / "x.csv")
    assert found.images == ("folder/a.tif", "b", "new")
    assert found.values.tolist() == [[1, -1], [0, 0], [1, 0]]
    assert found.meta["reviewed"] == "2 answers on 2 images"
    file.put("new", {"one": 0})
    file.put("a", {"one": -1})  # what was observed stays
    found = read_labels(tmp_path / "x.csv")
    assert found.images == ("folder/a.tif", "b")
    assert found.values.tolist() == [[1, 0], [0, 0]]
    with pytest.raises(LabelFileError, match="'three'"):
        file.put("a", {"three": 1})


def test_plans_survive_being_written():
    plan = make_plan(["a", "b", "ü"], blind=True)
    again = from_plain(to_plain(plan))
    assert again == from_plain(to_plain(again)) == tuple(plan)
    more = joined(plan[:2], make_plan(["b", "c"]))
    assert [one.image for one in more] == ["a", "b", "c"]
    assert more[1] == plan[1], "what was asked stays as it was"


# -- the report ------------------------------------------------------------------------------------


def test_the_report_counts_what_people_said(tmp_path):
    review = Review(tmp_path, 4, blind=True)
    truth = random.Random(3)
    for _ in range(3):
        view = review.desk.look("ann")
        for asked in view.questions[:-1]:
            review.desk.answer("ann", view.image, asked.label, truth.choice([1, 1, -1]))
        review.desk.go_on("ann", view.image)
    review.desk.undo("ann")
    review.close()
    record = read_record(review.out)
    found = measure(record, review.out)
    said = {
        (image, label): value
        for image, of in values_of(record.events).items()
        for label, value in of.items()
    }
    blind = {(one.image, q.label) for one in review.plan for q in one.questions if q.blind}
    for random_, share in ((False, found.precision.suggested), (True, found.precision.random)):
        mine = [v for key, v in said.items() if v and (key in blind) == random_]
        assert share.count == len(mine)
        assert share.value == pytest.approx(mine.count(1) / len(mine))
        assert share.low < share.value < share.high
    assert (found.images, found.total, found.undone) == (2, 4, 1)
    for each in found.classes:
        mine = [v for key, v in said.items() if key[1] == each.label and key not in blind]
        assert (each.yes, each.no, each.skipped) == (mine.count(1), mine.count(-1), mine.count(0))
    assert found.reviewers[0].answers == sum(v != 0 for v in said.values())
    assert 500 < found.reviewers[0].per_hour < 3600  # the clock goes a second per look
    assert found.conflicts == ()
    text = report(found)
    assert "of suggested classes are there" in text
    assert "of classes drawn at random" in text
    assert "ann gave" in text
    assert "No answer contradicts" in text


def test_the_report_names_answers_that_do_not_go_together(tmp_path):
    review = Review(tmp_path, 1)
    view = review.desk.look("ann")
    image, label, other = view.image, view.questions[0].label, view.questions[1].label
    review.desk.answer("ann", image, label, 1)
    review.desk.answer("ann", image, other, -1)
    review.clock.now += 200
    review.desk.look("ben")
    review.desk.answer("ben", image, label, -1)
    review.close()
    # the labels of the run are edited meanwhile, as people do
    text = review.out.read_text().splitlines()
    cells = text[-1].split(",")
    cells[1 + CLASSES.index(other)] = "1"
    review.out.write_text("\n".join([*text[:-1], ",".join(cells)]) + "\n")
    found = measure(read_record(review.out), review.out)
    assert [(each.label, dict(each.said)) for each in found.conflicts] == [
        (label, {"ann": 1, "ben": -1}),
        (other, {"labels": 1, "answer": -1}),
    ]
    assert "2 entries have answers that differ" in report(found)
    assert f"{image}, {label}: ann yes, ben no" in report(found)


def test_a_report_without_an_answer_says_so(tmp_path):
    review = Review(tmp_path, 2)
    review.desk.look("ann")
    review.close()
    found = measure(read_record(review.out), review.out)
    assert "Nobody knows how many of suggested classes are there" in report(found)
    assert found.to_dict()["precision"]["suggested"]["value"] is None


def test_a_break_is_no_work():
    assert per_hour([]) is None
    assert per_hour([(0, 1), (1, 1)]) is None
    steady = [(10.0 * n, 1) for n in range(20)]
    assert per_hour(steady) == pytest.approx(360)
    late = [(time + 5000 * (time > 100), count) for time, count in steady]
    assert per_hour(late) == pytest.approx(360)


def test_events_are_checked_by_something_that_can_fail(tmp_path):
    review = Review(tmp_path, 2)
    view = review.desk.look("ann")
    review.desk.answer("ann", view.image, view.questions[0].label, 1)
    with pytest.raises(AssertionError):
        check_events(review.events[1:])
    assert make_table(review.plan).values.sum() == 2
    review.close()


def test_reading_a_record_leaves_nothing_behind(tmp_path):
    review = Review(tmp_path, 2)
    review.desk.look("ann")
    assert len(read_record(review.out).events) == 1  # while it is written
    review.close()
    before = {path.name for path in tmp_path.iterdir()}
    assert len(read_record(review.out).events) == 1
    assert {path.name for path in tmp_path.iterdir()} == before
