"""Read the YAML of roles and playbooks without Ansible. Raises yaml.YAMLError and ValueError."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_Base: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _AnsibleLoader(_Base):  # type: ignore[misc]
    """A value with a tag of Ansible, such as !vault and !unsafe, is None: it is not a template."""


_AnsibleLoader.add_multi_constructor("!", lambda *_: None)


def load(text: bytes | str) -> Any:
    """Return the only document of a file."""
    return yaml.load(text, Loader=_AnsibleLoader)  # noqa: S506 (it is a safe one)


def read(path: Path) -> Any:
    """Return the only document of a file, None if it cannot be read."""
    try:
        return load(path.read_bytes())
    except (OSError, ValueError, yaml.YAMLError):
        return None


def load_all(text: bytes | str) -> Iterator[Any]:
    """Yield the documents of a file."""
    return yaml.load_all(text, Loader=_AnsibleLoader)


def task_keyword(task_path: str, keyword: str) -> str:
    """Return the text of a keyword of the task at `FILE:LINE`, those of a list with ` and `.

    It is empty if the file cannot be read, or has no such task or keyword.
    """
    return _text_of(next((_value_of(task, keyword) for task in _maps_around(task_path)), None))


def task_variable(task_path: str, name: str) -> str:
    """Return the text of a variable in `vars` of the task, or of the innermost block around it.

    It is empty if the file has no such task or variable.
    """
    found = (_value_of(_value_of(each, "vars"), name) for each in _maps_around(task_path))
    return _text_of(next(filter(None, found), None))


def _maps_around(task_path: str) -> Iterator[Any]:
    """Yield the node of the task at `FILE:LINE`, then the maps around it, the innermost first."""
    path, _, line = task_path.rpartition(":")
    try:
        root, start = yaml.compose(Path(path).read_bytes(), Loader=_Base), int(line) - 1
    except (OSError, ValueError, yaml.YAMLError):
        return
    nodes: list[tuple[Any, tuple[Any, ...]]] = [(root, ())]
    seen: set[int] = set()
    while nodes:
        node, around = nodes.pop()
        if id(node) in seen:
            continue  # an alias
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            around = (node, *around)
            if node.start_mark.line == start:
                yield from around
                return
            nodes.extend((value, around) for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            nodes.extend((item, around) for item in node.value)


def _value_of(node: Any, key: str) -> Any:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _text_of(node: Any) -> str:
    if isinstance(node, yaml.ScalarNode):
        return " ".join(node.value.split())
    if isinstance(node, yaml.SequenceNode):
        return " and ".join(map(_text_of, node.value))
    return ""


def texts(document: Any) -> Iterator[str]:
    """Yield the texts in a document, except keys."""
    return _texts(document, set())


def _texts(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield the texts in a value; `seen` has the containers that were met, by id."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and id(value) not in seen:
        seen.add(id(value))
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item, seen)
