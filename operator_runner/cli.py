"""The command line: one small function a command."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import click
import structlog

from operator_runner import __version__
from operator_runner.devcluster.commands import cluster
from operator_runner.errors import ConfigError
from operator_runner.flags import (
    RunCommand,
    log_settings_from,
    run_options,
    settings_from,
    warnings_from,
)
from operator_runner.observe import logs
from operator_runner.watches import load

_log = structlog.get_logger(__name__)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="operator-runner")
def main() -> None:
    """Kubernetes operators written as Ansible roles."""


@main.command(cls=RunCommand)
@run_options
def run(**options: Any) -> None:
    """Watch the kinds of watches.yaml and run their roles."""
    try:
        sys.exit(_run(options))
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"Error: {problem}", err=True)
        sys.exit(1)


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(f"operator-runner {__version__}")


main.add_command(cluster)


def _run(options: dict[str, Any]) -> int:
    # Here, for it takes a second to import, and the other commands do without.
    from operator_runner import app  # noqa: PLC0415

    log = log_settings_from(options)
    logs.configure(
        log.encoder,
        log.level,
        stacktrace_level=log.stacktrace_level,
        time_encoding=log.time_encoding,
    )
    loaded = load(
        options["watches_file"],
        os.environ,
        roles_path=options["ansible_roles_path"],
        collections_path=options["ansible_collections_path"],
    )
    settings = settings_from(options, os.environ, loaded.watches)
    for warning in (*loaded.warnings, *warnings_from(options, os.environ, loaded.watches)):
        _log.warning("Configuration", warning=warning)
    return asyncio.run(app.run(settings, loaded.watches))
