"""The key `define` of an entry: named expressions, which others use as `define.NAME`.

A use is replaced by its expression in parentheses before the entry is read, so that all that
checks and evaluates expressions sees whole ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from operator_runner.config.watches import expressions
from operator_runner.config.watches.document import Location, YamlValue
from operator_runner.config.watches.map_reader import MapReader

KEY = "define"
NAME = "[A-Za-z_][A-Za-z0-9_]*"
"""Pattern of names: identifiers of JMESPath."""
_USERS = ("status", "wakeOn", "triggers", "references", "when", "blockUpgrade")
_NO_EXPRESSIONS = frozenset({"group", "version", "kind", "type", "selector"})
"""Keys in them whose texts are not JMESPath."""
_MAX_CHARACTERS = 16 * 1024


def put_in(fields: MapReader) -> None:
    """Replace the uses of named expressions in the keys of an entry; problems are reported."""
    if fields.item(KEY) is None:
        return
    definitions = _Definitions(fields)
    for name in definitions.texts:
        definitions.expression(name, ())
    for key in _USERS:
        if (item := fields.item(key)) is not None:
            fields.put(key, definitions.applied(item))
    for name, (_, location) in definitions.texts.items():
        if name not in definitions.used:
            fields.report.warning(location, f"no expression uses {KEY}.{name}; remove it")


class _Definitions:
    """The named expressions of one entry, those that they use put in."""

    def __init__(self, fields: MapReader) -> None:
        self.texts = {
            name: (text or "", location)
            for name, (text, location) in fields.expressions(KEY).items()
        }
        self.used: set[str] = set()
        self._fields = fields
        self._whole: dict[str, str] = {}

    def expression(self, name: str, users: tuple[str, ...]) -> str:
        """Return the expression of a name without uses of others; `users` lead to it."""
        if name not in self._whole:
            text, location = self.texts[name]
            whole = self._replaced(text, location, (*users, name))
            if not re.fullmatch(NAME, name):
                self._problem(location, f'invalid name "{name}": use letters, digits and _')
            elif not text:
                self._problem(location, "expected JMESPath; write it, or remove the name")
            elif message := expressions.problem(whole, text):
                self._problem(location, message)
            self._whole[name] = whole
        return self._whole[name]

    def applied(self, item: YamlValue) -> YamlValue:
        """Return a value of the file with the uses of names replaced in its texts."""
        match item.value:
            case str() as text:
                return replace(item, value=self._replaced(text, item.location, ()))
            case tuple() as items:
                return replace(item, value=tuple(map(self.applied, items)))
            case Mapping() as children:
                found = {
                    key: child if key in _NO_EXPRESSIONS else self.applied(child)
                    for key, child in children.items()
                }
                return replace(item, value=found)
            case _:
                return item

    def _replaced(self, text: str, location: Location, users: tuple[str, ...]) -> str:
        parts, at = [], 0
        for start, end, name in expressions.fields_of(KEY, text):
            parts += [text[at:start], self._used(name, location, users)]
            at = end
        whole = "".join([*parts, text[at:]])
        if len(whole) > _MAX_CHARACTERS:
            limit = f"longer than {_MAX_CHARACTERS} characters with the names put in"
            self._problem(location, f"the expression is {limit}; use fewer")
            return "@"
        return whole

    def _used(self, name: str, location: Location, users: tuple[str, ...]) -> str:
        self.used.add(name)
        if name not in self.texts:
            known = ", ".join(self.texts) or "none"
            self._problem(location, f"unknown name {KEY}.{name}: names of `{KEY}` are {known}")
        elif name in users:
            circle = " uses ".join([*users[users.index(name) :], name])
            self._problem(location, f"named expressions use each other: {circle}; remove one use")
        else:
            return f"({self.expression(name, users)})"
        return "@"

    def _problem(self, location: Location, text: str) -> None:
        self._fields.report.problem(location, text)
