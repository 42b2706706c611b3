"""Compare what a run writes with what it has read before. Pure.

Contents of objects, which may be Secrets, are kept during the run only, and only those of the last
few objects; what remains are paths, digests, and short texts of values that are not secret. See
docs/adr/0030-idempotence.md and docs/adr/0039-operator-api.md.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Any

from operator_runner.core.model import LAST_APPLIED, PART_OF, FieldChange, Json, ObjectRef
from operator_runner.core.object_diff import ABSENT, changed_fields, is_cut
from operator_runner.core.texts import redact, truncated

MAX_CHANGES = 32
"""Maximum fields of one write, and of one run, that are recorded."""
_MAX_OBJECTS = 8
_MAX_BYTES = 2 * 1024 * 1024
"""Objects and bytes of JSON that are kept for a run; modules write an object after reading it."""
_MAX_PATH_CHARACTERS = 200
_KEY = secrets.token_bytes(16)
"""Key of the digests, so that a short password cannot be found by its digest."""
_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")
_MAX_VALUE_BYTES = 300
"""Limit for a displayed value."""
_SECRET_KINDS = frozenset({"Secret", "SealedSecret", "TokenRequest"})
_REPORTS = frozenset({"Event", "Lease"})
"""Kinds that are written again and again on purpose."""


class SeenObjects:
    """The contents of the last objects in the responses to a run."""

    def __init__(self) -> None:
        """Start empty."""
        self._bodies: OrderedDict[ObjectRef, tuple[str, bytes]] = OrderedDict()
        self._bytes = 0

    def replace(self, ref: ObjectRef, version: str, body: bytes) -> bytes | None:
        """Keep an object as JSON; return the previous content if its resourceVersion differs."""
        if ref.gvk.kind in _REPORTS:
            return None
        old_version, old = self._bodies.pop(ref, (version, b""))
        self._bytes += len(body) - len(old)
        self._bodies[ref] = version, body
        while len(self._bodies) > _MAX_OBJECTS or self._bytes > _MAX_BYTES:
            _, (_, dropped) = self._bodies.popitem(last=False)
            self._bytes -= len(dropped)
        return old if old_version != version else None


def field_changes(ref: ObjectRef, before: Json, after: Json, at: float) -> list[FieldChange]:
    """Return the fields of an object that differ, without its status and the server's metadata."""
    return [
        FieldChange(
            ref,
            path[:_MAX_PATH_CHARACTERS],
            _digest(old),
            _digest(new),
            at,
            displayed(ref.gvk.kind, path, old),
            displayed(ref.gvk.kind, path, new),
        )
        for path, old, new in islice(_changed(before, after), MAX_CHANGES)
    ]


def _changed(before: Json, after: Json) -> Iterator[tuple[str, Any, Any]]:
    return changed_fields(_compared(before), _compared(after))


def _compared(body: Json) -> Json:
    """Return the part of an object that its writers decide."""
    metadata = {
        name: value for name, value in (body.get("metadata") or {}).items() if name in _METADATA
    }
    for part, ours in (("annotations", LAST_APPLIED), ("labels", PART_OF)):
        if isinstance(values := metadata.get(part), dict):
            metadata[part] = {name: value for name, value in values.items() if name != ours}
    content = {
        name: value
        for name, value in body.items()
        if name not in {"apiVersion", "kind", "metadata", "status"}
    }
    return {"metadata": metadata, **content}


def _digest(value: Any) -> bytes:
    if value is ABSENT:
        return b""
    text = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=8, key=_KEY).digest()


def displayed(kind: str, path: str, value: Any) -> str | None:
    """Return a value as short JSON, empty for ABSENT; None if it may be secret.

    Secret are the content of Secrets, environment variables, and fields that are named so, or
    whose name is not known because the path is cut.
    """
    if value is ABSENT:
        return ""
    if kind in _SECRET_KINDS or ".env[" in path or is_cut(path):
        return None
    name = path.rpartition(".")[2].partition("[")[0]
    text = json.dumps(value, sort_keys=True)
    if '"env"' in text or redact({name: value}) != {name: value}:
        return None
    return truncated(text, _MAX_VALUE_BYTES)
