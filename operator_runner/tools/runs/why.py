"""Command `operator-runner why KIND/NAME`: past runs of resources, and their causes.

Operators that answer have every run that they keep, Events those with changes or failures.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from operator_runner.ansible.rerun_command import Rerun, read
from operator_runner.core.errors import ApiError
from operator_runner.core.model import GVK, Json, ObjectRef, uid_of
from operator_runner.core.settings import DEFAULT_WORK_DIR
from operator_runner.core.texts import printable
from operator_runner.kube.api import JSON, Api
from operator_runner.kube.discovery import ApiResource
from operator_runner.reconcile.annotations import wants_suspension
from operator_runner.telemetry.runs.records import matches, query_of
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.discovery import Operators
from operator_runner.tools.operator_api.run_history import (
    read_events,
    read_records,
    regards,
    unrecorded,
)
from operator_runner.tools.operator_api.watched_kinds import exclusion, watched_kinds
from operator_runner.tools.resources.cluster import open_cluster
from operator_runner.tools.resources.listing import objects
from operator_runner.tools.resources.options import (
    KindOrNameType,
    cluster_options,
    complete,
    output_option,
    work_dir_option,
)
from operator_runner.tools.resources.output import OutputFormat, print_data, print_document
from operator_runner.tools.run_lines import (
    FAILED,
    REPLICA,
    RESOURCE,
    RunLine,
    Widths,
    header,
    with_repetitions,
)

_INDENT = " " * 4
_POLL_SECONDS = 1.0
_MAX_RUNS = "500"


@dataclass(frozen=True, slots=True)
class History:
    """The runs of one resource, or of all of a kind, newest first.

    `name` of `ref` is empty for a kind.
    """

    ref: ObjectRef
    lines: tuple[RunLine, ...]
    rerun: Rerun | None = None
    """The command that repeats the last run, if it failed and its files are here."""
    suspended: tuple[ObjectRef, ...] = ()
    """The resources that an annotation suspends; empty if unknown."""
    pod: str = ""
    """NAMESPACE/NAME of the Pod with the files of the last run, if that failed; else empty."""
    deleting: tuple[ObjectRef, ...] = ()
    """The resources whose deletion was requested."""
    exclusion: str = ""
    """Why operators may not reconcile the resource; empty if they do, or if that is unknown."""

    @property
    def rerun_hint(self) -> str:
        """The command that prints `rerun` in the Pod, empty if no Pod is known to have it."""
        if not (self.pod and self.ref.name):
            return ""
        namespace, _, pod = self.pod.partition("/")
        place = f" --namespace={self.ref.namespace}" if self.ref.namespace else ""
        return (
            f"kubectl exec --namespace={namespace} {pod} -- "
            f"operator-runner why {self.ref.full_name}{place}"
        )

    def widths(self, *, is_wide: bool = False) -> Widths:
        """Return the widths of the columns that only some histories have; 0: not shown.

        The replica is shown if runs are of several ones, or with `is_wide`.
        """
        places = [len(line.place) for line in self.lines] if not self.ref.name else []
        replicas = {line.replica for line in self.lines if line.replica}
        return (
            max([len(RESOURCE), *places]) if places else 0,
            max([len(REPLICA), *map(len, replicas)]) if len(replicas) > 1 or is_wide else 0,
        )


def folded(lines: Iterable[RunLine]) -> list[RunLine]:
    """Return lines, newest first, with failures that repeat without another run in one line."""
    ordered = sorted(lines, key=lambda line: line.ended, reverse=True)
    counted = with_repetitions(ordered, lambda line: (line.place, line.outcome, line.note))
    return [replace(line, count=line.count + times - 1) for line, times in counted]


def pod_of_failure(lines: Sequence[RunLine], operators: Iterable[str]) -> str:
    """Return NAMESPACE/NAME of the Pod of the newest run, if that failed, else an empty text.

    `operators` are names of operators that answer, such as `Pod NAMESPACE/NAME`.
    """
    if not lines or lines[0].outcome != FAILED:
        return ""
    pods = (each.removeprefix("Pod ") for each in operators if each.startswith("Pod "))
    return next((each for each in pods if each.rpartition("/")[2] == lines[0].replica), "")


@click.command()
@click.argument("wanted", metavar="KIND/NAME | KIND", type=KindOrNameType())
@cluster_options
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Runs of all resources of a KIND, everywhere."
)
@output_option
@click.option(
    "-w", "--watch", is_flag=True, help="List, then print each new run until interrupted."
)
@work_dir_option
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Maximum lines."
)
def why(
    *,
    wanted: str,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    all_namespaces: bool,
    output: OutputFormat,
    watch: bool,
    work_dir: Path | None,
    limit: int,
) -> None:
    """List the last runs of resources, and their causes.

    The newest is first. KIND is spelled as for kubectl: wikis, wiki, a short name,
    wiki.apps.example.com.
    """
    if all_namespaces and "/" in wanted:
        raise click.UsageError("KIND/NAME excludes --all-namespaces; use --namespace")
    histories = _follow_histories(
        kubeconfig, wanted, namespace, work_dir, everywhere=all_namespaces
    )

    async def run() -> None:
        async with aclosing(histories):
            history = await anext(histories)
            widths: Widths = (0, 0)
            if not output.is_data:
                widths = _print(history, limit, is_wide=output is OutputFormat.WIDE)
            elif watch:
                for line in reversed(history.lines[:limit]):
                    print_document(line.as_json(), output)
            else:
                found = [each.as_json() for each in history.lines[:limit]]
                print_data(_facts(history) | {"items": found}, output)
            if watch:
                await _watch(histories, history, widths, output)

    complete(run())


def _facts(history: History) -> Json:
    """Return what is known beside the runs, for `--output=json`."""
    facts = {"suspended": bool(history.suspended), "deleting": bool(history.deleting)}
    return {**facts, "message": history.exclusion} if history.exclusion else facts


def _print(history: History, limit: int, *, is_wide: bool) -> Widths:
    """Print the runs and what the user can do; return the widths of the columns."""
    for ref in history.suspended:
        place = f" -n {ref.namespace}" if ref.namespace else ""
        hint = f"operator-runner resume {ref.full_name}{place}"
        which = "" if history.ref.name else f" {ref.gvk.kind.lower()}/{ref.name}"
        state, run = "Suspended", "run starts"
        if ref in history.deleting:
            state, run = "Suspended while being deleted", "clean-up runs"
        click.echo(printable(f"{state}{which}: no {run} until `{hint}`."))
    widths = history.widths(is_wide=is_wide)
    if not history.lines:
        click.echo(_quiet(history))
        return widths
    now = datetime.now(UTC)
    click.echo(header(widths))
    for line in history.lines[:limit]:
        click.echo(line.text(now, widths))
    if (rerun := history.rerun) is not None:
        heading = f"To repeat run {rerun.run_id} with your kubeconfig:"
        click.echo(f"\n{heading}\n\n{_INDENT}{printable(rerun.command)}")
    elif hint := history.rerun_hint:
        run_id = history.lines[0].run_id
        click.echo(f"\nTo print the command that repeats run {run_id} in its Pod:")
        click.echo(f"\n{_INDENT}{printable(hint)}")
    return widths


async def _watch(
    histories: AsyncIterator[History], shown: History, widths: Widths, output: OutputFormat
) -> None:
    """Print each run that is new, without end. Raises ApiError and ConfigError."""
    has_header = bool(shown.lines) or output.is_data
    before = set(shown.lines)
    async for history in histories:
        new = [line for line in reversed(history.lines) if line not in before]
        before |= set(new)
        if new and not has_header:
            has_header = True
            click.echo(header(widths))
        for line in new:
            if output.is_data:
                print_document(line.as_json(), output)
            else:
                click.echo(line.text(datetime.now(UTC), widths))


def _quiet(history: History) -> str:
    ref = history.ref
    resource = str(ref) if ref.name else ref.gvk.kind
    if history.exclusion:
        return printable(f"No runs of {resource}: {history.exclusion}.")
    return (
        f"No runs of {resource} yet, or none that is recorded: Events expire, and unchanged runs "
        "emit none. An operator that answers has all runs; its log shows what it waits for."
    )


@dataclass(frozen=True, slots=True)
class _HistoryReader:
    """Reads the runs of a resource, or without a name in `ref` of all of the kind.

    They are those of the namespace of `ref`, or of all of them with `everywhere`.
    """

    api: Api
    resource: ApiResource
    ref: ObjectRef
    work_dir: Path | None
    everywhere: bool

    async def read(self, operators: Operators) -> History:
        """Return what operators that answer and Events have."""
        ref = self.ref
        query = query_of(ref)
        records = await read_records(operators, query | {"limit": _MAX_RUNS})
        # Those about cluster-scoped resources are in `default`.
        places = ["" if self.everywhere else ref.namespace or "default"]
        is_required = not operators.clients
        found = await read_events(self.api, places, ref.name, required=is_required)
        events = [each for each in found if matches(each["resource"], query)]
        bodies = await self._bodies(known=bool(events or records))
        uids = {(each.namespace, each.name): uid_of(body) for each, body in bodies}

        def current(runs: Iterable[Json]) -> list[Json]:
            return [
                each
                for each in runs
                if "finished" in each
                and regards(each["resource"], uids.get(_name_of(each["resource"])))
            ]

        runs = current(records)
        others = current(unrecorded(events, runs))
        line = partial(RunLine.of, with_resource=not ref.name)
        lines = [*folded(map(line, runs)), *map(line, others)]
        lines.sort(key=lambda line: line.ended, reverse=True)
        # The operator may watch another version of the kind than the preferred one.
        about = {run["resource"]["apiVersion"] for run in (*runs, *events)}
        watched = (GVK.of(each, ref.gvk.kind) for each in about)
        refs = [ObjectRef(gvk, ref.namespace, ref.name) for gvk in watched if ref.name]
        return History(
            ref,
            tuple(lines),
            _rerun(self.work_dir, refs, lines),
            tuple(ref for ref, body in bodies if wants_suspension(body)),
            pod_of_failure(lines, [each.name for each in operators.clients]),
            tuple(ref for ref, body in bodies if body["metadata"].get("deletionTimestamp")),
            await _exclusion(operators, bodies) if ref.name and not lines else "",
        )

    async def _bodies(self, *, known: bool) -> list[tuple[ObjectRef, Json]]:
        """Return the resource, or without a name all of the kind; without permission, none.

        Raises ApiError for a resource that cannot be read, unless its runs are known.
        """
        ref = self.ref
        try:
            if ref.name:
                path = self.resource.path(ref.namespace, ref.name)
                return [(ref, await self.api.request("GET", path))]
            found = objects(self.api, self.resource, ref.namespace or None, accept=JSON)
            return [each async for each in found]
        except ApiError:
            if known:
                return []
            raise


def _name_of(resource: Json) -> tuple[str, str]:
    return resource.get("namespace", ""), resource["name"]


async def _exclusion(operators: Operators, bodies: Sequence[tuple[ObjectRef, Json]]) -> str:
    """Return why operators may not reconcile the first resource."""
    watched = await watched_kinds(operators)
    return next((exclusion(ref, body, watched) for ref, body in bodies), "")


def _rerun(
    work_dir: Path | None, refs: Iterable[ObjectRef], lines: Sequence[RunLine]
) -> Rerun | None:
    """Return the command that repeats the run of one of these lines, if its files are here.

    None is the default work dir of an operator of this user.
    """
    run_ids = {line.run_id for line in lines}
    base = work_dir or DEFAULT_WORK_DIR
    try:
        # Others may write to /tmp, and the command is meant to be executed.
        if work_dir is None and base.stat().st_uid != os.geteuid():
            return None
        found = [read(base, ref) for ref in refs]
    except OSError:
        return None
    return next((each for each in found if each is not None and each.run_id in run_ids), None)


async def _follow_histories(
    kubeconfig: Kubeconfig,
    wanted: str,
    namespace: str | None,
    work_dir: Path | None,
    *,
    everywhere: bool,
) -> AsyncGenerator[History]:
    """Yield the runs of KIND/NAME or of all of a KIND, now and again each second without end.

    `namespace` None is that of the kubeconfig. Raises ConfigError for an unknown kind, NotFound for
    a resource without Events that does not exist, and other ApiErrors.
    """
    kind, _, name = wanted.partition("/")
    async with open_cluster(kubeconfig, namespace) as cluster:
        resource = cluster.resource(kind)
        place = cluster.namespace if resource.namespaced and not everywhere else ""
        ref = ObjectRef(resource.gvk, place, name)
        reader = _HistoryReader(cluster.api, resource, ref, work_dir, everywhere)
        async with cluster.follow_operators(work_dir, pause=_POLL_SECONDS) as found:
            async for operators in found:
                yield await reader.read(operators)
