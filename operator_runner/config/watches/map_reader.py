"""Read the keys of one map by type; report wrong types and unknown keys.

As lenient as ansible-operator: names match in any case, numbers and booleans are accepted as
text, null means absent. A quoted number or boolean is not accepted as one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from operator_runner.config.watches import expressions
from operator_runner.config.watches.document import Diagnostics, Location, YamlValue
from operator_runner.config.watches.keys import Key, Shape
from operator_runner.core.durations import DURATION_HINT, parse_duration
from operator_runner.core.model import GVK, Json


def maps(
    items: Iterable[YamlValue], report: Diagnostics, known: Sequence[Key]
) -> Iterator[MapReader]:
    """Yield the keys of each item that is a map, or null for an empty one; others are reported."""
    for item in items:
        if item.value is None or isinstance(item.value, Mapping):
            yield MapReader(item.value or {}, item.location, report, known)
        else:
            report.problem(item.location, _refusal(item, "a map of keys and values"))


def read_gvk(fields: MapReader) -> GVK:
    """Return group, version and kind of a map."""
    return GVK(fields.text("group"), fields.text("version"), fields.text("kind"))


def required_gvk(fields: MapReader) -> GVK:
    """Return group, version and kind of a map; report those that must be there."""
    for key in ("version", "kind"):
        if not fields.text(key):
            fields.problem(key, f"{key} must not be empty; add `{key}:`")
    return read_gvk(fields)


class MapReader:
    """Read access to one map of the file."""

    def __init__(
        self,
        items: Mapping[str, YamlValue],
        location: Location,
        report: Diagnostics,
        known: Sequence[Key],
    ) -> None:
        """Take a map and its location; keys that are not among `known` become warnings."""
        self.location = location
        self.report = report
        self._keys = {key.name: key for key in known}
        self._items: dict[str, YamlValue] = {}
        self._refused: set[Location] = set()
        names = {name.lower(): name for name in self._keys}
        for key, child in items.items():
            name = names.get(key.lower())
            if name is None:
                report.warning(child.location, _unknown(key, names))
            else:
                self._items[name] = child

    def problem(self, name: str, text: str) -> None:
        """Report a problem with the value of a key, present or not, unless its type is one."""
        location = self.where(name)
        if location not in self._refused:
            self.report.problem(location, text)

    def warning(self, name: str, text: str) -> None:
        """Report a warning about the value of a key, present or not."""
        self.report.warning(self.where(name), text)

    def where(self, name: str) -> Location:
        """Return the location of a key's value, or where it would be."""
        item = self._items.get(name)
        return item.location if item is not None else self.location.child(name)

    def item(self, name: str) -> YamlValue | None:
        """Return the value of a key; None if absent or null."""
        item = self._items.get(name)
        return None if item is None or item.value is None else item

    def check(self, expression: str, location: Location) -> bool:
        """Report an expression that is not JMESPath; return whether it is."""
        if message := expressions.problem(expression):
            self.report.problem(location, message)
        return not message

    def put(self, name: str, item: YamlValue) -> None:
        """Replace the value of a key."""
        self._items[name] = item

    def text(self, name: str) -> str:
        """Return text, empty if absent."""
        item = self._shaped(name, Shape.TEXT)
        return "" if item is None else self._text(item)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple(self._text(item) for item in self._items_of(name, Shape.TEXTS))

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of names."""
        return tuple(self._text(item) for item in self._items_of(name, Shape.NAMES))

    def expression_list(self, name: str) -> tuple[tuple[str, Location], ...]:
        """Return a list of texts, each with its location."""
        items = self._items_of(name, Shape.EXPRESSION_LIST)
        return tuple((self._text(item), item.location) for item in items)

    def labels(self, name: str) -> dict[str, str]:
        """Return a map of text to text."""
        return {key: self._text(child) for key, child in self._map(name, Shape.LABELS).items()}

    def expressions(self, name: str) -> dict[str, tuple[str | None, Location]]:
        """Return a map of text to text or null, each with its location."""
        return {
            key: (None if child.value is None else self._text(child), child.location)
            for key, child in self._map(name, Shape.EXPRESSIONS).items()
        }

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return a boolean; if absent, `default`, else that of the key."""
        if default is None:
            default = bool(self._keys[name].default)
        item = self._shaped(name, Shape.FLAG)
        if item is None:
            return default
        if not isinstance(item.value, bool):
            self._refuse(item, "true or false, without quotes")
            return default
        return item.value

    def flag_or_fields(self, name: str) -> MapReader | bool:
        """Return a boolean, or the map under a key; False if absent."""
        item = self._shaped(name, Shape.FLAG_OR_MAP)
        if item is None:
            return False
        if isinstance(item.value, Mapping):
            return MapReader(item.value, item.location, self.report, self._keys[name].keys)
        if not isinstance(item.value, bool):
            self._refuse(item, "true, false or a map of keys and values, without quotes")
            return False
        return item.value

    def optional_flag(self, name: str) -> bool | None:
        """Return a boolean; None if absent."""
        item = self._shaped(name, Shape.FLAG)
        return None if item is None else self.flag(name)

    def choice(self, name: str) -> str:
        """Return one of the words of the key; its default if absent."""
        key = self._keys[name]
        item = self._shaped(name, Shape.CHOICE)
        if item is None:
            return str(key.default)
        if item.value not in key.choices:
            self._refuse(item, f"{', '.join(key.choices[:-1])} or {key.choices[-1]}")
            return str(key.default)
        return str(item.value)

    def integer(self, name: str) -> int:
        """Return a whole number; its default if absent or 0, which means `not set` in the file."""
        default = int(self._keys[name].default or 0)
        item = self._shaped(name, Shape.NUMBER)
        if item is None:
            return default
        value = item.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            self._refuse(item, "a whole number, without quotes")
            return default
        return value or default

    def duration(self, name: str) -> timedelta | None:
        """Return a Go duration."""
        item = self._shaped(name, Shape.DURATION)
        if item is None:
            return None
        if not isinstance(item.value, str):
            self._refuse(item, "a duration such as 30s, 10m or 1h30m")
            return None
        try:
            return parse_duration(item.value)
        except ValueError as error:
            self.problem(name, f"{error}; {DURATION_HINT}")
            return None

    def mapping(self, name: str) -> Json:
        """Return a map with anything in it, as decoded JSON."""
        return {key: child.plain() for key, child in self._map(name, Shape.ANYTHING).items()}

    def objects(self, name: str) -> tuple[Json, ...]:
        """Return a list of maps with anything in them, as decoded JSON."""
        found: list[Json] = []
        for item in self._items_of(name, Shape.OBJECTS):
            if isinstance(item.value, Mapping):
                found.append(item.plain())
            else:
                self._refuse(item, "a map of keys and values")
        return tuple(found)

    def fields(self, name: str) -> MapReader | None:
        """Return the map under a key; None if absent, or no map."""
        item = self._shaped(name, Shape.MAP)
        known = self._keys[name].keys
        return None if item is None else next(maps((item,), self.report, known), None)

    def each(self, name: str) -> Iterator[MapReader]:
        """Return the maps in a list."""
        return maps(self._items_of(name, Shape.MAPS), self.report, self._keys[name].keys)

    def _shaped(self, name: str, shape: Shape) -> YamlValue | None:
        """Return the value of a key, which is listed with this shape."""
        assert self._keys[name].shape is shape, name
        return self.item(name)

    def _items_of(self, name: str, shape: Shape) -> tuple[YamlValue, ...]:
        """Return the entries of a list; none if it is absent or refused."""
        item = self._shaped(name, shape)
        if item is None:
            return ()
        if not isinstance(item.value, tuple):
            self._refuse(item, "a list")
            return ()
        return item.value

    def _map(self, name: str, shape: Shape) -> Mapping[str, YamlValue]:
        """Return the entries of a map; none if it is absent or refused."""
        item = self._shaped(name, shape)
        if item is None:
            return {}
        if not isinstance(item.value, Mapping):
            self._refuse(item, "a map of keys and values")
            return {}
        return item.value

    def _text(self, item: YamlValue) -> str:
        value = item.value
        if value is None:
            return ""
        if isinstance(value, (tuple, Mapping)):
            self._refuse(item, "text")
            return ""
        # 1.0 is 1, as Go writes it.
        return value if isinstance(value, str) else json.dumps(value).removesuffix(".0")

    def _refuse(self, item: YamlValue, wanted: str) -> None:
        self._refused.add(item.location)
        self.report.problem(item.location, _refusal(item, wanted))


def _refusal(item: YamlValue, wanted: str) -> str:
    return f"expected {wanted}, got {_kind(item.value)}"


def _kind(value: Any) -> str:
    match value:
        case str():
            return f"the text {json.dumps(value)}"
        case tuple():
            return "a list"
        case Mapping():
            return "a map"
        case _:
            return json.dumps(value)


def _unknown(key: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key.lower(), names, n=1)
    if near:
        return f"unknown key, ignored; did you mean {names[near[0]]}?"
    return f"unknown key, ignored; known keys are {', '.join(names.values())}"
