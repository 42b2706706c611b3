"""The Kubernetes API for a reconcile: read an object, write its metadata, status and Events.

`kubectl describe` shows the Events of an object.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import structlog

from operator_runner.core.errors import ApiError, Forbidden, Invalid, NotFound
from operator_runner.core.fencing import UNFENCED, Fence, Fences
from operator_runner.core.labels import field_selector
from operator_runner.core.model import ANNOTATION_DOMAIN, GVK, EventSpec, Json, ObjectRef
from operator_runner.core.object_names import SUBDOMAIN_PATTERN
from operator_runner.core.texts import truncated
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, Api
from operator_runner.kube.credentials import is_in_pod
from operator_runner.kube.discovery import ApiResource, Discovery, explain_missing

CONTROLLER = "operator-runner"
CAUSE_ANNOTATION = f"{ANNOTATION_DOMAIN}/cause"
"""Annotation of an Event: the cause of the run."""
DURATION_ANNOTATION = f"{ANNOTATION_DOMAIN}/duration-seconds"
"""Annotation of an Event: the duration of the run, as a decimal number."""
RUN_ANNOTATION = f"{ANNOTATION_DOMAIN}/run-id"
"""Of an Event: the id of the run, as in logs and artifacts; of a series that of the last run."""

_MAX_NOTE_BYTES = 1024
"""The API server rejects longer notes."""
_SERIES_WINDOW_SECONDS = 1200.0
"""An Event that is equal to one of this age increments its series; longer than any backoff."""
_MAX_SERIES = 4096
"""Cached series; the least recently used one is evicted."""
_TIMEOUT_SECONDS = 5.0
"""Time that a reconcile waits for its Event."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Series:
    path: str
    count: int
    last: float


class EventRecorder:
    """Writes Events; equal Events within twenty minutes are counted in one series."""

    def __init__(self, api: Api, *, is_shard: bool = False) -> None:
        """Write through `api`. `is_shard` is whether other replicas write Events too."""
        self._api = api
        self._instance = _instance(is_shard=is_shard)
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._is_failing = False

    async def emit(self, body: Json, spec: EventSpec, fence: Fence = UNFENCED) -> None:
        """Write an Event about the object `body`. Logs an ApiError instead of raising it.

        Only the first of several failures in a row is logged.
        """
        try:
            await self._record(body, spec, fence)
        except ApiError as error:
            if not self._is_failing:
                _log.warning(
                    "Cannot write Kubernetes Events", status=error.status, error=str(error)
                )
            self._is_failing = True
        else:
            self._is_failing = False

    async def _record(self, body: Json, spec: EventSpec, fence: Fence) -> None:
        key = (body["metadata"]["uid"], spec.reason, spec.note, spec.action, spec.cause)
        now = time.monotonic()
        series = self._series.get(key)
        if series is not None and now - series.last < _SERIES_WINDOW_SECONDS:
            series.last = now
            series.count += 1
            self._series.move_to_end(key)
            if await self._increment(series, spec, fence):
                return
        path = await self._create(body, spec, fence)
        self._series[key] = _Series(path, 1, now)
        self._series.move_to_end(key)
        while len(self._series) > _MAX_SERIES:
            self._series.popitem(last=False)

    async def _increment(self, series: _Series, spec: EventSpec, fence: Fence) -> bool:
        """Return False if the Event no longer exists: it expired or was deleted."""
        counted = {"count": series.count, "lastObservedTime": _now()}
        try:
            await self._api.request(
                "PATCH",
                series.path,
                body={"series": counted, "metadata": {"annotations": _annotations(spec)}},
                content_type=MERGE_PATCH,
                timeout=_TIMEOUT_SECONDS,
                fence=fence,
            )
        except NotFound:
            return False
        return True

    async def _create(self, body: Json, spec: EventSpec, fence: Fence) -> str:
        metadata = body["metadata"]
        # kubectl reads Events about cluster-scoped objects from `default`.
        namespace = metadata.get("namespace") or "default"
        collection = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        name = _event_name(metadata["name"])
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace, "annotations": _annotations(spec)},
            "eventTime": _now(),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "type": "Warning" if spec.warning else "Normal",
            "reason": spec.reason,
            "action": spec.action,
            "note": note_of(spec),
            "regarding": _regarding(body),
        }
        await self._api.request(
            "POST", collection, body=event, timeout=_TIMEOUT_SECONDS, fence=fence
        )
        return f"{collection}/{name}"


def _event_name(name: str) -> str:
    """Return a unique name that begins with that of the object, unless this is no name of an Event.

    Names of RBAC objects may have any characters.
    """
    start, unique = name[:200].rstrip("-."), uuid4().hex
    return f"{start}.{unique[:16]}" if re.fullmatch(SUBDOMAIN_PATTERN, start) else unique


def _instance(*, is_shard: bool) -> str:
    """Return the host name, which in a Pod is the Pod's, as the reporting instance.

    Outside of Pods, the replicas of one machine differ by their process ids.
    """
    host = socket.gethostname()[:64] or CONTROLLER
    return f"{host}_{os.getpid()}" if is_shard and not is_in_pod() else host


