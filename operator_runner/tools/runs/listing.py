"""Read and print lists of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from operator_runner.core.errors import ApiError, NotFound
from operator_runner.core.model import GVK, Json, uid_of
from operator_runner.core.texts import printable
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.records import RUNNING
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.discovery import Operators, checked, find_operators
from operator_runner.tools.resources.cluster import ClusterView, open_cluster
from operator_runner.tools.resources.options import ResourceName
from operator_runner.tools.resources.output import (
    EXIT_UNANSWERED,
    OutputFormat,
    print_data,
    print_document,
    print_row,
    print_table,
)
from operator_runner.tools.runs.display import HEADER, WIDE_HEADER, row

DELETED = "deleted"
"""Outcome of a run that its operator has dropped with its resource."""
_DELETED_TEXT = "the resource was deleted, and its runs with it"
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Listing:
    """The runs that a user wants to see, and how."""

    wanted: str | None
    namespace: str | None
    everywhere: bool
    limit: int
    output: OutputFormat

    async def run(self, kubeconfig: Kubeconfig, work_dir: Path | None, *, watch: bool) -> int:
        """Print the runs; return the exit status. Raises ApiError and ConfigError."""
        async with (
            open_cluster(kubeconfig, self.namespace) as cluster,
            find_operators(cluster.api, cluster.namespace, work_dir) as operators,
        ):
            query = self._query(cluster)
            found = await self._read(operators, query)
            if not operators.clients:
                return report_unavailable(operators)
            widths = self._print(cluster, found, watch=watch)
            if watch:
                await self._watch(cluster, operators, query, found, widths)
            return 0

    def _query(self, cluster: ClusterView) -> dict[str, str]:
        """Return the query of the API. Raises ConfigError for an unknown kind."""
        query = {} if self.everywhere else {"namespace": cluster.namespace}
        if self.wanted:
            name = ResourceName.parse(self.wanted) if "/" in self.wanted else None
            resource = cluster.resource(name.kind if name else self.wanted)
            query |= {"group": resource.gvk.group, "kind": resource.gvk.kind}
            if not resource.namespaced:
                query.pop("namespace", None)
            if name:
                query["name"] = name.name
        return query

    async def _read(self, operators: Operators, query: dict[str, str]) -> list[Json]:
        params = {**query, "limit": str(self.limit)}
        found = await operators.collect("/runs", check_run, params)
        warn_invalid(operators)
        return newest(without_repetitions(found))[: self.limit]

    def _print(self, cluster: ClusterView, found: Sequence[Json], *, watch: bool) -> list[int]:
        """Print runs; return the widths of the columns."""
        if self.output.is_data:
            if watch:
                for each in reversed(found):
                    print_document(each, self.output)
            else:
                print_data({"items": list(found)}, self.output)
            return []
        if self.output is OutputFormat.NAME:
            for each in reversed(found) if watch else found:
                click.echo(str(each["id"]))
            return []
        header = WIDE_HEADER if self.output is OutputFormat.WIDE else HEADER
        if not found:
            click.echo("No runs found.", err=True)
        rows = [self._row(cluster, each) for each in found]
        return (
            print_table(("NAMESPACE", *header) if self.everywhere else header, rows) if rows else []
        )

    def _row(self, cluster: ClusterView, run: Json) -> tuple[str, ...]:
        cells = row(
            run,
            datetime.now(UTC),
            is_wide=self.output is OutputFormat.WIDE,
            with_group=cluster.is_ambiguous(str(run["resource"].get("kind"))),
        )
        return (str(run["resource"].get("namespace") or "-"), *cells) if self.everywhere else cells

    async def _watch(
        self,
        cluster: ClusterView,
        operators: Operators,
        query: dict[str, str],
        found: list[Json],
        widths: list[int],
    ) -> None:
        """Print each run that begins or ends, without end. Raises ApiError if none answers."""
        shown = {each["id"]: each for each in found}
        while operators.clients:
            await asyncio.sleep(_POLL_SECONDS)
            listed = await self._read(operators, query)
            ids = {each["id"] for each in listed}
            lost = [
                await unlisted_run(cluster, operators, run)
                for run in shown.values()
                if run["outcome"] == RUNNING and run["id"] not in ids
            ]
            for each in (*lost, *reversed(listed)):
                before = shown.get(each["id"])
                if before is not None and before["outcome"] == each["outcome"]:
                    continue
                shown[each["id"]] = each
                if widths:
                    print_row(self._row(cluster, each), widths)
                else:
                    widths = self._print(cluster, [each], watch=True)
        raise ApiError(operators.reason)


async def unlisted_run(cluster: ClusterView, operators: Operators, run: Json) -> Json:
    """Return a run in progress that operators no longer list, as it is now.

    Operators drop the runs of a deleted resource: the outcome is then `deleted`. While the end
    cannot be known, the run stays as it was.
    """
    client = next((each for each in operators.clients if each.name == run.get("operator")), None)
    if client is None:
        return run
    try:
        return checked(client, await client.get(f"/runs/{run['id']}"), check_run)
    except NotFound:
        is_deleted = await _is_deleted(cluster, run["resource"])
    except ApiError:
        return run
    return {**run, "outcome": DELETED, "message": _DELETED_TEXT} if is_deleted else run


async def _is_deleted(cluster: ClusterView, resource: Json) -> bool:
    """Return whether a resource of a run does not exist, or is another one of the same name."""
    gvk = GVK.of(str(resource["apiVersion"]), str(resource["kind"]))
    kind = next((each for each in cluster.served if each.gvk == gvk), None)
    if kind is None:
        return False
    path = kind.path(str(resource.get("namespace") or ""), str(resource["name"]))
    try:
        body = await cluster.api.request("GET", path)
    except NotFound:
        return True
    except ApiError:
        return False
    return resource.get("uid") not in {None, uid_of(body)}


def without_repetitions(found: Sequence[Json]) -> list[Json]:
    """Return each run once, as the first operator has it."""
    first: dict[str, Json] = {}
    for each in found:
        first.setdefault(str(each["id"]), each)
    return list(first.values())


def newest(found: Sequence[Json]) -> list[Json]:
    """Return runs in the order of their starts, the last one first."""
    return sorted(found, key=lambda each: str(each.get("started") or ""), reverse=True)


def warn_invalid(operators: Operators) -> None:
    """Print which operators sent invalid responses, each once."""
    for fault in operators.invalid:
        click.echo(f"Warning: {printable(fault)}", err=True)
    operators.invalid.clear()


def report_unavailable(operators: Operators) -> int:
    """Print that no operator answers, and why; return the exit status."""
    click.echo(
        f"Error: no operator answers: {printable(operators.reason)}. "
        "`operator-runner why KIND/NAME` lists the runs in Events of the cluster.",
        err=True,
    )
    return EXIT_UNANSWERED
