"""Arguments and options of the commands for resources."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from operator_runner.tools.resources.options import DurationType, NameType


@click.command()
@click.argument("name", type=NameType())
@click.option("--timeout", type=DurationType())
def command(name: object, timeout: object) -> None:
    """Take what the commands take."""
    click.echo(f"{name} {timeout}")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["pages"], "invalid resource 'pages': write KIND/NAME, such as pages/home"),
        (["a/b/c"], "invalid resource 'a/b/c': write KIND/NAME, such as pages/home"),
        (
            ["a/b", "--timeout=5"],
            'time: missing unit in duration "5"; write a duration such as 30s, 10m or 1h30m',
        ),
        (
            ["a/b", "--timeout=-5s"],
            "-5s is negative; write a duration such as 30s, 10m or 1h30m",
        ),
    ],
)
def test_an_invalid_value_has_its_own_solution(arguments: list[str], problem: str) -> None:
    """The error is a wrong usage whose line ends with what to write."""
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert done.output.endswith(f": {problem}\n")
