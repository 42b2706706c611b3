"""Text from resources and runs cannot control the terminal that shows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.texts import printable
from operator_runner.telemetry.logs import console_renderer
from operator_runner.telemetry.output_thread import write_play_output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, with ümlauts and 漢字", "plain text, with ümlauts and 漢字"),
        ("two\n\tlines", "two\n\tlines"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("over\rwritten", "over\\rwritten"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    """Tabs and line feeds stay, and so do all characters that have a glyph."""
    assert printable(text) == shown


@given(st.text())
def test_the_result_is_valid_utf8_without_control_characters(text: str) -> None:
    """For any text, a terminal gets printable characters, tabs and line feeds only."""
    shown = printable(text)
    shown.encode()
    assert not [c for c in shown if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160)]


@given(st.text(), st.text())
def test_no_value_of_a_log_line_reaches_the_terminal_with_escapes(reason: str, task: str) -> None:
    """Values of one line and of several, and the message itself."""
    event = {"event": task, "level": "error", "reason": reason, "task": task, "exception": reason}
    line = str(console_renderer(colors=False)(None, "error", event))
    assert printable(line) == line


def test_the_output_of_a_play_is_printed_without_escapes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Colours are dropped, everything else that a terminal obeys is shown."""
    write_play_output("\x1b[0;32mok: [localhost]\x1b[0m\r\n\x1b]0;title\x07")
    assert capsys.readouterr().out == "ok: [localhost]\n\\x1b]0;title\\x07\n"
