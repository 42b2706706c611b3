"""Read the cluster and its operators as long as the page is served.

A run or a resource is read when a user of the page opens it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from operator_runner.core.errors import ApiError, Forbidden, NotFound
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.watch import EventType, Extraction, watch_metadata
from operator_runner.telemetry.runs.received import (
    check_dependents,
    check_queue_entry,
    check_schedule,
)
from operator_runner.tools.operator_api.discovery import Operators
from operator_runner.tools.operator_api.run_history import (
    event_places,
    read_events,
    read_records,
)
from operator_runner.tools.operator_api.watched_kinds import WatchedKind, drifts_of, watched_kinds
from operator_runner.tools.resources.cluster import ClusterView, ambiguous_kinds
from operator_runner.tools.resources.listing import ResourceSelection, all_kinds
from operator_runner.tools.runs.html_report import RunReport
from operator_runner.tools.runs.reading import find_run, read_output
from operator_runner.tools.ui.server import Feed
from operator_runner.tools.ui.views import (
    ObservedCluster,
    key_of,
    parse_key,
    resource_view,
    run_rows,
    views,
)

_POLL_SECONDS = 1.0
_SEARCH_SECONDS = 60.0
"""Between searches for further kinds."""
_ABSENCE_SECONDS = 300.0
"""Longest time for which the kinds of an operator that does not answer are kept."""
_EVENTS_SECONDS = 30.0
"""Longest age of Events; they are read earlier if a resource changes."""
_PAUSE_SECONDS = 0.2
"""Shortest time between two publications."""
_RUNS = 100
_RUNS_OF_RESOURCE = "50"


@dataclass(slots=True)
class ClusterReader:
    """Keeps the views of a feed up to date. `namespace` None means all.

    It implements `server.Details` with the operators that answer.
    """

    cluster: ClusterView
    feed: Feed
    namespace: str | None
    work_dir: Path | None
    observed: ObservedCluster = field(default_factory=ObservedCluster)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _search: asyncio.Event = field(default_factory=asyncio.Event)
    _watched: frozenset[WatchedKind] = frozenset()
    _complete: int = 0
    """Operators that answered at the last search of all of them."""
    _complete_at: float = 0.0
    _selection: ResourceSelection = field(default_factory=lambda: ResourceSelection(None))
    _watches: dict[GVK, asyncio.Task[None]] = field(default_factory=dict)
    _events_read: float = 0.0
    _are_events_old: bool = True

    async def follow(self) -> None:
        """Read without end; failures of cluster and operators are in the view `state`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish())
            group.create_task(self._follow_operators())
            group.create_task(self._follow_kinds(group))

    async def _publish(self) -> NoReturn:
        while True:
            await self._changed.wait()
            self._changed.clear()
            found = views(self.observed, self.namespace, datetime.now(UTC))
            for name, content in found.items():
                self.feed.publish(name, content)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _follow_operators(self) -> NoReturn:
        read: Operators | None = None
        async with self.cluster.follow_operators(self.work_dir, pause=_POLL_SECONDS) as found:
            async for operators in found:
                if operators is not read:
                    read = operators
                    await self._read_kinds(operators)
                await asyncio.gather(self._read_operators(operators), self._read_cluster())
                self._changed.set()
        raise AssertionError("operators are followed without end")

    async def _read_operators(self, operators: Operators) -> None:
        in_namespace = {} if self.namespace is None else {"namespace": self.namespace}
        queue, schedules, runs, drifts = await asyncio.gather(
            operators.collect("/queue", check_queue_entry, in_namespace),
            operators.collect("/schedules", check_schedule, in_namespace),
            read_records(operators, in_namespace | {"limit": str(_RUNS)}),
            drifts_of(operators, in_namespace),
        )
        seen = self.observed
        seen.operators = [each.name for each in operators.clients]
        seen.reason = "" if operators.clients else operators.reason
        seen.warnings = list(dict.fromkeys(operators.invalid))
        seen.queue, seen.schedules, seen.runs = queue, schedules, runs[: 2 * _RUNS]
        seen.drifts = drifts

    async def _read_cluster(self) -> None:
        """Check that the API server answers, and read Events if they may have changed."""
        api = self.cluster.api
        try:
            await api.request("GET", "/version")
            if self._are_events_old or time.monotonic() - self._events_read > _EVENTS_SECONDS:
                self._are_events_old = False
                self.observed.events = await read_events(api, event_places(self.namespace))
                self._events_read = time.monotonic()
        except ApiError as error:
            self.observed.fault = str(error)
            self._are_events_old = True
            return
        self.observed.fault = ""

    async def _read_kinds(self, operators: Operators) -> None:
        """Search again if operators that answer have other kinds than before.

        Those of operators that do not answer, such as during a restart, are kept for a while; the
        last ones as long as no operator answers.
        """
        kinds = self.observed.watched = await watched_kinds(operators)
        count, now = len(operators.clients), time.monotonic()
        is_partial = count < self._complete and now - self._complete_at < _ABSENCE_SECONDS
        if not count or is_partial:
            kinds |= self._watched
        else:
            self._complete, self._complete_at = count, now
        if kinds != self._watched:
            self._watched = kinds
            self._search.set()

    async def _follow_kinds(self, group: asyncio.TaskGroup) -> NoReturn:
        while True:
            self._search.clear()
            try:
                selection = await self._select()
                self._end_changed(selection)
                self._selection = selection
                for kind in selection.kinds:
                    task = self._watches.get(kind.gvk)
                    if task is None or task.done():
                        self._watches[kind.gvk] = group.create_task(self._follow(kind))
            except ApiError as error:
                self.observed.fault = str(error)
                self._changed.set()
            try:
                async with asyncio.timeout(_SEARCH_SECONDS):
                    await self._search.wait()
            except TimeoutError:
                pass

    async def _select(self) -> ResourceSelection:
        """Return kinds that operators name, and CRDs of which one has handled a resource."""
        served = await Discovery(self.cluster.api).served()
        self.observed.ambiguous_kinds = ambiguous_kinds(served)
        cluster = ClusterView(self.cluster.api, served, self.cluster.namespace)
        return await all_kinds(cluster, ResourceSelection(self.namespace), self._watched)

    def _end_changed(self, selection: ResourceSelection) -> None:
        """End the watches of kinds of which operators watch other resources, or none any more.

        Kinds that were found by their resources stay: others may be created.
        """
        selected = {each.gvk for each in selection.kinds}
        for gvk in list(self._watches):
            before, after = self._selection.watched.get(gvk), selection.watched.get(gvk)
            is_gone = before is not None and gvk not in selected
            if is_gone or set(before or ()) != set(after or ()):
                self._watches.pop(gvk).cancel()
                if is_gone:
                    self._keep(gvk, ())

    def _keep(self, gvk: GVK, refs: Collection[ObjectRef]) -> None:
        """Drop the other resources of a kind."""
        self.observed.bodies = {
            ref: body for ref, body in self.observed.bodies.items() if ref.gvk != gvk or ref in refs
        }
        self._changed.set()

    async def _follow(self, kind: ApiResource) -> None:
        """Keep the resources of a kind until its CRD or the permissions are gone."""
        namespace = self.namespace if kind.namespaced else None
        extraction = Extraction(_essentials, whole=True)
        shown: set[ObjectRef] = set()
        try:
            async for event in watch_metadata(
                self.cluster.api, kind, namespace, extraction=extraction
            ):
                if event.type is EventType.SYNCED:
                    # An earlier watch of the kind may have had others.
                    self._keep(kind.gvk, shown)
                    continue
                ref = ObjectRef.of_kind(kind.gvk, event.body)
                is_shown = event.type is not EventType.DELETED and self._selection.has(
                    ref, event.body
                )
                if not is_shown:
                    shown.discard(ref)
                    self.observed.bodies.pop(ref, None)
                else:
                    shown.add(ref)
                    self.observed.bodies[ref] = event.extracted
                self._are_events_old = True
                self._changed.set()
        except (Forbidden, NotFound):
            self._keep(kind.gvk, ())

    async def run(self, run_id: str) -> Json:
        """Return a run with its timelines and its output; only its id if no operator answers.

        Raises NotFound and other ApiErrors.
        """
        async with self.cluster.find_operators(self.work_dir) as operators:
            if not operators.clients:
                return {"id": run_id, "missing": True}
            run, client = await find_run(operators, run_id)
            output = await read_output(client, run_id)
        [row] = run_rows([run], datetime.now(UTC))
        return {**row, "report": asdict(RunReport.of(run, output))}

    async def resource(self, key: str) -> Json:
        """Return runs, schedule and objects of a resource. Raises ConfigError and ApiError."""
        kind, namespace, name = parse_key(key)
        group = kind.partition(".")[2]
        query = {"group": group, "namespace": namespace, "name": name}
        async with self.cluster.find_operators(self.work_dir) as operators:
            runs = await read_records(operators, query | {"limit": _RUNS_OF_RESOURCE})
            dependents = await operators.collect("/dependents", check_dependents, query)
        of_resource = [each for each in runs if key_of(each["resource"]) == key]
        objects = {
            key_of(each): each
            for entry in dependents
            if key_of(entry["resource"]) == key
            for each in entry["objects"]
        }
        shown = sorted(objects.values(), key=_order)
        return resource_view(key, self.observed, of_resource, shown, datetime.now(UTC))


def _essentials(body: Json) -> Json:
    """Return what summaries need of a resource."""
    names = ("name", "namespace", "uid", "labels", "annotations", "deletionTimestamp")
    metadata = {name: body["metadata"][name] for name in names if name in body["metadata"]}
    return {"metadata": metadata, "status": body.get("status")}


def _order(found: Json) -> tuple[str, str, str]:
    gvk = GVK.of(found["apiVersion"], found["kind"])
    return gvk.kind, str(found.get("namespace") or ""), str(found["name"])
