"""The page in a real browser, by keys, by touch and by screen reader. Screenshots are kept."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from adagc.annotate.store import read_events
from adagc.labels import read_labels
from adagc.web.app import DISK_FULL
from annotate.projects import CLASSES, check_events, expected_labels
from annotate.served import make_images, serving
from full_disk import FullDisk
from web import visitors

pytestmark = pytest.mark.system("chromium")

BANDS = ("B02", "B03", "B04", "B08", "B11")


class Visitor(visitors.Visitor):
    """Somebody at the page of adagc annotate."""

    @property
    def row(self) -> str | None:
        return self.page.evaluate("document.body.dataset.shown ?? null")

    @property
    def classes(self) -> list[str]:
        return self.page.locator("#candidates span").all_inner_texts()

    @property
    def progress(self) -> str:
        return self.page.inner_text("#done")

    def wait(self, before: str | None, *, end: bool = False) -> None:
        """Until another image is on the screen, or the end."""
        if end:
            self.page.wait_for_selector("#end:not([hidden])")
            return
        self.page.wait_for_function(
            "before => document.body.dataset.shown !== (before ?? undefined)"
            " && document.querySelector('#candidates button:enabled')",
            arg=before,
        )

    def key(self, key: str, *, end: bool = False) -> None:
        before = self.row
        self.page.keyboard.press(key)
        self.wait(before, end=end)


def make_scenes(folder: Path, count: int) -> None:
    luck = np.random.default_rng(1)
    (folder / "images").mkdir()
    coarse = luck.integers(200, 4000, (count, len(BANDS), 8, 8)).repeat(8, 2).repeat(8, 3)
    np.save(folder / "images" / "images.npy", coarse.astype(np.uint16))


def test_fifty_images_by_keys_alone(chromium, tmp_path):
    make_scenes(tmp_path, 50)
    with serving(tmp_path, bands=BANDS) as (project, _, server):
        visitor = Visitor(chromium, server.address)
        expected: dict[str, str] = {}
        luck = np.random.default_rng(2)
        for number in range(50):
            before = visitor.classes
            if number == 10:
                visitor.page.keyboard.press("r")
                visitor.page.wait_for_function(
                    "before => document.querySelector('#candidates span').innerText !== before"
                    " && document.querySelector('#candidates button:enabled')", arg=before[0],
                )  # fmt: skip
                assert not set(visitor.classes) & set(before)
            if number == 20:  # the last answer was a mistake
                row = visitor.row
                visitor.key("u")
                assert visitor.row != row
                del expected[visitor.row]
                again = visitor.classes
                expected[visitor.row] = again[3]
                visitor.key("4")
                assert visitor.row == row
                assert visitor.classes == before
            if number == 25:
                first = visitor.page.inner_text("#composite")
                picture = visitor.page.get_attribute("#frame img", "src")
                visitor.page.keyboard.press("b")
                visitor.page.wait_for_function(
                    "before => document.querySelector('#frame img').src !== before", arg=picture
                )
                assert visitor.page.inner_text("#composite") != first
            if number == 30:
                row, offered = visitor.row, visitor.classes
                visitor.page.reload()
                visitor.wait(None)
                assert (visitor.row, visitor.classes) == (row, offered)
                assert visitor.page.inner_text("#composite") != first, "it is remembered"
                visitor.shot("1280x800")
            assert visitor.progress == f"{number} of 50"
            key = int(luck.integers(len(visitor.classes)))
            expected[visitor.row] = visitor.classes[key]
            visitor.key(str(key + 1), end=number == 49)
        assert visitor.page.inner_text("#end-title") == "All images are labelled"
        visitor.shot("end")
        visitor.leave()
        names = project.names
        events, _ = read_events(project.out.with_suffix(".sqlite"))
        check_events(events)
    told = {names[int(row)]: chosen for row, chosen in expected.items()}
    table = read_labels(project.out)
    kept = {
        image: table.classes[int(row.argmax())]
        for image, row in zip(table.images, table.values, strict=True)
    }
    assert kept == told == expected_labels(events)
    chosen = [event for event in events if event.kind == "choose"]
    assert all(event.candidates[event.key] == event.present[0] for event in chosen)
    assert all(0 < event.seconds < 120 for event in chosen)
    assert {event.annotator for event in events} == {"ann"}


def test_a_key_that_is_held_down_answers_once(chromium, tmp_path):
    make_scenes(tmp_path, 8)
    with serving(tmp_path, bands=BANDS) as (_, _, server):
        visitor = Visitor(chromium, server.address)
        row = visitor.row
        for _ in range(20):  # without a release these are repetitions
            visitor.page.keyboard.down("1")
        visitor.wait(row)
        visitor.page.wait_for_timeout(300)
        assert visitor.progress == "1 of 8"
        visitor.leave()


def test_several_and_absent_classes(chromium, tmp_path):
    make_scenes(tmp_path, 4)
    with serving(tmp_path, bands=BANDS, several=True, absent=True) as (project, _, server):
        visitor = Visitor(chromium, server.address)
        row, classes = visitor.row, visitor.classes
        for key in "13a2":
            visitor.page.keyboard.press(key)
        assert visitor.page.inner_text("#marks") == (
            f"Marked: {classes[0]}, {classes[2]}, not {classes[1]}"
        )
        visitor.shot("several")
        visitor.key("Enter")
        ordered = sorted([classes[0], classes[2], f"!{classes[1]}"], key=_place)
        assert project.labels() == {project.names[int(row)]: "|".join(ordered)}
        visitor.leave()


def _place(name: str) -> int:
    return CLASSES.index(name.removeprefix("!"))


def test_all_classes_with_a_search(chromium, tmp_path):
    make_scenes(tmp_path, 4)
    with serving(tmp_path, bands=BANDS, everything=True) as (project, _, server):
        visitor = Visitor(chromium, server.address)
        assert visitor.classes == list(CLASSES)
        row = visitor.row
        visitor.page.keyboard.type("bea")
        assert visitor.classes == ["beach"]
        visitor.shot("search")
        visitor.key("Enter")
        assert project.labels() == {project.names[int(row)]: "beach"}
        row = visitor.row
        visitor.key("2")
        assert project.labels()[project.names[int(row)]] == CLASSES[1]
        visitor.leave()


def test_a_broken_image_says_so_and_can_be_skipped(chromium, tmp_path):
    make_images(tmp_path / "images", 3)
    with serving(tmp_path) as (project, _, server):
        visitor = Visitor(chromium, server.address)
        for _ in range(3):
            visitor.page.wait_for_function(
                "() => document.querySelector('#candidates button:enabled')"
                " || !document.querySelector('#broken').hidden"
                " || !document.querySelector('#end').hidden"
            )
            if visitor.page.is_visible("#broken"):
                assert "cannot be read" in visitor.page.inner_text("#broken")
                visitor.shot("broken")
                visitor.page.keyboard.press("1")  # nobody can say what is in it
                visitor.page.keyboard.press("s")
            else:
                visitor.page.keyboard.press("1")
            visitor.page.wait_for_timeout(300)
        visitor.wait(None, end=True)
        assert len(project.labels()) == 2
        assert visitor.page.inner_text("#reopen") == "Show the image again that I skipped"
        # The browser itself notes that a picture was not there.
        visitor.errors = [text for text in visitor.errors if "422" not in text]
        visitor.leave()


def test_a_server_that_is_away_is_told_and_nothing_is_lost(chromium, tmp_path):
    make_scenes(tmp_path, 5)
    with serving(tmp_path, bands=BANDS) as (project, _, server):
        visitor = Visitor(chromium, server.address)
        row, chosen = visitor.row, visitor.classes[0]
        visitor.page.route("**/api/answer", lambda route: route.abort())
        visitor.page.keyboard.press("1")
        visitor.page.wait_for_selector("#banner:not([hidden])")
        assert "not saved yet" in visitor.page.inner_text("#problem")
        visitor.shot("away")
        assert project.labels() == {}
        visitor.page.unroute("**/api/answer")  # the page tries again by itself
        visitor.wait(row)
        assert project.labels() == {project.names[int(row)]: chosen}
        assert visitor.page.is_hidden("#banner")
        visitor.errors = [text for text in visitor.errors if "ERR_FAILED" not in text]
        visitor.leave()


def test_a_full_disk_is_told_and_the_answer_is_kept_when_there_is_space(
    chromium, tmp_path, monkeypatch
):
    make_scenes(tmp_path, 5)
    with serving(tmp_path, bands=BANDS) as (project, _, server):
        visitor = Visitor(chromium, server.address)
        row, chosen = visitor.row, visitor.classes[0]
        disk = FullDisk(monkeypatch, "labels.csv")
        visitor.page.keyboard.press("1")
        visitor.page.wait_for_selector("#banner:not([hidden])")
        assert visitor.page.inner_text("#problem") == DISK_FULL
        assert (visitor.row, visitor.progress) == (row, "0 of 5")
        visitor.shot("full")
        disk.free()
        visitor.page.click("#again")
        visitor.wait(row)
        assert visitor.page.is_hidden("#banner")
        assert visitor.progress == "1 of 5"
        assert project.labels() == {project.names[int(row)]: chosen}
        # The browser itself notes the refusal.
        visitor.errors = [text for text in visitor.errors if "507" not in text]
        visitor.leave()


def test_the_contrast_of_each_image_is_a_key_away_and_remembered(chromium, tmp_path):
    make_scenes(tmp_path, 3)
    with serving(tmp_path, bands=BANDS) as (_, _, server):
        visitor = Visitor(chromium, server.address)
        page = visitor.page

        def mean() -> float:
            """Of the picture that is on the screen."""
            return page.evaluate(
                "() => { const c = document.createElement('canvas'); c.width = c.height = 64;"
                " const d = c.getContext('2d');"
                " d.drawImage(document.querySelector('#frame img'), 0, 0);"
                " const v = d.getImageData(0, 0, 64, 64).data;"
                " return v.reduce((a, b) => a + b) / v.length; }"
            )

        before, picture = mean(), page.get_attribute("#frame img", "src")
        page.keyboard.press("+")
        zoomed = page.get_attribute("#frame img", "style")
        page.keyboard.press("x")
        page.wait_for_function(
            "before => document.querySelector('#frame img').src !== before", arg=picture
        )
        assert page.get_attribute("#contrast", "aria-pressed") == "true"
        assert page.get_attribute("#frame img", "style") == zoomed, "it stays where it is"
        assert abs(mean() - before) > 0.5
        page.reload()
        visitor.wait(None)
        assert page.get_attribute("#contrast", "aria-pressed") == "true"
        page.keyboard.press("x")
        page.wait_for_selector("#contrast[aria-pressed=false]")
        page.wait_for_timeout(300)
        assert mean() == before
        visitor.leave()


def test_zoom_and_pan_to_the_pixel(chromium, tmp_path):
    make_scenes(tmp_path, 3)
    with serving(tmp_path, bands=BANDS) as (_, _, server):
        visitor = Visitor(chromium, server.address)

        def scale() -> tuple[float, float]:
            style = visitor.page.get_attribute("#frame img", "style")
            x = re.search(r"calc\(-50% \+ (-?[\d.]+)px\)|calc\(-50% - ([\d.]+)px\)", style)
            shift = 0.0 if x is None else float(x[1] or -float(x[2]))
            return float(re.search(r"scale\(([\d.]+)\)", style)[1]), shift

        assert scale() == (1, 0)
        for _ in range(20):
            visitor.page.keyboard.press("+")
        close, _ = scale()
        width = visitor.page.evaluate("document.querySelector('#frame img').clientWidth")
        assert close * width / 64 == pytest.approx(32, rel=0.01)  # screen pixels per pixel
        assert "pixels" in visitor.page.get_attribute("#frame img", "class")
        visitor.page.keyboard.press("ArrowRight")
        assert scale()[1] < 0
        visitor.page.keyboard.press("0")
        assert scale() == (1, 0)
        box = visitor.page.locator("#stage").bounding_box()
        visitor.page.mouse.move(box["x"] + box["width"] / 2 + 100, box["y"] + 100)
        visitor.page.mouse.wheel(0, -600)
        wheeled, shift = scale()
        assert wheeled > 2
        visitor.page.mouse.down()
        visitor.page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + 100)
        visitor.page.mouse.up()
        assert scale()[1] == pytest.approx(shift - 40, abs=2)
        visitor.leave()


WINDOWS = {
    "390x844": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True,
                "color_scheme": "dark", "device_scale_factor": 2},
    "200-percent": {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2},
}  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS)
def test_every_window_shows_all_and_can_be_read(chromium, tmp_path, window):
    make_scenes(tmp_path, 12)
    with serving(tmp_path, bands=BANDS, several=True, absent=True) as (project, _, server):
        for _ in range(4):  # so that there is a rate, and the header is at its longest
            project.choose("ann")
        visitor = Visitor(chromium, server.address, **WINDOWS[window])
        row, chosen = visitor.row, visitor.classes[1]
        button = visitor.page.locator("#candidates button").nth(1)
        if WINDOWS[window].get("has_touch"):
            button.tap()
        else:
            button.click()
        assert project.names[int(row)] not in project.labels()
        visitor.page.click("#confirm")
        visitor.wait(row)
        assert project.labels()[project.names[int(row)]] == chosen
        page = visitor.page
        assert "left" in page.inner_text("#pace")
        beside = [page.locator(each).bounding_box() for each in ("#pace", "#show-counts")]
        assert not overlapping(*beside)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "no side scroll"
        assert visitor.small() == []
        visitor.shot(window)
        checks = {"page": None, "help": "#show-help", "counts": "#show-counts"}
        for part, opener in checks.items():
            if opener:
                page.click(opener)
            assert visitor.serious() == [], part
            if opener:
                assert page.evaluate(f"document.querySelector('#{part}').scrollTop") == 0
                visitor.shot(f"{window}-{part}")
                page.keyboard.press("Escape")
        visitor.leave()


def overlapping(one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether two boxes have a pixel in common."""
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "width"), ("y", "height"))
    )


