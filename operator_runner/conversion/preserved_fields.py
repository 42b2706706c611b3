"""The annotation that preserves fields that a version cannot represent. Pure.

`conversion.operator-runner.dev/v1alpha2` on an object of v1alpha1 holds, as JSON:

    {"seen": "0a1b2c3d", "set": {"spec.ports": [...]}, "unset": ["spec.tls"]}

`set` are fields of v1alpha2 that cannot be computed from the object, `unset` those that would be
computed but were missing. `seen` is the digest of the fields of v1alpha1 that were computed from
them: if it matches, these have not been edited.

If it would be too large, an object that is only read has the names of the fields that it lacks:

    {"lost": ["spec.ports"]}

An edit in a lower version is merged into the richer value in three ways: edited parts are taken
from the edit, the others are kept. A value that is nested too deep to be decoded (the API server
stores 10,000 levels, Python's JSON decoder raises RecursionError near 1,000) is replaced by a mark,
a text that no stored object can contain, and the mark in the response by the value.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from operator_runner.core.json_bounds import MAX_DEPTH, depth, prune, values_at
from operator_runner.core.model import ANNOTATION_DOMAIN, FieldPath, Json
from operator_runner.core.object_diff import ABSENT, canonical_json

_REVIEW_LEVELS = 3
"""Levels above each object, in the request as in the response."""
_MAX_LEVELS = 9_900
"""Levels of a response. The API server decodes 10,000; expressions may add some."""
_MARK = "\ud800"
"""Begins each mark. The API server stores no lone surrogates: it replaces them by U+FFFD."""
_CUT = f"{_MARK}cut-"
"""Begins the mark of a value that has too many levels for a response, and is cut there."""
_MARKED = re.compile(rb'"\\ud800(?:cut-)?[0-9a-f]{32}"')
"""A mark in JSON in ASCII."""
_IN_TEXT = re.compile(rb"\\ud800(?:cut-)?[0-9a-f]{32}")
"""The same as a part of a text, which may be JSON itself."""


class DeepValues:
    """The values below MAX_DEPTH levels of the objects of a review that have as many themselves."""

    def __init__(self, review: bytes) -> None:
        """Take them out of a review in JSON; `shallow` is the review with marks."""
        levels = _REVIEW_LEVELS + MAX_DEPTH
        self._values: dict[bytes, bytes] = {}
        parts: list[bytes] = []
        end = 0
        for begin, after in values_at(review, levels + 1):
            # The decoder has room for others: to mark many short ones would take long.
            if after - begin > 2 * MAX_DEPTH and (added := depth(review[begin:after])) > MAX_DEPTH:
                mark = self._mark(review[begin:after], added, _MAX_LEVELS - levels)
                parts += [review[end:begin], mark]
                end = after
        self.shallow = b"".join([*parts, review[end:]])

    def _mark(self, value: bytes, added: int, levels: int) -> bytes:
        is_cut = added > levels
        digest = hashlib.sha256(value).hexdigest()[:32]
        mark = f'"{_CUT if is_cut else _MARK}{digest}"'.encode("ascii", errors="backslashreplace")
        self._values[mark] = prune(value, levels) if is_cut else value
        return mark

    def restore(self, response: bytes) -> bytes:
        """Return a response in ASCII with the values in place of their marks."""
        return _MARKED.sub(lambda mark: self._values.get(mark[0], mark[0]), response)


def is_cut(value: Any) -> bool:
    """Return whether a response cannot contain the whole value."""
    return _CUT in canonical_json(value)


def has_marks(text: str) -> bool:
    """Return whether JSON contains values that are nested too deep."""
    return _MARK in text


def check_result(value: Any) -> None:
    """Raise ValueError if the result of an expression has a deep value within a text."""
    text = json.dumps(value).encode()
    if _IN_TEXT.search(_MARKED.sub(b"", text)):
        raise ValueError(f"values nested deeper than {MAX_DEPTH} levels cannot be made text")


def get(body: Json, path: FieldPath) -> Any:
    """Return the value of a field, ABSENT if it or a parent is missing."""
    value: Any = body
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return ABSENT
        value = value[name]
    return value


def put(body: Json, path: FieldPath, value: Any) -> Json:
    """Return the object with a field set, or removed for ABSENT; parents are created.

    Raises ValueError if a parent of the field is not an object.
    """
    name, *rest = path
    if not rest:
        others = {key: old for key, old in body.items() if key != name}
        return others if value is ABSENT else {**body, name: value}
    inner = body.get(name, ABSENT)
    if inner is ABSENT or inner is None:
        if value is ABSENT:
            return body
        inner = {}
    if not isinstance(inner, dict):
        if value is ABSENT:
            return body
        raise ValueError(f"{name} is not an object: {json.dumps(inner)[:50]}")
    return {**body, name: put(inner, tuple(rest), value)}


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; 1 is neither true nor 1.0."""
    if one is ABSENT or other is ABSENT:
        return one is other
    return canonical_json(one) == canonical_json(other)


_LEVELS = 50
_COMPARISONS = 100_000
"""Bounds, because each level compares the whole subtree; beyond them, the edited value is used."""


def merge(base: Any, edited: Any, rich: Any, levels: int = _LEVELS) -> Any:
    """Return `rich` with the changes from `base` to `edited`; ABSENT is a value too.

    Maps are merged key by key. Lists are merged item by item if the edit neither added nor
    removed one; otherwise the edited list is used, as are values below `levels` levels.
    """
    if same(base, edited):
        return rich
    if levels == 0:
        return edited
    match base, edited, rich:
        case dict(), dict(), dict():
            keys = dict.fromkeys([*rich, *edited])
            below = levels - 1
            merged = {
                key: merge(_of(base, key), _of(edited, key), _of(rich, key), below) for key in keys
            }
            return {key: value for key, value in merged.items() if value is not ABSENT}
        case list(), list(), list() if len(base) == len(edited) <= len(rich):
            return _merge_lists(base, edited, rich, levels - 1)
        case _:
            return edited


def _of(side: dict[str, Any], key: str) -> Any:
    return side.get(key, ABSENT)


def _merge_lists(base: list[Any], edited: list[Any], rich: list[Any], levels: int) -> list[Any]:
    seen = len(edited)
    changed = [new for old, new in zip(base, edited, strict=True) if not same(old, new)]
    if len(changed) * (len(rich) - seen) > _COMPARISONS:
        return edited
    merged = [merge(*items, levels) for items in zip_longest(base, edited, rich[:seen])]
    # An unseen item that contains an edited one would be a duplicate: for example the port
    # 9090 after 8080 was edited to 9090.
    unseen = [item for item in rich[seen:] if not any(_contains(item, new) for new in changed)]
    return merged + unseen


def _contains(item: Any, new: Any) -> bool:
    if isinstance(item, dict) and isinstance(new, dict):
        return all(same(item.get(key, ABSENT), value) for key, value in new.items())
    return same(item, new)


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
