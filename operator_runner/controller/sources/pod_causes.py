"""Why workloads are not ready: from their Pods, or from the Events about Pods that were refused.

A quota, an admission webhook or a missing ServiceAccount refuses Pods: only Deployments and
ReplicaSets have that in their status. Pods and these Events of a namespace are watched only while
a workload there is not ready whose resource shows that. Of each Pod with a cause only this cause
is kept. A refusal counts until a Pod of the workload is created later.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from functools import partial

from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.model import GVK, Json, ObjectRef, uid_of
from operator_runner.kube.object_readiness import POD_CAUSES, POD_REFUSED, Health, Refusal
from operator_runner.kube.watch import EventType, MetadataEvent, watch_forever

_POD = GVK("", "v1", "Pod")
EVENT = GVK("events.k8s.io", "v1", "Event")
_WORKLOADS = frozenset({"DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"})
_GROUPS = frozenset({"apps", "batch"})
_HASH_LABEL = "pod-template-hash"


class PodCauses:
    """The causes of workloads that are waited for."""

    def __init__(
        self,
        stream: Callable[[GVK, str | None], AsyncIterator[MetadataEvent]],
        changed: Callable[[ObjectRef, str], None],
    ) -> None:
        """`stream` watches a kind in a namespace.

        `changed` is called with a workload and the reason when the first cause has another one.
        """
        self._stream, self._changed = stream, changed
        self._waiting: defaultdict[str, set[ObjectRef]] = defaultdict(set)
        self._watches: dict[str, list[asyncio.Task[None]]] = {}
        self._pods: dict[ObjectRef, dict[str, Health]] = {}
        """Healths with a cause by uid of the Pod, by workload."""
        self._created: dict[ObjectRef, str] = {}
        """When the newest Pod of each workload was created."""
        self._refusals: dict[ObjectRef, Refusal] = {}
        self._reported: dict[ObjectRef, str] = {}

    def wait_for(self, workload: ObjectRef) -> None:
        """Watch the Pods of a workload until `forget`; other objects are ignored."""
        namespace, gvk = workload.namespace, workload.gvk
        if gvk.kind not in _WORKLOADS or gvk.group not in _GROUPS:
            return
        if workload not in self._waiting[namespace] and (known := self.of(workload)) is not None:
            self._reported[workload] = known.reason  # which the end of the run shows
        self._waiting[namespace].add(workload)
        if namespace not in self._watches:
            watched = (
                (_POD, self._take, "Pods not ready"),
                (EVENT, self._take_event, "Events about refused Pods"),
            )
            self._watches[namespace] = [
                asyncio.create_task(
                    watch_forever(self._stream, kind, namespace, partial(take, namespace), what),
                    name=f"watch {what} {namespace}",
                )
                for kind, take, what in watched
            ]

    def forget(self, workload: ObjectRef) -> None:
        """End what `wait_for` has begun."""
        waiting = self._waiting.get(workload.namespace)
        if waiting is None or workload not in waiting:
            return
        waiting.discard(workload)
        self._reported.pop(workload, None)
        if not waiting:
            del self._waiting[workload.namespace]
            for watch in self._watches.pop(workload.namespace):
                watch.cancel()
            for found in (self._pods, self._created, self._refusals):
                for each in [ref for ref in found if ref.namespace == workload.namespace]:
                    del found[each]

    def of(self, workload: ObjectRef) -> Health | None:
        """Return a refusal of Pods, else the health of the Pod with the first cause."""
        refusal = self._refusals.get(workload)
        if refusal is not None and refusal.time >= self._created.get(workload, ""):
            return refusal.health
        pods = self._pods.get(workload, {})
        uid = min(pods, key=lambda uid: (POD_CAUSES.index(pods[uid].reason), uid), default=None)
        return None if uid is None else pods[uid]

    async def stop(self) -> None:
        """End all watches."""
        await end_tasks(task for tasks in self._watches.values() for task in tasks)

    def _take(self, namespace: str, _: GVK, event: MetadataEvent) -> None:
        if event.type is EventType.SYNCED:
            for ref, pods in self._pods.items():
                if ref.namespace == namespace:
                    self._pods[ref] = {u: pods[u] for u in pods if u in event.body["uids"]}
            return
        workload = _workload_of(event.body)
        if workload is None:
            return
        pods, uid = self._pods.setdefault(workload, {}), uid_of(event.body)
        created = str(event.body["metadata"].get("creationTimestamp") or "")
        self._created[workload] = max(created, self._created.get(workload, ""))
        health, is_deleted = event.health, "deletionTimestamp" in event.body["metadata"]
        if health is None or is_deleted or health.reason not in POD_CAUSES:
            pods.pop(uid, None)
        else:
            pods[uid] = health
        if not pods:
            del self._pods[workload]
        self._report(workload)

    def _take_event(self, _namespace: str, _: GVK, event: MetadataEvent) -> None:
        refusal = event.extracted
        if not isinstance(refusal, Refusal):
            return
        known = self._refusals.get(refusal.workload)
        if known is None or known.time <= refusal.time:
            self._refusals[refusal.workload] = refusal
            self._report(refusal.workload)

    def _report(self, workload: ObjectRef) -> None:
        if workload not in self._waiting.get(workload.namespace, ()):
            return
        first, reported = self.of(workload), self._reported.get(workload)
        # A Pod without a cause is about to become ready; its workload shows that.
        reason = first.reason if first is not None else ""
        if reason != reported and (reason or reported == POD_REFUSED):
            self._reported[workload] = reason
            self._changed(workload, reason or "its Pods are created")


def _workload_of(pod: Json) -> ObjectRef | None:
    """Return what has created a Pod; of a ReplicaSet of a Deployment, this Deployment."""
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            gvk, name = GVK.of(str(owner.get("apiVersion")), str(owner.get("kind"))), owner["name"]
            suffix = f"-{(metadata.get('labels') or {}).get(_HASH_LABEL, '')}"
            if gvk.kind == "ReplicaSet" and suffix != "-" and name.endswith(suffix):
                gvk, name = GVK(gvk.group, gvk.version, "Deployment"), name.removesuffix(suffix)
            return ObjectRef(gvk, metadata.get("namespace") or "", name)
    return None
