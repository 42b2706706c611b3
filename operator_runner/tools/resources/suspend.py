"""Commands `operator-runner suspend` and `operator-runner resume`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from operator_runner.core.durations import format_duration
from operator_runner.core.model import Json
from operator_runner.reconcile.conditions import is_suspended, read_conditions
from operator_runner.reconcile.user_requests import (
    SUSPEND_ANNOTATION,
    Suspension,
    annotations_of,
    suspension,
)
from operator_runner.tools.resources.options import (
    DurationType,
    Names,
    cluster_options,
    complete,
    names_argument,
)

_timeout_option = click.option(
    "--timeout",
    type=DurationType(),
    default="5s",
    show_default=True,
    help="Time to wait for the operator's answer; 0s does not wait.",
)


@click.command()
@names_argument
@cluster_options
@click.option("--cancel", is_flag=True, help="End the current run; else it runs to its end.")
@_timeout_option
def suspend(
    names: Names, namespace: str | None, kubeconfig: Path | None, cancel: bool, timeout: timedelta
) -> None:
    """Suspend a resource: no run starts until it is resumed.

    KIND is spelled as for kubectl: wikis, wiki, a short name, wiki.apps.example.com. A resource
    that is deleted meanwhile keeps its finalizer until it is resumed.
    """
    wanted = Suspension.CANCEL if cancel else Suspension.TRUE
    complete(_set(names, namespace, kubeconfig, wanted, timeout))


@click.command()
@names_argument
@cluster_options
@_timeout_option
def resume(
    names: Names, namespace: str | None, kubeconfig: Path | None, timeout: timedelta
) -> None:
    """Resume a suspended resource, and run it now."""
    complete(_set(names, namespace, kubeconfig, Suspension.NONE, timeout))


async def _set(
    names: Names,
    namespace: str | None,
    kubeconfig: Path | None,
    wanted: Suspension,
    within: timedelta,
) -> None:
    # The API client is slow to import, and --help does not need it.
    from operator_runner.tools.resources.cluster import Target, open_cluster  # noqa: PLC0415

    word = "resumed" if wanted is Suspension.NONE else "suspended"
    annotation = {SUSPEND_ANNOTATION: wanted.value or None}
    async with open_cluster(kubeconfig, namespace) as cluster:
        changed: list[Target] = []
        for target in map(cluster.find, names):
            before = suspension(annotations_of(await cluster.read(target)))
            is_suspended_already = wanted is Suspension.TRUE and before is not Suspension.NONE
            if before is wanted or is_suspended_already:
                click.echo(
                    f"{target} is already {word}" if wanted.value else f"{target} is not suspended"
                )
                continue
            await cluster.annotate(target, annotation)
            click.echo(f"{target} {word}")
            changed.append(target)
        if not within:
            return
        for target in changed:
            shows = _shows_suspension if wanted.value else _shows_none
            seconds = within.total_seconds()
            if await cluster.wait(target, shows, seconds) is None:
                body = await cluster.read(target)
                click.echo(f"Warning: {target}: {_reason(body, within)}", err=True)


def _shows_suspension(body: Json) -> bool:
    return is_suspended(read_conditions(body))


def _shows_none(body: Json) -> bool:
    return not _shows_suspension(body)


def _reason(body: Json, within: timedelta) -> str:
    """Return why the resource does not show the suspension, or still does."""
    conditions = {each.get("type"): each for each in read_conditions(body)}
    if "Running" not in conditions:
        return (
            "no operator has written its conditions; the annotation is set, and takes effect "
            "when one watches the kind"
        )
    if (conditions["Running"]).get("reason") == "Running":
        return "a run is under way, which ends by itself; `suspend --cancel` ends it"
    return (
        f"no operator has answered within {format_duration(within)}; the annotation is set, and "
        "takes effect when the operator is back"
    )
