"""The page of a review in a real browser, by keys, by touch and by screen reader."""

from __future__ import annotations

import numpy as np
import pytest

from adagc.labels import read_labels
from adagc.review.record import read_record
from review.reviews import CLASSES, check_events, check_file, make_pictures, serving, values_of
from web import visitors

pytestmark = pytest.mark.system("chromium")

WINDOWS = {
    "1280x800": {"viewport": {"width": 1280, "height": 800}},
    "390x844": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True,
                "color_scheme": "dark", "device_scale_factor": 2},
    "200-percent": {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2},
}  # fmt: skip


class Visitor(visitors.Visitor):
    """Somebody at the page of adagc review."""

    @property
    def row(self) -> str | None:
        return self.page.evaluate("document.body.dataset.shown ?? null")

    @property
    def asked(self) -> list[str]:
        return self.page.locator(".question .name").all_inner_texts()

    @property
    def current(self) -> int:
        boxes = self.page.locator(".question").all()
        return next(n for n, box in enumerate(boxes) if box.get_attribute("aria-current"))

    @property
    def values(self) -> list[int | None]:
        """What the buttons of each question say."""
        told = self.page.evaluate(
            "() => [...document.querySelectorAll('.question')].map(box =>"
            " [...box.querySelectorAll('.choice')].findIndex(b => b.ariaPressed === 'true'))"
        )
        return [(1, -1, 0)[place] if place >= 0 else None for place in told]

    def wait(self, before: str | None, *, end: bool = False) -> None:
        """Until another image is on the screen, or the end."""
        if end:
            self.page.wait_for_selector("#end:not([hidden])")
            return
        self.page.wait_for_function(
            "before => document.body.dataset.shown !== (before ?? undefined)"
            " && document.querySelector('.choice:enabled, #broken:not([hidden])')",
            arg=before,
        )

    def said(self, image: str) -> None:
        """Until everything that was said about an image is acknowledged."""
        self.page.wait_for_function("() => !document.querySelector('#undo:disabled')")

    def next(self, key: str = "Enter", *, end: bool = False) -> None:
        before = self.row
        self.page.keyboard.press(key)
        self.wait(before, end=end)


def test_thirty_questions_by_keys_alone(chromium, tmp_path):
    make_pictures(tmp_path / "images", 9)
    (tmp_path / "images" / "i08.png").unlink()  # the broken one has a test of its own
    luck = np.random.default_rng(4)
    expected: dict[str, dict[str, int]] = {}
    with serving(tmp_path) as (review, _, _, server):
        visitor = Visitor(chromium, server.address)
        page = visitor.page
        questions = sum(len(one.questions) for one in review.plan)
        assert questions >= 30
        for number in range(8):
            image, asked = review.names[int(visitor.row)], visitor.asked
            mine = expected[image] = {}
            if number == 1:  # everything that is probable enough, at once
                assert page.inner_text("#accept-text").endswith("from 60 %")
                page.keyboard.press("PageDown")
                page.keyboard.press("PageDown")
                plan = next(one for one in review.plan if one.image == image)
                accepted = [q.label for q in plan.questions if q.percent >= 50]
                assert accepted
                assert page.inner_text("#accept-text") == f"Accept {len(accepted)} from 50 %"
                page.keyboard.press("a")
                page.wait_for_function(
                    "n => document.querySelectorAll('.choice.yes[aria-pressed=true]').length === n",
                    arg=len(accepted),
                )
                mine |= dict.fromkeys(accepted, 1)
            if number == 2:  # arrows and Tab lead from class to class
                assert visitor.current == 0
                page.keyboard.press("ArrowDown")
                assert visitor.current == 1
                page.keyboard.press("Tab")
                assert visitor.current == 2
                page.keyboard.press("Shift+Tab")
                page.keyboard.press("ArrowUp")
                assert visitor.current == 0
                page.keyboard.press("ArrowRight")  # to the button "Yes", and to "No"
                page.keyboard.press("ArrowRight")
                page.keyboard.press(" ")
                mine[asked[0]] = -1
                assert visitor.values[0] == -1
            while None in (said := visitor.values):
                place = visitor.current
                assert said[place] is None, "an answer leads to the next open class"
                if number == 5 and place == len(asked) - 1:
                    break  # what is open is skipped
                value = int(luck.choice([1, -1, 0]))
                page.keyboard.press({1: "y", -1: "n", 0: "s"}[value])
                mine[asked[place]] = value
            if number == 3:  # the last one was a mistake
                place = visitor.current
                page.keyboard.press("u")
                page.wait_for_function(
                    "n => !document.querySelectorAll('.question')[n]"
                    ".querySelector('[aria-pressed=true]')", arg=place,
                )  # fmt: skip
                page.keyboard.press("y")
                mine[asked[place]] = 1
            if number == 4:  # so was going on
                visitor.next()
                visitor.next("u")
                assert review.names[int(visitor.row)] == image
                assert visitor.values == [mine[label] for label in asked]
            if number == 6:
                page.wait_for_function("() => !document.querySelector('#undo:disabled')")
                visitor.said(image)
                page.wait_for_timeout(200)
                page.reload()
                visitor.wait(None)
                assert review.names[int(visitor.row)] == image
                assert visitor.values == [mine[label] for label in asked]
                visitor.shot("review-reloaded")
            for label in asked:
                mine.setdefault(label, 0)
            assert page.inner_text("#done") == f"{number} of 8"
            visitor.next(end=number == 7)
        assert page.inner_text("#end-title") == "All images are reviewed"
        visitor.shot("review-end")
        visitor.leave()
    record = read_record(review.out)
    check_events(record.events)
    assert values_of(record.events) == expected
    check_file(review.out, review.table, record.answers)
    table = read_labels(review.out)
    for image, said in expected.items():
        row = table.values[table.images.index(image)]
        assert all(row[CLASSES.index(label)] == value for label, value in said.items() if value)
    answers = [event for event in record.events if event.kind == "answer"]
    assert all(0 <= event.seconds < 120 for event in answers)
    assert {event.reviewer for event in record.events} == {"ann"}


