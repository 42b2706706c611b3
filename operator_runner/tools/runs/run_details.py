"""Read and print one run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from operator_runner.core.errors import NotFound
from operator_runner.core.model import Json
from operator_runner.core.texts import printable
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.records import query_of
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.client import InvalidResponse, OperatorClient
from operator_runner.tools.operator_api.discovery import Operators, checked, find_operators
from operator_runner.tools.resources.cluster import ClusterView, open_cluster
from operator_runner.tools.resources.options import ResourceName
from operator_runner.tools.resources.output import (
    OutputFormat,
    print_coloured,
    print_data,
    print_table,
)
from operator_runner.tools.resources.summary import time_of
from operator_runner.tools.runs.display import (
    REQUEST_HEADER,
    TASK_HEADER,
    change_lines,
    request_row,
    summary_lines,
    task_row,
)
from operator_runner.tools.runs.listing import newest, report_unavailable, warn_invalid

_MAX_OUTPUT_CHARACTERS = 8 * 1024 * 1024
"""An operator sends less."""


async def show_run(
    what: str | ResourceName,
    kubeconfig: Kubeconfig,
    namespace: str | None,
    work_dir: Path | None,
    *,
    output: OutputFormat,
    html: Path | None,
) -> int:
    """Print a run or write its report; return the exit status. Raises ApiError."""
    async with open_operators(kubeconfig, namespace, work_dir) as (cluster, operators):
        if not operators.clients:
            return report_unavailable(operators)
        run_id = await _run_id(cluster, operators, what)
        run, client = await find_run(operators, run_id)
        text = await read_output(client, run_id)
    if html is not None:
        from operator_runner.tools.runs.html_report import report  # noqa: PLC0415 (slow import)

        await asyncio.to_thread(html.write_text, report(run, text), encoding="utf-8")
        click.echo(f"Wrote {html}")
        return 0
    _print(run, text, output)
    return 0


async def print_output(
    what: str | ResourceName,
    kubeconfig: Kubeconfig,
    namespace: str | None,
    work_dir: Path | None,
    *,
    follow: bool,
) -> int:
    """Print the output of a run; return the exit status. Raises ApiError."""
    async with open_operators(kubeconfig, namespace, work_dir) as (cluster, operators):
        if not operators.clients:
            return report_unavailable(operators)
        run_id = await _run_id(cluster, operators, what)
        _, client = await find_run(operators, run_id)
        params = {"follow": "true"} if follow else {}
        async for text in client.text(f"/runs/{run_id}/output", params):
            click.echo(printable(text), nl=False)
    return 0


@asynccontextmanager
async def open_operators(
    kubeconfig: Kubeconfig, namespace: str | None, work_dir: Path | None
) -> AsyncIterator[tuple[ClusterView, Operators]]:
    """Connect to the cluster, and find its operators, or that of a work dir. Raises ApiError."""
    async with (
        open_cluster(kubeconfig, namespace) as cluster,
        find_operators(cluster.api, cluster.namespace, work_dir) as operators,
    ):
        yield cluster, operators


async def _run_id(cluster: ClusterView, operators: Operators, what: str | ResourceName) -> str:
    """Return an ID as it is, and that of the last run of a resource. Raises NotFound."""
    return what if isinstance(what, str) else await _last_run(cluster, operators, what)


async def _last_run(cluster: ClusterView, operators: Operators, name: ResourceName) -> str:
    query = {**query_of(cluster.find(name).ref), "limit": "1"}
    found = newest(await operators.collect("/runs", check_run, query))
    warn_invalid(operators)
    if not found:
        raise NotFound(f"no operator that answers has a run of {name.kind}/{name.name}")
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


def _print(run: Json, output_text: str, output: OutputFormat) -> None:
    if output.is_data:
        print_data({**run, "output": output_text}, output)
        return
    for line in summary_lines(run):
        click.echo(line)
    started = time_of(run.get("started"))
    if tasks := run.get("tasks"):
        click.echo("\nTasks:")
        print_table(TASK_HEADER, [task_row(each, started) for each in tasks])
    if changes := run.get("changes"):
        click.echo("\nChanged fields:")
        for line in change_lines(changes):
            colour = {"-": "red", "+": "green"}.get(line.strip()[:1])
            print_coloured(click.style(line, fg=colour) if colour else line)
    is_wide = output is OutputFormat.WIDE
    requests = [each for each in run.get("requests") or () if is_wide or each.get("refused")]
    if requests:
        click.echo("\nRequests:" if is_wide else "\nRefused requests:")
        print_table(REQUEST_HEADER, [request_row(each) for each in requests])
    if output_text.strip():
        click.echo(f"\nOutput:\n{printable(output_text).rstrip()}")
    if log := run.get("log"):
        click.echo("\nLog:")
        for line in log:
            click.echo(printable(line))
