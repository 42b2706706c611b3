"""The command line: one small function a command."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click
import structlog

from operator_runner import __version__
from operator_runner.config.flags import (
    RunCommand,
    log_settings_from,
    lookup_options,
    run_options,
    settings_from,
    warnings_from,
)
from operator_runner.config.watches import Loaded, load, schema, summarize
from operator_runner.core.errors import ConfigError
from operator_runner.devcluster.commands import cluster
from operator_runner.telemetry import logs, output
from operator_runner.tools.bundle.command import bundle, catalog, operatorhub, validate_bundle
from operator_runner.tools.rbac.command import rbac
from operator_runner.tools.run_history.command import why
from operator_runner.tools.scaffold import create, init
from operator_runner.tools.storage_migration.command import migrate_storage
from operator_runner.tools.undeploy.command import undeploy

_log = structlog.get_logger(__name__)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Kubernetes operators written as Ansible roles."""


@main.command(cls=RunCommand)
@run_options
def run(**options: Any) -> None:
    """Watch the kinds of watches.yaml and run their roles."""
    try:
        sys.exit(_run(options))
    except ConfigError as error:
        _refuse(error)


@main.command()
@click.argument("file", default="./watches.yaml", type=click.Path(path_type=Path))
@lookup_options
def validate(file: Path, **options: Any) -> None:
    """Check a watches file as `run` does and show what it says."""
    loaded = _load(file, options)
    _warn(loaded.warnings)
    click.echo(f"{file}: valid, kinds: {len(loaded.watches)}")
    for line in summarize(loaded.watches):
        click.echo(f"  {line}")


@main.command("schema")
def print_schema() -> None:
    """Print the JSON schema of watches.yaml, for editors."""
    click.echo(json.dumps(schema(), indent=2))


@main.command()
@click.pass_context
def version(context: click.Context) -> None:
    """Print the version."""
    click.echo(f"{context.find_root().info_name} {__version__}")


main.add_command(cluster)
main.add_command(why)
main.add_command(rbac)
main.add_command(undeploy)
main.add_command(migrate_storage)
main.add_command(init)
main.add_command(create)
main.add_command(bundle)
main.add_command(validate_bundle)
main.add_command(catalog)
main.add_command(operatorhub)


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
    loaded = _load(options["watches_file"], options)
    settings = settings_from(options, os.environ, loaded.watches, terminal=sys.stderr.isatty())
    for warning in (*loaded.warnings, *warnings_from(options, os.environ, loaded.watches)):
        _log.warning("Configuration", warning=warning)
    with output.in_background():
        try:
            return asyncio.run(app.run(settings, loaded.watches))
        except ConfigError:
            raise
        except Exception:  # noqa: BLE001 (the last line of the process)
            # Not by the interpreter, which would wait for whoever reads standard error.
            _log.critical("Internal error", exc_info=True)
            return 1


def _load(file: Path, options: dict[str, Any]) -> Loaded:
    """Read the watches; what is wrong with them is told, and ends the process."""
    try:
        return load(
            file,
            os.environ,
            roles_path=options["ansible_roles_path"],
            collections_path=options["ansible_collections_path"],
            mark_unsafe=options.get("mark_unsafe", False),
        )
    except ConfigError as error:
        _refuse(error, "Failed to load watches.")


def _refuse(error: ConfigError, summary: str = "") -> NoReturn:
    _warn(error.warnings)
    for problem in error.problems:
        click.echo(f"Error: {problem}", err=True)
    if summary:
        click.echo(summary, err=True)
    sys.exit(1)


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
