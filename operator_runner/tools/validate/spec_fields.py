"""The fields of a kind's spec as variables of its role, from the CRD in the project. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from operator_runner.core.model import Json, Watch
from operator_runner.reconcile.snake_case import to_snake
from operator_runner.reconcile.variables import META, SCHEDULE_TIME, object_name
from operator_runner.tools.validate.expressions import ITEM, Path
from operator_runner.tools.validate.values import listed, mapping

_OPEN = "x-kubernetes-preserve-unknown-fields"


@dataclass(frozen=True, slots=True)
class SpecFields:
    """The variables that resources of some kinds set."""

    schemas: Mapping[str, Json] = field(default_factory=dict)
    """Schema of each field by the name of its variable."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Name of the variable by the name of the field."""
    others: frozenset[str] = frozenset()
    """Variables that are not fields: vars of the watch, the resource itself."""
    is_open: bool = False
    """Whether resources may have further fields: no CRD is in the project, or it allows any."""
    is_snake_case: bool = True

    def __or__(self, other: SpecFields) -> SpecFields:
        """Return the variables of the kinds of both."""
        return SpecFields(
            {**self.schemas, **other.schemas},
            {**self.fields, **other.fields},
            self.others | other.others,
            self.is_open or other.is_open,
            self.is_snake_case and other.is_snake_case,
        )

    def keys_at(self, path: Path) -> frozenset[str] | None:
        """Return the keys that a map of a resource has as a variable; None: unknown or open."""
        if path[0] not in self.schemas:
            return None
        schema: Any = self.schemas[path[0]]
        for name in path[1:]:
            if name == ITEM:
                schema = schema.get("items")
            else:
                properties = mapping(schema.get("properties"))
                schema = {self._name(key): each for key, each in properties.items()}.get(name)
            if not isinstance(schema, dict):
                return None
        is_closed = mapping(schema.get("properties")) and not _is_open(schema)
        return frozenset(map(self._name, schema["properties"])) if is_closed else None

    def _name(self, key: str) -> str:
        return to_snake(str(key)) if self.is_snake_case else str(key)


def spec_fields(watch: Watch, objects: Iterable[Json]) -> SpecFields:
    """Return the variables of a watch, whose CRD is among the objects, if the project has it."""
    name = object_name(watch.gvk)
    others = {META, name, f"{name}_spec", *watch.vars}
    if watch.schedule is not None:
        others.add(SCHEDULE_TIME)
    for cleanup in (watch.finalizer, watch.deselection):
        if cleanup is not None:
            others |= set(cleanup.vars)
    schema = next(filter(None, (_spec_schema(watch, each) for each in objects)), None)
    properties = {
        str(key): each for key, each in mapping(mapping(schema).get("properties")).items()
    }
    variables = {key: to_snake(key) if watch.snake_case_parameters else key for key in properties}
    return SpecFields(
        {variables[key]: each for key, each in properties.items() if isinstance(each, dict)},
        variables,
        frozenset(others),
        schema is None or _is_open(schema),
        watch.snake_case_parameters,
    )


def _spec_schema(watch: Watch, body: Json) -> Json | None:
    if body.get("kind") != "CustomResourceDefinition":
        return None
    spec = mapping(body.get("spec"))
    if (spec.get("group"), mapping(spec.get("names")).get("kind")) != (
        watch.gvk.group,
        watch.gvk.kind,
    ):
        return None
    for version in map(mapping, listed(spec.get("versions"))):
        if version.get("name") == watch.gvk.version:
            schema = mapping(mapping(version.get("schema")).get("openAPIV3Schema"))
            found = mapping(schema.get("properties")).get("spec")
            return found if isinstance(found, dict) else {}
    return None


def _is_open(schema: Json) -> bool:
    return bool(schema.get(_OPEN) or schema.get("additionalProperties")) or not schema.get(
        "properties"
    )
