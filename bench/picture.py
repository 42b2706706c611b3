"""Draw time spans as SVG: lanes from top to bottom, time from left to right."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from html import escape

from bench.reconcile_spans import LANES, Span

_WIDTH, _LEFT, _ROW, _TOP = 1200, 90, 22, 30
_LINES = 15
_LETTER = 6.2
"""Width of a letter; texts that do not fit are omitted."""
_COLOURS = ("#8ecae6", "#ffb703", "#a7c957", "#f4a261", "#cdb4db", "#90be6d", "#e9c46a", "#bde0fe")


def svg(spans: Sequence[Span], title: str) -> str:
    """Return the picture; the tooltip of a box has its name and milliseconds."""
    until = max(span.end for span in spans)
    scale = (_WIDTH - _LEFT - 10) / until
    body, row = [], 0
    for lane in LANES:
        placed = _place(span for span in spans if span.lane == lane)
        body.append(_label(lane, row))
        body.extend(_box(span, row + depth, scale) for span, depth in placed)
        row += 1 + max((depth for _, depth in placed), default=0)
    height = _TOP + row * _ROW + 30
    box = f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="11"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
            f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="18" font-size="13">{escape(title)}</text>',
            *_grid(until, scale, height),
            *body,
            "</svg>\n",
        ]
    )


def _place(spans: Iterable[Span]) -> list[tuple[Span, int]]:
    """Assign each span the first free row of its lane."""
    ends: list[float] = []
    placed = []
    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        depth = next((row for row, end in enumerate(ends) if end <= span.begin), len(ends))
        ends[depth : depth + 1] = [span.end]
        placed.append((span, depth))
    return placed


def _box(span: Span, row: int, scale: float) -> str:
    x, width = _LEFT + span.begin * scale, max(span.length * scale, 1)
    y = _TOP + row * _ROW
    colour = _COLOURS[zlib.crc32(span.name.encode()) % len(_COLOURS)]
    text = f"{span.name} {span.length:.0f}"
    shown = text if len(text) * _LETTER < width else ""
    return (
        f"<g><title>{escape(span.name)}: {span.length:.1f} ms</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 3}" rx="2" '
        f'fill="{colour}" stroke="#555" stroke-width="0.3"/>'
        f'<text x="{x + 3:.1f}" y="{y + 14}">{escape(shown)}</text></g>'
    )


def _label(lane: str, row: int) -> str:
    return f'<text x="8" y="{_TOP + row * _ROW + 14}" fill="#555">{escape(lane)}</text>'


def _grid(until: float, scale: float, height: int) -> Iterable[str]:
    step = next((step for step in (10, 20, 50, 100, 200, 500) if until / step < _LINES), 1000)
    for at in range(0, int(until) + 1, step):
        x = _LEFT + at * scale
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height - 22}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{height - 8}" fill="#555">{at} ms</text>'
