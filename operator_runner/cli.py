"""The command line: which module has which command."""

from __future__ import annotations

import importlib
import importlib.util
from collections import UserDict
from collections.abc import Mapping
from typing import Any

import click

from operator_runner import __version__
from operator_runner.core.errors import INTERRUPTED, ConfigError, OperatorRunnerError

_COMMANDS: Mapping[str, str] = {
    "bundle": "operator_runner.tools.bundle.command:bundle",
    "bundle-validate": "operator_runner.tools.bundle.command:validate_bundle",
    "catalog": "operator_runner.tools.bundle.command:catalog",
    "cluster": "operator_runner.devcluster.commands:cluster",
    "create": "operator_runner.tools.scaffold.commands:create",
    "diff": "operator_runner.tools.diff.command:diff",
    "get": "operator_runner.tools.resources.get:get",
    "health": "operator_runner.tools.health:health",
    "init": "operator_runner.tools.scaffold.commands:init",
    "operatorhub": "operator_runner.tools.bundle.command:operatorhub",
    "rbac": "operator_runner.tools.rbac.command:rbac",
    "reconcile": "operator_runner.tools.resources.reconcile:reconcile",
    "resume": "operator_runner.tools.resources.reconcile:resume",
    "retry": "operator_runner.tools.resources.reconcile:retry",
    "run": "operator_runner.commands:run",
    "runs": "operator_runner.tools.runs.commands:runs",
    "schema": "operator_runner.commands:print_schema",
    "suspend": "operator_runner.tools.resources.reconcile:suspend",
    "tree": "operator_runner.tools.runs.tree:tree",
    "ui": "operator_runner.tools.ui.command:ui",
    "undeploy": "operator_runner.tools.undeploy:undeploy",
    "validate": "operator_runner.commands:validate",
    "why": "operator_runner.tools.runs.why:why",
}
"""Module and attribute of each command, by its name."""
_NOT_IN_IMAGE = ("operator_runner.devcluster", "rich")
"""Packages that the Dockerfile leaves out of the operator's image."""
_NEED_THEM = {"bundle", "bundle-validate", "catalog", "cluster", "operatorhub"}
"""Commands that import these packages."""


class LazyCommands(UserDict[str, Any]):
    """The commands of a group by name; the module of a command is imported at its first use.

    It takes `module:attribute` of each command. See docs/adr/0027-lazy-commands.md.
    """

    def __getitem__(self, name: str) -> click.Command:
        """Return the command. Raises KeyError for an unknown name."""
        command = self.data[name]
        if isinstance(command, str):
            command = self.data[name] = _load(name, command)
        assert isinstance(command, click.Command)
        return command


def _load(name: str, address: str) -> click.Command:
    """Import the command at `module:attribute`, or return one that reports why it is missing."""
    if name in _NEED_THEM and not all(map(importlib.util.find_spec, _NOT_IN_IMAGE)):
        return _missing(name)
    module, _, attribute = address.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


def _missing(name: str) -> click.Command:
    """Return a command, not listed in the help, that fails whatever its arguments are."""
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}

    @click.command(name, hidden=True, add_help_option=False, context_settings=anything)
    def command() -> None:
        raise click.ClickException(
            f"{name} is not part of the operator's image; install operator-runner on your machine, "
            "for example with `pipx install .` in its repository, and run it there"
        )

    return command


class _Main(click.Group):
    """The group of all commands."""

    def invoke(self, ctx: click.Context) -> Any:
        """Execute a command; Ctrl-C, also while modules are imported, is the exit status 130.

        The text of an error of this package is printed, and the exit status is 1.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except ConfigError as error:
            for warning in error.warnings:
                click.echo(f"Warning: {warning}", err=True)
            for problem in error.problems:
                click.echo(f"Error: {problem}", err=True)
            raise SystemExit(1) from error
        except OperatorRunnerError as error:
            raise click.ClickException(str(error)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take `run show` and `run logs` as `runs show` and `runs logs`: `run` has no arguments."""
        if args[0] == "run" and args[1:2] in (["show"], ["logs"]):
            args = ["runs", *args[1:]]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Main,
    commands=LazyCommands(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__)
def main() -> None:
    """Kubernetes operators written as Ansible roles."""


@main.command()
@click.pass_context
def version(context: click.Context) -> None:
    """Print the version."""
    click.echo(f"{context.find_root().info_name} {__version__}")
