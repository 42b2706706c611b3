"""The commands `run`, `validate` and `schema`, which read the flags or watches.yaml."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import chdir, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

import operator_runner
from operator_runner.core import imports, installation

# structlog imports rich for tracebacks that the operator does not print: 5 MiB.
with imports.without_package("rich"):
    import structlog

from operator_runner.config.flags.options import RunCommand, lookup_options, run_options
from operator_runner.config.flags.values import (
    load_watches,
    log_settings_from,
    settings_from,
    warnings_from,
)
from operator_runner.config.watches import Loaded, schema, summarize
from operator_runner.config.watches.lookup import Lookup
from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ConfigError, exhausted_resource
from operator_runner.core.model import Watch
from operator_runner.core.older_collections import replacements
from operator_runner.core.settings import config_file
from operator_runner.telemetry import logs, output_thread

if TYPE_CHECKING:
    from operator_runner.tools.validate.findings import Finding

_log = structlog.get_logger(__name__)
_RESTARTED = "OPERATOR_RUNNER_RESTARTED"
"""Variable of a process that `--reload` has started again."""
_POLL_SECONDS = 0.5


class _CompletedType(click.ParamType[str]):
    """The value of a flag of `run` that a shell completes from the cluster.

    `settings_from` checks it, together with all other flags.
    """

    def __init__(self, name: str, complete: str) -> None:
        """Take its name in messages, and the `module:function` below `tools` that completes it."""
        self.name = name
        self._complete = complete

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return values that begin with `incomplete`."""
        del param
        complete = resolve_name(f"operator_runner.tools.{self._complete}")
        found: list[CompletionItem] = complete(ctx, incomplete)
        return found


_COMPLETED_TYPES = {
    "once": _CompletedType("resource", "resources.options:complete_names"),
    "namespace": _CompletedType("text", "resources.options:complete_namespaces"),
    "context": _CompletedType("text", "kubeconfig:complete_contexts"),
}


@click.command(cls=RunCommand)
@run_options
def run(**options: Any) -> None:
    """Watch the kinds of watches.yaml and run their roles."""
    source = click.get_current_context().get_parameter_source
    unset = {name for name in options if source(name) is ParameterSource.DEFAULT}
    sys.exit(_run(options, unset))


# Set here because the modules of the flags, as parts of the operator, do not import tools.
for _param in run.params:
    _param.type = _COMPLETED_TYPES.get(str(_param.name), _param.type)


@click.command()
@click.argument("file", default="./watches.yaml", type=click.Path(path_type=Path))
@click.option(
    "--all", "show_all", is_flag=True, help="List all places of a warning, not the first ones."
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format."
)
@lookup_options
def validate(file: Path, *, show_all: bool, output: str, **options: Any) -> None:
    """Check a watches file, and its roles and playbooks.

    The file is checked as by `run`, without a cluster.
    """
    if output == "json":
        sys.exit(_print_findings(file, options))
    loaded = _load(file, options)
    folder = file.absolute().parent
    _print_warnings((*loaded.warnings, *_unused_files(options, folder)))
    click.echo(f"{file}: valid, kinds: {len(loaded.watches)}")
    for line in summarize(loaded.watches):
        click.echo(f"  {line}")
    findings = _check_content(file, loaded, options)
    # Imported here because the operator, which is a part of these commands, imports no tools.
    from operator_runner.tools.validate.findings import summarized  # noqa: PLC0415

    warnings = [each for each in findings if not each.is_error]
    here = Path.cwd()
    _print_warnings(
        [each.text(here) for each in warnings] if show_all else summarized(warnings, here)
    )
    if errors := [each.text(here) for each in findings if each.is_error]:
        _exit_with_problems(ConfigError(*errors), "Failed to validate roles and playbooks.")


def _print_findings(file: Path, options: dict[str, Any]) -> int:
    """Print all findings as a JSON list; return the exit status."""
    found: list[tuple[bool, str | None, int | None, str]] = []
    try:
        loaded = _read(file, options)
        found += ((False, None, None, each) for each in loaded.warnings)
        checked = _check_content(file, loaded, options)
        found += ((each.is_error, str(each.path), each.line, each.message) for each in checked)
    except ConfigError as error:
        found += ((False, None, None, each) for each in error.warnings)
        found += ((True, None, None, each) for each in error.problems)
    severities = {True: "error", False: "warning"}
    entries = [
        {"severity": severities[is_error], "path": path, "line": line, "message": message}
        for is_error, path, line, message in found
    ]
    click.echo(json.dumps(entries, indent=2))
    return int(any(is_error for is_error, *_ in found))


@click.command("schema")
def print_schema() -> None:
    """Print the JSON schema of watches.yaml, for editors."""
    click.echo(json.dumps(schema(), indent=2))


