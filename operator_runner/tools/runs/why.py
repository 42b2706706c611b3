"""Command `operator-runner why KIND/NAME`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import click

from operator_runner.core.errors import ApiError, ConfigError
from operator_runner.telemetry.printable import printable
from operator_runner.tools.resources.options import (
    Name,
    NameType,
    cluster_options,
    data_output_option,
)
from operator_runner.tools.resources.output import Format, print_data

_INDENT = " " * 4


@click.command()
@click.argument("resource", metavar="KIND/NAME", type=NameType())
@cluster_options
@data_output_option
@click.option(
    "--work-dir",
    default=None,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Read an operator's work dir instead of Events, such as /tmp/ansible-operator/runner.",
)
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Maximum lines."
)
def why(
    *,
    resource: Name,
    namespace: str | None,
    kubeconfig: Path | None,
    output: Format,
    work_dir: Path | None,
    limit: int,
) -> None:
    """List the last runs of a resource with their causes, newest first.

    KIND is spelled as for kubectl: wikis, wiki, a short name, wiki.apps.example.com.
    """
    kind, name = resource.kind, resource.name
    # The API client is slow to import, and other commands do not need it.
    from operator_runner.tools.runs.past_runs import (  # noqa: PLC0415
        from_events,
        from_files,
    )

    try:
        if work_dir is not None:
            history = from_files(work_dir, kind, namespace, name, kubeconfig)
        else:
            history = asyncio.run(from_events(kubeconfig, kind, namespace, name))
    except (ApiError, ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if output is not Format.TABLE:
        found = [each.as_json() for each in history.lines[:limit]]
        print_data({"suspended": history.suspended, "items": found}, output)
        return
    if history.suspended:
        click.echo(f"Suspended: no run starts until `operator-runner resume {kind}/{name}`.")
    if not history.lines:
        click.echo(_quiet(str(history.ref), work_dir))
        return
    now = datetime.now(UTC)
    click.echo(history.header)
    for line in history.lines[:limit]:
        click.echo(line.text(now, history.replica_width))
    if (rerun := history.rerun) is not None:
        heading = f"To repeat run {rerun.run_id} with your kubeconfig:"
        click.echo(f"\n{heading}\n\n{_INDENT}{printable(rerun.command)}")


def _quiet(resource: str, work_dir: Path | None) -> str:
    if work_dir is not None:
        return f"No runs of {resource} are recorded in {work_dir}."
    return (
        f"No runs of {resource} yet, or none that is recorded: Events expire, and unchanged runs "
        "emit none. An operator's --work-dir has all runs; its log shows what it waits for."
    )
