"""The annotation that preserves fields that a version cannot represent. Pure.

`conversion.operator-runner.dev/v1alpha2` on an object of v1alpha1 holds, as JSON:

    {"seen": "0a1b2c3d", "set": {"spec.ports": [...]}, "unset": ["spec.tls"]}

`set` are fields of v1alpha2 that cannot be computed from the object, `unset` those that would be
computed but were missing. `seen` is the digest of the fields of v1alpha1 that were computed from
them: if it matches, these have not been edited.

If it would be too large, an object that is only read has the names of the fields that it lacks:

    {"lost": ["spec.ports"]}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from operator_runner.conversion.deep_values import has_marks
from operator_runner.conversion.field_paths import ABSENT, get, put, same
from operator_runner.core.canonical_json import canonical_json
from operator_runner.core.json_bounds import MAX_DEPTH, depth
from operator_runner.core.model import ANNOTATION_DOMAIN, FieldPath, Json

PREFIX = f"conversion.{ANNOTATION_DOMAIN}/"
_LOST = "lost"
_MAX_ANNOTATION_BYTES = 256 * 1024
"""The API server's limit for all annotations of an object, keys included."""


class CannotPreserve(ValueError):
    """An annotation cannot hold the fields: they are too large, or nested too deep."""


@dataclass(frozen=True, slots=True)
class PreservedFields:
    """Fields of another version: values, and the topmost paths of missing ones."""

    values: Mapping[FieldPath, Any] = field(default_factory=dict)
    absent: tuple[FieldPath, ...] = ()
    seen: str = ""

    def __bool__(self) -> bool:
        """Return whether any field is preserved."""
        return bool(self.values or self.absent)

    def restore(self, body: Json, fields: ConvertedFields) -> Json:
        """Return the object with the preserved fields."""
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
class ConvertedFields:
    """Fields that can be lost between two versions: those that differ, and their parents.

    The fields are in the order in which they can be set, the outermost first; the parents in the
    order in which they can be removed, the innermost first.
    """

    own: Sequence[FieldPath]
    maps: Sequence[FieldPath]

    @classmethod
    def of(cls, *paths: FieldPath) -> ConvertedFields:
        """Return the fields for the paths that only one of the versions has."""
        maps = {path[:end] for path in paths for end in range(1, len(path))}
        return cls(
            sorted(set(paths), key=lambda path: (len(path), path)),
            sorted(maps, key=lambda path: (-len(path), path)),
        )


def lost(body: Json, back: Json, fields: ConvertedFields, seen: str) -> PreservedFields:
    """Return the fields of an object that differ in `back`, the object after a round trip."""
    maps = [path for path in fields.maps if not isinstance(get(body, path), dict)]
    missing = [path for path in (*fields.own, *maps) if not same(get(body, path), get(back, path))]
    values = {path: value for path in missing if (value := get(body, path)) is not ABSENT}
    absent = dict.fromkeys(_topmost(body, path) for path in missing if path not in values)
    return PreservedFields(values, tuple(absent), seen)


def digest(body: Json, paths: Iterable[FieldPath]) -> str:
    """Return a short hash of these fields."""
    found = {text(path): value for path in paths if (value := get(body, path)) is not ABSENT}
    return hashlib.sha256(canonical_json(found).encode(errors="surrogatepass")).hexdigest()[:12]


def write(body: Json, version: str, kept: PreservedFields) -> Json:
    """Return the object with the annotation for `version`, without it if `kept` is empty.

    Raises CannotPreserve.
    """
    return _annotated(body, version, _encode(kept) if kept else None)


def write_unpreserved(body: Json, version: str, kept: PreservedFields) -> Json:
    """Return the object with the names of fields that cannot be preserved, as far as they fit."""
    names = [text(path) for path in (*kept.values, *kept.absent)]
    for content in ({_LOST: names}, {_LOST: names[:1]}):
        with suppress(CannotPreserve):
            return _annotated(body, version, canonical_json(content))
    return _annotated(body, version, None)