def test_what_is_marked_is_said_to_screen_readers(chromium, tmp_path):
    make_scenes(tmp_path, 4)
    with serving(tmp_path, bands=BANDS, several=True, absent=True) as (_, _, server):
        visitor = Visitor(chromium, server.address)
        for key, said in (
            ("1", f"Marked: {visitor.classes[0]}"),
            ("a2", f"Marked: {visitor.classes[0]}, not {visitor.classes[1]}"),
        ):
            for each in key:
                visitor.page.keyboard.press(each)
            assert visitor.page.inner_text("#spoken") == said
        visitor.leave()


def test_what_changes_is_said_to_screen_readers(chromium, tmp_path):
    make_scenes(tmp_path, 4)
    with serving(tmp_path, bands=BANDS) as (_, _, server):
        visitor = Visitor(chromium, server.address)
        visitor.key("1")
        said = visitor.page.inner_text("#spoken")
        assert visitor.page.get_attribute("#spoken", "aria-live") == "polite"
        assert said.startswith("1 of 4 labelled.")
        assert all(f"{n} {name}" in said for n, name in enumerate(visitor.classes, 1))
        visitor.leave()


def test_what_lies_around_an_image_is_a_key_away(chromium, tmp_path):
    pytest.importorskip("rasterio")
    from web.test_context import looked, write_tile

    (tmp_path / "images").mkdir()
    luck = np.random.default_rng(5)
    for row in range(5):
        for column in range(5):
            path = tmp_path / "images" / f"t{row}{column}.tif"
            write_tile(path, column, row, luck.integers(40, 220, 3))
    write_tile(tmp_path / "images" / "alone.tif", 900, 900, (90, 90, 90))
    with serving(tmp_path, places=looked) as (project, _, server):
        visitor = Visitor(chromium, server.address)
        page, alone = visitor.page, project.names.index("alone")
        for _ in range(len(project.names)):
            page.wait_for_selector("#where:not([hidden])")
            if visitor.row == str(alone):
                page.keyboard.press("c")
                page.wait_for_timeout(300)
                assert page.is_hidden("#around"), "there is nothing around it"
                assert page.get_attribute("#around", "aria-pressed") == "false"
            else:
                picture = page.get_attribute("#frame img", "src")
                page.keyboard.press("c")
                page.wait_for_selector("#around[aria-pressed=true]")
                assert page.get_attribute("#frame img", "src") != picture
                assert "outlined" in page.inner_text("#spoken")
                visitor.shot("around")
                page.keyboard.press("c")
                page.wait_for_selector("#around[aria-pressed=false]")
                assert page.get_attribute("#frame img", "src") == picture
                page.keyboard.press("c")
                page.wait_for_selector("#around[aria-pressed=true]")
            last = visitor.progress == f"{len(project.names) - 1} of {len(project.names)}"
            visitor.key("1", end=last)
            assert page.get_attribute("#around", "aria-pressed") == "false", "the next image itself"
        assert len(project.labels()) == len(project.names)
        visitor.leave()


def test_the_page_says_that_a_model_chooses(chromium, tmp_path):
    from adagc.annotate.active import CHOSEN

    make_scenes(tmp_path, 5)
    with serving(tmp_path, bands=BANDS) as (project, _, server):
        visitor = Visitor(chromium, server.address)
        assert visitor.page.is_hidden("#bias")
        project.desk.prefer({project.names[0]: 2.5}, CHOSEN)
        visitor.key("1")
        assert visitor.page.inner_text("#bias") == CHOSEN
        visitor.shot("active")
        visitor.leave()