def test_evidence_follows_the_class_in_focus_and_the_zoom(chromium, tmp_path):
    make_pictures(tmp_path / "images", 4)
    with serving(tmp_path, ready=False) as (_, waiting, _, server):
        visitor = Visitor(chromium, server.address)
        page = visitor.page
        assert page.inner_text("#evidence-text") == "Model is loading"
        assert page.locator("#frame img").count() == 1
        page.keyboard.press("e")  # not yet
        page.keyboard.press("n")  # answers do not need the model
        waiting.furnish()
        page.wait_for_selector("#frame img.over")
        first = page.get_attribute("#stage", "data-evidence")
        style = page.get_attribute("#frame img.over", "style")
        assert style == page.get_attribute("#frame img:not(.over)", "style")
        page.keyboard.press("+")
        zoomed = page.get_attribute("#frame img.over", "style")
        assert zoomed == page.get_attribute("#frame img:not(.over)", "style") != style
        page.keyboard.press("ArrowDown")
        page.wait_for_function(
            "before => document.querySelector('#stage').dataset.evidence !== before", arg=first
        )
        assert page.locator("#frame img.over").count() == 1
        visitor.shot("review-evidence")
        page.keyboard.press("e")
        page.wait_for_selector("#frame img.over", state="detached")
        assert page.get_attribute("#evidence", "aria-pressed") == "false"
        page.reload()
        visitor.wait(None)
        page.wait_for_timeout(200)
        assert page.locator("#frame img.over").count() == 0, "it is remembered"
        page.keyboard.press("e")
        page.wait_for_selector("#frame img.over")
        visitor.leave()


def test_a_model_without_evidence_is_told_and_asks_all_the_same(chromium, tmp_path):
    make_pictures(tmp_path / "images", 4)
    with serving(tmp_path, ready=False) as (_, waiting, _, server):
        waiting.mute = True
        visitor = Visitor(chromium, server.address)
        page = visitor.page
        assert page.inner_text("#evidence-text") == "No evidence"
        assert page.is_disabled("#evidence")
        page.keyboard.press("e")
        visitor.next()
        assert page.locator("#frame img").count() == 1
        visitor.leave()


def test_the_page_waits_for_questions_and_says_so(chromium, tmp_path):
    make_pictures(tmp_path / "images", 4)
    with serving(tmp_path) as (_, waiting, _, server):
        desk, waiting.desk = waiting.desk, None
        context = chromium.new_context()
        page = context.new_page()
        page.goto(server.address)
        page.wait_for_selector("#loading:not([hidden])")
        assert page.inner_text("#doing") == "loading the model …"
        waiting.doing = "predicting, 40 %"
        page.wait_for_function("() => document.querySelector('#doing').innerText.includes('40 %')")
        waiting.desk = desk
        page.wait_for_selector("#welcome[open]")
        assert page.is_hidden("#loading")
        context.close()
        waiting.desk, waiting.failure = None, ValueError("the window says it")
        context = chromium.new_context()
        page = context.new_page()
        page.goto(server.address)
        page.wait_for_function(
            "() => document.querySelector('#doing').innerText.includes('The window')"
        )
        assert "the window says it" not in page.inner_text("body")
        context.close()


