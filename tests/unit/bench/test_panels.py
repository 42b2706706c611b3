"""The picture of a dashboard."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from bench.panels import Line, Panel, nice, shown, svg

PLACE = (0, 0, 12, 8)
UP = Line("up & up", ((0.0, 0.0), (10.0, 4.0)))
FLAT = Line("flat", ((0.0, 1.0), (10.0, 1.0)))


def picture(*lines: Line, stacked: bool = False, figure: bool = False) -> str:
    panel = Panel("A <panel>", "s", PLACE, lines, stacked, figure)
    return svg([panel], (0.0, 10.0), "Title")


def heights(text: str) -> list[list[float]]:
    """Return how high the points of each line are drawn, from the bottom of its field."""
    found = re.findall(r'polyline points="([^"]+)"', text)
    rows = [[float(point.split(",")[1]) for point in line.split()] for line in found]
    bottom = max(y for row in rows for y in row)
    return [[round(bottom - y, 1) for y in row] for row in rows]


def test_the_picture_is_well_formed_and_labelled() -> None:
    """Titles and names are text, with any letters."""
    texts = [t.text for t in ET.fromstring(picture(UP, FLAT)).iter() if t.text]
    assert {"Title", "A <panel>", "up & up", "flat", "0 s", "4 s", "0:10"} <= set(texts)


def test_lines_are_as_high_as_their_values() -> None:
    """Twice the value is twice as high."""
    up, flat = heights(picture(UP, FLAT))
    assert up[0] == 0
    assert up[1] == pytest.approx(4 * flat[0])


def test_stacked_lines_stand_on_each_other() -> None:
    """The sum is drawn first, so that the lines below it stay visible."""
    total, first = heights(picture(UP, FLAT, stacked=True))
    assert total[1] == pytest.approx(first[1] * 5 / 4, rel=0.01)


def test_a_figure_is_the_last_value() -> None:
    """There are no axes."""
    text = picture(UP, figure=True)
    assert ">4 s<" in text
    assert "polyline" not in text


def test_a_panel_without_data_is_empty() -> None:
    """A panel without data is drawn empty."""
    assert "no data" in picture()


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.25, "s", "0.25 s"),
        (0.4, "percentunit", "40 %"),
        (96 * 2**20, "bytes", "96 MiB"),
        (12.0, "short", "12"),
        (1.5, "ops", "1.5/s"),
    ],
)
def test_axis_values_have_units(value: float, unit: str, text: str) -> None:
    """As Grafana writes them, nearly."""
    assert shown(value, unit) == text


@pytest.mark.parametrize(("value", "expected"), [(0, 1), (1, 1), (1.2, 2), (30, 50), (0.07, 0.1)])
def test_axis_steps_are_round(value: float, expected: float) -> None:
    """1, 2 or 5 times a power of ten."""
    assert nice(value) == pytest.approx(expected)
