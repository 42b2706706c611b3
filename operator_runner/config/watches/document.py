"""Parse the YAML of watches.yaml into a tree with line numbers, and collect its problems.

References to environment variables in its text are replaced before. The rules are those of Go's
os.Expand, with which ansible-operator does this: `$NAME` and `${NAME}`, the one-letter names of a
shell (`$1`, `$$`, `$@`), and broken references swallowed. The header of a vault value
(`$ANSIBLE_VAULT;`) is not a reference, and a one-letter name that is not set stays as it is
written, as in `$1.00`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner


@dataclass(frozen=True, slots=True)
class Location:
    """Position in the file: a line, and the path of the value, such as `[2].finalizer.name`."""

    line: int
    path: str = ""

    def child(self, name: str) -> Location:
        """Return the location of a missing key: the line of its map."""
        return Location(self.line, f"{self.path}.{name}" if self.path else name)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Problems, which keep the operator from starting, and warnings, which do not."""

    file: str
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def problem(self, location: Location, text: str) -> None:
        """Add a problem; `text` has the problem and, after a semicolon, the hint."""
        self.problems.append(self._line(location, text))

    def warning(self, location: Location, text: str) -> None:
        """Add a warning, worded like a problem."""
        self.warnings.append(self._line(location, text))

    def _line(self, location: Location, text: str) -> str:
        where = f"{self.file}:{location.line}: "
        return f"{where}{location.path}: {text}" if location.path else where + text


_PLAIN = "plain"
_TEXT = "tag:yaml.org,2002:str"
_RESOLVED = {_PLAIN, *(f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "null"))}
_MERGE = "<<"
_UNSET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

Scalar: TypeAlias = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
for _word in ("y", "yes", "true", "on"):
    _WORDS |= dict.fromkeys((_word, _word.capitalize(), _word.upper()), True)
for _word in ("n", "no", "false", "off"):
    _WORDS |= dict.fromkeys((_word, _word.capitalize(), _word.upper()), False)
for _word in (".inf", ".Inf", ".INF"):
    _WORDS |= {_word: float("inf"), f"+{_word}": float("inf"), f"-{_word}": float("-inf")}
_WORDS |= dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))

_INTEGERS = (
    (re.compile(r"[-+]?0[xX][0-9a-fA-F]+"), 16),
    (re.compile(r"[-+]?0[oO]?[0-7]+"), 8),
    (re.compile(r"[-+]?0[bB][01]+"), 2),
    (re.compile(r"[-+]?(0|[1-9][0-9]*)"), 10),
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def resolve_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar without a tag.

    The rules are those of the YAML 1.1 reader of ansible-operator, which differ from PyYAML's in
    places that users meet: `1e3` is a number, `1:30` and `2024-05-01` are text, `y` is true.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "")
    for pattern, base in _INTEGERS:
        if pattern.fullmatch(digits):
            return int(re.sub("[oO]", "", digits) if base == 8 else digits, base)  # noqa: PLR2004
    return float(digits) if _FLOAT.fullmatch(digits) else text


Value: TypeAlias = "Scalar | tuple[YamlValue, ...] | Mapping[str, YamlValue]"


@dataclass(frozen=True, slots=True)
class YamlValue:
    """A value of the file and its location."""

    value: Value
    location: Location

    def plain(self) -> Any:
        """Return the value as decoded JSON."""
        match self.value:
            case tuple():
                return [item.plain() for item in self.value]
            case Mapping():
                return {key: item.plain() for key, item in self.value.items()}
            case _:
                return self.value


def parse(source: Expanded, report: Diagnostics) -> YamlValue | None:
    """Parse the first YAML document; None if it is missing or invalid (then reported)."""
    try:
        loader = _Loader(source.text)
        node = loader.get_node() if loader.check_node() else None
        if loader.check_node():
            report.warning(
                Location(1), "only the first YAML document is read; put all watches there"
            )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        number = mark.line if mark else 0
        text = ", ".join(filter(None, (error.context, error.problem)))
        hint = "see the line above too"
        if "'\\t'" in text:
            hint = "indent with spaces"
        if unset := _UNSET.findall("".join(source.text.splitlines()[number : number + 1])):
            hint = f"set {', '.join(unset)} in the environment"
        report.problem(Location(source.source_line(number)), f"invalid YAML: {text}; {hint}")
        return None
    except ReaderError as error:
        number = source.text.count("\n", 0, error.position)
        report.problem(
            Location(source.source_line(number)),
            f"invalid YAML: control character U+{error.character:04X}; remove it",
        )
        return None
    return None if node is None else _Builder(source, report).build(node, "", ())


