"""YAML as people like to read it, and always the same for the same content. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json

# Lines are not folded: an icon is one line, and differences stay where they are.
_WIDTH = 1_000_000


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such a block, and lists indented like the rest."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write what occurs twice twice: anchors are for authors."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    # A block cannot hold lines that end in blanks.
    block = "\n" in value and not any(line.endswith((" ", "\t")) for line in value.split("\n"))
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if block else None)


_Dumper.add_representer(str, _text)


def dump(*documents: Any) -> str:
    """Return YAML, keys in order of the alphabet; several documents are parted by dashes."""
    return str(
        yaml.dump_all(documents, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=_WIDTH)
    )


def parse(text: str, source: str) -> tuple[Json, ...]:
    """Return the objects of a YAML stream; ConfigError names `source` and what is wrong there."""
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: it is not YAML: {error}") from error
    objects = tuple(document for document in documents if document is not None)
    for number, document in enumerate(objects, 1):
        if not isinstance(document, dict) or not isinstance(document.get("metadata", {}), dict):
            raise ConfigError(f"{source}: document {number} is no object of Kubernetes")
    return objects


def compact(value: Any) -> str:
    """Return JSON in one line."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def encoded(value: Any) -> str:
    """Return JSON in base64, as catalogs carry manifests."""
    return base64.b64encode(compact(value).encode()).decode()


def readable(values: Iterable[Any]) -> str:
    """Return a JSON list for people, as annotations carry examples."""
    return json.dumps(list(values), indent=2, sort_keys=True, ensure_ascii=False)
