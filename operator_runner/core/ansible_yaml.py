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
    path, _, line = task_path.rpartition(":")
    try:
        nodes = [yaml.compose(Path(path).read_bytes(), Loader=_Base)]
        start = int(line) - 1
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    seen: set[int] = set()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue  # an alias
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            if node.start_mark.line == start:
                return _text_of(next((v for k, v in node.value if k.value == keyword), None))
            nodes.extend(value for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            nodes.extend(node.value)
    return ""


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