class _Loader(Reader, Scanner, Parser, Composer):
    """PyYAML up to its nodes; `resolve_scalar` resolves plain scalars."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)

    def resolve(self, kind: type[Node], _value: Any, implicit: Any) -> str:
        """Return the tag of a node without an explicit tag."""
        return _PLAIN if kind is ScalarNode and implicit[0] else _TEXT

    def descend_resolver(self, _parent: Any, _index: Any) -> None:
        """Tags do not depend on paths here."""

    def ascend_resolver(self) -> None:
        """Tags do not depend on paths here."""


class _Builder:
    """Makes items of nodes; what JSON cannot hold is reported and left out."""

    def __init__(self, source: Expanded, report: Diagnostics) -> None:
        self._source = source
        self._report = report

    def build(self, node: Node, path: str, parents: tuple[Node, ...]) -> YamlValue:
        location = Location(self._line(node), path)
        if any(node is parent for parent in parents):
            self._report.problem(
                location, "an alias refers to a node that contains it; write the value out"
            )
            return YamlValue(None, location)
        parents = (*parents, node)
        match node:
            case MappingNode():
                return YamlValue(self._mapping(node, location, parents), location)
            case SequenceNode():
                items = (
                    self.build(child, f"{path}[{index}]", parents)
                    for index, child in enumerate(node.value)
                )
                return YamlValue(tuple(items), location)
            case _:
                return YamlValue(self._scalar(node, location), location)

    def _line(self, node: Node) -> int:
        return self._source.source_line(node.start_mark.line)

    def _scalar(self, node: Node, location: Location) -> Scalar:
        text = str(node.value)
        for name in _UNSET.findall(text):
            self._report.warning(
                location, f"${{{name}}} is kept as text: the environment variable is not set"
            )
        if node.tag not in _RESOLVED:
            if node.tag != _TEXT:
                self._report.warning(location, f"the tag {node.tag} is unknown; its text is used")
            return text
        value = resolve_scalar(text)
        if isinstance(value, float) and not math.isfinite(value):
            self._report.problem(location, f"{text} is not a JSON number; quote it to make it text")
            return None
        return value

    def _mapping(
        self, node: MappingNode, location: Location, parents: tuple[Node, ...]
    ) -> dict[str, YamlValue]:
        merged: dict[str, YamlValue] = {}
        own: dict[str, YamlValue] = {}
        for key_node, child in node.value:
            key = self._key(key_node, location)
            if key is None:
                continue
            if key == _MERGE and key_node.tag == _PLAIN:
                merged |= self._merge(child, location, parents)
                continue
            item = self.build(child, location.child(key).path, parents)
            if key in own:
                self._report.warning(item.location, "duplicate key; the last one is used")
            own[key] = item
        return {**merged, **own}

    def _key(self, node: Node, location: Location) -> str | None:
        if not isinstance(node, ScalarNode):
            self._report.problem(
                Location(self._line(node), location.path),
                "a key must be text; quote values that begin with {{ or [",
            )
            return None
        value = self._scalar(node, location)
        if isinstance(value, bool):
            return "true" if value else "false"
        return node.value if value is None else str(value)

    def _merge(
        self, node: Node, location: Location, parents: tuple[Node, ...]
    ) -> dict[str, YamlValue]:
        """Return the keys that `<<` merges; the first of several maps takes precedence."""
        sources = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, YamlValue] = {}
        for source in reversed(sources):
            item = self.build(source, location.path, parents)
            if isinstance(item.value, Mapping):
                merged |= item.value
            else:
                self._report.problem(
                    item.location, "<< merges maps only; give it an alias of a map"
                )
        return merged


_REFERENCE = re.compile(
    r"""\$(?:
        (?P<empty>\{\})                    # nothing named: vanishes
      | \{(?P<braced>[^}]+)\}              # any name at all, over several lines too
      | (?P<open>\{)                       # never closed: vanishes
      | (?P<special>[*\#$@!?\-0-9])        # one character, so $10 is $1 and a 0
      | (?!ANSIBLE_VAULT;)(?P<plain>[A-Za-z_][A-Za-z0-9_]*)
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Expanded:
    """The text to be read as YAML, and how to find a line of it in the file."""

    text: str
    lines: tuple[int, ...]
    """The line in the file, from 1, of each line of `text`, from 0."""

    def source_line(self, line: int) -> int:
        """Return the line in the file for a line of `text` (counted from 0)."""
        return self.lines[min(line, len(self.lines) - 1)]


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Replace variables by their values; a variable that is not set is kept as `${NAME}`."""
    pieces: list[str] = []
    lines = [1]
    source = 1
    end = 0
    for match in _REFERENCE.finditer(text):
        plain = text[end : match.start()]
        value = _value(match, environ)
        for _ in range(plain.count("\n")):
            source += 1
            lines.append(source)
        # Further lines of a value have the line number of the end of its reference.
        last = source + match.group().count("\n")
        lines.extend(min(source + more + 1, last) for more in range(value.count("\n")))
        source = last
        pieces += [plain, value]
        end = match.end()
    rest = text[end:]
    lines.extend(range(source + 1, source + 1 + rest.count("\n")))
    return Expanded("".join(pieces) + rest, tuple(lines))


def _value(match: re.Match[str], environ: Mapping[str, str]) -> str:
    name = match["braced"] or match["special"] or match["plain"]
    if name is None:
        return ""
    return environ.get(name, match.group() if match["special"] else f"${{{name}}}")
