"""Command `operator-runner migrate-storage`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from operator_runner.core.errors import ApiError, ConfigError
from operator_runner.core.exit_status import INTERRUPTED
from operator_runner.core.model import GVK
from operator_runner.tools.kubeconfig import Kubeconfig, kubeconfig_options


@click.command("migrate-storage")
@click.argument("crds", metavar="[CRD]...", nargs=-1)
@click.option(
    "--watches-file",
    default="./watches.yaml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Watches whose kinds are migrated if no CRD is named.",
)
@kubeconfig_options
@click.option("--dry-run", is_flag=True, help="Send each write with dryRun=All.")
def migrate_storage(
    crds: tuple[str, ...], watches_file: Path, kubeconfig: Kubeconfig, dry_run: bool
) -> None:
    """Rewrite all objects of CRDs in their storage version.

    A CRD is named PLURAL.GROUP. Its older versions can be removed afterwards. An interrupted
    migration resumes when the command is run again.
    """
    try:
        gvks = () if crds else _watched(watches_file)
        sys.exit(asyncio.run(_migrate(crds, gvks, kubeconfig, dry_run=dry_run)))
    except (ApiError, ConfigError) as error:
        raise click.ClickException(str(error)) from error


def _watched(file: Path) -> Sequence[GVK]:
    from operator_runner.config.watches import load  # noqa: PLC0415 (a second; not for --help)

    try:
        watches = load(file, os.environ).watches
    except ConfigError as error:
        raise ConfigError(*error.problems, "Or name the CRDs: PLURAL.GROUP") from error
    return [watch.gvk for watch in watches]


async def _migrate(
    names: Sequence[str], gvks: Sequence[GVK], kubeconfig: Kubeconfig, *, dry_run: bool
) -> int:
    # The API client is slow to import, and other commands do not need it.
    from rich.console import Console  # noqa: PLC0415

    from operator_runner.kube.api import Api  # noqa: PLC0415
    from operator_runner.kube.discovery import Discovery  # noqa: PLC0415
    from operator_runner.tools.storage_migration.display import Display  # noqa: PLC0415
    from operator_runner.tools.storage_migration.migrate import Migration, MigrationResult  # noqa: PLC0415

    display = Display(Console(), dry_run=dry_run)
    stop = _stop_on_signals(display.stopping)
    connection = await kubeconfig.connect()
    try:
        api = Api(connection)
        migration = Migration(api, display, stop.is_set, dry_run=dry_run)
        discovery = Discovery(api)
        found = [await discovery.resource(gvk) for gvk in gvks]
        of_watches = [f"{resource.plural}.{resource.gvk.group}" for resource in found]
        code = 0
        for name in dict.fromkeys([*names, *of_watches]):
            end = await migration.run(name)
            if end is MigrationResult.INTERRUPTED:
                return INTERRUPTED
            code |= end is MigrationResult.INCOMPLETE
        return code
    finally:
        display.close()
        await connection.close()


def _stop_on_signals(on_stop: Callable[[], None]) -> asyncio.Event:
    """Return an event that the first SIGINT or SIGTERM sets; a second one ends the process."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def take() -> None:
        stop.set()
        on_stop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, take)
    return stop