def unpreserved(body: Json, version: str) -> list[str]:
    """Return the fields of `version` that an object lacks, as `write_unpreserved` names them."""
    with suppress(ValueError, RecursionError):
        content = json.loads(str(_annotations(body).get(PREFIX + version)))
        names = content.get(_LOST) if isinstance(content, dict) else None
        if isinstance(names, list):
            return [each for each in names if isinstance(each, str)]
    return []


def _annotated(body: Json, version: str, content: str | None) -> Json:
    metadata = body.get("metadata") or {}
    annotations = _annotations(body)
    before = len(annotations)
    annotations.pop(PREFIX + version, None)
    if content is not None:
        annotations[PREFIX + version] = content
        size = sum(len(key) + len(value) for key, value in map(_bytes, annotations.items()))
        if size > _MAX_ANNOTATION_BYTES:
            raise CannotPreserve(
                f"preserving it needs an annotation, and all annotations would have {size} bytes; "
                f"the limit is {_MAX_ANNOTATION_BYTES}: make the field smaller"
            )
    elif len(annotations) == before:
        return body
    metadata = put(metadata, ("annotations",), annotations or ABSENT)
    return {**body, "metadata": metadata}


def read(body: Json, version: str, fields: ConvertedFields) -> PreservedFields:
    """Return the preserved fields of `version`; raises ValueError for an invalid annotation."""
    encoded = _annotations(body).get(PREFIX + version)
    if encoded is None:
        return PreservedFields()
    if not isinstance(encoded, str):
        raise ValueError("not text")  # noqa: TRY004 the same to the caller as bad JSON
    if depth(encoded.encode(errors="replace")) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    content = json.loads(encoded)
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 the same to the caller as bad JSON
    values, absent = content.get("set", {}), content.get("unset", [])
    texts = isinstance(absent, list) and all(isinstance(each, str) for each in absent)
    if not isinstance(values, dict) or not texts:
        raise ValueError("expected a map of fields in set and a list of fields in unset")
    known = {text(path): path for path in (*fields.own, *fields.maps)}
    if unknown := [name for name in (*values, *absent) if name not in known]:
        raise ValueError(f"unknown field {unknown[0]} of {version}")
    return PreservedFields(
        {known[name]: value for name, value in values.items()},
        tuple(known[name] for name in absent),
        str(content.get("seen", "")),
    )


def text(path: FieldPath) -> str:
    """Return a path as in watches.yaml."""
    return ".".join(name if name.isidentifier() else json.dumps(name) for name in path)


def _annotations(body: Json) -> dict[str, Any]:
    """Return a copy of the annotations; their type is only certain in a stored object."""
    annotations = (body.get("metadata") or {}).get("annotations")
    return dict(annotations) if isinstance(annotations, dict) else {}


def _bytes(item: tuple[str, Any]) -> tuple[bytes, bytes]:
    key, value = item
    return key.encode(errors="replace"), str(value).encode(errors="replace")


def _encode(kept: PreservedFields) -> str:
    """Return the content of the annotation; raises CannotPreserve if `read` would not accept it."""
    content: Json = {"seen": kept.seen}
    if kept.values:
        content["set"] = {text(path): value for path, value in kept.values.items()}
    if kept.absent:
        content["unset"] = [text(path) for path in kept.absent]
    encoded = canonical_json(content)
    if has_marks(encoded) or depth(encoded.encode(errors="replace")) > MAX_DEPTH:
        raise CannotPreserve(f"it cannot be preserved: nested deeper than {MAX_DEPTH} levels")
    return encoded


def _topmost(body: Json, path: FieldPath) -> FieldPath:
    """Return the shortest part of a path that is missing in the object."""
    return next(path[:end] for end in range(1, 1 + len(path)) if get(body, path[:end]) is ABSENT)


def _below(top: FieldPath, paths: Iterable[FieldPath]) -> list[FieldPath]:
    return [path for path in paths if path[: len(top)] == top]