def test_a_broken_image_can_be_passed(chromium, tmp_path):
    make_pictures(tmp_path / "images", 2)
    with serving(tmp_path) as (review, _, _, server):
        visitor = Visitor(chromium, server.address)
        for number in range(2):
            visitor.page.wait_for_function(
                "() => document.querySelector('.choice:enabled')"
                " || !document.querySelector('#broken').hidden"
            )
            if visitor.page.is_visible("#broken"):
                assert "cannot be read" in visitor.page.inner_text("#broken")
                visitor.page.keyboard.press("y")  # nobody can say what is in it
                assert 1 not in visitor.values
            visitor.next(end=number == 1)
        assert len(values_of(review.events)) == 2
        # The browser itself notes that a picture was not there.
        visitor.errors = [text for text in visitor.errors if "422" not in text]
        visitor.leave()


def test_a_server_that_is_away_is_told_and_nothing_is_lost(chromium, tmp_path):
    make_pictures(tmp_path / "images", 4)
    with serving(tmp_path) as (review, _, _, server):
        visitor = Visitor(chromium, server.address)
        image, asked = review.names[int(visitor.row)], visitor.asked
        visitor.page.route("**/api/answer", lambda route: route.abort())
        visitor.page.keyboard.press("y")
        visitor.page.keyboard.press("n")
        visitor.page.wait_for_selector("#banner:not([hidden])")
        assert "not saved yet" in visitor.page.inner_text("#problem")
        assert "adagc review" in visitor.page.inner_text("#problem")
        assert values_of(review.events) == {}
        visitor.page.unroute("**/api/answer")  # the page tries again by itself
        visitor.page.wait_for_selector("#banner", state="hidden")
        visitor.next()
        said = values_of(review.events)[image]
        assert [said[label] for label in asked][:2] == [1, -1]
        visitor.errors = [text for text in visitor.errors if "ERR_FAILED" not in text]
        visitor.leave()


def test_going_on_by_itself(chromium, tmp_path):
    make_pictures(tmp_path / "images", 4)
    with serving(tmp_path) as (review, _, _, server):
        visitor = Visitor(chromium, server.address)
        visitor.page.check("#auto")
        for _ in range(2):
            before = visitor.row
            for _ in visitor.asked:
                visitor.page.keyboard.press("y")
            visitor.wait(before)
        assert review.desk.progress == (2, 4)
        visitor.leave()


def test_blind_mode_shows_no_probability(chromium, tmp_path):
    make_pictures(tmp_path / "images", 4)
    with serving(tmp_path, blind=True) as (_, _, _, server):
        visitor = Visitor(chromium, server.address)
        page = visitor.page
        assert page.locator(".percent").count() == 0
        assert page.locator(".chance").count() == 0
        assert page.is_hidden("#accept-row")
        assert "%" not in page.inner_text("#answers")
        page.keyboard.press("a")
        page.keyboard.press("y")
        visitor.next()
        page.click("#show-help")
        assert "drawn at random" in page.inner_text("#about")
        visitor.shot("review-blind-help")
        page.keyboard.press("Escape")
        visitor.leave()


@pytest.mark.parametrize("window", WINDOWS)
def test_every_window_shows_all_and_can_be_read(chromium, tmp_path, window):
    make_pictures(tmp_path / "images", 5)
    with serving(tmp_path) as (review, _, _, server):
        visitor = Visitor(chromium, server.address, **WINDOWS[window])
        page, image, asked = visitor.page, review.names[int(visitor.row)], visitor.asked
        button = page.locator(".choice.no").nth(1)
        if WINDOWS[window].get("has_touch"):
            button.tap()
        else:
            button.click()
        assert visitor.values[1] == -1
        page.wait_for_selector("#frame img.over")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "no side scroll"
        assert page.evaluate(
            "() => document.querySelector('#next').getBoundingClientRect().bottom <= innerHeight"
        ), "what ends an image is in sight"
        assert visitor.small() == []
        visitor.shot(f"review-{window}")
        for part, opener in {"page": None, "help": "#show-help", "counts": "#show-counts"}.items():
            if opener:
                page.click(opener)
            assert visitor.serious() == [], part
            if opener:
                assert page.evaluate(f"document.querySelector('#{part}').scrollTop") == 0
                visitor.shot(f"review-{window}-{part}")
                page.keyboard.press("Escape")
        before = visitor.row
        page.locator("#next").click()
        visitor.wait(before)
        assert values_of(review.events)[image][asked[1]] == -1
        visitor.leave()


def test_what_changes_is_said_to_screen_readers(chromium, tmp_path):
    make_pictures(tmp_path / "images", 4)
    with serving(tmp_path) as (_, _, _, server):
        visitor = Visitor(chromium, server.address)
        page = visitor.page
        said = page.inner_text("#spoken")
        assert said.startswith("0 of 4 reviewed.")
        assert all(name in said for name in visitor.asked)
        first = page.locator(".question").first
        assert first.get_attribute("role") == "group"
        assert first.get_attribute("aria-label").startswith(visitor.asked[0])
        page.keyboard.press("y")
        assert page.inner_text("#spoken") == f"{visitor.asked[0]}: yes."
        assert first.locator(".yes").get_attribute("aria-pressed") == "true"
        visitor.leave()
