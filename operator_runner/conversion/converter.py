"""Convert an object to another version of its kind. Pure.

Each version converts to the hub, which is the version of the watch, and from there to any other.
A step removes the fields of the source version, computes those of the target version by its
expressions, and stores fields that would be lost in an annotation (see `preserved_fields`).

A conversion to the storage version may be a write: it is complete, or an error. All others are
reads, for which every object is converted as far as possible: one error would make the lists of
all namespaces unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import structlog

from operator_runner.conversion import preserved_fields
from operator_runner.conversion.preserved_fields import (
    CannotPreserve,
    ConvertedFields,
    PreservedFields,
    check_result,
    get,
    is_cut,
    merge,
    put,
    same,
)
from operator_runner.core.model import GVK, Conversion, FieldPath, Json
from operator_runner.core.object_diff import ABSENT

Evaluate: TypeAlias = Callable[[str, Json], Any]
"""Evaluates a JMESPath expression on an object; raises ValueError."""

_log = structlog.get_logger(__name__)


class ConversionError(Exception):
    """An object cannot be converted; the message names it, the versions and the field."""


@dataclass(frozen=True, slots=True)
class Step:
    """A conversion to or from the hub: the fields that only `target` or `source` has."""

    source: str
    target: str
    gives: Mapping[FieldPath, str | None]
    takes: Mapping[FieldPath, str | None]
    fields: ConvertedFields
    """Fields that can be lost in this step, and in the opposite one."""

    @classmethod
    def up(cls, conversion: Conversion, hub: str) -> Step:
        """Return the step from a version to the hub."""
        gives, takes = conversion.to_hub, conversion.from_hub
        return cls(conversion.version, hub, gives, takes, ConvertedFields.of(*gives, *takes))

    @property
    def back(self) -> Step:
        """Return the step in the other direction."""
        return Step(self.target, self.source, self.takes, self.gives, self.fields)


@dataclass(frozen=True, slots=True)
class Storage:
    """The versions in which the API server stores objects of a kind."""

    current: str
    """The version of all writes."""
    former: frozenset[str] = frozenset()
    """Other versions in which objects may still be stored."""

    @classmethod
    def of(cls, crd: Json) -> Storage:
        """Return those of a CRD."""
        current = next(each["name"] for each in crd["spec"]["versions"] if each["storage"])
        stored = (crd.get("status") or {}).get("storedVersions") or ()
        return cls(current, frozenset(stored) - {current})


class Converter:
    """Converts the objects of one kind."""

    storage: Storage | None = None
    """None while it is not known: then any conversion may be a write."""

    def __init__(self, hub: GVK, conversions: Sequence[Conversion], evaluate: Evaluate) -> None:
        """Convert between the hub version and the versions of `conversions`."""
        self._hub = hub
        self._evaluate = evaluate
        self._up = {each.version: Step.up(each, hub.version) for each in conversions}

    @property
    def versions(self) -> tuple[str, ...]:
        """Return all versions that can be converted, the hub first."""
        return (self._hub.version, *self._up)

    def convert(self, body: Json, version: str) -> Json:
        """Return the object in another version; raises ConversionError."""
        source = GVK.of(body["apiVersion"], body["kind"]).version
        is_read = self.storage is not None and version != self.storage.current
        if not is_read and is_cut(body):
            raise ConversionError(f"{name_of(body)}: nested too deep to be converted")
        for step in self._route(body, source, version):
            if not is_read:
                self._check_complete(step, body)
            body = self._convert_step(step, body, is_read=is_read)
        return body

    def _route(self, body: Json, source: str, target: str) -> Iterator[Step]:
        for version in (source, target):
            if version not in self.versions:
                raise ConversionError(
                    f"{name_of(body)}: cannot convert {source} to {target}: watches.yaml has no "
                    f"conversion of {version}, only of {', '.join(self.versions)}"
                )
        if source == target:
            return
        if source != self._hub.version:
            yield self._up[source]
        if target != self._hub.version:
            yield self._up[target].back

    def _check_complete(self, step: Step, body: Json) -> None:
        """Raise ConversionError for an object without fields that a read could not preserve.

        Stored objects may have such an annotation too, which a user has written, and are read.
        """
        if self.storage is None or step.source in self.storage.former:
            return
        if lost := preserved_fields.unpreserved(body, step.target):
            raise ConversionError(
                f"{name_of(body)}: cannot convert {step.source} to {step.target}: {step.source} "
                f"does not have {', '.join(lost)} of {step.target}, which do not fit into its "
                f"annotations; write the object as {step.target}"
            )

    def _convert_step(self, step: Step, body: Json, *, is_read: bool) -> Json:
        plain = self._plain(step, body, is_read=is_read)
        result = self._restored(step, body, plain)
        result = preserved_fields.write(result, step.target, PreservedFields())
        back = self._plain(step.back, result, is_read=is_read)
        kept = preserved_fields.lost(
            body, back, step.fields, preserved_fields.digest(result, step.fields.own)
        )
        try:
            return preserved_fields.write(result, step.source, kept)
        except CannotPreserve as error:
            fields = ", ".join(map(preserved_fields.text, (*kept.values, *kept.absent)))
            failure = _error(step, body, fields, error)
            if not is_read:
                raise failure from error
            _log.warning("Fields are missing in the converted object", error=str(failure))
            return preserved_fields.write_unpreserved(result, step.source, kept)

    def _plain(self, step: Step, body: Json, *, is_read: bool = False) -> Json:
        """Convert by the expressions alone, without preserved fields.

        In a read, a field whose expression fails is left out.
        """
        made = {**body, "apiVersion": GVK(self._hub.group, step.target, "").api_version}
        for path in (*step.takes, *step.gives):
            made = put(made, path, ABSENT)
        for path, expression in step.gives.items():
            if expression is None:
                continue
            try:
                value = self._evaluate(expression, body)
                check_result(value)
                if value is not None:
                    made = put(made, path, value)
            except ValueError as error:
                failure = _error(step, body, preserved_fields.text(path), error)
                if not is_read:
                    raise failure from error
                _log.warning("Fields are missing in the converted object", error=str(failure))
        return made

    def _restored(self, step: Step, body: Json, plain: Json) -> Json:
        """Return the result with the preserved fields of an annotation, if they still match.

        An invalid annotation was edited by hand and is ignored: an error would make all objects
        of the kind unreadable.
        """
        try:
            kept = preserved_fields.read(body, step.target, step.fields)
            return self._merge_preserved(step, body, plain, kept) if kept else plain
        except (ValueError, ConversionError) as error:
            _log.warning(
                "Ignoring an invalid conversion annotation",
                resource=name_of(body),
                annotation=preserved_fields.PREFIX + step.target,
                error=str(error),
            )
            return plain

    def _merge_preserved(self, step: Step, body: Json, plain: Json, kept: PreservedFields) -> Json:
        whole = kept.restore(plain, step.fields)
        if kept.seen == preserved_fields.digest(body, step.fields.own):
            return whole
        then, now = self._plain(step.back, whole), self._plain(step.back, plain)
        if _alike(then, now, step.takes):
            return whole
        # The fields that were computed from the preserved ones have been edited.
        base = self._plain(step, then)
        touched = [p for p in step.gives if not same(get(base, p), get(plain, p))]
        merged, taken = whole, whole
        for path in touched:
            new = merge(get(base, path), get(plain, path), get(whole, path))
            merged = put(merged, path, new)
            taken = put(taken, path, get(plain, path))
        # The lower version must read as it was edited.
        for candidate in (merged, taken):
            if _alike(self._plain(step.back, candidate), now, step.takes):
                return candidate
        return plain


def name_of(body: Json) -> str:
    """Return kind, namespace and name of an object for messages, as far as it has them."""
    metadata = body.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    path = "/".join(str(named[key])[:253] for key in ("namespace", "name") if named.get(key))
    return f"{str(body.get('kind', 'object'))[:63]} {path}".rstrip()


def _alike(one: Json, other: Json, paths: Mapping[FieldPath, Any]) -> bool:
    return all(same(get(one, path), get(other, path)) for path in paths)


def _error(step: Step, body: Json, field: str, reason: Exception) -> ConversionError:
    return ConversionError(
        f"{name_of(body)}: cannot convert {step.source} to {step.target}: {field}: {reason}"
    )
