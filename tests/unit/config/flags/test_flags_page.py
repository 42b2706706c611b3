"""docs/flags.md agrees with `run --help`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from operator_runner.commands import run

_PAGE = Path(__file__).parents[4] / "docs" / "flags.md"
_ROW = re.compile(r"^\| `(?P<flag>--[a-z0-9-]+)`(?: \*)? \| (?P<default>.*?) ?\| (?P<text>.*) \|$")
_BOOL = "[=true|false]"
_HOST_DEPENDENT = re.compile(r"^\d+, ")


def _rows() -> list[re.Match[str]]:
    return [row for line in _PAGE.read_text().splitlines() if (row := _ROW.match(line))]


def _options() -> dict[str, click.Option]:
    """Return the options that `run --help` shows, by flag."""
    shown = (param for param in run.params if isinstance(param, click.Option) and not param.hidden)
    return {option.opts[0]: option for option in shown}


def _default(option: click.Option) -> str:
    """Return the default that `run --help` shows, without numbers of this host."""
    if isinstance(option.show_default, str):
        return _HOST_DEPENDENT.sub("", option.show_default)
    if option.default is None and option.metavar == _BOOL:
        return "false"
    return "" if option.default is None else str(option.default)


def test_the_page_lists_the_flags_in_the_order_of_the_help() -> None:
    """Hidden and deprecated flags are not in the table."""
    assert [row["flag"] for row in _rows()] == list(_options())


def test_the_page_has_the_defaults_of_the_help() -> None:
    """Defaults that depend on the host are described."""
    written = {row["flag"]: row["default"].strip("`") for row in _rows()}
    assert written == {flag: _default(option) for flag, option in _options().items()}


def test_descriptions_begin_with_the_text_of_the_help() -> None:
    """The page may add sentences and marks code with backticks."""
    helps = {flag: str(option.help).replace("`", "") for flag, option in _options().items()}
    written = {row["flag"]: row["text"].replace("`", "") for row in _rows()}
    assert {flag: written[flag][: len(text)] for flag, text in helps.items()} == helps
