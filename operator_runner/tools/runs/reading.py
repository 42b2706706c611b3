"""Read runs from operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from operator_runner.core.errors import ApiError, NotFound
from operator_runner.core.model import GVK, Json, uid_of
from operator_runner.core.texts import printable
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.records import query_of
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.client import InvalidResponse, OperatorClient
from operator_runner.tools.operator_api.discovery import Operators, checked
from operator_runner.tools.operator_api.run_history import read_records, regards
from operator_runner.tools.resources.cluster import ClusterView, open_cluster
from operator_runner.tools.resources.options import ResourceName
from operator_runner.tools.resources.output import EXIT_UNANSWERED

DELETED = "deleted"
"""Outcome of a run that its operator has dropped with its resource."""
_DELETED_TEXT = "the resource was deleted, and its runs with it"
_MAX_OUTPUT_CHARACTERS = 8 * 1024 * 1024
"""An operator sends less."""


@asynccontextmanager
async def open_operators(
    kubeconfig: Kubeconfig, namespace: str | None, work_dir: Path | None
) -> AsyncIterator[tuple[ClusterView, Operators]]:
    """Connect to the cluster, and find its operators, or that of a work dir. Raises ApiError."""
    async with (
        open_cluster(kubeconfig, namespace) as cluster,
        cluster.find_operators(work_dir) as operators,
    ):
        yield cluster, operators


async def run_id_of(cluster: ClusterView, operators: Operators, what: str | ResourceName) -> str:
    """Return an ID as it is, and that of the last run of a resource. Raises NotFound."""
    if isinstance(what, str):
        return what
    found = await read_records(operators, query_of(cluster.find(*what).ref) | {"limit": "1"})
    warn_invalid(operators)
    if not found:
        raise NotFound(f"no operator that answers has a run of {what.kind}/{what.name}")
    return str(found[0]["id"])


async def find_run(operators: Operators, run_id: str) -> tuple[Json, OperatorClient]:
    """Return a run and the first operator that has it. Raises NotFound."""
    if not run_id.isalnum():
        raise NotFound(f"invalid run {run_id!r}: write the ID of a run, such as 4f0c19d2a8b3e671")
    for client in list(operators.clients):
        try:
            return await read_run(client, run_id), client
        except NotFound:
            continue
        except InvalidResponse as error:
            operators.drop(client, error)
            warn_invalid(operators)
    raise NotFound(
        f"run {run_id} is not kept by an operator that answers; to list those that are: "
        "operator-runner runs --all-namespaces"
    )


async def read_run(client: OperatorClient, run_id: str) -> Json:
    """Return a run of an operator. Raises NotFound and other ApiErrors."""
    run = checked(client, await client.get(f"/runs/{run_id}"), check_run)
    if run["id"] != run_id:
        raise InvalidResponse(client.name, "another run")
    return run


async def read_output(client: OperatorClient, run_id: str) -> str:
    """Return the output of a run so far. Raises ApiError."""
    parts, size = list[str](), 0
    async for text in client.text(f"/runs/{run_id}/output", {}):
        parts.append(text)
        size += len(text)
        if size > _MAX_OUTPUT_CHARACTERS:
            raise InvalidResponse(
                client.name, f"output of more than {_MAX_OUTPUT_CHARACTERS} bytes"
            )
    return "".join(parts)


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
    return not regards(resource, uid_of(body))


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
