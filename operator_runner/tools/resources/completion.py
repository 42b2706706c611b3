"""Complete kinds and names of resources in a shell, from the cluster of the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from operator_runner.core.errors import OperatorRunnerError

_TIMEOUT_SECONDS = 10.0
"""A shell waits for its completions; without an answer there are none."""


def complete_kinds(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the kinds of CRDs that begin with `incomplete`, or the names of a resource's kind."""
    if "/" in incomplete:
        return complete_names(context, incomplete)
    return _complete(context, lambda kinds: [kind for kind in kinds if kind.startswith(incomplete)])


def complete_names(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return `KIND/NAME` of the resources that begin with `incomplete`.

    As long as more than one kind is possible, their names are returned, with the slash.
    """
    kind, slash, _ = incomplete.partition("/")
    if slash:
        return _with_names(context, kind, incomplete)
    kinds = [item.value for item in _complete(context, lambda all_: [*all_])]
    possible = [each for each in kinds if each.startswith(incomplete)]
    if len(possible) == 1:
        return _with_names(context, possible[0], "")
    return [CompletionItem(f"{each}/") for each in possible]


def _with_names(context: click.Context, kind: str, incomplete: str) -> list[CompletionItem]:
    names = _run(context, kind)
    found = (f"{kind}/{name}" for name in names)
    return [CompletionItem(each) for each in found if each.startswith(incomplete)]


def _complete(
    context: click.Context, choose: Callable[[list[str]], list[str]]
) -> list[CompletionItem]:
    return [CompletionItem(each) for each in choose(_run(context, ""))]


def _run(context: click.Context, kind: str) -> list[str]:
    """Return the names of a kind's resources, or the plurals of all kinds; nothing on errors."""
    # Imported here because it is slow, and before the timeout begins.
    from operator_runner.tools.resources import listing  # noqa: PLC0415
    from operator_runner.tools.resources.cluster import ClusterView, open_cluster  # noqa: PLC0415

    async def read(cluster: ClusterView) -> list[str]:
        if not kind:
            return sorted({each.plural for each in listing.custom_kinds(cluster.served)})
        found = await listing.refs(cluster.api, cluster.resource(kind), cluster.namespace)
        return [each.name for each in found]

    async def run() -> list[str]:
        kubeconfig = context.params.get("kubeconfig")
        path = Path(kubeconfig) if kubeconfig else None
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            open_cluster(path, context.params.get("namespace")) as cluster,
        ):
            return await read(cluster)

    try:
        return asyncio.run(run())
    except (OperatorRunnerError, OSError, TimeoutError):
        return []
