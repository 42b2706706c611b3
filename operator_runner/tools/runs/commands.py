"""Command `operator-runner runs` and its subcommands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from operator_runner.core.errors import ApiError
from operator_runner.core.model import Json
from operator_runner.core.texts import printable
from operator_runner.telemetry.runs.records import RUNNING
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.discovery import Operators
from operator_runner.tools.operator_api.run_history import read_records
from operator_runner.tools.resources.cluster import ClusterView
from operator_runner.tools.resources.options import (
    KindOrNameType,
    NameType,
    ResourceName,
    cluster_options,
    complete,
    list_output_option,
    output_option,
    work_dir_option,
)
from operator_runner.tools.resources.output import (
    OutputFormat,
    print_coloured,
    print_data,
    print_document,
    print_row,
    print_table,
)
from operator_runner.tools.resources.summary import time_of
from operator_runner.tools.runs.display import (
    HEADER,
    REQUEST_HEADER,
    TASK_HEADER,
    WIDE_HEADER,
    change_lines,
    request_row,
    row,
    summary_lines,
    task_row,
)
from operator_runner.tools.runs.html_report import report
from operator_runner.tools.runs.reading import (
    find_run,
    open_operators,
    read_output,
    report_unavailable,
    run_id_of,
    unlisted_run,
    warn_invalid,
)

_POLL_SECONDS = 1.0


class IdOrNameType(click.ParamType[str | ResourceName]):
    """An argument ID of a run, or KIND/NAME."""

    name = "ID"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | ResourceName:
        """Return the ID or the name; end with a usage error for an invalid name."""
        is_id = isinstance(value, str) and "/" not in value
        return str(value) if is_id else NameType().convert(value, param, ctx)


class _ListsByDefault(click.Group):
    """A group whose command is `list` unless its first argument is a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list`; --help stays that of the group."""
        if not args or args[0] not in {*self.commands, "--help", "-h"}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListsByDefault)
def runs() -> None:
    """List runs of operators, and show one of them.

    `operator-runner runs [KIND/NAME]` is the same as `operator-runner runs list [KIND/NAME]`.
    """


@runs.command("list")
@click.argument("wanted", metavar="[KIND | KIND/NAME]", required=False, type=KindOrNameType())
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Runs of all namespaces.")
@list_output_option
@click.option("-w", "--watch", is_flag=True, help="List, then print each change until interrupted.")
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1, 500), help="Maximum runs."
)
@work_dir_option
def list_runs(
    wanted: str | None,
    *,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    output: OutputFormat,
    limit: int,
    work_dir: Path | None,
    all_namespaces: bool,
    watch: bool,
) -> None:
    """List the last runs, newest first.

    They are those of all resources, of a kind or of one resource. The exit status is 3 if no
    operator answers.
    """
    if all_namespaces and wanted and "/" in wanted:
        raise click.UsageError("KIND/NAME excludes --all-namespaces; use --namespace")

    async def work() -> int:
        async with open_operators(kubeconfig, namespace, work_dir) as (cluster, operators):
            listing = _Listing(
                cluster,
                operators,
                {**_query(cluster, wanted, everywhere=all_namespaces), "limit": str(limit)},
                all_namespaces,
                limit,
                output,
            )
            found = await listing.read()
            if not operators.clients:
                return report_unavailable(operators)
            listing.print(found, watch=watch)
            if watch:
                await listing.watch(found)
            return 0

    raise SystemExit(complete(work()))


def _query(cluster: ClusterView, wanted: str | None, *, everywhere: bool) -> dict[str, str]:
    """Return the query of the API for a kind or KIND/NAME. Raises ConfigError for unknown kinds."""
    query = {} if everywhere else {"namespace": cluster.namespace}
    if wanted:
        kind, _, name = wanted.partition("/")
        resource = cluster.resource(kind)
        query |= {"group": resource.gvk.group, "kind": resource.gvk.kind}
        if not resource.namespaced:
            query.pop("namespace", None)
        if name:
            query["name"] = name
    return query


@dataclass(slots=True)
class _Listing:
    """The runs that a user wants to see, and how."""

    cluster: ClusterView
    operators: Operators
    query: dict[str, str]
    everywhere: bool
    limit: int
    output: OutputFormat
    _widths: list[int] = field(default_factory=list)
    """Of the columns of the table, once it has a row."""

    async def read(self) -> list[Json]:
        """Return the runs, newest first."""
        found = await read_records(self.operators, self.query)
        warn_invalid(self.operators)
        return found[: self.limit]

    def print(self, found: Sequence[Json], *, watch: bool) -> None:
        """Print runs; with `watch`, the newest last unless they are a table."""
        if self.output.is_data and not watch:
            print_data({"items": list(found)}, self.output)
        elif not self.output.is_table:
            for each in reversed(found) if watch else found:
                self._print_one(each)
        elif not found:
            click.echo("No runs found.", err=True)
        else:
            header = WIDE_HEADER if self.output is OutputFormat.WIDE else HEADER
            header = ("NAMESPACE", *header) if self.everywhere else header
            self._widths = print_table(header, [self._row(each) for each in found])

    def _print_one(self, run: Json) -> None:
        if self._widths:
            print_row(self._row(run), self._widths)
        elif self.output.is_data:
            print_document(run, self.output)
        elif self.output is OutputFormat.NAME:
            click.echo(str(run["id"]))
        else:
            self.print([run], watch=True)

    def _row(self, run: Json) -> tuple[str, ...]:
        cells = row(
            run,
            datetime.now(UTC),
            is_wide=self.output is OutputFormat.WIDE,
            with_group=self.cluster.is_ambiguous(str(run["resource"].get("kind"))),
        )
        return (str(run["resource"].get("namespace") or "-"), *cells) if self.everywhere else cells

    async def watch(self, found: Sequence[Json]) -> None:
        """Print each run that begins or ends, without end. Raises ApiError if none answers."""
        shown = {each["id"]: each for each in found}
        while self.operators.clients:
            await asyncio.sleep(_POLL_SECONDS)
            listed = await self.read()
            ids = {each["id"] for each in listed}
            lost = [
                await unlisted_run(self.cluster, self.operators, run)
                for run in shown.values()
                if run["outcome"] == RUNNING and run["id"] not in ids
            ]
            for each in (*lost, *reversed(listed)):
                before = shown.get(each["id"])
                if before is None or before["outcome"] != each["outcome"]:
                    shown[each["id"]] = each
                    self._print_one(each)
        raise ApiError(self.operators.reason)


@runs.command("show")
@click.argument("what", metavar="ID | KIND/NAME", type=IdOrNameType())
@cluster_options
@output_option
@click.option(
    "--html",
    default=None,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a report to this file instead: one static page.",
)
@work_dir_option
def show(
    what: str | ResourceName,
    *,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    output: OutputFormat,
    html: Path | None,
    work_dir: Path | None,
) -> None:
    """Show one run, or the last one of a resource.

    Print its tasks, changed fields, output and log. The exit status is 3 if no operator answers.
    """

    async def work() -> int:
        async with open_operators(kubeconfig, namespace, work_dir) as (cluster, operators):
            if not operators.clients:
                return report_unavailable(operators)
            run_id = await run_id_of(cluster, operators, what)
            run, client = await find_run(operators, run_id)
            text = await read_output(client, run_id)
        if html is None:
            _print(run, text, output)
            return 0
        await asyncio.to_thread(html.write_text, report(run, text), encoding="utf-8")
        click.echo(f"Wrote {html}")
        return 0

    raise SystemExit(complete(work()))


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


@runs.command("logs")
@click.argument("what", metavar="ID | KIND/NAME", type=IdOrNameType())
@cluster_options
@click.option("-f", "--follow", is_flag=True, help="Continue until the run ends.")
@work_dir_option
def logs(
    what: str | ResourceName,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    work_dir: Path | None,
    *,
    follow: bool,
) -> None:
    """Print the output of a run, or of the last run of a resource."""

    async def work() -> int:
        async with open_operators(kubeconfig, namespace, work_dir) as (cluster, operators):
            if not operators.clients:
                return report_unavailable(operators)
            run_id = await run_id_of(cluster, operators, what)
            _, client = await find_run(operators, run_id)
            params = {"follow": "true"} if follow else {}
            async for text in client.text(f"/runs/{run_id}/output", params):
                click.echo(printable(text), nl=False)
        return 0

    raise SystemExit(complete(work()))
