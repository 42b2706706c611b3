"""One object of one kind, converted into another of its versions. Pure.

Each version converts into the hub, the version of the watch, and from there into any other.
One step does three things: what one version alone has is left out, what the other alone has is
computed by its expressions, and what would be lost is kept in an annotation (see `keeping`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import structlog

from operator_runner.conversion import preserved_fields
from operator_runner.conversion.field_paths import ABSENT, get, put, same
from operator_runner.conversion.merging import merge
from operator_runner.conversion.preserved_fields import Fields, Kept
from operator_runner.core.model import GVK, Conversion, FieldPath, Json

Evaluate: TypeAlias = Callable[[str, Json], Any]
"""Gives what a JMESPath expression finds in an object; raises ValueError."""

_log = structlog.get_logger(__name__)


class ConversionError(Exception):
    """An object cannot be converted; the text names it, the versions and the field."""


@dataclass(frozen=True, slots=True)
class Step:
    """From one version to the next: the fields that only `target` has, and only `source`."""

    source: str
    target: str
    gives: Mapping[FieldPath, str | None]
    takes: Mapping[FieldPath, str | None]
    fields: Fields
    """What can get lost in this step, and on the way back."""

    @classmethod
    def up(cls, conversion: Conversion, hub: str) -> Step:
        """Return the step of a version to the hub."""
        gives, takes = conversion.to_hub, conversion.from_hub
        return cls(conversion.version, hub, gives, takes, Fields.of(*gives, *takes))

    @property
    def back(self) -> Step:
        """The same step in the other direction."""
        return Step(self.target, self.source, self.takes, self.gives, self.fields)


class Converter:
    """Converts the objects of one kind."""

    def __init__(self, hub: GVK, conversions: Sequence[Conversion], evaluate: Evaluate) -> None:
        """Take the kind with its hub version, and how the others convert into that."""
        self._hub = hub
        self._evaluate = evaluate
        self._up = {each.version: Step.up(each, hub.version) for each in conversions}

    @property
    def versions(self) -> tuple[str, ...]:
        """All versions that can be converted, the hub first."""
        return (self._hub.version, *self._up)

    def convert(self, body: Json, version: str) -> Json:
        """Return the object in another version; raises ConversionError."""
        source = GVK.of(body["apiVersion"], body["kind"]).version
        for step in self._route(body, source, version):
            body = self._take(step, body)
        return body

    def _route(self, body: Json, source: str, target: str) -> Iterator[Step]:
        for version in (source, target):
            if version not in self.versions:
                raise ConversionError(
                    f"{name_of(body)}: cannot convert {source} to {target}: watches.yaml says "
                    f"nothing of {version}; it converts {', '.join(self.versions)}"
                )
        if source == target:
            return
        if source != self._hub.version:
            yield self._up[source]
        if target != self._hub.version:
            yield self._up[target].back

    def _take(self, step: Step, body: Json) -> Json:
        plain = self._plain(step, body)
        result = self._restored(step, body, plain)
        result = preserved_fields.write(result, step.target, Kept())
        back = self._plain(step.back, result)
        kept = preserved_fields.lost(
            body, back, step.fields, preserved_fields.digest(result, step.fields.own)
        )
        try:
            return preserved_fields.write(result, step.source, kept)
        except ValueError as error:
            fields = ", ".join(map(preserved_fields.text, kept.values))
            raise _error(step, body, fields, error) from error

    def _plain(self, step: Step, body: Json) -> Json:
        """Convert by the expressions alone."""
        made = {**body, "apiVersion": GVK(self._hub.group, step.target, "").api_version}
        for path in (*step.takes, *step.gives):
            made = put(made, path, ABSENT)
        for path, expression in step.gives.items():
            if expression is None:
                continue
            try:
                value = self._evaluate(expression, body)
                if value is not None:
                    made = put(made, path, value)
            except ValueError as error:
                raise _error(step, body, preserved_fields.text(path), error) from error
        return made

    def _restored(self, step: Step, body: Json, plain: Json) -> Json:
        """Return the result with the fields that an annotation keeps for it, if they fit still.

        An annotation that makes no sense was edited by hand. It is ignored: were it an error,
        one such object would make all objects of its kind unreadable.
        """
        try:
            kept = preserved_fields.read(body, step.target, step.fields)
            return self._rejoined(step, body, plain, kept) if kept else plain
        except (ValueError, RecursionError, ConversionError) as error:
            _log.warning(
                "An annotation of the conversion is ignored, for it was edited by hand",
                resource=name_of(body),
                annotation=preserved_fields.PREFIX + step.target,
                reason=str(error),
            )
            return plain

    def _rejoined(self, step: Step, body: Json, plain: Json, kept: Kept) -> Json:
        whole = kept.restore(plain, step.fields)
        if kept.seen == preserved_fields.digest(body, step.fields.own):
            return whole
        then, now = self._plain(step.back, whole), self._plain(step.back, plain)
        if _alike(then, now, step.takes):
            return whole
        # The fields that stand for what is kept were edited since.
        base = self._plain(step, then)
        touched = [p for p in step.gives if not same(get(base, p), get(plain, p))]
        merged, taken = whole, whole
        for path in touched:
            new = merge(get(base, path), get(plain, path), get(whole, path))
            merged = put(merged, path, new)
            taken = put(taken, path, get(plain, path))
        # Whoever edited the lower version must read there what was written.
        for candidate in (merged, taken):
            if _alike(self._plain(step.back, candidate), now, step.takes):
                return candidate
        return plain


def name_of(body: Json) -> str:
    """Return kind, namespace and name of an object, for people; whatever it lacks is left out."""
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
