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
from collections.abc import Callable, Sequence

import structlog

from operator_runner.core.errors import ApiError, Conflict, Forbidden, NotFound
from operator_runner.core.fencing import UNFENCED, Fence
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.core.settings import RUN_ARCHIVES, run_archive_names
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, Api
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.record import compact
from operator_runner.telemetry.runs.store import RunStore

_log = structlog.get_logger(__name__)

RUNS = 3
"""Runs of each resource that are kept."""
_MAX_VALUE_BYTES = 8 * 1024
"""Limit for one resource; older runs are dropped first."""
_MAX_BUCKET_BYTES = 600 * 1024
"""Limit for all values of a ConfigMap, which the API server limits to 1 MiB."""
_MAX_DOCUMENT_BYTES = 256 * 1024
"""Limit for a decompressed value: users with write access could have replaced it."""
_MAX_LOADED_BYTES = 32 * 1024 * 1024
"""Limit for all decompressed values."""
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
        """Use the ConfigMaps of the Lease `name` in `namespace`; `fence` permits writes."""
        self._api, self._store, self._fence = api, store, fence
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._maps = run_archive_names(name)
        self._sizes: defaultdict[int, OrderedDict[str, int]] = defaultdict(OrderedDict)
        self._changed: dict[str, ObjectRef | None] = {}
        self._wake = asyncio.Event()
        self._is_permitted = False
        self._unpacked_bytes = 0

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
        for bucket in range(RUN_ARCHIVES):
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
            await self._restore(bucket, found.get("binaryData") or {})
        if self._unpacked_bytes > _MAX_LOADED_BYTES:
            _log.warning(
                "Runs of earlier Pods are too large; the rest is ignored",
                configmaps=self._names,
                limit_bytes=_MAX_LOADED_BYTES,
            )
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
        """Write what has changed. Errors are logged; what was not sent is written the next time."""
        if not self._is_permitted:
            self._changed.clear()
            return
        for bucket in sorted({bucket_of(uid) for uid in self._changed}):
            await self._flush_bucket(bucket)

    async def _flush_bucket(self, bucket: int) -> None:
        changed = {uid: ref for uid, ref in self._changed.items() if bucket_of(uid) == bucket}
        for uid in changed:
            del self._changed[uid]
        is_done = False
        try:
            values = {uid: self._value(uid, ref) for uid, ref in changed.items()}
            evicted = self._evicted(bucket, values)
            changed |= dict.fromkeys(evicted)
            await self._write(bucket, {**values, **evicted})
            is_done = True
        except ApiError as error:
            # Changes would pile up if they were kept without permission.
            is_done = isinstance(error, Forbidden)
            _log.warning("Cannot write runs to ConfigMaps", error=str(error))
        except Exception as error:  # noqa: BLE001 (no error here may end the operator)
            is_done = True
            _log.error("Cannot write runs to ConfigMaps: internal error", exc_info=error)
        finally:
            if not is_done:
                self._changed = {**changed, **self._changed}

    def _value(self, uid: str, ref: ObjectRef | None) -> bytes | None:
        return None if ref is None else encode(self._store.last(ref, uid, RUNS))

    @property
    def _names(self) -> str:
        return f"{self._maps[0]} to {self._maps[-1]}"

    def _path_of(self, bucket: int) -> str:
        return f"{self._path}/{self._maps[bucket]}"

    async def _restore(self, bucket: int, values: Json) -> None:
        for uid, value in values.items():
            text = str(value)
            self._sizes[bucket][uid] = len(text)
            if self._unpacked_bytes > _MAX_LOADED_BYTES:
                continue
            unpacked = unpack(text)
            self._unpacked_bytes += len(unpacked)
            if runs := decode(unpacked, uid):
                self._store.restore(_ref_of(runs[0]), runs)
            # Others of this event loop are served between two values.
            await asyncio.sleep(0)

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
            "metadata": {"name": self._maps[bucket]},
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
    return zlib.crc32(uid.encode()) % RUN_ARCHIVES


def encode(documents: Sequence[Json]) -> bytes | None:
    """Return the last runs that fit, compressed, or None."""
    runs = [compact(each) for each in documents]
    while runs:
        document = json.dumps(runs).encode()
        value = zlib.compress(document)
        if len(value) <= _MAX_VALUE_BYTES and len(document) <= _MAX_DOCUMENT_BYTES:
            return value
        runs = runs[1:]
    return None


def unpack(text: str) -> bytes:
    """Return the first part of a value of a ConfigMap; empty if it is not compressed."""
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text), _MAX_DOCUMENT_BYTES)
    except (ValueError, zlib.error):
        return b""


def decode(unpacked: bytes, uid: str) -> list[Json]:
    """Return the runs of a resource in an unpacked value; none if `encode` has not written it.

    Users with write access to the ConfigMap could have replaced it.
    """
    try:
        documents = json.loads(unpacked)
        runs = [compact(check_run(each)) for each in documents[-RUNS:]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    refs = {_ref_of(each) for each in runs}
    is_of_one = len(refs) == 1 and all(each["resource"].get("uid") == uid for each in runs)
    return runs if is_of_one else []


def _ref_of(run: Json) -> ObjectRef:
    resource = run["resource"]
    gvk = GVK.of(resource["apiVersion"], resource["kind"])
    return ObjectRef(gvk, resource.get("namespace", ""), resource["name"])
