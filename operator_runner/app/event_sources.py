"""The sources of events: what starts reconciles of primary resources, and how they are combined."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Sequence,
)
from datetime import datetime
from functools import partial
from typing import Any

from operator_runner.app.leadership import Leadership
from operator_runner.controller.predicates.primary_events import SeenResources
from operator_runner.controller.predicates.wake_on_fields import WakeOnFields
from operator_runner.controller.sources.debouncing import Debouncer
from operator_runner.controller.sources.dependents import Dependents
from operator_runner.controller.sources.failed_expressions import FailedExpressions
from operator_runner.controller.sources.kind_discovery import KindDiscovery, watch_kinds_forever
from operator_runner.controller.sources.primary import AnnotatedPeriods, PrimaryWatcher
from operator_runner.controller.sources.references import References
from operator_runner.controller.sources.schedule import Schedules
from operator_runner.controller.sources.shared_watches import SharedWatches, WatchRequest
from operator_runner.controller.sources.triggers import Sinks, Triggers
from operator_runner.controller.sources.watch_readiness import WatchReadiness
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.core.model import (
    GVK,
    Cause,
    Json,
    ObjectRef,
    Trigger,
    Watch,
    uid_of,
)
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.settings import Settings
from operator_runner.kube.api import Api
from operator_runner.kube.cluster import KubeCluster
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.session import Connection
from operator_runner.kube.watch import Extraction, MetadataEvent, watch_metadata
from operator_runner.reconcile.expression_conditions import ExpressionConditions
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.runs.records import RunStore


class ObjectStreams:
    """Watches kinds by their names."""

    def __init__(self, api: Api, discovery: Discovery, namespaces: Sequence[str]) -> None:
        """Watch for an operator with these namespaces; none: all of them."""
        self._api = api
        self._discovery = discovery
        self._namespaces = namespaces

    async def requested(
        self, request: WatchRequest, namespace: str | None
    ) -> AsyncIterator[MetadataEvent]:
        """Watch objects of references and triggers."""
        resource = await self._discovery.resource(request.gvk)
        if not resource.namespaced and namespace not in {None, *self._namespaces[:1]}:
            # The watch of the first namespace has all objects of a cluster-scoped kind.
            return
        async for event in watch_metadata(
            self._api,
            resource,
            namespace,
            request.label_selector,
            extraction=request.extraction,
            rediscover=partial(self._rediscovered, request.gvk),
        ):
            yield event

    async def dependents(
        self, gvk: GVK, namespace: str | None, extraction_of: Callable[..., Extraction | None]
    ) -> AsyncIterator[MetadataEvent]:
        """Watch a kind; only its metadata if it has no status, as Secrets and ConfigMaps."""
        resource = await self._discovery.resource(gvk)
        has_status = "status" in resource.subresources
        extraction = extraction_of(gvk, has_status=has_status)
        async for event in watch_metadata(
            self._api,
            resource,
            namespace,
            health=has_status,
            extraction=extraction,
            rediscover=partial(self._rediscovered, gvk),
        ):
            yield event

    async def _rediscovered(self, gvk: GVK) -> ApiResource:
        self._discovery.forget(gvk)
        return await self._discovery.resource(gvk)


_TRIGGERS = {
    "references": Trigger.REFERENCE,
    "triggers": Trigger.TRIGGER,
    "wakeOn": Trigger.DEPENDENT,
}
"""Cause of the run that writes the condition of an expression, by the key of the watch."""


class EventSources:
    """Sources for the resources of all watches; each starts to watch when its task runs."""

    def __init__(
        self,
        settings: Settings,
        watches: Sequence[Watch],
        api: Api,
        discovery: Discovery,
        *,
        cluster: KubeCluster,
        queue: WorkQueue,
        leadership: Leadership,
        metrics: Metrics,
        readiness: WatchReadiness,
        runs: RunStore,
        seen: SeenResources,
        states: ResourceStates,
    ) -> None:
        """Build the sources of `queue`; nothing is watched yet."""
        self._watches, self._namespaces = watches, settings.namespaces
        self._metrics, self._queue, self._leadership = metrics, queue, leadership
        self._seen = seen
        self._with_conditions = {watch.gvk for watch in watches if watch.manage_status}
        self._streams = ObjectStreams(api, discovery, settings.namespaces)
        self.kinds = KindDiscovery(discovery, watches, settings.namespaces, readiness)
        self.expressions = ExpressionConditions(
            self._concerned, self._expression_changed, metrics.expression_failed
        )
        failures = self.failed_expressions = FailedExpressions(
            cluster.emit,
            seen.uid,
            self.expressions,
            count=metrics.expression_failed,
            owns=leadership.owns,
        )
        fields = WakeOnFields(watches, failures.report, failures.recovered)
        wait = settings.readiness_wait.total_seconds()
        debouncer = Debouncer(states, queue.add, wait)
        self.dependents = Dependents(
            self._stream_dependents,
            queue.add,
            settings.namespaces,
            watches,
            states=states,
            debouncer=debouncer,
            records=runs,
            fields=fields,
            enabled=settings.inject_owner_ref,
        )
        self._references = References(
            watches,
            queue.add,
            failures.report,
            debouncer,
            fields,
            recovered=failures.recovered,
        )
        self.schedules = Schedules(watches, queue.add)
        self.primary = PrimaryWatcher(watches, queue.add, self._on_first_seen, seen)
        self._triggers = Triggers(
            watches,
            seen.is_reconciled,
            Sinks(queue.add, failures.report, self._trigger_handled, failures.recovered),
            debouncer,
            fields,
        )
        self.primary.add_listener(AnnotatedPeriods(queue.add_after).on_change)
        if any(watch.references for watch in watches):
            self.primary.add_listener(self._references.on_change)
        if any(watch.schedule for watch in watches):
            self.primary.add_listener(self.schedules.on_change)
        if any(watch.triggers for watch in watches):
            self.primary.add_listener(self._triggers.on_change)
        self.shared_watches = SharedWatches(
            [*self._references.subscriptions(), *self._triggers.subscriptions()],
            self._streams.requested,
            settings.namespaces,
        )

    async def watch_primaries(
        self,
        connection: Connection,
        before: Callable[[], Awaitable[None]],
        on_started: Callable[[], None],
    ) -> None:
        """Watch primary resources for ever, after `before`; see `PrimaryWatcher.run`.

        References and triggers are listed first: objects in their first lists start no runs.
        """
        await self.shared_watches.wait_listed()
        await before()

        def watch(kinds: Sequence[ApiResource]) -> Coroutine[Any, Any, None]:
            return self.primary.run(connection, kinds, self._namespaces, on_started)

        await watch_kinds_forever(watch, self.kinds)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks beside `watch_primaries`, with their names."""
        yield "discovery of kinds", self.kinds.run()
        yield "watching references and triggers", self.shared_watches.run()
        yield "failed expressions", self.failed_expressions.run()
        yield "schedules", self.schedules.run()

    def _stream_dependents(self, gvk: GVK, namespace: str | None) -> AsyncIterator[MetadataEvent]:
        return self._streams.dependents(gvk, namespace, self.dependents.extraction)

    def _on_first_seen(self, ref: ObjectRef, body: Json) -> None:
        if self._leadership.owns(uid_of(body)):
            created = datetime.fromisoformat(body["metadata"]["creationTimestamp"])
            self._metrics.resource_seen(ref, created.timestamp())
        else:
            # A deleted resource of the same name may have been in a slot of this replica.
            self._metrics.resource_gone(ref)

    def _trigger_handled(self, gvk: GVK, object_gvk: GVK, uid: str, resources: int) -> None:
        """Count an event of a trigger object; the owner of its slot does."""
        if self._leadership.owns(uid):
            self._metrics.trigger_handled(gvk, object_gvk, resources)

    def _concerned(self, ref: ObjectRef) -> Collection[ObjectRef]:
        """Return the resources that own an object or refer to it."""
        return self.dependents.owners(ref) | self._references.referring(ref)

    def _expression_changed(self, resource: ObjectRef, key: str, what: str) -> None:
        """Enqueue the resource if its watch has conditions: its next run writes them."""
        if resource.gvk in self._with_conditions and self._seen.is_reconciled(resource):
            self._queue.add(resource, Cause(_TRIGGERS[key.partition("[")[0]], f"{key} {what}"))
