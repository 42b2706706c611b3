"""Complete kinds, names, namespaces and runs in a shell, from the cluster of the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from operator_runner.core.errors import OperatorRunnerError
from operator_runner.tools.kubeconfig import kubeconfig_of

if TYPE_CHECKING:
    from operator_runner.tools.resources.cluster import ClusterView

_TIMEOUT_SECONDS = 10.0
"""A shell waits for its completions; without an answer there are none."""
_MAX_RUNS = "50"
_Item = TypeVar("_Item")


def complete_kinds(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the kinds of CRDs that begin with `incomplete`, and `KIND/NAME` if it is one kind."""
    kinds = [] if "/" in incomplete else _matching(_run(context, _kinds), incomplete)
    names = [] if len(kinds) > 1 else complete_names(context, incomplete)
    return [*map(CompletionItem, kinds), *names]


def complete_names(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return `KIND/NAME` of the resources that begin with `incomplete`.

    As long as more than one kind is possible, their names are returned, with the slash.
    """
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        possible = _matching(_run(context, _kinds), incomplete)
        if len(possible) != 1:
            return [CompletionItem(f"{each}/") for each in possible]
        kind = possible[0]

    async def read(cluster: ClusterView) -> list[str]:
        from operator_runner.tools.resources import listing  # noqa: PLC0415 (slow import)

        found = await listing.refs(cluster.api, cluster.resource(kind), cluster.namespace)
        return [f"{kind}/{each.name}" for each in found]

    names = _run(context, read)
    return [CompletionItem(each) for each in (_matching(names, incomplete) if slash else names)]


def complete_namespaces(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the namespaces that begin with `incomplete`."""

    async def read(cluster: ClusterView) -> list[str]:
        from operator_runner.kube.paging import list_pages  # noqa: PLC0415 (slow import)

        pages = list_pages(cluster.api, "/api/v1/namespaces")
        return [each["metadata"]["name"] async for page in pages for each in page["items"]]

    return [CompletionItem(each) for each in _matching(_run(context, read), incomplete)]


def complete_runs(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the IDs of runs that operators have, newest first, with resource and outcome."""

    async def read(cluster: ClusterView) -> list[CompletionItem]:
        from operator_runner.telemetry.runs.received import check_run  # noqa: PLC0415 (slow import)
        from operator_runner.tools.operator_api.discovery import find_operators  # noqa: PLC0415
        from operator_runner.tools.runs.display import resource_name, result  # noqa: PLC0415
        from operator_runner.tools.runs.listing import newest  # noqa: PLC0415

        work_dir = context.params.get("work_dir")
        async with find_operators(
            cluster.api, cluster.namespace, Path(work_dir) if work_dir else None
        ) as operators:
            found = newest(await operators.collect("/runs", check_run, {"limit": _MAX_RUNS}))
        return [
            CompletionItem(str(each["id"]), help=f"{resource_name(each)} {result(each)}")
            for each in found
            if str(each["id"]).startswith(incomplete)
        ]

    return _run(context, read)


async def _kinds(cluster: ClusterView) -> list[str]:
    from operator_runner.tools.resources import listing  # noqa: PLC0415 (slow import)

    return sorted({each.plural for each in listing.custom_kinds(cluster.served)})


def _matching(values: list[str], incomplete: str) -> list[str]:
    return [each for each in values if each.startswith(incomplete)]


def _run(
    context: click.Context, read: Callable[[ClusterView], Awaitable[list[_Item]]]
) -> list[_Item]:
    """Return what is read from the cluster of the command line; nothing on errors."""
    # Imported here because it is slow, and before the timeout begins.
    from operator_runner.tools.resources.cluster import open_cluster  # noqa: PLC0415

    async def run() -> list[_Item]:
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            open_cluster(kubeconfig_of(context), context.params.get("namespace")) as cluster,
        ):
            return await read(cluster)

    try:
        return asyncio.run(run())
    except (OperatorRunnerError, OSError, TimeoutError):
        return []
