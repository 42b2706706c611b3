"""Read past runs of a resource from operators, and from its Events.

Operators that answer have every run that they keep, Events those with changes or failures.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from operator_runner.ansible.rerun_command import Rerun, read
from operator_runner.core.errors import ApiError, Forbidden
from operator_runner.core.labels import field_selector
from operator_runner.core.model import GVK, Json, ObjectRef, uid_of
from operator_runner.core.settings import DEFAULT_WORK_DIR
from operator_runner.kube.api import JSON, Api, list_pages
from operator_runner.kube.cluster import CONTROLLER
from operator_runner.kube.discovery import ApiResource
from operator_runner.reconcile.annotations import wants_suspension
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.records import causes_text, query_of
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.discovery import Operators, follow_operators
from operator_runner.tools.operator_api.watched_kinds import exclusion, watched_kinds
from operator_runner.tools.resources.cluster import open_cluster
from operator_runner.tools.resources.listing import objects
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


async def follow_histories(
    kubeconfig: Kubeconfig,
    type_: str,
    namespace: str | None,
    name: str,
    work_dir: Path | None,
    *,
    everywhere: bool = False,
) -> AsyncGenerator[History]:
    """Yield the runs of a resource, or without `name` of all of the type.

    Now, and again each second without end. `namespace` None is that of the kubeconfig;
    `everywhere` means all. Raises ConfigError for an unknown type, NotFound for a resource without
    Events that does not exist, and other ApiErrors.
    """
    async with open_cluster(kubeconfig, namespace) as cluster:
        resource = cluster.resource(type_)
        place = cluster.namespace if resource.namespaced and not everywhere else ""
        ref = ObjectRef(resource.gvk, place, name)
        found = follow_operators(cluster.api, cluster.namespace, work_dir, pause=_POLL_SECONDS)
        async with aclosing(found):
            async for operators in found:
                yield await _history(
                    cluster.api, resource, ref, operators, work_dir, everywhere=everywhere
                )


async def _history(
    api: Api,
    resource: ApiResource,
    ref: ObjectRef,
    operators: Operators,
    work_dir: Path | None,
    *,
    everywhere: bool,
) -> History:
    query = {**query_of(ref), "limit": _MAX_RUNS}
    listed = without_repetitions(await operators.collect("/runs", check_run, query))
    # Events about cluster-scoped objects are in `default`.
    place = None if everywhere else ref.namespace or "default"
    events = [
        each
        for each in await _events(api, place, ref.name, required=not operators.clients)
        if _is_about(each, ref, everywhere=everywhere) and is_valid_event(each)
    ]
    bodies = await _bodies(api, resource, ref, known=bool(events or listed))
    uids = {(body_ref.namespace, body_ref.name): uid_of(body) for body_ref, body in bodies}
    runs = [each for each in listed if "finished" in each and _is_current(each["resource"], uids)]
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
    about = [*map(_regarding, events), *(run["resource"] for run in runs)]
    watched = {GVK.of(each.get("apiVersion", ""), ref.gvk.kind) for each in about}
    refs = [ObjectRef(gvk, ref.namespace, ref.name) for gvk in watched if ref.name]
    pod = pod_of_failure(lines, [each.name for each in operators.clients])
    return History(
        ref,
        tuple(lines),
        _rerun(work_dir, refs, lines),
        tuple(ref for ref, body in bodies if wants_suspension(body)),
        pod,
        tuple(ref for ref, body in bodies if body["metadata"].get("deletionTimestamp")),
        await _exclusion(operators, bodies) if ref.name and not lines else "",
    )


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
            found = objects(api, resource, ref.namespace or None, accept=JSON)
            bodies = [body async for _, body in found]
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


async def _events(api: Api, namespace: str | None, name: str, *, required: bool) -> list[Json]:
    """Return the Events about objects of a name, empty for all, in a namespace, None for all.

    Without permission, none, unless they are `required`.
    """
    root = "/apis/events.k8s.io/v1"
    path = f"{root}/events" if namespace is None else f"{root}/namespaces/{namespace}/events"
    params = {"fieldSelector": field_selector("regarding.name", name)} if name else None
    pages = list_pages(api, path, params=params)
    try:
        return [event async for page in pages for event in page["items"]]
    except Forbidden:
        if required:
            raise
        return []
