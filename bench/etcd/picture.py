"""Draw the members of a cluster of etcd over time as SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from bench.etcd.timeline import LEARNER, LOST, READY, UNREADY, Mark, Stay
from bench.panels import nice

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP, _FOOT = 1200, 110, 20, 22, 34, 52
_LETTER = 6.0
_LINES = 12
_DELETED_SECONDS = 1.0
"""A member that was not seen for longer has been removed."""
_COLOURS = {READY: "#90be6d", UNREADY: "#f4a261", LEARNER: "#8ecae6", LOST: "#e15759"}
_SILENCE = "no write acknowledged"


def svg(
    stays: Sequence[Stay],
    marks: Sequence[Mark],
    silences: Sequence[tuple[float, float]],
    title: str,
) -> str:
    """Return the picture: faults, a row for each member, and one for the client.

    `silences` are begin and end of the times in which no write was acknowledged, in seconds.
    """
    until = max([stay.end for stay in stays] + [mark.at for mark in marks])
    scale = (_WIDTH - _LEFT - _RIGHT) / until
    placed = list(_placed(marks, scale))
    first = 1 + max((row for _, row in placed), default=0)
    members = sorted({stay.member for stay in stays})
    rows = {member: first + number for number, member in enumerate(members)}
    client = first + len(members)
    height = _TOP + (client + 1) * _ROW + _FOOT
    bottom = height - _FOOT
    box = f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="11"'
    silent = [Stay("client", _SILENCE, *silence) for silence in silences]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
            f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="20" font-size="13">{escape(title)}</text>',
            *_grid(until, scale, bottom),
            *(part for mark, row in placed for part in _mark(mark, row, scale, bottom)),
            *(_label(member, row) for member, row in rows.items()),
            *(_bar(stay, rows[stay.member], scale, _COLOURS[stay.state]) for stay in stays),
            *(_removed(stay, rows[stay.member], scale) for stay in _last(stays, until)),
            _label("client", client),
            *(_bar(stay, client, scale, "#555") for stay in silent),
            *_legend(height - 12),
            "</svg>\n",
        ]
    )


def _placed(marks: Sequence[Mark], scale: float) -> Iterator[tuple[Mark, int]]:
    """Assign each mark the first row in which its text fits."""
    ends: list[float] = []
    for mark in sorted(marks, key=lambda mark: mark.at):
        x = mark.at * scale
        row = next((row for row, end in enumerate(ends) if end <= x), len(ends))
        ends[row : row + 1] = [x + _LETTER * len(mark.text) + 12]
        yield mark, row


def _mark(mark: Mark, row: int, scale: float, bottom: int) -> Iterator[str]:
    x, y = _LEFT + mark.at * scale, _TOP + row * _ROW
    line = f'x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{bottom}"'
    yield f'<line {line} stroke="#b00" stroke-dasharray="2 3"/>'
    yield f'<text x="{x + 3:.1f}" y="{y + 12}" fill="#b00">{escape(mark.text)}</text>'


def _bar(stay: Stay, row: int, scale: float, colour: str) -> str:
    x, width = _LEFT + stay.begin * scale, max((stay.end - stay.begin) * scale, 1)
    place = f'x="{x:.1f}" y="{_TOP + row * _ROW + 2}" width="{width:.1f}" height="{_ROW - 6}"'
    tooltip = f"{stay.member}: {stay.state}, {stay.end - stay.begin:.1f} s"
    return f'<rect {place} rx="2" fill="{colour}"><title>{escape(tooltip)}</title></rect>'


def _last(stays: Sequence[Stay], until: float) -> Iterator[Stay]:
    """Yield the last state of each member that does not exist at the end."""
    for stay in {stay.member: stay for stay in stays}.values():
        if stay.end < until - _DELETED_SECONDS:
            yield stay


def _removed(stay: Stay, row: int, scale: float) -> str:
    x, y = _LEFT + stay.end * scale + 4, _TOP + row * _ROW + 14
    return f'<text x="{x:.1f}" y="{y}" fill="#777">removed</text>'


def _label(text: str, row: int) -> str:
    return f'<text x="8" y="{_TOP + row * _ROW + 14}" fill="#333">{escape(text)}</text>'


def _grid(until: float, scale: float, bottom: int) -> Iterator[str]:
    step = nice(until / _LINES)
    for number in range(int(until / step) + 1):
        x = _LEFT + number * step * scale
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#eee"/>'
        place = f'x="{x:.1f}" y="{bottom + 14}" text-anchor="middle"'
        yield f'<text {place} fill="#777">{number * step:g} s</text>'


def _legend(y: int) -> Iterator[str]:
    x = float(_LEFT)
    for name, colour in {**_COLOURS, _SILENCE: "#555"}.items():
        yield f'<rect x="{x:.0f}" y="{y - 9}" width="12" height="10" rx="2" fill="{colour}"/>'
        yield f'<text x="{x + 17:.0f}" y="{y}" fill="#333">{escape(name)}</text>'
        x += 17 + _LETTER * len(name) + 24