def note_of(spec: EventSpec) -> str:
    """Return the note with its cause, both of them cut in the middle if they are too long."""
    tail = truncated(f" (why: {spec.cause})", _MAX_NOTE_BYTES // 2) if spec.cause else ""
    note = truncated(spec.note, _MAX_NOTE_BYTES - len(tail.encode(errors="replace"))) + tail
    return note.encode(errors="replace").decode()


def _annotations(spec: EventSpec) -> dict[str, str]:
    annotations = {CAUSE_ANNOTATION: spec.cause} if spec.cause else {}
    if spec.duration_seconds is not None:
        annotations[DURATION_ANNOTATION] = f"{spec.duration_seconds:.3f}"
    if spec.run_id:
        annotations[RUN_ANNOTATION] = spec.run_id
    return annotations


def _regarding(body: Json) -> Json:
    metadata = body["metadata"]
    reference = {
        key: metadata[key]
        for key in ("namespace", "name", "uid", "resourceVersion")
        if key in metadata
    }
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], **reference}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class KubeCluster:
    """Implements the `ClusterClient` port of reconcile; reads are live, writes have preconditions.

    Each method raises NotFound if the kind does not exist, and any other ApiError.
    """

    def __init__(
        self,
        api: Api,
        discovery: Discovery,
        fences: Fences | None = None,
        *,
        is_shard: bool = False,
    ) -> None:
        """Send requests through `api`, writes with the fence of their object.

        `is_shard` is whether other replicas reconcile other resources.
        """
        self._api = api
        self._discovery = discovery
        self._recorder = EventRecorder(api, is_shard=is_shard)
        self._fences = fences or Fences()

    async def get(self, ref: ObjectRef) -> Json | None:
        """Read the object; None if it does not exist. Who may only list it reads a list of one."""
        resource = await self._discovery.resource(ref.gvk)
        try:
            return await self._api.request("GET", resource.path(ref.namespace, ref.name))
        except NotFound:
            return None
        except Forbidden:
            # ansible-operator reads from its watches: existing roles may lack the verb `get`.
            selector = {"fieldSelector": field_selector("metadata.name", ref.name)}
            path = resource.path(ref.namespace)
            listed = await self._api.request("GET", path, params=selector, outer_levels=2)
            kind = {"apiVersion": ref.gvk.api_version, "kind": ref.gvk.kind}
            return next((kind | item for item in listed["items"]), None)

    async def patch_metadata(self, body: Json, metadata: Json) -> Json:
        """Merge `metadata` if `body` is still the current version, else raise Conflict."""
        ref = ObjectRef.of(body)
        resource = await self._discovery.resource(ref.gvk)
        patch = {"metadata": metadata | _precondition(body)}
        return await self._patch(ref, resource.path(ref.namespace, ref.name), patch)

    async def patch_status(self, body: Json, status: Json) -> Json:
        """Merge `status` into the status subresource if `body` is current, else raise Conflict.

        Raises Invalid if the status does not fit the CRD, or the CRD has no such subresource.
        """
        ref = ObjectRef.of(body)
        resource = await self._discovery.resource(ref.gvk)
        path = resource.path(ref.namespace, ref.name, "status")
        try:
            patch = {"metadata": _precondition(body), "status": status}
            return await self._patch(ref, path, patch)
        except NotFound as error:
            raise _explained(error, resource) from error

    async def explain_missing(self, gvk: GVK) -> str:
        """Return cause and hint for a kind that is not served; empty if it is, or if unknown."""
        try:
            served = {each.gvk for each in await self._discovery.served()}
        except ApiError:
            return ""
        return "" if gvk in served else explain_missing(gvk, sorted(served))

    async def emit(self, body: Json, event: EventSpec) -> None:
        """Record a Kubernetes Event about the object; a failure to do so is only logged."""
        await self._recorder.emit(body, event, self._fences.of(ObjectRef.of(body)))

    async def _patch(self, ref: ObjectRef, path: str, patch: Json) -> Json:
        return await self._api.request(
            "PATCH",
            path,
            params={"fieldManager": FIELD_MANAGER},
            body=patch,
            content_type=MERGE_PATCH,
            fence=self._fences.of(ref),
        )


def _precondition(body: Json) -> Json:
    """Return the metadata that makes a patch of an outdated object fail with 409."""
    metadata = body["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


def _explained(error: NotFound, resource: ApiResource) -> NotFound | Invalid:
    """Distinguish a missing object from a CRD without status subresource: both are 404."""
    if "status" in resource.subresources:
        return error
    hint = "set `manageStatus: false` in watches.yaml"
    if not resource.gvk.is_built_in:
        hint = f"add `subresources: {{status: {{}}}}` to the version in its CRD, or {hint}"
    return Invalid(
        f"{resource.gvk} has no status subresource, so no conditions can be written; {hint}",
        error.status,
    )
