"""The annotation that keeps what a version cannot say, for the way back. Pure.

`conversion.operator-runner.dev/v1alpha2` on an object of v1alpha1 holds, as JSON:

    {"seen": "0a1b2c3d", "set": {"spec.ports": [...]}, "unset": ["spec.tls"]}

`set` are fields of v1alpha2 that do not follow from the object, `unset` those that would follow
but are not there. `seen` is the digest of the fields of v1alpha1 that were made in their place:
as long as it fits, nobody has edited them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from operator_runner.conversion.field_paths import ABSENT, canonical, get, put, same
from operator_runner.core.bounds import MAX_DEPTH, depth
from operator_runner.core.model import ANNOTATION_DOMAIN, FieldPath, Json

PREFIX = f"conversion.{ANNOTATION_DOMAIN}/"
_LIMIT = 256 * 1024
"""Bytes that all annotations of an object may have, keys included: the API server's limit."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Fields of another version: values, and the topmost paths of those that are absent."""

    values: Mapping[FieldPath, Any] = field(default_factory=dict)
    absent: tuple[FieldPath, ...] = ()
    seen: str = ""

    def __bool__(self) -> bool:
        """Whether anything is kept."""
        return bool(self.values or self.absent)

    def restore(self, body: Json, fields: Fields) -> Json:
        """Return the object with all that is kept."""
        for path, value in sorted(self.values.items(), key=lambda each: len(each[0])):
            body = put(body, path, value)
        for top in self.absent:
            for path in _below(top, fields.own):
                body = put(body, path, ABSENT)
            for path in _below(top, fields.maps):
                if get(body, path) == {}:
                    body = put(body, path, ABSENT)
        return body


@dataclass(frozen=True, slots=True)
class Fields:
    """What can be lost between two versions: fields that are not the same, and maps around them.

    The fields are in the order in which they can be set, the outermost first; the maps in the
    order in which they can be emptied, the innermost first.
    """

    own: Sequence[FieldPath]
    maps: Sequence[FieldPath]

    @classmethod
    def of(cls, *paths: FieldPath) -> Fields:
        """Take the fields that either version has alone."""
        maps = {path[:end] for path in paths for end in range(1, len(path))}
        return cls(
            sorted(set(paths), key=lambda path: (len(path), path)),
            sorted(maps, key=lambda path: (-len(path), path)),
        )


def lost(body: Json, back: Json, fields: Fields, seen: str) -> Kept:
    """Return what of an object's fields does not come back; `back` is what does."""
    maps = [path for path in fields.maps if not isinstance(get(body, path), dict)]
    missing = [path for path in (*fields.own, *maps) if not same(get(body, path), get(back, path))]
    values = {path: value for path in missing if (value := get(body, path)) is not ABSENT}
    absent = dict.fromkeys(_topmost(body, path) for path in missing if path not in values)
    return Kept(values, tuple(absent), seen)


def digest(body: Json, paths: Iterable[FieldPath]) -> str:
    """Return a short text that changes when one of these fields is edited."""
    found = {text(path): value for path in paths if (value := get(body, path)) is not ABSENT}
    return hashlib.sha256(canonical(found).encode(errors="surrogatepass")).hexdigest()[:12]


def write(body: Json, version: str, kept: Kept) -> Json:
    """Return the object with what is kept of `version`, or without the annotation.

    Raises ValueError if that is more than annotations can hold.
    """
    metadata = body.get("metadata") or {}
    annotations = _annotations(body)
    before = len(annotations)
    annotations.pop(PREFIX + version, None)
    if kept:
        annotations[PREFIX + version] = _encode(kept)
        size = sum(len(key) + len(value) for key, value in map(_bytes, annotations.items()))
        if size > _LIMIT:
            raise ValueError(
                f"it needs an annotation there, and all annotations would be {size} bytes of "
                f"{_LIMIT} at most; make the field smaller"
            )
    elif len(annotations) == before:
        return body
    metadata = put(metadata, ("annotations",), annotations or ABSENT)
    return {**body, "metadata": metadata}


def read(body: Json, version: str, fields: Fields) -> Kept:
    """Return what is kept of `version`; raises ValueError for what nobody can have written here."""
    encoded = _annotations(body).get(PREFIX + version)
    if encoded is None:
        return Kept()
    if not isinstance(encoded, str):
        raise ValueError("not text")  # noqa: TRY004 the same to the caller as bad JSON
    if depth(encoded.encode(errors="replace")) > MAX_DEPTH:
        raise ValueError(f"no JSON of at most {MAX_DEPTH} levels")
    content = json.loads(encoded)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 the same to the caller as bad JSON
    values, absent = content.get("set", {}), content.get("unset", [])
    texts = isinstance(absent, list) and all(isinstance(each, str) for each in absent)
    if not isinstance(values, dict) or not texts:
        raise ValueError("set is a map of fields, unset a list of them")
    known = {text(path): path for path in (*fields.own, *fields.maps)}
    if unknown := [name for name in (*values, *absent) if name not in known]:
        raise ValueError(f"{version} has no field {unknown[0]} of its own")
    return Kept(
        {known[name]: value for name, value in values.items()},
        tuple(known[name] for name in absent),
        str(content.get("seen", "")),
    )


def text(path: FieldPath) -> str:
    """Return a path as it is written in watches.yaml."""
    return ".".join(name if name.isidentifier() else json.dumps(name) for name in path)


def _annotations(body: Json) -> dict[str, Any]:
    """Return a copy of the annotations; the API server has checked their shape, others have not."""
    annotations = (body.get("metadata") or {}).get("annotations")
    return dict(annotations) if isinstance(annotations, dict) else {}


def _bytes(item: tuple[str, Any]) -> tuple[bytes, bytes]:
    key, value = item
    return key.encode(errors="replace"), str(value).encode(errors="replace")


def _encode(kept: Kept) -> str:
    content: Json = {"seen": kept.seen}
    if kept.values:
        content["set"] = {text(path): value for path, value in kept.values.items()}
    if kept.absent:
        content["unset"] = [text(path) for path in kept.absent]
    return canonical(content)


def _topmost(body: Json, path: FieldPath) -> FieldPath:
    """Return the part of a path from which on nothing is there."""
    return next(path[:end] for end in range(1, 1 + len(path)) if get(body, path[:end]) is ABSENT)


def _below(top: FieldPath, paths: Iterable[FieldPath]) -> list[FieldPath]:
    return [path for path in paths if path[: len(top)] == top]
