"""Keep the last runs of each resource in ConfigMaps, so that a new Pod of the operator has them.

Each resource has a key, its uid, in one of several ConfigMaps. Each write is a merge patch of some
keys, so that replicas of a sharded operator do not conflict. A steady resource costs no write until
the operator ends. See docs/adr/0039-operator-api.md.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence

import structlog

from operator_runner.core.errors import ApiError, Conflict, Forbidden, NotFound
from operator_runner.core.fencing import UNFENCED, Fence
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, Api
from operator_runner.telemetry.runs.record import compact
from operator_runner.telemetry.runs.store import RunStore

_log = structlog.get_logger(__name__)

BUCKETS = 8
"""Number of ConfigMaps."""
RUNS = 3
"""Runs of each resource that are kept."""
_MAX_VALUE_BYTES = 8 * 1024
"""Limit for one resource; older runs are dropped first."""
_MAX_BUCKET_BYTES = 600 * 1024
"""Limit for all values of a ConfigMap, which the API server limits to 1 MiB."""
_MAX_DOCUMENT_BYTES = 1024 * 1024
"""Limit for a decompressed value: users with write access could have replaced it."""
_STOP_SECONDS = 5.0
_PAUSE_SECONDS = 10.0
"""Pause between two writes, which coalesces many runs."""


class RunArchive:
    """Writes the runs of a store to ConfigMaps, and reads them at the start."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        store: RunStore,
        fence: Callable[[], Fence] = lambda: UNFENCED,
    ) -> None:
        """Use ConfigMaps of `namespace` whose names begin with `name`; `fence` permits writes."""
        self._api, self._store, self._fence = api, store, fence
        self._path, self._name = f"/api/v1/namespaces/{namespace}/configmaps", name
        self._sizes: defaultdict[int, OrderedDict[str, int]] = defaultdict(OrderedDict)
        self._changed: dict[str, ObjectRef | None] = {}
        self._wake = asyncio.Event()
        self._is_permitted = False

    def finished(self, ref: ObjectRef, uid: str, has_changes: bool) -> None:
        """Note that a resource has a new run; without changes it is written with later ones."""
        if uid:
            self._changed[uid] = ref
            if has_changes:
                self._wake.set()

    def deleted(self, uid: str) -> None:
        """Note that a resource is deleted."""
        if uid:
            self._changed[uid] = None
            self._wake.set()

    async def start(self) -> bool:
        """Add the runs of all ConfigMaps to the store; return False without permission."""
        self._is_permitted = await self._load()
        return self._is_permitted

    async def _load(self) -> bool:
        for bucket in range(BUCKETS):
            try:
                found = await self._api.request("GET", self._path_of(bucket))
            except NotFound:
                continue
            except Forbidden as error:
                _log.warning(
                    "Cannot read runs from ConfigMaps: permissions are missing",
                    error=str(error),
                    grant=f"create on configmaps; get and patch of {self._names}",
                )
                return False
            except ApiError as error:
                _log.warning("Cannot read runs from ConfigMaps", error=str(error))
                continue
            self._restore(bucket, found.get("binaryData") or {})
        return True

    async def run(self) -> None:
        """Load the runs, then write what changes until cancelled; `flush` writes what is left."""
        await self.start()
        while True:
            await self._wake.wait()
            await asyncio.sleep(_PAUSE_SECONDS)
            self._wake.clear()
            await self.flush()

    async def stop(self) -> None:
        """Write what is left, for some seconds at most."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self.flush()
        except TimeoutError:
            _log.warning(
                "Cannot write runs to ConfigMaps", error=f"no response within {_STOP_SECONDS:g} s"
            )

    async def flush(self) -> None:
        """Write what has changed; API errors are logged."""
        changed, self._changed = self._changed, {}
        if not self._is_permitted:
            return
        buckets: defaultdict[int, dict[str, bytes | None]] = defaultdict(dict)
        for uid, ref in changed.items():
            value = None if ref is None else encode(self._store.last(ref, uid, RUNS))
            buckets[bucket_of(uid)][uid] = value
        for bucket, values in buckets.items():
            try:
                await self._write(bucket, {**values, **self._evicted(bucket, values)})
            except ApiError as error:
                _log.warning("Cannot write runs to ConfigMaps", error=str(error))

    @property
    def _names(self) -> str:
        return f"{self._name}-runs-0 to {self._name}-runs-{BUCKETS - 1}"

    def _path_of(self, bucket: int) -> str:
        return f"{self._path}/{self._name}-runs-{bucket}"

    def _restore(self, bucket: int, values: Json) -> None:
        for uid, value in values.items():
            text = str(value)
            self._sizes[bucket][uid] = len(text)
            runs = list(decode(text, uid))
            if runs:
                self._store.restore(_ref_of(runs[0]), runs)

    def _evicted(self, bucket: int, values: dict[str, bytes | None]) -> dict[str, None]:
        """Return the resources whose runs make room for others: those that ran least recently."""
        sizes = self._sizes[bucket]
        for uid, value in values.items():
            sizes.pop(uid, None)
            if value is not None:
                sizes[uid] = len(value) * 4 // 3
        gone: dict[str, None] = {}
        while sum(sizes.values()) > _MAX_BUCKET_BYTES:
            uid, _ = sizes.popitem(last=False)
            gone[uid] = None
        return gone

    async def _write(self, bucket: int, values: dict[str, bytes | None]) -> None:
        data = {
            uid: None if value is None else base64.b64encode(value).decode()
            for uid, value in values.items()
        }
        try:
            await self._patch(bucket, data)
        except NotFound:
            kept = {uid: value for uid, value in data.items() if value is not None}
            if kept and not await self._create(bucket, kept):
                await self._patch(bucket, data)

    async def _patch(self, bucket: int, data: dict[str, str | None]) -> None:
        await self._api.request(
            "PATCH",
            self._path_of(bucket),
            params={"fieldManager": FIELD_MANAGER},
            body={"binaryData": data},
            content_type=MERGE_PATCH,
            fence=self._fence(),
        )

    async def _create(self, bucket: int, data: dict[str, str]) -> bool:
        """Create a ConfigMap; return False if another replica has done so."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{self._name}-runs-{bucket}"},
            "binaryData": data,
        }
        try:
            await self._api.request(
                "POST",
                self._path,
                params={"fieldManager": FIELD_MANAGER},
                body=body,
                fence=self._fence(),
            )
        except Conflict:
            return False
        return True