def _run(options: dict[str, Any], unset: Container[str]) -> int:
    # Importing aiohttp loads all CA certificates of the system into two TLS contexts, in 60 ms.
    # The operator does not use them: its sessions have the context of the kubeconfig.
    without_ca = imports.environment_variable("SSL_CERT_FILE", os.devnull)
    with imports.without_garbage_collection(), without_ca:
        # Imported here because it takes a second, and `validate` and `--help` do not need it.
        from operator_runner.app import operator  # noqa: PLC0415
        from operator_runner.app.free_places import free_places  # noqa: PLC0415

    log = log_settings_from(options)
    logs.configure(
        log.encoder,
        log.level,
        stacktrace_level=log.stacktrace_level,
        time_encoding=log.time_encoding,
    )
    if _RESTARTED in os.environ:
        # Not for Ansible, and not for commands that its tasks run.
        del os.environ[_RESTARTED]
        valid = asyncio.run(_load_valid(options))
        if valid is None:
            return 0
        loaded = valid
    else:
        loaded = _load(options["watches_file"], options)
    options |= free_places(options, unset)
    terminal = sys.stderr.isatty()
    settings = settings_from(options, os.environ, loaded.watches, terminal=terminal)
    warnings = warnings_from(options, os.environ, loaded.watches)
    for warning in (*loaded.warnings, *warnings, *_unused_files(options, Path.cwd())):
        _log.warning("Configuration", warning=warning)
    with output_thread.in_background():
        try:
            status = asyncio.run(operator.run(settings, loaded.watches, partial(_reload, options)))
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 (the last line of the process)
            if (reason := exhausted_resource(error)) is not None:
                _log.critical("Cannot run: a limit is reached", error=str(error), hint=reason)
            else:
                # The interpreter's own traceback would block on an error output that is not read.
                _log.critical("Internal error", exc_info=True)
            return 1
    if status is None:
        # A new process, because an operator has state in many places: work dir, fork server, ports.
        installation.wait_complete()
        arguments = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, arguments, os.environ | {_RESTARTED: "true"})  # noqa: S606 (no shell)
    return status


def _unused_files(options: dict[str, Any], folder: Path) -> Iterator[str]:
    """Yield warnings about settings and collections of the project that runs do not use."""
    config = folder / "ansible.cfg"
    used = config_file(os.environ)
    if config.is_file() and not (used and used.samefile(config)):
        yield (
            f"{config} is not read by runs, which have other working directories; set"
            f" ANSIBLE_CONFIG={config}, or remove it"
        )
    lookup = _lookup(options)
    bundled = [Path(operator_runner.__file__).parent / "collections", *map(Path, sys.path)]
    yield from replacements(lookup.collections, bundled, lambda name: find_spec(name) is not None)


def _lookup(options: dict[str, Any]) -> Lookup:
    roles, collections = options["ansible_roles_path"], options["ansible_collections_path"]
    return Lookup.of(os.environ, roles, collections)


async def _load_valid(options: dict[str, Any]) -> Loaded | None:
    """Read the watches after an edit; log problems and wait for a file without any.

    Return None if a signal ends the wait.
    """
    from operator_runner.app.signals import take_signals  # noqa: PLC0415 (slow import)

    stop, problems = asyncio.Event(), Deduplicator()
    take_signals(stop)
    while not stop.is_set():
        try:
            loaded = await asyncio.to_thread(_read, options["watches_file"], options)
            settings_from(options, os.environ, loaded.watches, terminal=False)
        except ConfigError as error:
            if problems.is_new(error.problems):
                for problem in error.problems:
                    _log.error("Watches file is invalid: waiting for an edit", error=problem)
        else:
            return loaded
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await stop.wait()
    return None


def _reload(options: dict[str, Any]) -> Sequence[Watch]:
    """Read the watches file again. Raises ConfigError if `run` could not be started with it."""
    watches = _read(options["watches_file"], options).watches
    settings_from(options, os.environ, watches, terminal=False)
    return watches


def _load(file: Path, options: dict[str, Any]) -> Loaded:
    """Read the watches; print what is wrong with them and exit with status 1."""
    try:
        return _read(file, options)
    except ConfigError as error:
        _exit_with_problems(error, "Failed to load watches.")


def _read(file: Path, options: dict[str, Any]) -> Loaded:
    """Read the watches. Raises ConfigError."""
    return load_watches({**options, "watches_file": file}, os.environ)


def _check_content(file: Path, loaded: Loaded, options: dict[str, Any]) -> list[Finding]:
    """Return what is wrong with roles and playbooks. Raises ConfigError."""
    # Imported here because it imports ansible-core, which takes a second and reads its settings: as
    # runs do, without an ansible.cfg in the working directory.
    if config := config_file(os.environ):
        os.environ["ANSIBLE_CONFIG"] = str(config)
    with tempfile.TemporaryDirectory() as empty, chdir(empty):
        from ansible.errors import AnsibleOptionsError  # noqa: PLC0415

        try:
            from operator_runner.tools.validate.check import check  # noqa: PLC0415
        except AnsibleOptionsError as error:
            raise ConfigError(f"cannot read the settings of Ansible: {error}") from error
    return check(loaded.watches, file.absolute(), _lookup(options))


def _exit_with_problems(error: ConfigError, summary: str = "") -> NoReturn:
    _print_warnings(error.warnings)
    for problem in error.problems:
        click.echo(f"Error: {problem}", err=True)
    if summary:
        click.echo(summary, err=True)
    sys.exit(1)


def _print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
