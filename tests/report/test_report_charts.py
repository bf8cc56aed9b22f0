from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adagc.images.array import ArrayScenes
from adagc.images.pictures import limits, stretch, thumbnails
from adagc.report.charts import HEIGHT, WIDTH, Annotations, Series, column_chart, line_chart
from adagc.report.gallery import EACH, image_f1, pick
from adagc.report.html import bar, duration, listed
from adagc.report.moments import Moment, places

numbers = st.one_of(
    st.none(), st.floats(-1e6, 1e6).map(lambda v: round(v, 4)), st.just(float("nan"))
)


@given(st.lists(numbers, max_size=50), st.floats(0, 1))
def test_any_series_stays_inside_the_frame(values, where):
    epochs = list(range(1, len(values) + 1))
    moment = Moment(1 + where * max(len(values) - 1, 0), "now")
    drawn = line_chart(epochs, [Series("one", values, 0)], title="t", extra=Annotations([moment]))
    known = [v for v in values if v is not None and v == v]
    if not known:
        assert drawn == ""
        return
    path = re.search(r'class="line c0" d="([^"]*)"', drawn.partition("</ul>")[2])[1]
    points = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)
    assert len(points) == len(known)
    for x, y in points:
        assert 0 <= float(x) <= WIDTH
        assert 0 <= float(y) <= HEIGHT
    assert "nan" not in path
    # a gap starts a new piece
    pieces = "".join("x" if v is not None and v == v else " " for v in values).split()
    assert path.count("M") == len(pieces)


def test_higher_values_are_drawn_higher_and_told_on_hover():
    drawn = line_chart([1, 2, 3], [Series("a<b", [0.1, 0.3, 0.2], 0)], title="t", decimals=2)
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawn)]
    assert heights[1] < heights[2] < heights[0]
    assert "epoch 2\na&lt;b: 0.30" in drawn
    assert "highest 0.30 at epoch 2" in drawn


def test_limit_caps_the_axis():
    drawn = line_chart([1, 2], [Series("a", [5.0, 99.9], 0)], title="t", limit=100)
    ticks = [float(t) for t in re.findall(r'text-anchor="end">([\d.]+)<', drawn)]
    assert max(ticks) == 100


def test_columns_grow_with_their_values():
    drawn = column_chart([0, 2, 4], ["0", "1", "2"], title="t")
    heights = [float(h) for h in re.findall(r'height="([\d.]+)" rx', drawn)]
    assert heights[0] == 0
    assert heights[2] == pytest.approx(2 * heights[1], abs=0.2)


def test_bar_is_held_between_nothing_and_everything():
    assert "width:0.0%" in bar(-1)
    assert "width:100.0%" in bar(2, tick=0.5)
    assert "left:50.0%" in bar(2, tick=0.5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.44, "0.4 s"),
        (9.7, "10 s"),
        (59.7, "1 min 00 s"),
        (582, "9 min 42 s"),
        (7300, "2 h 01 min"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_listed():
    assert [listed(w) for w in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


@given(st.lists(st.floats(0, 1), max_size=120), st.integers(0, 5))
def test_pick_never_repeats_and_orders_the_groups(values, seed):
    f1 = np.array(values, dtype=np.float64)
    groups = pick(f1, np.random.default_rng(seed))
    chosen = np.concatenate(groups).tolist()
    assert len(chosen) == len(set(chosen))
    assert all(len(group) <= EACH for group in groups)
    if len(values) >= 100:
        _, best, middle, worst = (f1[group] for group in groups)
        assert [len(group) for group in groups] == [EACH] * 4
        assert best.min() >= middle.max() >= middle.min() >= worst.max()


def test_image_f1():
    truth = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]], dtype=bool)
    said = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 0]], dtype=bool)
    assert image_f1(truth, said).tolist() == [0.5, 1.0, 0.0, 0.0]


def test_stretch_uses_the_whole_range_and_survives_gaps():
    pixels = np.linspace(0, 8000, 2 * 3 * 64 * 64, dtype=np.float32).reshape(2, 3, 64, 64)
    pixels[0, 0, 0, :2] = np.nan, np.inf
    images = ArrayScenes(pixels, bands=("B02", "B03", "B04"))
    between = limits(images)
    assert between is not None
    first, second = (stretch(picture, between) for picture in pixels)
    assert first.dtype == np.uint8
    assert first.min() == 0
    assert second.max() == 255
    assert first[0, 0, :2].tolist() == [0, 255]
    # a band of equal values is neither dark nor bright
    assert (stretch(np.full((3, 2, 2), 7.0), np.full((3, 2), 7.0)) == 128).all()


@pytest.mark.parametrize(("side", "kind"), [(8, "png"), (300, "jpeg")])
@pytest.mark.parametrize("bands", [1, 2, 3, 5])
def test_thumbnails_of_any_bands(side, kind, bands):
    import base64
    import io

    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (3, bands, side, side)).astype(np.uint8)
    images = ArrayScenes(pixels)
    assert limits(images) is None
    found = thumbnails(images, np.array([2, 0]), None)
    assert len(found) == 2
    head, _, data = found[0].partition(",")
    assert head == f"data:image/{kind};base64"
    opened = Image.open(io.BytesIO(base64.b64decode(data)))
    assert opened.size == ((8, 8) if kind == "png" else (144, 144))
    if kind == "png":
        expected = np.moveaxis(pixels[2][list(images.rgb)], 0, -1)
        assert np.array_equal(np.asarray(opened), expected)


@pytest.mark.parametrize("value", [7 / 6, 1e-3, 0.0, -2.5, 1e9])
def test_values_that_differ_by_rounding_are_drawn_as_one(value):
    # Two numbers next to each other have no ticks between them: this was a traceback.
    nearly = float(np.nextafter(value, np.inf))
    drawn = line_chart([1, 2], [Series("a", [value, nearly], 0)], title="t", decimals=2)
    assert len(set(re.findall(r'text-anchor="end">([^<]*)<', drawn))) > 2


@given(
    st.lists(
        st.tuples(
            st.floats(46, 546), st.text("abcdefgh 123", min_size=1, max_size=18), st.booleans()
        ),
        max_size=6,
    )
)
def test_words_of_moments_cover_no_other_and_stay_inside(given_moments):
    at = [x for x, _, _ in given_moments]
    moments = [Moment(x, text, strong) for x, text, strong in given_moments]
    found = places(moments, at, 46, 546)
    for i, one in enumerate(found):
        assert one.left >= 46
        assert one.right <= 546
        assert one.left > at[i] or one.right < at[i]  # beside its own line
        assert not any(one.overlaps(other) for other in found[:i])


def test_words_of_close_moments_stand_in_the_chart_apart():
    # The words of the best and of the kept epoch, one after the other, were drawn as one smudge.
    close = [Moment(12, "best: 12"), Moment(13, "kept: 13"), Moment(14, "completed after 14", True)]
    drawn = line_chart(
        range(1, 25), [Series("a", [1.0] * 24, 0)], title="t", extra=Annotations(close)
    )
    words = re.findall(r'text class="moment" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">', drawn)
    assert len(words) == 3
    ends = [(y, anchor) for _, y, anchor in words]
    assert len(set(ends)) == 3
    assert words[2][1] == min((y for _, y, _ in words), key=float)  # the solid line's is on top
