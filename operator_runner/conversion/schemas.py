"""Find fields of a CRD that exist in one version only and that no conversion names. Pure.

The API server prunes fields that are not in a version's schema, so a conversion to that version
and back would lose them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from operator_runner.conversion.preserved_fields import text
from operator_runner.core.model import Conversion, FieldPath, Json

_NO_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def unmapped_fields(crd: Json, hub: str, conversions: Sequence[Conversion]) -> Iterator[str]:
    """Yield a message for each field that would be lost, with the line to add."""
    schemas = {each["name"]: _schema(each) for each in crd["spec"]["versions"]}
    for conversion in conversions:
        if hub not in schemas or conversion.version not in schemas:
            continue
        named = (*conversion.to_hub, *conversion.from_hub)
        ways = ((hub, conversion.version, "toHub"), (conversion.version, hub, "fromHub"))
        for version, other, key in ways:
            for path in _missing(schemas[version], schemas[other], ()):
                if not any(_overlap(path, name) for name in named):
                    yield (
                        f"{text(path)} of {version} is lost in {other}: name it in {key} of "
                        f"the conversion of {conversion.version}, as `{text(path)}: null` if "
                        "it has no counterpart"
                    )


def _schema(version: Json) -> Json:
    schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    properties = schema.get("properties") or {}
    fields = {name: each for name, each in properties.items() if name not in _NO_FIELDS}
    return schema | {"properties": fields}


def _missing(schema: Json, other: Json, above: FieldPath) -> Iterator[FieldPath]:
    """Yield the topmost fields of a schema that are missing in another one."""
    if other.get("x-kubernetes-preserve-unknown-fields") or other.get("additionalProperties"):
        return
    others = other.get("properties") or {}
    for name, inner in (schema.get("properties") or {}).items():
        if name in others:
            yield from _missing(inner, others[name], (*above, name))
        else:
            yield (*above, name)


def _overlap(one: FieldPath, other: FieldPath) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
