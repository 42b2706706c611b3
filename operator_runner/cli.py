"""The command line: which module has which command."""

from __future__ import annotations

import importlib
from collections import UserDict
from collections.abc import Mapping
from typing import Any

import click

from operator_runner import __version__

_COMMANDS: Mapping[str, str] = {
    "bundle": "operator_runner.tools.bundle.command:bundle",
    "bundle-validate": "operator_runner.tools.bundle.command:validate_bundle",
    "catalog": "operator_runner.tools.bundle.command:catalog",
    "cluster": "operator_runner.devcluster.commands:cluster",
    "create": "operator_runner.tools.scaffold.commands:create",
    "init": "operator_runner.tools.scaffold.commands:init",
    "migrate-storage": "operator_runner.tools.storage_migration.command:migrate_storage",
    "operatorhub": "operator_runner.tools.bundle.command:operatorhub",
    "rbac": "operator_runner.tools.rbac.command:rbac",
    "run": "operator_runner.commands:run",
    "schema": "operator_runner.commands:print_schema",
    "undeploy": "operator_runner.tools.undeploy.command:undeploy",
    "validate": "operator_runner.commands:validate",
    "why": "operator_runner.tools.run_history.command:why",
}
"""Module and attribute of each command, by its name."""


class LazyCommands(UserDict[str, Any]):
    """The commands of a group by name; the module of a command is imported at its first use.

    It takes `module:attribute` of each command. See docs/adr/0027-lazy-commands.md.
    """

    def __getitem__(self, name: str) -> click.Command:
        """Return the command. Raises KeyError for an unknown name."""
        command = self.data[name]
        if isinstance(command, str):
            module, _, attribute = command.partition(":")
            command = self.data[name] = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(
    commands=LazyCommands(_COMMANDS), context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__)
def main() -> None:
    """Kubernetes operators written as Ansible roles."""


@main.command()
@click.pass_context
def version(context: click.Context) -> None:
    """Print the version."""
    click.echo(f"{context.find_root().info_name} {__version__}")
