"""Read past runs from the Events of a resource, or from the files beside its artifacts.

Events can be read with a kubeconfig and contain runs with changes or failures. In the operator's
container the work dir has every run whose artifacts are kept.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from operator_runner.ansible.history import PastRun, past_runs, recorded_resources
from operator_runner.ansible.rerun_command import Rerun, read
from operator_runner.ansible.resource_dirs import encoded_name
from operator_runner.core.errors import ApiError, ConfigError
from operator_runner.core.labels import field_selector
from operator_runner.core.model import GVK, Json, ObjectRef, uid_of
from operator_runner.core.settings import DEFAULT_WORK_DIR
from operator_runner.kube.api import Api, list_pages
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.events import CONTROLLER
from operator_runner.kube.kind_names import find_kind, matching_kinds, of_kinds
from operator_runner.reconcile.request_annotations import Suspension, annotations_of, suspension
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.record import causes_text
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.discovery import Operators, follow_operators
from operator_runner.tools.operator_api.watched_kinds import exclusion, watched_kinds
from operator_runner.tools.resources.cluster import open_cluster
from operator_runner.tools.run_lines import (
    History,
    RunLine,
    folded,
    is_valid_event,
    line_of,
    pod_of_failure,
    with_short_paths,
)
from operator_runner.tools.runs.display import message_of
from operator_runner.tools.runs.listing import without_repetitions

_POLL_SECONDS = 1.0
_MAX_RUNS = "500"
_CURRENT = Kubeconfig()


async def follow_files(
    work_dir: Path, type_: str, namespace: str | None, name: str, kubeconfig: Kubeconfig
) -> AsyncGenerator[History]:
    """Yield what `from_files` returns, now and again each second without end."""
    while True:
        yield await asyncio.to_thread(from_files, work_dir, type_, namespace, name, kubeconfig)
        await asyncio.sleep(_POLL_SECONDS)


def from_files(
    work_dir: Path,
    type_: str,
    namespace: str | None,
    name: str,
    kubeconfig: Kubeconfig = _CURRENT,
) -> History:
    """Return the runs of a resource that an operator with this work dir has recorded.

    `namespace` None means all, and an empty `name` all resources of the kind. Types that are
    neither kind nor regular plural are looked up in the cluster of `kubeconfig`. Raises
    ConfigError for a kind without runs, and OSError.
    """
    if not os.access(work_dir, os.R_OK | os.X_OK):
        raise ConfigError(
            f"--work-dir {work_dir}: permission denied; run this as the operator's own user"
        )
    recorded = recorded_resources(work_dir)
    gvks = sorted({ref.gvk for ref in recorded})
    gvk = _recorded_kind(work_dir, type_, gvks, kubeconfig)
    folders = {
        replace(ref, name=name or ref.name): folder
        for ref, folder in recorded.items()
        if (ref.gvk.group, ref.gvk.kind) == (gvk.group, gvk.kind)
        # A directory has the beginning of a long name only.
        and (name in {"", ref.name} or folder.name == encoded_name(name))
        and namespace in {None, ref.namespace}
    }
    lines = [
        replace(_line_of_run(run), ref=None if name else ref)
        for ref, folder in folders.items()
        for run in past_runs(folder)
    ]
    lines.sort(key=lambda line: line.ended, reverse=True)
    rerun = _rerun(work_dir, folders, lines)
    return History(ObjectRef(gvk, namespace or "", name), tuple(lines), rerun)


def _rerun(work_dir: Path, refs: Iterable[ObjectRef], lines: Sequence[RunLine]) -> Rerun | None:
    """Return the command that repeats the run of one of these lines."""
    run_ids = {line.run_id for line in lines}
    found = (read(work_dir, ref) for ref in refs)
    return next((each for each in found if each is not None and each.run_id in run_ids), None)


def _local_rerun(refs: Iterable[ObjectRef], lines: Sequence[RunLine]) -> Rerun | None:
    """Return the command from the default work dir of an operator of this user, if it is here."""
    try:
        # Others may write to /tmp, and the command is meant to be executed.
        if DEFAULT_WORK_DIR.stat().st_uid != os.geteuid():
            return None
        return _rerun(DEFAULT_WORK_DIR, refs, lines)
    except OSError:
        return None


def _recorded_kind(work_dir: Path, type_: str, gvks: list[GVK], kubeconfig: Kubeconfig) -> GVK:
    named = matching_kinds(type_, of_kinds(gvks))
    if len({(gvk.group, gvk.kind) for gvk in named}) == 1:
        return named[0]
    try:
        return asyncio.run(_served_kind(kubeconfig, type_))
    except (ApiError, ConfigError):
        if named:
            names = " or ".join(dict.fromkeys(gvk.kind_and_group.lower() for gvk in named))
            raise ConfigError(f"{type_} may be {names}: write one of them") from None
    try:
        return find_kind(type_, of_kinds(gvks))
    except ConfigError as error:
        kinds = ", ".join(dict.fromkeys(gvk.kind for gvk in gvks)) or "none"
        raise ConfigError(f"{error} (kinds with runs in {work_dir}: {kinds})") from None


async def _served_kind(kubeconfig: Kubeconfig, type_: str) -> GVK:
    async with open_cluster(kubeconfig, None) as cluster:
        return cluster.resource(type_).gvk


def _line_of_run(run: PastRun) -> RunLine:
    ended = run.started + timedelta(seconds=run.seconds)
    causes = "; ".join(run.causes)
    note = with_short_paths(run.message)
    return RunLine(ended, run.seconds, run.outcome, causes, note, run_id=run.run_id)


async def follow_events(
    kubeconfig: Kubeconfig,
    type_: str,
    namespace: str | None,
    name: str,
    *,
    everywhere: bool = False,
) -> AsyncGenerator[History]:
    """Yield the runs of a resource, or without `name` of all of the type, that Events report.

    Now, and again each second without end. `namespace` None is that of the kubeconfig;
    `everywhere` means all. Raises ConfigError for an unknown type, NotFound for a resource without
    Events that does not exist, and other ApiErrors.
    """
    async with open_cluster(kubeconfig, namespace) as cluster:
        resource = cluster.resource(type_)
        place = cluster.namespace if resource.namespaced and not everywhere else ""
        ref = ObjectRef(resource.gvk, place, name)
        found = follow_operators(cluster.api, cluster.namespace, pause=_POLL_SECONDS)
        async with aclosing(found):
            async for operators in found:
                yield await _from_events(cluster.api, resource, ref, operators, everywhere)


async def _from_events(
    api: Api, resource: ApiResource, ref: ObjectRef, operators: Operators, everywhere: bool
) -> History:
    # Events about cluster-scoped objects are in `default`.
    events = [
        each
        for each in await _events(api, None if everywhere else ref.namespace or "default", ref.name)
        if _is_about(each, ref, everywhere=everywhere) and is_valid_event(each)
    ]
    bodies = await _bodies(api, resource, ref, known=bool(events))
    uids = {(body_ref.namespace, body_ref.name): uid_of(body) for body_ref, body in bodies}
    runs = _ended_runs(await _runs_of(operators, ref, everywhere=everywhere), uids)
    ids = {run["id"] for run in runs}
    lines = [
        line
        for event in events
        if _is_current(_regarding(event), uids)
        and not ((line := _line_about(event, ref)).is_run and line.run_id in ids)
    ]
    lines = [*folded([_line_of_record(run, ref) for run in runs]), *lines]
    lines.sort(key=lambda line: line.ended, reverse=True)
    # The operator may watch another version of the kind than the preferred one.
    watched = {GVK.of(_regarding(event).get("apiVersion", ""), ref.gvk.kind) for event in events}
    refs = [ObjectRef(gvk, ref.namespace, ref.name) for gvk in watched if ref.name]
    pod = pod_of_failure(lines, [each.name for each in operators.clients])
    return History(
        ref,
        tuple(lines),
        _local_rerun(refs, lines),
        tuple(ref for ref, body in bodies if _is_suspended(body)),
        pod,
        tuple(ref for ref, body in bodies if body["metadata"].get("deletionTimestamp")),
        await _exclusion(operators, bodies) if ref.name and not lines else "",
    )


async def _runs_of(operators: Operators, ref: ObjectRef, *, everywhere: bool) -> list[Json]:
    query = {"group": ref.gvk.group, "kind": ref.gvk.kind, "limit": _MAX_RUNS}
    if ref.name:
        query["name"] = ref.name
    if not everywhere:
        query["namespace"] = ref.namespace
    return without_repetitions(await operators.collect("/runs", check_run, query))


def _ended_runs(runs: Iterable[Json], uids: Mapping[tuple[str, str], str]) -> list[Json]:
    return [each for each in runs if "finished" in each and _is_current(each["resource"], uids)]


def _is_current(resource: Json, uids: Mapping[tuple[str, str], str]) -> bool:
    """Return whether this is not a deleted resource of the same name; `uids` are of those read."""
    uid = uids.get((resource.get("namespace") or "", resource.get("name") or ""))
    return uid is None or resource.get("uid") in {None, uid}


def _line_of_record(run: Json, ref: ObjectRef) -> RunLine:
    """Return the line of a run of an operator, with its resource unless `ref` names one."""
    operator = str(run.get("operator") or "")
    return RunLine(
        datetime.fromisoformat(run["finished"]),
        run.get("seconds"),
        run["outcome"],
        causes_text(run),
        with_short_paths(message_of(run)),
        run_id=run["id"],
        replica=operator.rpartition("/")[2] if operator.startswith("Pod ") else "",
        ref=None if ref.name else _ref_of(ref.gvk, run),
    )


async def _exclusion(operators: Operators, bodies: Sequence[tuple[ObjectRef, Json]]) -> str:
    """Return why operators may not reconcile the first resource."""
    watched = await watched_kinds(operators)
    return next((exclusion(ref, body, watched) for ref, body in bodies), "")


def _is_suspended(body: Json) -> bool:
    return suspension(annotations_of(body)) is not Suspension.NONE


def _line_about(event: Json, ref: ObjectRef) -> RunLine:
    """Return the line of an Event, with its resource unless `ref` names one."""
    line, regarding = line_of(event), _regarding(event)
    if ref.name:
        return line
    namespace = str(regarding.get("namespace") or "")
    return replace(line, ref=ObjectRef(ref.gvk, namespace, str(regarding.get("name"))))


def _ref_of(gvk: GVK, run: Json) -> ObjectRef:
    resource = run["resource"]
    return ObjectRef(gvk, resource.get("namespace", ""), resource["name"])


async def _bodies(
    api: Api, resource: ApiResource, ref: ObjectRef, *, known: bool
) -> list[tuple[ObjectRef, Json]]:
    """Return the resource, or without a name all of the kind; without permission, none.

    Raises ApiError for a resource that cannot be read, unless its runs are known.
    """
    try:
        if ref.name:
            bodies = [await api.request("GET", resource.path(ref.namespace, ref.name))]
        else:
            path = resource.path(ref.namespace or None)
            bodies = [
                body
                async for page in list_pages(api, path, outer_levels=2)
                for body in page["items"]
            ]
    except ApiError:
        if known:
            return []
        raise
    return [(ObjectRef.of_kind(ref.gvk, body), body) for body in bodies]


def _is_about(event: Json, ref: ObjectRef, *, everywhere: bool) -> bool:
    regarding = _regarding(event)
    gvk = GVK.of(regarding.get("apiVersion", ""), regarding.get("kind", ""))
    return (
        event.get("reportingController") == CONTROLLER
        and (gvk.group, gvk.kind) == (ref.gvk.group, ref.gvk.kind)
        and (everywhere or (regarding.get("namespace") or "") == ref.namespace)
    )


def _regarding(event: Json) -> Json:
    regarding: Json = event.get("regarding") or {}
    return regarding


async def _events(api: Api, namespace: str | None, name: str) -> list[Json]:
    """Return the Events about objects of a name, empty for all, in a namespace, None for all."""
    root = "/apis/events.k8s.io/v1"
    path = f"{root}/events" if namespace is None else f"{root}/namespaces/{namespace}/events"
    params = {"fieldSelector": field_selector("regarding.name", name)} if name else None
    return [event async for page in list_pages(api, path, params=params) for event in page["items"]]