def bucket_of(uid: str) -> int:
    """Return the number of the ConfigMap of a resource."""
    return zlib.crc32(uid.encode()) % BUCKETS


def encode(documents: Sequence[Json]) -> bytes | None:
    """Return the last runs that fit, compressed; None if there is none."""
    runs = [compact(each) for each in documents]
    while runs:
        value = zlib.compress(json.dumps(runs).encode())
        if len(value) <= _MAX_VALUE_BYTES:
            return value
        runs = runs[1:]
    return None


def decode(text: str, uid: str) -> Iterator[Json]:
    """Yield the runs in a value of a ConfigMap; nothing if it is not one that `encode` wrote."""
    try:
        unpacked = zlib.decompressobj().decompress(base64.b64decode(text), _MAX_DOCUMENT_BYTES)
        documents = json.loads(unpacked)
        for each in documents:
            if (
                isinstance(each["id"], str)
                and each["id"].isalnum()
                and isinstance(each["started"], str)
                and each["resource"]["uid"] == uid
                and _ref_of(each).name
            ):
                yield each
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error):
        return


def _ref_of(document: Json) -> ObjectRef:
    resource = document["resource"]
    gvk = GVK.of(str(resource["apiVersion"]), str(resource["kind"]))
    return ObjectRef(gvk, str(resource.get("namespace") or ""), str(resource["name"]))
