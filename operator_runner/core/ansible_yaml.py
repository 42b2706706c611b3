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
