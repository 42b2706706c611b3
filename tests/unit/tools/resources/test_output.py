"""Printed tables and lines."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from operator_runner.tools.resources.output import print_coloured, print_table


@click.command()
def _show() -> None:
    print_table(("READY",), [("True",)])
    print_coloured(click.style("+replicas: 2", fg="green"))


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colours_need_a_terminal_and_can_be_switched_off(
    terminal: bool, no_color: str, coloured: bool
) -> None:
    """NO_COLOR switches them off."""
    done = CliRunner(env={"NO_COLOR": no_color}).invoke(_show, color=terminal)
    plain = ["READY", "True", "+replicas: 2"]
    lines = done.output.splitlines()
    assert [click.unstyle(line) for line in lines] == plain
    assert (lines != plain) is coloured
