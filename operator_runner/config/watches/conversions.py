"""The `conversion` key of an entry: how other versions of the kind convert into its own."""

from __future__ import annotations

from collections.abc import Mapping

from operator_runner.config.watches import expressions
from operator_runner.config.watches.document import Location
from operator_runner.config.watches.map_reader import MapReader
from operator_runner.core.model import Conversion, FieldPath

_CHANGEABLE = ("labels", "annotations")
"""Fields of the metadata that a conversion may change; the API server rejects changes of others."""


class ConversionReader:
    """Reads the conversions of one file; each kind has them in one entry only."""

    def __init__(self) -> None:
        """Start without any kind."""
        self._seen: dict[tuple[str, str], Location] = {}

    def read(self, fields: MapReader) -> tuple[Conversion, ...]:
        """Return the conversions of an entry; problems are reported."""
        entries = list(fields.each("conversion"))
        if not entries:
            return ()
        kind = (fields.text("group"), fields.text("kind"))
        if not kind[0]:
            fields.problem(
                "conversion", "kinds of the core group cannot be converted; add `group:`"
            )
        if kind in self._seen:
            fields.problem(
                "conversion",
                f"duplicate conversion of {kind[1]}: line {self._seen[kind].line} already has it;"
                " put all versions there",
            )
        self._seen.setdefault(kind, fields.where("conversion"))
        versions = {fields.text("version"): "this is the version of the watch itself, the hub"}
        return tuple(_conversion(entry, versions) for entry in entries)


def _conversion(entry: MapReader, taken: dict[str, str]) -> Conversion:
    version = entry.text("version")
    if not version:
        entry.problem("version", "version must not be empty; add `version:`")
    elif version in taken:
        entry.problem("version", f"{taken[version]}; name another version of the kind")
    taken.setdefault(version, "this version already has a conversion")
    return Conversion(version, _fields(entry, "toHub"), _fields(entry, "fromHub"))


def _fields(entry: MapReader, name: str) -> Mapping[FieldPath, str | None]:
    found: dict[FieldPath, str | None] = {}
    for text, (expression, location) in entry.expressions(name).items():
        path = _path(entry, text, location, found)
        if expression is not None:
            entry.check(expression, location)
        found[path] = expression
    return found


def _path(
    entry: MapReader, text: str, location: Location, found: Mapping[FieldPath, str | None]
) -> FieldPath:
    try:
        path = expressions.path(text)
    except ValueError as error:
        entry.report.problem(location, f"invalid field path {text!r}: {error}")
        return (text,)
    if path[0] in {"apiVersion", "kind"} or path == ("metadata",):
        entry.report.problem(location, f"{text} cannot be converted; remove it")
    elif path[0] == "metadata" and path[1] not in _CHANGEABLE:
        entry.report.problem(
            location, "only labels and annotations of the metadata can be converted; remove it"
        )
    for other in found:
        if path[: len(other)] == other or other[: len(path)] == path:
            entry.report.problem(
                location, f"{text} and {'.'.join(other)} overlap; keep one of them"
            )
    return path
