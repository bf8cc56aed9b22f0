"""What is offered: balanced, shuffled, never the class just given, the same for the same seed."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adagc.annotate.protocol import Rules, chance, check_answer, offer, order
from adagc.errors import UsageError


def rules(count: int = 9, **options) -> Rules:
    return Rules(tuple(f"class {i}" for i in range(count)), **options)


class Session:
    """One annotator as the desk would serve them, in the plainest way."""

    def __init__(self, asked: Rules) -> None:
        self.rules = asked
        self.counts = [0] * len(asked.classes)
        self.given: tuple[int, ...] = ()
        self.image = 0

    def look(self, refreshes: int = 0) -> list[tuple[int, ...]]:
        """All offers of the next image."""
        offers: list[tuple[int, ...]] = []
        for _ in range(refreshes + 1):
            offers.append(offer(self.rules, self.counts, offers, self.given, f"me/{self.image}"))
        for each in {each for shown in offers for each in shown}:
            self.counts[each] += 1
        self.image += 1
        return offers


@given(count=st.integers(2, 30), size=st.integers(1, 9), seed=st.integers(0, 2**32), data=st.data())
def test_an_offer_is_some_of_the_classes_each_once(count, size, seed, data):
    last = data.draw(st.integers(0, count - 1))
    shown = offer(rules(count, candidates=size, seed=seed), [0] * count, (), [last], "me/x")
    assert len(shown) == min(size, count - 1)
    assert len(set(shown)) == len(shown)
    assert set(shown) <= set(range(count)) - {last}


@given(
    count=st.integers(2, 30),
    size=st.integers(1, 9),
    last=st.integers(0, 29),
    seed=st.integers(0, 99),
)
def test_a_refresh_repeats_nothing_until_all_were_shown(count, size, last, seed):
    asked = rules(count, candidates=size, seed=seed)
    barred = {last} if last < count else set()
    left = set(range(count)) - barred
    offers: list[tuple[int, ...]] = []
    for _ in range(40):
        offers.append(offer(asked, [0] * count, offers, barred, "me/x"))
        assert set(offers[-1]) <= left, "repeated too early, or just given"
        left -= set(offers[-1])
        left = left or set(range(count)) - barred


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 6),
    more=st.integers(0, 12),
    picks=st.lists(st.integers(0, 99), min_size=1, max_size=30),
)
def test_every_class_is_offered_equally_often_whatever_is_chosen(size, more, picks):
    """With at least twice as many classes as candidates no choice can tip the balance."""
    session = Session(rules(2 * size + more, candidates=size))
    for number in range(150):
        (shown,) = session.look()
        assert max(session.counts) - min(session.counts) <= 1
        session.given = (shown[picks[number % len(picks)] % len(shown)],)


def test_every_class_is_offered_equally_often_with_refreshes():
    session, luck = Session(rules(17)), random.Random(1)
    for _ in range(2000):
        last = session.look(luck.choice([0, 0, 0, 1, 2]))[-1]
        session.given = (luck.choice(last),)
    assert max(session.counts) - min(session.counts) <= 2


def test_a_class_has_every_key_equally_often():
    session = Session(rules(8))
    places = Counter()
    for _ in range(4000):
        (shown,) = session.look()
        places.update((each, place) for place, each in enumerate(shown))
        session.given = (shown[0],)  # somebody who presses the same key for ever
    expected = sum(places.values()) / 32
    chi = sum(
        (places[each, place] - expected) ** 2 / expected for each in range(8) for place in range(4)
    )
    assert chi < 62  # 31 degrees of freedom: exceeded by chance once in 1,300 seeds


def test_pairs_of_classes_are_offered_together():
    """Shuffled anew, not dealt from one fixed round: every pair competes sooner or later."""
    session, pairs = Session(rules(8)), set()
    for _ in range(400):
        (shown,) = session.look()
        session.given = (shown[0],)
        pairs |= {(a, b) for a in shown for b in shown if a < b}
    assert len(pairs) == 28


def test_the_class_just_given_is_not_offered_unless_repeats_are_allowed():
    never, allowed = Session(rules(5)), Session(rules(5, repeats=True))
    met = 0
    for session in (never, allowed):
        for _ in range(200):
            (shown,) = session.look()
            met += session.given != () and session.given[0] in shown
            if session is never:
                assert not set(session.given) & set(shown)
            session.given = (shown[0],)
    assert met > 50  # where it is allowed it happens


def test_the_same_seed_offers_the_same_and_another_seed_something_else():
    first, second, other = (Session(rules(19, seed=seed)) for seed in (3, 3, 4))
    offers = [[session.look()[0] for _ in range(30)] for session in (first, second, other)]
    assert offers[0] == offers[1] != offers[2]


def test_annotators_are_offered_different_classes():
    asked = rules(19)
    assert offer(asked, [0] * 19, draw="ann/x") != offer(asked, [0] * 19, draw="bob/x")


def test_all_classes_keep_their_order():
    asked = rules(12, everything=True)
    assert offer(asked, [5] * 12, [tuple(range(12))], [3], "me/x") == tuple(range(12))


def test_where_everything_was_just_given_everything_is_offered():
    assert set(offer(rules(3), [0] * 3, (), [0, 1, 2], "me/x")) == {0, 1, 2}


@given(names=st.lists(st.text(min_size=1), unique=True), seed=st.integers(0, 2**63 - 1))
def test_the_order_is_a_permutation_that_added_images_do_not_disturb(names, seed):
    before = [names[row] for row in order(names, seed)]
    assert sorted(before) == sorted(names)
    half = names[: len(names) // 2]
    assert [half[row] for row in order(half, seed)] == [name for name in before if name in half]


def test_the_order_depends_on_the_seed_and_not_on_the_names():
    names = [f"image {i:03}" for i in range(500)]
    first, second = order(names, 0), order(names, 1)
    assert first != second
    # Neither sorted nor in blocks: the mean step between neighbours of a random order is n / 3.
    for rows in (first, second):
        steps = [abs(a - b) for a, b in itertools.pairwise(rows)]
        assert 140 < sum(steps) / len(steps) < 195


def test_shares_are_uniform_and_independent_of_the_order():
    names = [f"image {i}" for i in range(4000)]
    shares = [chance(name, 7) for name in names]
    assert 0.08 < sum(share < 0.1 for share in shares) / 4000 < 0.12
    early = [shares[row] for row in order(names, 7)[:2000]]
    assert 0.47 < sum(early) / 2000 < 0.53


@pytest.mark.parametrize(
    ("options", "kind", "present", "absent", "key", "says"),
    [
        ({}, "choose", ["a"], [], 0, None),
        ({}, "choose", ["c"], [], None, None),  # offered before the refresh
        ({}, "none", [], [], None, None),
        ({}, "skip", [], [], None, None),
        ({}, "choose", [], [], None, "cannot name"),
        ({}, "skip", ["a"], [], None, "cannot name"),
        ({}, "choose", ["z"], [], None, "not offered"),
        ({}, "choose", ["a"], [], 1, "key"),
        ({}, "choose", ["a"], [], 8, "key"),
        ({}, "choose", ["a", "b"], [], None, "several"),
        ({}, "choose", ["a"], ["b"], 0, "absent"),
        ({}, "absent", [], ["b"], None, "absent"),
        ({"several": True}, "choose", ["a", "b"], [], None, None),
        ({"several": True}, "choose", ["a", "a"], [], None, "twice"),
        ({"absent": True}, "choose", ["a"], ["b"], 0, None),
        ({"absent": True}, "choose", ["a"], ["a"], 0, "twice"),
        ({"absent": True}, "absent", [], ["b"], None, None),
        ({"absent": True}, "absent", [], [], None, "must name"),
        ({"absent": True}, "none", [], ["a"], None, "cannot name"),
    ],
)  # fmt: skip
def test_answers_that_the_rules_allow(options, kind, present, absent, key, says):
    asked = Rules(("a", "b", "c", "d", "z"), candidates=2, **options)
    offers = [("c", "d"), ("a", "b")]
    if says is None:
        check_answer(asked, kind, offers, present, absent, key)
        return
    with pytest.raises(UsageError, match=says):
        check_answer(asked, kind, offers, present, absent, key)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"candidates": 0}, "candidates"), ({"candidates": 10}, "candidates"), ({"seed": -1}, "seed")],
)
def test_rules_that_make_no_sense(options, says):
    with pytest.raises(UsageError, match=says):
        rules(**options)


def test_one_class_is_no_choice():
    with pytest.raises(UsageError, match="two classes"):
        Rules(("only",))
