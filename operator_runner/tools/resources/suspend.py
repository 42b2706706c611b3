"""Commands `operator-runner suspend` and `operator-runner resume`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from operator_runner.core.durations import format_duration
from operator_runner.core.errors import Forbidden, NotFound
from operator_runner.core.model import Json
from operator_runner.reconcile.conditions import conditions_by_type, is_suspended, read_conditions
from operator_runner.reconcile.request_annotations import (
    SUSPEND_ANNOTATION,
    Suspension,
    annotations_of,
    suspension,
)
from operator_runner.tools.resources.options import DurationType, complete
from operator_runner.tools.resources.output import OutputFormat
from operator_runner.tools.resources.targets import Results, Targets, target_options

if TYPE_CHECKING:
    from operator_runner.tools.resources.cluster import ClusterView, Deadline, NamedResource

_timeout_option = click.option(
    "--timeout",
    type=DurationType(),
    default="5s",
    show_default=True,
    help="Time to wait for the operator's answer; 0s does not wait.",
)


@click.command()
@target_options
@click.option("--cancel", is_flag=True, help="End the current run; else it runs to its end.")
@_timeout_option
def suspend(*, output: OutputFormat, cancel: bool, timeout: timedelta, **where: Any) -> None:
    """Suspend resources: no run starts until they are resumed.

    KIND is spelled as for kubectl: wikis, wiki, a short name, wiki.apps.example.com. A resource
    that is deleted meanwhile keeps its finalizer until it is resumed.
    """
    wanted = Suspension.CANCEL if cancel else Suspension.TRUE
    sys.exit(complete(_set(Targets(**where), wanted, timeout, output)))


@click.command()
@target_options
@_timeout_option
def resume(*, output: OutputFormat, timeout: timedelta, **where: Any) -> None:
    """Resume suspended resources, and run them now."""
    sys.exit(complete(_set(Targets(**where), Suspension.NONE, timeout, output)))


async def _set(
    targets: Targets, wanted: Suspension, within: timedelta, output: OutputFormat
) -> int:
    """Set or remove the annotation, and wait until operators show it; return the exit status."""
    # The API client is slow to import, and --help does not need it.
    from operator_runner.tools.resources.cluster import Deadline, open_cluster  # noqa: PLC0415

    results = Results(targets, output)
    async with open_cluster(targets.kubeconfig, targets.namespace) as cluster:
        changed: list[NamedResource] = []
        async for target in targets.find(cluster):
            try:
                if await _annotate(cluster, target, wanted, results):
                    changed.append(target)
            except (Forbidden, NotFound) as error:
                results.fail(target, error)
        if within:
            deadline = Deadline(within)
            await asyncio.gather(
                *(_wait(cluster, target, wanted, results, deadline) for target in changed)
            )
        results.end(cluster.namespace)
    return int(results.has_failed)


async def _annotate(
    cluster: ClusterView, target: NamedResource, wanted: Suspension, results: Results
) -> bool:
    """Set or remove the annotation; return whether that was a change."""
    before = suspension(annotations_of(await cluster.read(target)))
    word = "suspended" if wanted.value else "resumed"
    is_suspended_already = wanted is Suspension.TRUE and before is not Suspension.NONE
    if before is wanted or is_suspended_already:
        text = "is already suspended" if wanted.value else "is not suspended"
        results.add(target, text, "unchanged")
        return False
    await cluster.annotate(target, {SUSPEND_ANNOTATION: wanted.value or None})
    results.add(target, word, word)
    return True


async def _wait(
    cluster: ClusterView,
    target: NamedResource,
    wanted: Suspension,
    results: Results,
    deadline: Deadline,
) -> None:
    """Wait until a resource shows the suspension, or its end; print a warning if it does not."""
    shows = _shows_suspension if wanted.value else _shows_none
    try:
        if await cluster.wait(target, shows, deadline) is None:
            results.warn(target, _reason(await cluster.read(target), deadline.within))
    except NotFound as error:
        if wanted.value:
            results.fail(target, error)
    except Forbidden as error:
        results.fail(target, error)


def _shows_suspension(body: Json) -> bool:
    return is_suspended(read_conditions(body))


def _shows_none(body: Json) -> bool:
    return not _shows_suspension(body)


def _reason(body: Json, within: timedelta) -> str:
    """Return why the resource does not show the suspension, or still does."""
    conditions = conditions_by_type(body)
    if "Running" not in conditions:
        return (
            "no operator has written its conditions; the annotation is set, and takes effect "
            "when one watches the kind"
        )
    if (conditions["Running"]).get("reason") == "Running":
        return "the current run continues to its end; `suspend --cancel` cancels it"
    return (
        f"no operator has answered within {format_duration(within)}; the annotation is set, and "
        "takes effect when the operator runs, or has finished runs that occupy it"
    )
