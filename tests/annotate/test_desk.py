"""The work of several people: who sees what, what is kept, what undo and a new start do."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from adagc.annotate import desk as desks
from adagc.annotate.desk import Overlap
from adagc.errors import NoSpaceError, UsageError
from annotate.projects import CLASSES, Project, answers_of, check_events, expected_labels
from full_disk import FullDisk

PEOPLE = ("ann", "bob", "cem")


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    yield made
    made.close()


def test_an_answer_is_in_the_label_file_and_the_next_image_comes(project):
    first = project.desk.look("ann")
    second = project.desk.answer(
        "ann", first.image, "choose", present=[first.candidates[2]], key=2, seconds=1.5
    )
    assert project.labels() == {first.image: first.candidates[2]}
    assert second.image == first.upcoming != first.image
    assert (second.finished, second.total, second.mine) == (1, 6, 1)
    assert first.candidates[2] not in second.candidates
    answer = project.events[1]
    assert (answer.kind, answer.key, answer.seconds) == ("choose", 2, 1.5)
    assert answer.candidates == first.candidates


def test_all_images_come_once_and_then_there_are_none(project):
    seen = []
    while (view := project.desk.look("ann")).image is not None:
        seen.append(view.image)
        project.choose("ann")
    assert sorted(seen) == project.names
    assert (view.finished, view.upcoming, view.candidates) == (6, None, ())
    assert project.labels() == expected_labels(project.events)


def test_a_refresh_shows_other_classes_and_is_kept(project):
    view = project.desk.look("ann")
    other = project.desk.refresh("ann", view.image)
    assert not set(other.candidates) & set(view.candidates)
    assert (view.offered, other.offered) == (4, 8)
    assert [event.kind for event in project.events] == ["shown", "refresh"]
    last = project.desk.refresh("ann", view.image)
    assert set(last.candidates) == set(CLASSES) - set(view.candidates) - set(other.candidates)


def test_undo_brings_the_image_and_its_candidates_back(project):
    first = project.desk.look("ann")
    second = project.choose("ann", 1)
    back = project.desk.undo("ann")
    assert (back.image, back.candidates) == (first.image, first.candidates)
    assert project.labels() == {}
    assert not back.undoable
    again = project.choose("ann", 3)
    assert (again.image, again.candidates) == (second.image, second.candidates)
    assert project.labels() == {first.image: first.candidates[3]}
    assert [event.kind for event in project.events] == [
        "shown", "choose", "shown", "undo", "shown", "choose", "shown",
    ]  # fmt: skip


def test_an_undo_that_cannot_be_kept_takes_nothing_back(project, monkeypatch):
    first = project.desk.look("ann")
    project.choose("ann")
    add = project.store.add

    def full(events, request=None):
        raise NoSpaceError("the disk is full")

    monkeypatch.setattr(project.store, "add", full)
    with pytest.raises(NoSpaceError):
        project.desk.undo("ann", "request-1")
    monkeypatch.setattr(project.store, "add", add)
    assert project.labels() == {first.image: first.candidates[0]}
    assert project.desk.progress == (1, 6)
    assert project.desk.undo("ann", "request-1").image == first.image
    assert project.labels() == {}
    assert project.desk.progress == (0, 6)


def test_an_undo_that_the_label_file_missed_is_made_good_by_the_same_request(project, monkeypatch):
    project.desk.look("ann")
    project.choose("ann")
    disk = FullDisk(monkeypatch, "labels.csv")
    with pytest.raises(NoSpaceError):
        project.desk.undo("ann", "request-1")
    disk.free()
    project.desk.undo("ann", "request-1")
    assert project.labels() == {}
    assert [event.kind for event in project.events].count("undo") == 1


def test_undo_goes_back_several_images_and_keeps_all_events(project):
    images = [project.desk.look("ann").image, *(project.choose("ann").image for _ in range(3))]
    views = [project.desk.undo("ann") for _ in range(4)]
    assert [view.image for view in views] == [*images[2::-1], images[0]]
    assert project.labels() == {}
    assert Counter(event.kind for event in project.events)["choose"] == 3


def test_a_new_start_shows_what_was_shown(project):
    project.choose("ann")
    view = project.desk.refresh("ann", project.desk.look("ann").image)
    project.choose("bob")
    project.restart()
    after = project.desk.look("ann")
    assert (after.image, after.candidates, after.offered) == (view.image, view.candidates, 8)
    assert (after.finished, after.mine, after.undoable) == (2, 1, True)
    assert after.per_class == view.per_class | project.desk.look("bob").per_class


def test_an_answer_that_is_sent_twice_is_kept_once(project):
    view = project.desk.look("ann")
    for restart in (False, False, True):
        if restart:
            project.restart()
        after = project.desk.answer(
            "ann", view.image, "choose", present=[view.candidates[0]], key=0, request="same"
        )
        assert after.image == view.upcoming
    assert sum(event.kind == "choose" for event in project.events) == 1
    for _ in range(2):
        project.desk.undo("ann", request="undo once")
    assert sum(event.kind == "undo" for event in project.events) == 1


def test_a_skipped_image_goes_to_others_and_back_on_request(project):
    view = project.desk.look("ann")
    project.desk.answer("ann", view.image, "skip")
    for _ in range(5):
        after = project.choose("ann")
    assert (after.image, after.skipped, after.finished) == (None, 1, 5)
    again = project.desk.reopen("ann")
    assert (again.image, again.candidates) == (view.image, view.candidates)
    project.desk.answer("ann", view.image, "skip")
    assert project.desk.look("bob").image == view.image
    assert project.desk.undo("ann").notice == desks.SKIPPED_TAKEN


def test_what_somebody_leaves_goes_to_others(project):
    left = project.desk.look("ann").image
    for _ in range(4):
        project.choose("bob")
    assert project.desk.look("bob").image is None  # ann has one and the next is loaded for her
    project.clock.now += 101
    found = project.desk.look("bob")
    assert found.image == left
    late = project.desk.answer("ann", left, "choose", present=["forest"])
    assert late.notice == desks.TAKEN
    assert late.image != left
    assert not any(event.annotator == "ann" and event.kind == "choose" for event in project.events)


ASKED = {
    "refresh": lambda desk, view: desk.refresh("ann", view.image),
    "undo": lambda desk, view: desk.undo("ann"),
    "reopen": lambda desk, view: desk.reopen("ann"),
    "answer": lambda desk, view: desk.answer(
        "ann", view.image, "choose", present=view.candidates[:1], key=0
    ),
}


@pytest.mark.parametrize("asked", ASKED)
def test_whoever_asks_for_anything_is_not_away(project, asked):
    project.desk.look("ann")
    view = project.choose("ann")
    project.clock.now += 60  # of a patience of 100
    view = ASKED[asked](project.desk, view)
    project.clock.now += 60
    assert project.desk.look("bob").image != view.image
    after = project.desk.answer("ann", view.image, "choose", present=view.candidates[:1], key=0)
    assert after.notice == ""


def test_a_new_start_takes_nothing_away_from_anybody(project):
    before = project.desk.look("ann")
    project.clock.now += 1000
    project.restart()
    assert project.desk.look("bob").image != before.image
    assert project.desk.look("ann").image == before.image


def test_overlap_gives_images_to_two_people_and_no_more(tmp_path):
    project = Project(tmp_path, 40, overlap=Overlap(2, 0.5))
    while any(project.choose(who).image for who in PEOPLE if project.desk.look(who).image):
        pass
    shares = Counter(len(answers) for answers in answers_of(project.events).values())
    assert set(shares) == {1, 2}
    assert 10 <= shares[2] <= 30
    assert len(project.labels()) == 40
    assert project.labels() == expected_labels(project.events)
    check_events(project.events, wanted=2)
    project.close()


def test_the_first_answer_counts_and_its_undo_lets_the_second_count(tmp_path):
    project = Project(tmp_path, 1, overlap=Overlap(2))
    candidates = project.desk.look("ann").candidates
    project.choose("ann", 0)
    other = project.desk.look("bob").candidates
    project.choose("bob", 3)
    assert project.labels() == {"i0": candidates[0]}
    project.desk.undo("ann")
    assert project.labels() == {"i0": other[3]}
    project.close()


def test_several_and_absent_classes_are_in_the_label_file(tmp_path):
    project = Project(tmp_path, 3, several=True, absent=True)
    view = project.desk.look("ann")
    a, b, c, d = view.candidates
    project.desk.answer("ann", view.image, "choose", present=[a, b], absent=[c])
    second = project.desk.look("ann").image
    project.desk.answer("ann", second, "none")
    third = project.desk.look("ann")
    project.desk.answer("ann", third.image, "absent", absent=[third.candidates[0]])
    ordered = sorted([a, b, f"!{c}"], key=lambda name: CLASSES.index(name.strip("!")))
    assert project.labels() == {
        view.image: "|".join(ordered),
        second: "|".join(f"!{name}" for name in CLASSES),
        third.image: f"!{third.candidates[0]}",
    }
    assert d not in project.labels()[view.image]
    project.close()


def test_what_is_against_the_rules_is_not_kept(project):
    view = project.desk.look("ann")
    hidden = next(name for name in CLASSES if name not in view.candidates)
    with pytest.raises(UsageError, match="not offered"):
        project.desk.answer("ann", view.image, "choose", present=[hidden])
    assert [event.kind for event in project.events] == ["shown"]
    assert project.desk.look("ann").image == view.image


def test_an_image_that_was_not_shown_is_not_answered(project):
    view = project.desk.look("ann")
    after = project.desk.answer("ann", view.upcoming, "choose", present=[view.candidates[0]])
    assert after.notice == desks.TAKEN
    assert after.image == view.image
    assert project.desk.refresh("ann", "no such image").image == view.image


def test_the_rate_leaves_pauses_out(project):
    for gap in (10, 10, 10, 5000, 10):
        project.clock.now += gap
        project.choose("ann")
    assert project.desk.look("ann").rate == pytest.approx(360, rel=0.01)


def test_images_that_are_gone_keep_their_labels(project):
    image = project.desk.look("ann").image
    label = project.desk.look("ann").candidates[0]
    project.choose("ann")
    project.names.remove(image)
    project.restart()
    assert project.labels() == {image: label}
    assert project.desk.look("ann").total == 5
    assert project.desk.undo("ann").notice  # nothing to go back to, and no error


def test_many_threads_get_different_images(tmp_path):
    project = Project(tmp_path, 120)
    errors = []

    def work(who: str) -> None:
        try:
            while project.desk.look(who).image is not None:
                project.choose(who)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"p{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    check_events(project.events)
    assert project.labels() == expected_labels(project.events)
    assert len(project.labels()) == 120
    assert len({event.annotator for event in project.events}) > 1
    project.close()


def test_an_image_that_comes_back_to_somebody_is_on_the_disk_again(tmp_path):
    project = Project(tmp_path, 5)
    image = project.desk.look("bob").image
    project.clock.now += 101  # bob has left
    assert project.desk.look("ann").image == image
    project.restart()
    project.clock.now += 101  # ann too
    assert project.desk.look("bob").image == image
    project.restart()
    assert project.desk.look("ann").image != image, "it is before bob"
    assert project.desk.look("bob").image == image
    project.close()


class Sessions(RuleBasedStateMachine):
    """Anything that people can do, in any order, with new starts in between."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile
        from pathlib import Path

        self.folder = tempfile.TemporaryDirectory()
        self.project = Project(Path(self.folder.name), 5, overlap=Overlap(2, 0.5))

    who = st.sampled_from(PEOPLE)

    @rule(
        who=who, kind=st.sampled_from(["choose", "choose", "none", "skip"]), place=st.integers(0, 3)
    )
    def answer(self, who, kind, place):
        view = self.project.desk.look(who)
        if view.image is not None:
            chosen = [view.candidates[place % len(view.candidates)]] if kind == "choose" else []
            self.project.desk.answer(who, view.image, kind, present=chosen)

    @rule(who=who)
    def refresh(self, who):
        view = self.project.desk.look(who)
        if view.image is not None:
            self.project.desk.refresh(who, view.image)

    @rule(who=who)
    def undo(self, who):
        before = self.project.desk.look(who).mine
        assert self.project.desk.undo(who).mine in (before, before - 1)

    @rule(who=who)
    def reopen(self, who):
        self.project.desk.reopen(who)

    @rule()
    def wait(self):
        self.project.clock.now += 101

    @rule(who=who)
    def restart(self, who):
        before = self.project.desk.look(who)
        self.project.restart()
        after = self.project.desk.look(who)
        # Without an image they may get one that was kept ready for somebody else.
        if before.image is not None:
            assert (after.image, after.candidates) == (before.image, before.candidates)
        assert (after.finished, after.mine, after.per_class) == (
            before.finished, before.mine, before.per_class,
        )  # fmt: skip
        assert after.skipped >= before.skipped, "to have them again is asked for anew"

    @invariant()
    def nothing_is_broken(self):
        events = self.project.events
        check_events(events, wanted=2)
        assert self.project.labels() == expected_labels(events)

    def teardown(self):
        self.project.close()
        self.folder.cleanup()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
