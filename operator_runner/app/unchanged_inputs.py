"""Keep the inputs of runs that changed nothing, and find out whether they are as they were."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlencode

import structlog

from operator_runner.ansible.purity import templates
from operator_runner.ansible.purity.content import ContentReader, ContentState
from operator_runner.controller.sources.dependents import Dependents
from operator_runner.core.errors import ApiError, Forbidden
from operator_runner.core.labels import field_selector
from operator_runner.core.model import Json, ObjectRef, RunEvent, Trigger, Watch, uid_of
from operator_runner.core.resource_versions import may_be_older
from operator_runner.core.run_inputs import (
    ABSENT,
    Read,
    RunInputs,
    digest_of,
    list_version,
    object_version,
)
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.metadata_lists import MetadataList, MetadataLists
from operator_runner.proxy.input_log import InputLog
from operator_runner.proxy.ownership import Owner, is_tracked
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.reconcile.skipped_runs import ExecutedTasks, has_known_inputs

_log = structlog.get_logger(__name__)
_SHARED_SECONDS = 2.0
"""Maximum age of a list that resources share at the start; a run would have read it then."""
_ATTEMPTS = 3
"""Attempts of a comparison while watches of dependents begin."""
_WHOLE_LIST = 3
"""Number of objects of a collection from which on it is listed, instead of reading each one."""


@dataclass(slots=True)
class _Recording:
    """The known inputs of a run in progress."""

    before: RunInputs | None
    """The inputs that were known before it."""
    digest: str = ""
    tasks: ExecutedTasks = field(default_factory=lambda: ExecutedTasks((), "not examined"))
    log: InputLog = field(default_factory=InputLog)


class UnchangedInputs:
    """See `reconcile.protocols.InputRecorder`."""

    def __init__(
        self,
        api: Api,
        discovery: Discovery,
        contents: ContentReader,
        environment: Callable[[], ContentState],
        dependents: Dependents,
    ) -> None:
        """`environment` returns the state of the installation."""
        self._api, self._discovery = api, discovery
        self._contents, self._environment = contents, environment
        self._dependents = dependents
        self._loaded: asyncio.Event | None = None
        self._on_changed: Callable[[ObjectRef, str], None] = lambda *_: None
        self._lists = MetadataLists(api)
        self._installation: ContentState | None = None
        self._served = ("", float("-inf"))
        self._serving = asyncio.Lock()
        self._inputs: dict[str, RunInputs] = {}
        self._objects: Counter[str] = Counter()
        self._running: dict[str, _Recording] = {}

    # Records -------------------------------------------------------------------------

    def use_archive(
        self, loaded: asyncio.Event, on_changed: Callable[[ObjectRef, str], None]
    ) -> None:
        """Wait for `loaded`, the records of earlier processes, before any comparison.

        `on_changed` is called with resource and uid if what is kept of a resource has changed.
        """
        self._loaded, self._on_changed = loaded, on_changed

    def kept(self, uid: str) -> RunInputs | None:
        """Return the inputs of the resource with this uid, None if they are not known."""
        return self._inputs.get(uid)

    def restore(self, uid: str, inputs: RunInputs) -> None:
        """Keep inputs that another process has recorded, unless there are newer ones."""
        if uid not in self._inputs:
            self._keep(uid, inputs)

    def _keep(self, uid: str, inputs: RunInputs | None) -> None:
        old = self._inputs.pop(uid, None)
        if old is not None:
            self._objects.subtract(read.collection for read in old.reads if read.name)
        if inputs is not None:
            self._inputs[uid] = inputs
            self._objects.update(read.collection for read in inputs.reads if read.name)

    def forget(self, ref: ObjectRef, uid: str) -> None:
        """See `reconcile.protocols`."""
        if uid in self._inputs:
            self._keep(uid, None)
            self._on_changed(ref, uid)

    # Runs ----------------------------------------------------------------------------

    async def begin(self, body: Json, watch: Watch) -> None:
        """See `reconcile.protocols`."""
        if not watch.skip_unchanged:
            return
        uid = uid_of(body)
        running = self._running[uid] = _Recording(self._inputs.get(uid))
        # Earlier inputs are invalid from here on, even if the run fails.
        self._keep(uid, None)
        if not has_known_inputs(body, watch, templates.is_template):
            return
        content = self._contents.state(watch.content)
        try:
            running.digest = await self._digest(body, watch, content)
        except ApiError as error:
            running.tasks.impurity = str(error)
            return
        running.tasks = ExecutedTasks(content.roots, content.impurity or self._install().impurity)

    def log(self, uid: str) -> InputLog | None:
        """Return where the requests of a run are recorded, None if that is not needed."""
        running = self._running.get(uid)
        return None if running is None or running.tasks.impurity else running.log

    def on_event(self, uid: str, event: RunEvent) -> None:
        """See `reconcile.protocols`."""
        if (running := self._running.get(uid)) is not None:
            running.tasks(event)

    def ended(self, ref: ObjectRef, uid: str, *, converged: bool) -> None:
        """See `reconcile.protocols`."""
        if (running := self._running.pop(uid, None)) is None:
            return
        new = None
        if impurity := running.tasks.impurity or running.log.impurity:
            _log.debug("Inputs of the run are unknown", reason=impurity)
        elif converged:
            new = RunInputs(running.digest, dict(running.log.reads))
        self._keep(uid, new)
        if new != running.before:
            self._on_changed(ref, uid)

    # Comparison ----------------------------------------------------------------------

    async def are_unchanged(self, body: Json, watch: Watch, triggers: frozenset[Trigger]) -> bool:
        """See `reconcile.protocols`."""
        if self._loaded is not None:
            await self._loaded.wait()
        kept = self._inputs.get(uid_of(body))
        if kept is None:
            return False
        # The event of a change may be newer than a list that is shared.
        is_single = Trigger.DEPENDENT in triggers
        try:
            content = self._contents.state(watch.content)
            if kept.digest != await self._digest(body, watch, content):
                _log.debug("Inputs have changed", input="resource, role or environment")
                return False
            max_age = 0.0 if is_single else _SHARED_SECONDS
            for _ in range(_ATTEMPTS):
                verdict = await self._compare(kept, body, watch, single=is_single, max_age=max_age)
                if verdict is not None:
                    return verdict
                max_age = 0.0
        except ApiError as error:
            _log.debug("Cannot compare the inputs of a run", error=str(error))
        return False

    async def _compare(
        self, kept: RunInputs, body: Json, watch: Watch, *, single: bool, max_age: float
    ) -> bool | None:
        """Return whether everything that was read is unchanged; None if the lists are too old.

        `single` reads each object alone, not lists that are shared.
        """
        owner, owned = Owner.of(body), []
        lists = await asyncio.gather(
            *(self._listed(read, single=single, max_age=max_age) for read in kept.reads)
        )
        for (read, version), found in zip(kept.reads.items(), lists, strict=True):
            if _version_in(found, read) != version:
                _log.debug("Inputs have changed", input=f"{read.collection} {read.name}")
                return False
            for metadata in _objects_in(found, read):
                if is_tracked(owner, metadata):
                    owned += [(read, metadata, found.resource_version)]
        refs = [await self._reference(read, metadata) for read, metadata, _ in owned]
        # No events are lost from here on: nothing is awaited until all objects are known.
        for ref, (_, _, version) in zip(refs, owned, strict=True):
            latest = self._dependents.latest_unclaimed(ref)
            if latest and may_be_older(version, latest):
                return None
        for ref, (_, metadata, _) in zip(refs, owned, strict=True):
            self._dependents.on_unchanged(owner.ref, ref, metadata, watch)
        return True

    async def _listed(self, read: Read, *, single: bool, max_age: float) -> MetadataList:
        if not read.name:
            return await self._lists.get(read.collection, read.query, max_age=max_age)
        if not single and self._objects[read.collection] >= _WHOLE_LIST:
            # The permission may be limited to names.
            with suppress(Forbidden):
                return await self._lists.get(read.collection, max_age=max_age)
        query = urlencode({"fieldSelector": field_selector("metadata.name", read.name)})
        return await self._lists.get(read.collection, query, max_age=max_age)

    async def _reference(self, read: Read, metadata: Json) -> ObjectRef:
        info = RequestInfo.parse(read.collection)
        assert info is not None
        resource = await self._discovery.resource_named(info.group, info.version, info.resource)
        return ObjectRef(resource.gvk, metadata.get("namespace") or "", metadata["name"])

    # Digests -------------------------------------------------------------------------

    async def _digest(self, body: Json, watch: Watch, content: ContentState) -> str:
        metadata = body["metadata"]
        resource = [metadata.get("uid"), metadata.get("resourceVersion")]
        return digest_of(
            [resource, watch, content.digest, self._install().digest, await self._api_state()]
        )

    def _install(self) -> ContentState:
        if self._installation is None:
            self._installation = self._environment()
        return self._installation

    async def _api_state(self) -> str:
        """Return a digest of the version of the API server and of the kinds that it serves."""
        async with self._serving:
            now = asyncio.get_running_loop().time()
            digest, at = self._served
            if at < now - _SHARED_SECONDS:
                version = (await self._api.request("GET", "/version")).get("gitVersion")
                served = sorted(digest_of(each) for each in await self._discovery.served())
                digest = digest_of([version, served])
                self._served = digest, now
            return digest


def _version_in(found: MetadataList, read: Read) -> str:
    """Return the version that a run would read now."""
    if not read.name:
        return list_version(found.objects.values())
    metadata = next(_objects_in(found, read), None)
    return ABSENT if metadata is None else object_version(metadata)


def _objects_in(found: MetadataList, read: Read) -> Iterator[Json]:
    """Yield the metadata of what was read, as it is now."""
    info = RequestInfo.parse(read.collection)
    if not read.name:
        yield from found.objects.values()
    elif info is not None and (key := (info.namespace, read.name)) in found.objects:
        yield found.objects[key]
