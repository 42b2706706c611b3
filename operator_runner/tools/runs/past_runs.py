"""Read past runs from the Events of a resource, or from the files beside its artifacts.

Events can be read with a kubeconfig and contain runs with changes or failures. In the operator's
container the work dir has every run whose artifacts are kept.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from operator_runner import __version__
from operator_runner.ansible.history import PastRun, past_runs, recorded_resources
from operator_runner.ansible.rerun_command import Rerun, read
from operator_runner.core.errors import ApiError, ConfigError
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.core.settings import DEFAULT_WORK_DIR
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.events import (
    CONTROLLER,
)
from operator_runner.kube.paging import list_pages
from operator_runner.kube.session import Connection, connect
from operator_runner.reconcile.user_requests import Suspension, annotations_of, suspension
from operator_runner.tools.kind_names import find_kind, of_kinds, of_resources
from operator_runner.tools.run_lines import REPLICA, RunLine, header, is_valid_event, line_of


@dataclass(frozen=True, slots=True)
class History:
    """The runs of one resource, newest first."""

    ref: ObjectRef
    lines: tuple[RunLine, ...]
    rerun: Rerun | None = None
    """How to repeat the last run, if it failed and its files are here."""
    suspended: bool = False
    """Whether an annotation suspends the resource; False if unknown."""

    @property
    def replica_width(self) -> int:
        """Width of the column with the replica; 0 if all runs are of the same one."""
        replicas = {line.replica for line in self.lines if line.replica}
        return max(len(REPLICA), *map(len, replicas)) if len(replicas) > 1 else 0

    @property
    def header(self) -> str:
        """The names of the columns."""
        return header(self.replica_width)


def from_files(
    work_dir: Path, type_: str, namespace: str | None, name: str, kubeconfig: Path | None = None
) -> History:
    """Return the runs of a resource that an operator with this work dir has recorded.

    `namespace` None means all. Types that are neither kind nor regular plural are looked up in the
    cluster of `kubeconfig`. Raises ConfigError for a kind without runs, and OSError.
    """
    if not os.access(work_dir, os.R_OK | os.X_OK):
        raise ConfigError(
            f"--work-dir {work_dir}: permission denied; run this as the operator's own user"
        )
    recorded = recorded_resources(work_dir)
    gvks = sorted({ref.gvk for ref in recorded})
    gvk = _recorded_kind(work_dir, type_, gvks, kubeconfig)
    folders = {
        ref: folder
        for ref, folder in recorded.items()
        if (ref.gvk.group, ref.gvk.kind, ref.name) == (gvk.group, gvk.kind, name)
        and namespace in {None, ref.namespace}
    }
    runs = [run for folder in folders.values() for run in past_runs(folder)]
    lines = sorted(map(_line_of_run, runs), key=lambda line: line.ended, reverse=True)
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


def _recorded_kind(work_dir: Path, type_: str, gvks: list[GVK], kubeconfig: Path | None) -> GVK:
    try:
        return find_kind(type_, of_kinds(gvks))
    except ConfigError as error:
        try:
            return asyncio.run(_served_kind(kubeconfig, type_))
        except (ApiError, ConfigError):
            kinds = ", ".join(dict.fromkeys(gvk.kind for gvk in gvks)) or "none"
            raise ConfigError(f"{error} (kinds with runs in {work_dir}: {kinds})") from None


async def _served_kind(kubeconfig: Path | None, type_: str) -> GVK:
    connection = await _connect(kubeconfig)
    try:
        return (await _resource(Api(connection), type_)).gvk
    finally:
        await connection.close()


async def _connect(kubeconfig: Path | None) -> Connection:
    return await connect(kubeconfig, user_agent=f"operator-runner/{__version__}")


def _line_of_run(run: PastRun) -> RunLine:
    ended = run.started + timedelta(seconds=run.seconds)
    causes = "; ".join(run.causes)
    return RunLine(ended, run.seconds, run.outcome, causes, run.message, run_id=run.run_id)


async def from_events(
    kubeconfig: Path | None, type_: str, namespace: str | None, name: str
) -> History:
    """Return the runs of a resource that its Events report.

    `namespace` None is that of the kubeconfig. Raises ConfigError for an unknown type, NotFound
    for a resource without Events that does not exist, and other ApiErrors.
    """
    connection = await _connect(kubeconfig)
    try:
        api = Api(connection)
        resource = await _resource(api, type_)
        place = (namespace or connection.namespace) if resource.namespaced else ""
        ref = ObjectRef(resource.gvk, place, name)
        # Events about cluster-scoped objects are in `default`.
        events = await _events(api, place or "default", name)
        events = [each for each in events if _is_about(each, ref) and is_valid_event(each)]
        lines = [line_of(event) for event in events]
        suspended = await _is_suspended(api, resource.path(place, name), known=bool(lines))
    finally:
        await connection.close()
    lines.sort(key=lambda line: line.ended, reverse=True)
    # The operator may watch another version of the kind than the preferred one.
    watched = {GVK.of(_regarding(event).get("apiVersion", ""), ref.gvk.kind) for event in events}
    refs = [ObjectRef(gvk, place, name) for gvk in watched]
    return History(ref, tuple(lines), _local_rerun(refs, lines), suspended)


async def _is_suspended(api: Api, path: str, *, known: bool) -> bool:
    """Return whether an annotation suspends the resource.

    Raises ApiError for a resource that cannot be read, unless its runs are known.
    """
    try:
        body = await api.request("GET", path)
    except ApiError:
        if known:
            return False
        raise
    return suspension(annotations_of(body)) is not Suspension.NONE


async def _resource(api: Api, type_: str) -> ApiResource:
    served = await Discovery(api).served()
    gvk = find_kind(type_, of_resources(served))
    return next(each for each in served if each.gvk == gvk)


def _is_about(event: Json, ref: ObjectRef) -> bool:
    regarding = _regarding(event)
    gvk = GVK.of(regarding.get("apiVersion", ""), regarding.get("kind", ""))
    return (
        event.get("reportingController") == CONTROLLER
        and (gvk.group, gvk.kind) == (ref.gvk.group, ref.gvk.kind)
        and (regarding.get("namespace") or "") == ref.namespace
    )


def _regarding(event: Json) -> Json:
    regarding: Json = event.get("regarding") or {}
    return regarding


async def _events(api: Api, namespace: str, name: str) -> list[Json]:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    params = {"fieldSelector": f"regarding.name={name}"}
    return [event async for page in list_pages(api, path, params=params) for event in page["items"]]
