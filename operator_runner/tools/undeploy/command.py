"""Command `operator-runner undeploy`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import click

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json, ObjectRef
from operator_runner.tools.kubeconfig import Kubeconfig, kubeconfig_options
from operator_runner.tools.undeploy.removal import (
    Definition,
    RemovalPlan,
    deletion_lines,
    plan_for,
    remaining_lines,
)
from operator_runner.tools.yaml_io import read_objects, select_objects

_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")


@click.command()
@click.argument(
    "path", default="config/default", type=click.Path(path_type=Path, exists=True, allow_dash=True)
)
@click.option("--with-crds", is_flag=True, help="Delete the CRDs too, with all their resources.")
@click.option("--yes", is_flag=True, help="Skip the confirmation of --with-crds.")
@click.option(
    "--kustomize",
    default="",
    help="Command that renders PATH if it has a kustomization.  [default: kubectl kustomize]",
)
@kubeconfig_options
@click.option(
    "--timeout",
    "timeout_seconds",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds to wait for the deletion of Pods and resources.",
)
def undeploy(path: Path, kustomize: str, kubeconfig: Kubeconfig, **options: Any) -> None:
    """Delete the objects in the manifests of PATH, except CRDs.

    A namespace is deleted if it contains nothing else.
    """
    plan = plan_for(_objects(path, kustomize))
    asyncio.run(_undeploy(plan, kubeconfig, **options))


async def _undeploy(
    plan: RemovalPlan,
    kubeconfig: Kubeconfig,
    *,
    with_crds: bool,
    yes: bool,
    timeout_seconds: float,
) -> None:
    # The API client is slow to import, and --help does not need it.
    from operator_runner.kube.api import Api  # noqa: PLC0415
    from operator_runner.kube.discovery import Discovery  # noqa: PLC0415
    from operator_runner.tools.undeploy.removal import (  # noqa: PLC0415
        Inventory,
        Removal,
    )

    connection = await kubeconfig.connect()
    try:
        api = Api(connection)
        discovery = Discovery(api)
        inventory = Inventory(api, discovery)
        definitions = await inventory.definitions(plan.crds)
        if with_crds:
            _ask(await inventory.with_owned(definitions), connection.server, sure=yes)
        await Removal(api, discovery, click.echo, timeout_seconds).remove(plan, with_crds=with_crds)
    finally:
        await connection.close()
    if not with_crds:
        for line in remaining_lines(definitions):
            click.echo(line)


def _ask(definitions: list[Definition], server: str, *, sure: bool) -> None:
    """Print the objects to delete and ask for confirmation. Raises ConfigError if it is denied."""
    for line in deletion_lines(definitions):
        click.echo(line)
    if sure or not definitions:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "--with-crds needs a confirmation, but there is no terminal; nothing was deleted. Add"
            " --yes in scripts"
        )
    if not click.confirm(f"Delete all of this on {server}?"):
        raise ConfigError("nothing was deleted")


def _objects(path: Path, command: str) -> list[ObjectRef]:
    """Return the objects of a file, of a directory's files, or of a rendered kustomization.

    Raises ConfigError if there are none.
    """
    bodies: list[Json]
    if path.is_dir() and any((path / name).exists() for name in _KUSTOMIZATIONS):
        from operator_runner.tools import kustomize  # noqa: PLC0415 (slow import)

        bodies = [*select_objects(kustomize.render(path, command, os.environ), str(path))]
    else:
        bodies = read_objects([path])
    if not bodies:
        raise ConfigError(
            f"{path}: no manifests found; name their file or directory, or a kustomization"
        )
    return [ObjectRef.of(body) for body in bodies]
