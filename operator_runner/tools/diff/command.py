"""Command `operator-runner diff`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from operator_runner.config.flags.options import RunCommand, lookup_options, run_options
from operator_runner.config.flags.values import load_watches, settings_from
from operator_runner.core.errors import ApiError, ConfigError
from operator_runner.core.model import ObjectRef, Watch
from operator_runner.core.settings import Address, ExecutorName, Settings
from operator_runner.telemetry import logs
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.resources.options import (
    DurationType,
    KindOrNameType,
    ResourceName,
    cluster_options,
    diff_output_option,
)
from operator_runner.tools.resources.output import OutputFormat, print_coloured, print_data
from operator_runner.tools.resources.targets import check_selection

if TYPE_CHECKING:
    from operator_runner.reconcile.preview import Preview
    from operator_runner.tools.diff.project import ProjectPreview, WatchedResource

_DIFFERENT, _ERROR = 1, 2
"""Exit statuses, as those of `kubectl diff`."""


@dataclass(frozen=True, slots=True)
class _DiffOptions:
    """The resources to preview, and the format."""

    wanted: str
    all_namespaces: bool
    namespace: str | None
    timeout: timedelta
    output: OutputFormat


@click.command()
@click.argument(
    "wanted", metavar="[KIND/NAME | KIND]", default="", required=False, type=KindOrNameType()
)
@click.option(
    "--all",
    "all_",
    is_flag=True,
    help="All resources of the watches, or of KIND, in the namespace.",
)
@click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="All resources of the watches, or of KIND, in all namespaces or those of WATCH_NAMESPACE.",
)
@click.option(
    "--project",
    default=".",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with watches.yaml and roles.",
    show_default=True,
)
@click.option(
    "--executor",
    type=click.Choice(["warm", "cold"]),
    default=None,
    help="Way of running plays.  [default: cold for one resource, else warm]",
)
@click.option(
    "--timeout",
    default="10m",
    type=DurationType(),
    help="Maximum duration of a run without a timeout of its own.",
    show_default=True,
)
@diff_output_option
@lookup_options
@cluster_options
def diff(
    *,
    wanted: str,
    project: Path,
    executor: ExecutorName | None,
    timeout: timedelta,
    output: OutputFormat,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    all_: bool,
    all_namespaces: bool,
    **lookup: Any,
) -> None:
    """Preview what the role of a resource would change.

    The role runs, and each of its writes is a dry run, also by kubectl and helm. Nothing is
    written. Exit status: 0 without differences, 1 with differences, 2 after an error.
    """
    if wanted:
        check_selection(wanted, all_=all_, all_namespaces=all_namespaces)
    elif not (all_ or all_namespaces):
        raise click.UsageError("name one resource as KIND/NAME, or add --all or --all-namespaces")
    logs.configure(None, "error")
    kubeconfig = kubeconfig.absolute()
    os.chdir(project)
    options = _DiffOptions(wanted, all_namespaces, namespace, timeout, output)
    try:
        with tempfile.TemporaryDirectory(prefix="operator-runner-diff-") as work_dir:
            kind: ExecutorName = executor or ("cold" if "/" in wanted else "warm")
            settings, watches = _settings(Path(work_dir), kind, lookup)
            status = asyncio.run(_diff(settings, watches, kubeconfig, options))
    except (ApiError, ConfigError, OSError) as error:
        _fail(error)
    sys.exit(status)


def _fail(error: Exception) -> NoReturn:
    problems = error.problems if isinstance(error, ConfigError) else (str(error),)
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    sys.exit(_ERROR)


@click.command(cls=RunCommand)
@run_options
def _run_flags(**_options: Any) -> None:
    """Take the flags of `run`, for their defaults."""


def _settings(
    work_dir: Path, executor: ExecutorName, lookup: dict[str, Any]
) -> tuple[Settings, tuple[Watch, ...]]:
    """Return the settings of a project beside its operator. Raises ConfigError."""
    options = {**_run_flags.make_context("run", []).params, **lookup, "executor": executor}
    watches = load_watches(options, os.environ).watches
    settings = settings_from(options, os.environ, watches)
    return replace(settings, proxy=Address("127.0.0.1", 0), work_dir=work_dir / "runs"), watches


async def _diff(
    settings: Settings, watches: tuple[Watch, ...], kubeconfig: Kubeconfig, options: _DiffOptions
) -> int:
    """Print the differences as they are found; return the exit status."""
    # Imported here because it takes a second, and `--help` does not need it.
    from operator_runner.tools.diff.project import (  # noqa: PLC0415
        as_json,
        open_project,
        painted,
        preview_lines,
        summary,
        with_relative_paths,
    )

    previews: list[Preview] = []
    async with open_project(settings, watches, kubeconfig) as project:
        async for resource in _resources(project, options):
            if options.output is OutputFormat.TABLE:
                click.echo(f"{ObjectRef.of_kind(resource.watch.gvk, resource.body)}:", err=True)
            found = await project.preview(resource, options.timeout)
            preview = with_relative_paths(found, Path.cwd())
            previews.append(preview)
            if options.output is OutputFormat.TABLE:
                for line in preview_lines(preview):
                    print_coloured(painted(line))
            if preview.failure:
                click.echo(f"Error: {preview.ref}: {preview.failure}", err=True)
        for reason in () if options.wanted else project.missing:
            click.echo(f"Warning: {reason}", err=True)
        for reason in project.forbidden:
            click.echo(f"Error: {reason}", err=True)
    if options.output is OutputFormat.TABLE:
        click.echo(summary(previews), err=True)
    else:
        print_data({"items": [as_json(each) for each in previews]}, options.output)
    if project.forbidden or any(each.failure for each in previews):
        return _ERROR
    return _DIFFERENT if any(each.differences for each in previews) else 0


async def _resources(
    project: ProjectPreview, options: _DiffOptions
) -> AsyncIterator[WatchedResource]:
    if "/" in options.wanted:
        yield await project.find(ResourceName.parse(options.wanted), options.namespace)
        return
    everywhere = options.all_namespaces
    async for resource in project.all(options.wanted, options.namespace, everywhere=everywhere):
        yield resource
