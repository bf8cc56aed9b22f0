"""Line and column charts as inline SVG, without a script; the colours are in the style sheet.

Every chart is drawn in a fixed coordinate system and scaled by the browser. Invisible strips, one
per position on the x axis, show the values when the mouse is over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from adagc.report.html import esc
from adagc.report.moments import Moment, draw

WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 26, 36
_DOTS = 16  # largest number of epochs for which every value is drawn as a dot


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    values: Sequence[float | None]  # one per epoch; None is a gap in the line
    colour: int  # number of a colour of the style sheet, from 0
    dashed: bool = False


@dataclass(frozen=True)
class Annotations:
    """What a chart shows besides its lines."""

    moments: Sequence[Moment] = ()
    shaded_after: float | None = None  # epoch from which on the background is shaded
    back: tuple[float, float] | None = None  # an arrow from one epoch back to another
    level: tuple[float, str] | None = None  # value of a horizontal line, and its name


@dataclass(frozen=True)
class _Scale:
    """Maps the values `low` to `high` of an axis to the coordinates `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...] = field(default=())

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def line_chart(
    epochs: Sequence[int],
    series: Sequence[Series],
    *,
    title: str,
    caption: str = "",
    decimals: int = 1,
    limit: float | None = None,
    extra: Annotations | None = None,
    axis: str = "epoch",
) -> str:
    """A figure with one line per series over the epochs, and a legend.

    Args:
        epochs: Numbers of the epochs, or of whatever `axis` names.
        series: The lines, each with one value per epoch.
        title: Heading above the chart.
        caption: Smaller text below the title.
        decimals: Number of decimals in hover texts.
        limit: Largest value on the y axis; None for no limit.
        extra: What is drawn besides the lines.
        axis: What the numbers on the x axis are.

    Returns:
        HTML, empty if no value is known.
    """
    extra = extra or Annotations()
    known = [v for line in series for v in line.values if v is not None and math.isfinite(v)]
    if not epochs or not known:
        return ""
    if extra.level is not None:
        known = [*known, extra.level[0]]
    y = _y_scale(min(known), max(known), limit=limit)
    x = _x_scale(epochs)
    body = [
        _shade(extra, x),
        _grid(x, y, axis),
        _moments(extra.moments, x),
        _arrow(extra, x),
        _level(extra, y),
        *(_line(epochs, line, x, y) for line in series),
        _strips(epochs, series, x, decimals, axis),
    ]
    summary = f"{title}, {axis}s {epochs[0]} to {epochs[-1]}. " + " ".join(
        _summary(epochs, line, decimals, axis) for line in series
    )
    return _figure(title, caption, _legend(series), _svg(summary, "".join(body)))


def column_chart(
    values: Sequence[float], names: Sequence[str], *, title: str, caption: str = "", axis: str = ""
) -> str:
    """A figure with one column per count; `names` are the labels below the columns."""
    wide = 400  # narrower than a line chart, because it is shown beside a table
    y = _y_scale(0.0, max([*values, 1.0]), pad=False)
    step = (wide - LEFT - RIGHT) / max(len(values), 1)
    base = y(y.low)
    parts = [_y_grid(y, wide)]
    for i, (value, name) in enumerate(zip(values, names, strict=True)):
        left, top = LEFT + i * step, y(value)
        inner, width, middle = left + 0.14 * step, 0.72 * step, left + step / 2
        parts.append(
            f'<g><title>{esc(name)}: {value:,.0f}</title><rect class="column" x="{inner:.1f}"'
            f' y="{top}" width="{width:.1f}" height="{max(base - top, 0):.1f}" rx="2"/>'
            f'<text x="{middle:.1f}" y="{base + 16}" text-anchor="middle">{esc(name)}</text></g>'
        )
    parts.append(_axis_name(axis, wide))
    summary = ", ".join(f"{name}: {value:,.0f}" for name, value in zip(names, values, strict=True))
    return _figure(title, caption, "", _svg(f"{title}. {summary}", "".join(parts), wide))


def _figure(title: str, caption: str, legend: str, drawing: str) -> str:
    below = f'<span class="sub">{esc(caption)}</span>' if caption else ""
    return (
        f'<figure class="chart"><figcaption><strong>{esc(title)}</strong>{below}</figcaption>'
        f"{legend}{drawing}</figure>"
    )


def _svg(summary: str, body: str, width: int = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{esc(summary)}">{body}</svg>'
    )


def _legend(series: Sequence[Series]) -> str:
    items = "".join(
        f'<li><svg class="stroke" viewBox="0 0 26 8" aria-hidden="true"><path d="M1 4H25"'
        f' class="line c{line.colour}{" dashed" if line.dashed else ""}"/></svg>'
        f"{esc(line.name)}</li>"
        for line in series
    )
    return f'<ul class="legend">{items}</ul>'


def _line(epochs: Sequence[int], line: Series, x: _Scale, y: _Scale) -> str:
    pieces: list[str] = []
    pen = "M"
    dots = []
    for epoch, value in zip(epochs, line.values, strict=True):
        if value is None or not _finite(value):
            pen = "M"
            continue
        pieces.append(f"{pen}{x(epoch)} {y(value)}")
        dots.append(f'<circle class="dot c{line.colour}" cx="{x(epoch)}" cy="{y(value)}" r="3"/>')
        pen = "L"
    dashed = " dashed" if line.dashed else ""
    path = f'<path class="line c{line.colour}{dashed}" d="{"".join(pieces)}"/>'
    return path + ("".join(dots) if len(epochs) <= _DOTS else "")


def _strips(
    epochs: Sequence[int], series: Sequence[Series], x: _Scale, decimals: int, axis: str
) -> str:
    """Invisible rectangles, one per epoch, that show the values as hover text."""
    step = abs(x(epochs[1]) - x(epochs[0])) if len(epochs) > 1 else WIDTH - LEFT - RIGHT
    strips = []
    for i, epoch in enumerate(epochs):
        lines = [f"{axis} {epoch}"]
        lines += [
            f"{line.name}: {value:.{decimals}f}"
            for line in series
            if (value := line.values[i]) is not None and _finite(value)
        ]
        strips.append(
            f'<rect class="strip" x="{x(epoch) - step / 2:.1f}" y="{TOP}" width="{step:.1f}"'
            f' height="{HEIGHT - TOP - BOTTOM}"><title>{esc(chr(10).join(lines))}</title></rect>'
        )
    return "".join(strips)


def _grid(x: _Scale, y: _Scale, axis: str) -> str:
    base = HEIGHT - BOTTOM
    numbers = "".join(
        f'<text x="{x(tick)}" y="{base + 16}" text-anchor="middle">{tick:.0f}</text>'
        for tick in x.ticks
    )
    return _y_grid(y) + numbers + _axis_name(axis)


def _y_grid(y: _Scale, width: int = WIDTH) -> str:
    places = max(0, min(3, -math.floor(math.log10(y.ticks[1] - y.ticks[0]) + 1e-9)))
    return "".join(
        f'<path class="grid" d="M{LEFT} {y(tick)}H{width - RIGHT}"/>'
        f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">'
        f"{_number(tick, places)}</text>"
        for tick in y.ticks
    )


def _axis_name(name: str, width: int = WIDTH) -> str:
    middle = (LEFT + width - RIGHT) / 2
    return (
        f'<text class="axis" x="{middle}" y="{HEIGHT - 3}" text-anchor="middle">{esc(name)}</text>'
    )


def _moments(moments: Sequence[Moment], x: _Scale) -> str:
    return draw(
        moments,
        [x(moment.at) for moment in moments],
        borders=(LEFT, WIDTH - RIGHT),
        top=TOP - 10,
        bottom=HEIGHT - BOTTOM,
    )


def _arrow(extra: Annotations, x: _Scale) -> str:
    if extra.back is None:
        return ""
    start, end = x(extra.back[0]), x(extra.back[1])
    y = HEIGHT - BOTTOM - 8
    return (
        f'<path class="back" d="M{start} {y}H{end + 2}M{end + 8} {y - 4}L{end + 1} {y}'
        f'L{end + 8} {y + 4}"><title>back to epoch {extra.back[1]:.0f}</title></path>'
    )


def _shade(extra: Annotations, x: _Scale) -> str:
    if extra.shaded_after is None:
        return ""
    left = x(extra.shaded_after)
    return (
        f'<rect class="shade" x="{left}" y="{TOP}" width="{max(WIDTH - RIGHT - left, 0):.1f}"'
        f' height="{HEIGHT - TOP - BOTTOM}"/>'
    )


def _level(extra: Annotations, y: _Scale) -> str:
    if extra.level is None:
        return ""
    at = y(extra.level[0])
    return (
        f'<path class="level" d="M{LEFT} {at}H{WIDTH - RIGHT}"/><text class="moment"'
        f' x="{WIDTH - RIGHT - 4}" y="{at - 6:.1f}" text-anchor="end">{esc(extra.level[1])}</text>'
    )


def _summary(epochs: Sequence[int], line: Series, decimals: int, axis: str) -> str:
    known = [
        (v, e) for v, e in zip(line.values, epochs, strict=True) if v is not None and _finite(v)
    ]
    if not known:
        return ""
    top, when = max(known)
    return (
        f"{line.name}: from {known[0][0]:.{decimals}f} to {known[-1][0]:.{decimals}f},"
        f" highest {top:.{decimals}f} at {axis} {when}."
    )


def _x_scale(epochs: Sequence[int]) -> _Scale:
    first, last = epochs[0], epochs[-1]
    if first == last:
        return _Scale(first - 1, last + 1, LEFT, WIDTH - RIGHT, (float(first),))
    step = max(1, math.ceil(_step((last - first) / 8)))
    ticks = tuple(float(t) for t in range(first, last + 1) if t % step == 0 or t == first)
    if len(ticks) > 1 and ticks[1] - ticks[0] < 0.6 * step:
        ticks = ticks[1:]  # of 1, 2, 4, ... the numbers 1 and 2 would touch
    return _Scale(first, last, LEFT + 6, WIDTH - RIGHT - 6, ticks)


def _y_scale(low: float, high: float, *, pad: bool = True, limit: float | None = None) -> _Scale:
    spread = high - low
    if spread <= 1e-6 * max(abs(low), abs(high)):
        spread = 0.0  # no more than rounding: ticks that close could not be told apart
    if pad:
        room = 0.06 * spread or max(abs(high) * 0.1, 0.05)
        low, high = low - (room if low < 0 or low >= room else low), high + room
    if limit is not None:
        high = min(high, limit)
    step = _step((high - low) / 5)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    ticks = tuple(step * i for i in range(first, last + 1))
    return _Scale(first * step, last * step, HEIGHT - BOTTOM, TOP, ticks)


def _step(rough: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below `rough`."""
    size = 10.0 ** math.floor(math.log10(rough))
    return next((m * size for m in (1, 2, 5) if m * size >= rough * 0.999), 10 * size)


def _number(value: float, places: int) -> str:
    text = f"{value + 0.0:,.{places}f}"
    return text.replace("-", "−") if float(text.replace(",", "")) else f"{0:.{places}f}"


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
