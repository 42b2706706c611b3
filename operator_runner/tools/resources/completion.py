"""Complete kinds, names and namespaces in a shell, from the cluster of the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from operator_runner.core.errors import OperatorRunnerError
from operator_runner.tools.kubeconfig import kubeconfig_of

if TYPE_CHECKING:
    from operator_runner.tools.resources.cluster import ClusterView

_TIMEOUT_SECONDS = 10.0
"""A shell waits for its completions; without an answer there are none."""
_Item = TypeVar("_Item")


def complete_kinds(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the kinds of CRDs that begin with `incomplete`, and `KIND/NAME` if it is one kind."""
    kinds = [] if "/" in incomplete else _matching(read_cluster(context, _kinds), incomplete)
    names = [] if len(kinds) > 1 else complete_names(context, incomplete)
    return [*map(CompletionItem, kinds), *names]


def complete_names(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return `KIND/NAME` of the resources that begin with `incomplete`.

    As long as more than one kind is possible, their names are returned, with the slash.
    """
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        possible = _matching(read_cluster(context, _kinds), incomplete)
        if len(possible) != 1:
            return [CompletionItem(f"{each}/") for each in possible]
        kind = possible[0]

    async def read(cluster: ClusterView) -> list[str]:
        from operator_runner.tools.resources import listing  # noqa: PLC0415 (slow import)

        found = await listing.refs(cluster.api, cluster.resource(kind), cluster.namespace)
        return [f"{kind}/{each.name}" for each in found]

    names = read_cluster(context, read)
    return [CompletionItem(each) for each in (_matching(names, incomplete) if slash else names)]


def complete_namespaces(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the namespaces that begin with `incomplete`."""

    async def read(cluster: ClusterView) -> list[str]:
        from operator_runner.kube.paging import list_pages  # noqa: PLC0415 (slow import)

        pages = list_pages(cluster.api, "/api/v1/namespaces")
        return [each["metadata"]["name"] async for page in pages for each in page["items"]]

    return [CompletionItem(each) for each in _matching(read_cluster(context, read), incomplete)]


async def _kinds(cluster: ClusterView) -> list[str]:
    from operator_runner.tools.resources import listing  # noqa: PLC0415 (slow import)

    # Where groups share a kind, its plural alone is that of the first group.
    return sorted(
        f"{each.plural}.{each.gvk.group}" if cluster.is_ambiguous(each.gvk.kind) else each.plural
        for each in listing.custom_kinds(cluster.served)
    )


def _matching(values: list[str], incomplete: str) -> list[str]:
    return [each for each in values if each.startswith(incomplete)]


def read_cluster(
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
