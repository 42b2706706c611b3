"""Panels of a dashboard as an SVG picture: lines, stacks and single figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_COLUMN, _ROW, _GAP, _TOP = 50, 30, 8, 34
"""Pixels of a cell of Grafana's grid of 24 columns, of the gap between panels, and of the top."""
_HEAD, _LEGEND, _AXIS = 24, 14, 46
"""Pixels of a panel's title, of a line of its legend, and of its axis labels."""
_LETTER = 5.6
_LINES = 3
"""Maximum lines of a legend."""
_COLOURS = (
    *("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f"),
    *("#86bcb6", "#d37295", "#bab0ac", "#8cd17d"),
)
_SCALES = {"bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))}


@dataclass(frozen=True, slots=True)
class Line:
    """One series: its name in the legend, and (time, value) in seconds and the panel's unit."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel on the grid; a `figure` shows only the last value."""

    title: str
    unit: str
    place: tuple[int, int, int, int]
    """Column, row, width and height in cells."""
    lines: tuple[Line, ...]
    stacked: bool = False
    figure: bool = False


@dataclass(frozen=True, slots=True)
class _Plot:
    """Mapping of a panel's points to pixels."""

    box: tuple[float, float, float, float]
    """Left, top, width and height."""
    span: tuple[float, float]
    top: float

    def at(self, time: float, value: float) -> str:
        left, top, width, height = self.box
        begin, end = self.span
        x = left + width * (time - begin) / (end - begin)
        return f"{x:.1f},{top + height * (1 - value / self.top):.1f}"


def svg(panels: Sequence[Panel], span: tuple[float, float], title: str) -> str:
    """Return the picture; `span` is the first and the last time, in seconds."""
    width = 24 * _COLUMN
    height = _TOP + _ROW * max(y + h for _, y, _, h in (panel.place for panel in panels))
    box = f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="10"'
    body = [part for panel in panels for part in _panel(panel, span)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
            f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>',
            f'<text x="{_GAP}" y="21" font-size="14">{escape(title)}</text>',
            *body,
            "</svg>\n",
        ]
    )


def _panel(panel: Panel, span: tuple[float, float]) -> Iterator[str]:
    column, row, wide, high = panel.place
    x, y = column * _COLUMN + _GAP / 2, _TOP + row * _ROW
    width, height = wide * _COLUMN - _GAP, high * _ROW - _GAP
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#fff" stroke="#ddd"/>'
    yield f'<text x="{x + 8}" y="{y + 16}" font-weight="bold">{escape(panel.title)}</text>'
    if not panel.lines:
        yield _text(x + width / 2, y + height / 2, "no data", "#999", "middle")
    elif panel.figure:
        last = shown(panel.lines[0].points[-1][1], panel.unit)
        middle = f'x="{x + width / 2}" y="{y + height / 2 + 20}" text-anchor="middle"'
        yield f'<text {middle} font-size="28" fill="#333">{escape(last)}</text>'
    else:
        yield from _graph(panel, (x, y, width, height), span)


def _graph(
    panel: Panel, box: tuple[float, float, float, float], span: tuple[float, float]
) -> Iterator[str]:
    x, y, width, height = box
    legend = list(_legend(panel.lines, width - 16))
    field = (x + _AXIS, y + _HEAD, width - _AXIS - 10, height - _HEAD - 20 - _LEGEND * len(legend))
    drawn = _stacked(panel.lines) if panel.stacked else panel.lines
    highest = max((value for line in drawn for _, value in line.points), default=0.0)
    sizes = _SCALES.get(panel.unit, ())
    unit = next((size for size, _ in sizes if highest >= size), 1.0)
    step = nice(highest / unit / 3) * unit
    plot = _Plot(field, span, step * max(1, math.ceil(highest / step - 1e-9)))
    yield from _grid(plot, step, panel.unit)
    # The highest sum of a stack is drawn first, behind the others.
    order = list(enumerate(drawn))
    for number, line in reversed(order) if panel.stacked else order:
        yield from _curve(line, plot, _COLOURS[number % len(_COLOURS)], filled=panel.stacked)
    for number, entries in enumerate(legend):
        at = y + height - 6 - _LEGEND * (len(legend) - 1 - number)
        for place, (left, name) in entries:
            colour = _COLOURS[place % len(_COLOURS)]
            corner = f'x="{x + 8 + left:.0f}" y="{at - 5}"'
            yield f'<rect {corner} width="8" height="3" fill="{colour}"/>'
            yield _text(x + 19 + left, at, name, "#555")


def _curve(line: Line, plot: _Plot, colour: str, *, filled: bool) -> Iterator[str]:
    points = [plot.at(*point) for point in line.points]
    if filled and points:
        begin, end = plot.at(line.points[0][0], 0), plot.at(line.points[-1][0], 0)
        corners = " ".join([begin, *points, end])
        yield f'<polygon points="{corners}" fill="{colour}" fill-opacity="0.75"/>'
    stroke = f'fill="none" stroke="{colour}" stroke-width="1.3"'
    yield f'<polyline points="{" ".join(points)}" {stroke}/>'


def _grid(plot: _Plot, step: float, unit: str) -> Iterator[str]:
    left, top, width, height = plot.box
    for number in range(round(plot.top / step) + 1):
        y = top + height * (1 - number * step / plot.top)
        yield f'<path d="M{left} {y:.1f}h{width}" stroke="#eee"/>'
        yield _text(left - 5, y + 3, shown(number * step, unit), "#777", "end")
    begin, end = plot.span
    for number in range(5):
        at = (end - begin) * number / 4
        x = left + width * number / 4
        anchor = "start" if not number else "middle" if number < 4 else "end"  # noqa: PLR2004
        clock = f"{int(at) // 60}:{int(at) % 60:02}"
        yield _text(x, top + height + 12, clock, "#777", anchor)


def _legend(lines: Sequence[Line], width: float) -> Iterator[list[tuple[int, tuple[float, str]]]]:
    """Yield rows of (line number, (x, name)), wrapped to `width`."""
    row: list[tuple[int, tuple[float, str]]] = []
    rows, x = 1, 0.0
    for number, line in enumerate(lines):
        length = 11 + _LETTER * len(line.name) + 10
        if row and x + length > width:
            yield row
            row, x, rows = [], 0.0, rows + 1
            if rows > _LINES:
                return
        row.append((number, (x, line.name)))
        x += length
    yield row


def _stacked(lines: Sequence[Line]) -> list[Line]:
    """Return cumulative lines; missing values count as zero."""
    times = sorted({time for line in lines for time, _ in line.points})
    sums = dict.fromkeys(times, 0.0)
    stacked = []
    for line in lines:
        for time, value in line.points:
            sums[time] += value
        stacked.append(Line(line.name, tuple(sums.items())))
    return stacked


def nice(value: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is at least `value`; 1 for zero."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))


def shown(value: float, unit: str) -> str:
    """Format a value in Grafana's unit: `0.25 s`, `96 MiB`, `40 %`."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "bytes":
        scale = next(((size, name) for size, name in _SCALES[unit] if value >= size), (1.0, "B"))
        return f"{value / scale[0]:.0f} {scale[1]}"
    return f"{value:.3g}" + {"s": " s", "ops": "/s", "reqps": "/s"}.get(unit, "")


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}">{escape(text)}</text>'
