"""Read and write YAML; equal content always gives equal text."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.core.object_diff import canonical_json

STDIN = Path("-")

# Lines are not folded: an icon is one line, and a changed word does not move the others.
_WIDTH = 1_000_000


class _Dumper(yaml.SafeDumper):
    """Write multi-line strings as literal blocks, and indent lists like mappings."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: repeated values are written out, without anchors."""
        del data
        return True


def _represent_str(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    # A literal block cannot hold lines that end in blanks.
    literal = "\n" in value and not any(line.endswith((" ", "\t")) for line in value.split("\n"))
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if literal else None)


_Dumper.add_representer(str, _represent_str)


def dump(*documents: Any) -> str:
    """Return a YAML stream of one or several documents, with sorted keys."""
    return str(
        yaml.dump_all(documents, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=_WIDTH)
    )


class _IndentingDumper(_Dumper):
    """Indent the items of lists, as yamllint expects it."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Ignore `indentless`, which lists ask for."""
        del indentless
        return super().increase_indent(flow, False)


def dump_in_order(value: Any) -> str:
    """Return a YAML document whose keys keep their order and whose list items are indented."""
    return _dump_in_order(value, _IndentingDumper)


def _dump_in_order(value: Any, dumper: type[_IndentingDumper]) -> str:
    return str(yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))


class _VariablesDumper(_IndentingDumper):
    """Mark texts that Ansible would evaluate as templates."""


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    node = _represent_str(dumper, value)
    if any(mark in value for mark in ("{{", "{%", "{#")):
        node.tag = "!unsafe"
    return node


_VariablesDumper.add_representer(str, _represent_text)


def dump_variables(value: Any) -> str:
    """Return what `dump_in_order` does, as variables of Ansible, which evaluates no text of it."""
    return _dump_in_order(value, _VariablesDumper)


def load(text: str, source: str) -> Any:
    """Return the only document of a text. Raises ConfigError that starts with `source`."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _invalid(source, error) from error


def load_objects(text: str, source: str) -> tuple[Json, ...]:
    """Return the Kubernetes objects of a YAML stream, in order.

    Empty documents are skipped. Raises ConfigError that starts with `source` if any other document
    is not an object.
    """
    objects = tuple(document for document in _documents(text, source) if document is not None)
    for number, document in enumerate(objects, 1):
        if not isinstance(document, dict) or not isinstance(document.get("metadata", {}), dict):
            raise ConfigError(f"{source}: document {number} is not a Kubernetes object")
    return objects


def select_objects(text: str, source: str) -> Iterator[Json]:
    """Yield the named Kubernetes objects of a YAML stream, those in a List included.

    Skips everything else: patches, values, and the settings of kustomize, whose prefixes and
    patches take effect only in what kustomize renders. Raises ConfigError that starts with
    `source`.
    """
    for body in _documents(text, source):
        items = body.get("items") if isinstance(body, dict) and body.get("kind") == "List" else None
        yield from (
            item
            for item in (items if isinstance(items, list) else [body])
            if _is_named_object(item)
        )


def read_objects(paths: Sequence[Path]) -> list[Json]:
    """Return what `select_objects` finds in files, in all YAML files of directories, and in `-`.

    `-` is standard input. Raises ConfigError that starts with the path.
    """
    found: list[Json] = []
    for path in paths:
        if path == STDIN:
            found += select_objects(sys.stdin.read(), "standard input")
        for file in _files(path):
            found += select_objects(read_text(file), str(file))
    return found


def read_text(file: Path) -> str:
    """Return the text of a UTF-8 file. Raises ConfigError that starts with its path."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error


def base64_json(value: Any) -> str:
    """Return compact JSON in base64, the form of manifests in catalogs."""
    return base64.b64encode(canonical_json(value).encode()).decode()


def indented_json(values: Iterable[Any]) -> str:
    """Return an indented JSON list, the form of examples in annotations."""
    return json.dumps(list(values), indent=2, sort_keys=True, ensure_ascii=False)


def _documents(text: str, source: str) -> list[Any]:
    try:
        return list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _invalid(source, error) from error


def _invalid(source: str, error: Exception) -> ConfigError:
    return ConfigError(f"{source}: invalid YAML: {error}")


def _files(path: Path) -> list[Path]:
    if path == STDIN:
        return []
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in {".yaml", ".yml"})
    if not path.exists():
        raise ConfigError(f"{path}: no such file or directory")
    return [path]


def _is_named_object(body: Any) -> bool:
    if not (isinstance(body, dict) and "kind" in body and "apiVersion" in body):
        return False
    metadata = body.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("name"))
