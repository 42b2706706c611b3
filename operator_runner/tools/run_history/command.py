"""Command `operator-runner why KIND/NAME`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from operator_runner.core.errors import ApiError, ConfigError


@click.command()
@click.argument("resource", metavar="KIND/NAME")
@click.option(
    "-n", "--namespace", default=None, help="Namespace.  [default: that of the kubeconfig]"
)
@click.option(
    "--kubeconfig",
    default=None,
    type=click.Path(path_type=Path),
    help="Kubeconfig.  [default: KUBECONFIG, the Pod's own, ~/.kube/config]",
)
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
    resource: str, namespace: str | None, kubeconfig: Path | None, work_dir: Path | None, limit: int
) -> None:
    """List the last runs of a resource with their causes, newest first."""
    kind, slash, name = resource.partition("/")
    if not (kind and slash and name) or "/" in name:
        raise click.BadParameter(f"{resource!r}; write KIND/NAME, such as NginxOperator/web")
    # The API client is slow to import, and other commands do not need it.
    from operator_runner.tools.run_history.sources import from_events, from_files  # noqa: PLC0415

    try:
        if work_dir is not None:
            lines = from_files(work_dir, kind, namespace, name)
        else:
            lines = asyncio.run(from_events(kubeconfig, kind, namespace, name))
    except (ApiError, ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not lines:
        raise click.ClickException(_nothing(resource, namespace, work_dir))
    for line in lines[:limit]:
        click.echo(line)


def _nothing(resource: str, namespace: str | None, work_dir: Path | None) -> str:
    if work_dir is not None:
        return f"no run of {resource} is kept in {work_dir}; check kind, name and -n"
    place = f"namespace {namespace}" if namespace else "the kubeconfig's namespace"
    return (
        f"no Events about {resource} in {place}; they expire, and a run that changes nothing"
        " makes none: check -n, or read the operator's own --work-dir in its container"
    )
