"""Edit the YAML of people: entries are added or removed, all other lines stay as they are. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from operator_runner.core.errors import ConfigError

_STEP = 2
"""Indentation of a value below its key."""

Dump = Callable[[Any], str]
_Edit = tuple[int, int, str]
"""Begin and end in the text, and what to put there."""


class _TagLoader(yaml.SafeLoader):
    """Reads tags of Ansible, such as !unsafe and !vault, as plain texts."""


_TagLoader.add_multi_constructor("!", lambda loader, _suffix, node: loader.construct_scalar(node))


def load_tagged(text: str, source: str) -> Any:
    """Return the only document of a text. Raises ConfigError that starts with `source`."""
    try:
        return yaml.load(text, _TagLoader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: invalid YAML: {error}") from error


def edit(text: str, wanted: Any, dump: Dump) -> str | None:
    """Return the text of a document, edited so that `load_tagged` gives `wanted`.

    Entries of maps and items of lists can be added, entries removed, and empty values filled.
    `dump` writes what is added. None if the text has to be edited by hand: other values differ, or
    anchors and flow style do not allow it.
    """
    text = text if text.endswith("\n") else text + "\n"
    root = yaml.compose(text, _TagLoader)
    if root is None:
        return None
    result = _Editor(text, dump).result(root, wanted)
    try:
        return result if yaml.load(result, _TagLoader) == wanted else None  # noqa: S506
    except yaml.YAMLError:
        return None


class _Editor:
    def __init__(self, text: str, dump: Dump) -> None:
        self._text = text
        self._dump = dump
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def result(self, root: yaml.Node, wanted: Any) -> str:
        """Return the edited text."""
        pieces, at = [], 0
        for begin, end, new in sorted(self._edits(root, wanted), key=lambda each: each[:2]):
            pieces += [self._text[at:begin], new]
            at = max(at, end)
        return "".join([*pieces, self._text[at:]])

    def _edits(self, node: yaml.Node, wanted: Any, indent: int = 0) -> Iterator[_Edit]:
        """Yield the edits of a value; `indent` is that of what an empty value is filled with."""
        is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value
        if not is_block and isinstance(wanted, dict | list):
            yield from self._replaced(node, wanted, indent)
        elif isinstance(node, yaml.MappingNode) and isinstance(wanted, dict):
            yield from self._map_edits(node, wanted)
        elif isinstance(node, yaml.SequenceNode) and isinstance(wanted, list):
            yield from self._list_edits(node, wanted)

    def _replaced(self, node: yaml.Node, wanted: Any, indent: int) -> Iterator[_Edit]:
        """Write a value in flow style again if it differs, and fill an empty one in block style."""
        begin, end = node.start_mark.index, node.end_mark.index
        if self._value(node) == wanted:
            return
        if not isinstance(node, yaml.CollectionNode) and self._value(node) is not None:
            return  # a value of a person
        if isinstance(node, yaml.CollectionNode) and node.value:
            flow = yaml.safe_dump(wanted, default_flow_style=True, sort_keys=False, width=10**6)
            yield begin, end, flow.strip()
            return
        begin -= len(self._text[:begin]) - len(self._text[:begin].rstrip(" "))
        yield begin, end, ""
        at = self._starts[node.end_mark.line + 1]
        yield at, at, textwrap.indent(self._dump(wanted), " " * indent)

    def _map_edits(self, node: yaml.MappingNode, wanted: dict[Any, Any]) -> Iterator[_Edit]:
        column = node.start_mark.column
        found = {str(key.value): (key, value) for key, value in node.value}
        last = node.value[-1][1]
        previous = None
        for name, value in wanted.items():
            if str(name) in found:
                previous = found[str(name)][1]
                yield from self._edits(previous, value, column + _STEP)
            else:
                at = self._after(previous or last)
                yield at, at, textwrap.indent(self._dump({name: value}), " " * column)
        for key, value in found.values():
            if str(key.value) not in map(str, wanted):
                yield self._starts[key.start_mark.line], self._after(value), ""

    def _list_edits(self, node: yaml.SequenceNode, wanted: list[Any]) -> Iterator[_Edit]:
        column = node.start_mark.column
        if len(wanted) == len(node.value):
            for item, value in zip(node.value, wanted, strict=True):
                yield from self._edits(item, value, column + _STEP)
            return
        rest = [*node.value]
        at = self._starts[node.start_mark.line]
        for value in wanted:
            if rest and self._value(rest[0]) == value:
                at = self._after(rest.pop(0))
            else:
                yield at, at, textwrap.indent(self._dump([value]), " " * column)

    def _value(self, node: yaml.Node) -> Any:
        return _TagLoader("").construct_document(node)

    def _after(self, node: yaml.Node) -> int:
        """Return the begin of the line after a value; comments below belong to what follows."""
        while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            node = last[1] if isinstance(last, tuple) else last
        mark = node.end_mark
        line = mark.line if mark.column else mark.line - 1
        while line > node.start_mark.line and not self._line(line).strip():
            line -= 1
        return self._starts[line + 1]

    def _line(self, number: int) -> str:
        return self._text[self._starts[number] : self._starts[number + 1]]
