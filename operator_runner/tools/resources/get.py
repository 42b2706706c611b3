"""Command `operator-runner get`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path
from typing import NoReturn

import click

from operator_runner.core.errors import ApiError, ConfigError
from operator_runner.core.model import Json, ObjectRef
from operator_runner.core.texts import printable, shortened
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.watch import EventType, Extraction, watch_metadata
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.run_history import event_places, read_events
from operator_runner.tools.operator_api.watched_kinds import (
    WatchedKind,
    other_namespaces,
    queues_of,
    watched_kinds,
)
from operator_runner.tools.resources.cluster import ClusterView, kind_name, open_cluster
from operator_runner.tools.resources.listing import (
    ResourceSelection,
    select,
    selected,
)
from operator_runner.tools.resources.options import (
    KindOrNameType,
    cluster_options,
    complete,
    list_output_option,
    work_dir_option,
)
from operator_runner.tools.resources.output import (
    OutputFormat,
    print_data,
    print_document,
    print_row,
    print_table,
)
from operator_runner.tools.resources.summary import (
    Summary,
    SummarySources,
    SummaryState,
    by_resource,
    is_same,
)
from operator_runner.tools.run_lines import age

_HEADER = ("NAME", "READY", "STATE", "LAST RUN", "NEXT RUN", "FAILING", "WHY")
_WIDE_HEADER = (*_HEADER[:-1], "REPLICA", "RUN", "CAUSE", "MESSAGE")
_POLL_SECONDS = 1.0
_WHY_CHARACTERS = 70
_SHOWN_NAMESPACES = 10


@click.command()
@click.argument("wanted", metavar="[KIND | KIND/NAME]...", nargs=-1, type=KindOrNameType())
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Resources of all namespaces.")
@list_output_option
@click.option("-w", "--watch", is_flag=True, help="List, then print each change until interrupted.")
@work_dir_option
def get(
    wanted: tuple[str, ...],
    *,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    output: OutputFormat,
    all_namespaces: bool,
    watch: bool,
    work_dir: Path | None,
) -> None:
    """List resources with readiness, runs and failures.

    Without arguments, list the resources of each CRD of which an operator has handled at least
    one, and the resources that an operator watches, if it answers. KIND is spelled as for kubectl:
    wikis, wiki, a short name, wiki.apps.example.com.
    """
    if all_namespaces and any("/" in each for each in wanted):
        raise click.UsageError("KIND/NAME excludes --all-namespaces; use --namespace")
    options = _Options(namespace, work_dir, output, all_namespaces, watch)
    sys.exit(complete(_get(wanted, kubeconfig, options)))


@dataclass(frozen=True, slots=True)
class _Options:
    """The resources to list, and the format."""

    namespace: str | None
    work_dir: Path | None
    output: OutputFormat
    all_namespaces: bool
    watch: bool


async def _get(wanted: Sequence[str], kubeconfig: Kubeconfig, options: _Options) -> int:
    """List the resources; return the exit status."""
    output, everywhere = options.output, options.all_namespaces
    async with open_cluster(kubeconfig, options.namespace) as cluster:
        namespace = None if everywhere else cluster.namespace
        async with cluster.find_operators(options.work_dir) as operators:
            watched = await watched_kinds(operators)
            selection = await select(cluster, wanted, namespace, watched)
            bodies, queues = await asyncio.gather(
                selected(cluster, selection), queues_of(operators)
            )
        events = await read_events(cluster.api, event_places(namespace)) if bodies else []
        sources = SummarySources(by_resource(events), watched, queues)
        if options.watch and selection.errors:
            raise selection.errors[0]
        found = list(starmap(sources.summary, bodies))
        if queues.reason and output.is_table and (found or not wanted):
            lacking = "NEXT RUN lacks periods, retries and the queue"
            if not wanted:
                lacking += ", and kinds with no trace of an operator are not shown"
            click.echo(f"Note: {lacking}: {printable(queues.reason)}", err=True)
        for each in queues.invalid:
            click.echo(f"Warning: {printable(each)}", err=True)
        _print_errors(selection)
        status = int(bool(selection.errors))
        if output.is_data and not options.watch:
            if found or not status:
                print_data({"items": [each.as_json() for each in found]}, output)
            return status
        printer = _Printer(cluster, output, all_namespaces=everywhere)
        if found:
            printer.print(found)
        elif not options.watch and not status:
            click.echo(_nothing(selection, watched), err=True)
        if options.watch:
            await _Watching(cluster, selection, printer, found, sources).run(options.work_dir)
        return status


def _print_errors(selection: ResourceSelection) -> None:
    if selection.forbidden_watched:
        kinds = ", ".join(kind_name(each.gvk) for each in selection.forbidden_watched)
        click.echo(
            f"Warning: an operator watches {kinds}, not shown: no permission to list "
            f"{_place(selection)}",
            err=True,
        )
    if selection.forbidden:
        click.echo(
            f"Warning: {len(selection.forbidden)} kinds are not shown: no permission to list them; "
            "name the kinds that you need",
            err=True,
        )
    for error in selection.errors:
        click.echo(f"Error: {printable(str(error))}", err=True)


def _place(selection: ResourceSelection) -> str:
    return f"in namespace {selection.namespace}" if selection.namespace else "in any namespace"


def _nothing(selection: ResourceSelection, watched: Collection[WatchedKind]) -> str:
    place = _place(selection)
    if not selection.kinds:
        return (
            f"No resource that an operator has handled was found {place}. Name a kind to see its "
            "resources: operator-runner get KIND"
        )
    text = f"No resources found {place}."
    kinds = [each.gvk for each in selection.kinds if each.namespaced]
    if selection.namespace and (others := other_namespaces(selection.namespace, kinds, watched)):
        shown = ", ".join(map(printable, others[:_SHOWN_NAMESPACES]))
        more = len(others) - _SHOWN_NAMESPACES
        text += f" Operators that answer watch only: {shown}"
        text += f" and {more} more" if more > 0 else ""
    return text


class _Printer:
    """Prints summaries, and later those that have changed: a table keeps its first columns."""

    def __init__(self, cluster: ClusterView, output: OutputFormat, *, all_namespaces: bool) -> None:
        self._cluster, self._output = cluster, output
        self._all_namespaces = all_namespaces
        self._widths: list[int] = []

    def print(self, found: Sequence[Summary]) -> None:
        """Print documents, names that kubectl takes too, or rows, the first below their header."""
        if not self._output.is_table:
            for each in found:
                if self._output.is_data:
                    print_document(each.as_json(), self._output)
                else:
                    click.echo(each.ref.full_name)
            return
        rows = [self._row(each) for each in found]
        if self._widths:
            for row in rows:
                print_row(row, self._widths)
            return
        header = _WIDE_HEADER if self._output is OutputFormat.WIDE else _HEADER
        self._widths = print_table(("NAMESPACE", *header) if self._all_namespaces else header, rows)

    def _row(self, summary: Summary) -> tuple[str, ...]:
        now = datetime.now(UTC)
        ref = summary.ref
        row: tuple[str, ...] = (
            self._name(ref),
            summary.ready or "-",
            summary.state.value,
            _ago(summary.last_run, now),
            _until(summary, now),
            _ago(summary.failing_since, now),
        )
        if self._output is OutputFormat.WIDE:
            row = (
                *row,
                summary.replica or "-",
                summary.run_id or "-",
                summary.cause or "-",
                summary.problem or summary.why_at(now),
            )
        else:
            why = summary.why_at(now)
            # Programs, and people who read a file, get the whole text.
            row = (*row, shortened(why, _WHY_CHARACTERS) if sys.stdout.isatty() else why)
        return (ref.namespace or "-", *row) if self._all_namespaces else row

    def _name(self, ref: ObjectRef) -> str:
        """Return `page/home`; with its group if the name of the kind is not enough."""
        kind = ref.gvk.kind.lower()
        return ref.full_name if self._cluster.is_ambiguous(kind) else f"{kind}/{ref.name}"


def _ago(time: datetime | None, now: datetime) -> str:
    return "-" if time is None else age(now - time)


def _until(summary: Summary, now: datetime) -> str:
    if summary.queue_position is not None:
        return f"queued ({summary.queue_position})"
    if summary.next_run is not None:
        return f"in {age(summary.next_run - now)}"
    return "retry" if summary.retries else "-"


class _Watching:
    """Prints the summary of each resource that changes, or whose next run does."""

    def __init__(
        self,
        cluster: ClusterView,
        selection: ResourceSelection,
        printer: _Printer,
        shown: Sequence[Summary],
        sources: SummarySources,
    ) -> None:
        self._cluster, self._selection, self._printer = cluster, selection, printer
        self._shown = {each.ref: each for each in shown}
        self._sources = sources
        self._bodies: dict[ObjectRef, Json] = {}

    async def run(self, work_dir: Path | None) -> NoReturn:
        """Read without end. Raises ApiError; ConfigError without kinds."""
        if not self._selection.kinds:
            raise ConfigError("nothing to watch; name a kind: operator-runner get KIND --watch")
        await asyncio.gather(
            self._follow_operators(work_dir), *map(self._follow, self._selection.kinds)
        )
        raise AssertionError("watches do not end")

    async def _follow(self, kind: ApiResource) -> None:
        whole = Extraction(lambda body: body, whole=True)
        synced = False
        async for event in watch_metadata(
            self._cluster.api, kind, self._selection.namespace, extraction=whole
        ):
            if event.type is EventType.SYNCED:
                synced = True
                continue
            ref = ObjectRef.of_kind(kind.gvk, event.body)
            if event.type is EventType.DELETED:
                self._end(ref, SummaryState.DELETED)
                continue
            if not self._selection.has(ref, event.body):
                self._end(ref, SummaryState.DESELECTED)
                continue
            self._bodies[ref] = event.extracted
            if synced:
                await self._read_events()
            self._show(ref)

    def _end(self, ref: ObjectRef, state: SummaryState) -> None:
        """Print the last state of a resource that was shown."""
        self._bodies.pop(ref, None)
        if (last := self._shown.pop(ref, None)) is not None:
            self._printer.print([replace(last, state=state)])

    async def _read_events(self) -> None:
        """Read the Events of runs; if that fails, those that are known stay."""
        with contextlib.suppress(ApiError):
            places = event_places(self._selection.namespace)
            found = await read_events(self._cluster.api, places)
            self._sources = replace(self._sources, events=by_resource(found))

    async def _follow_operators(self, work_dir: Path | None) -> NoReturn:
        """Show what changes in queues, and the Events of runs, which follow their statuses."""
        async with self._cluster.follow_operators(work_dir, pause=_POLL_SECONDS) as found:
            async for operators in found:
                watched, queues = await asyncio.gather(
                    watched_kinds(operators), queues_of(operators)
                )
                self._sources = replace(self._sources, watched=watched, queues=queues)
                await self._read_events()
                for ref in list(self._bodies):
                    self._show(ref)
        raise AssertionError("operators are followed without end")

    def _show(self, ref: ObjectRef) -> None:
        if (body := self._bodies.get(ref)) is None:
            return  # deleted since
        summary = self._sources.summary(ref, body)
        if not is_same(summary, self._shown.get(ref)):
            self._shown[ref] = summary
            self._printer.print([summary])
