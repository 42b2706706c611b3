"""Manifests as they lie in files, or come from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json

STDIN = Path("-")


def documents(paths: Sequence[Path]) -> list[Json]:
    """Return the objects of files, of all YAML files in directories, and of `-`, in order.

    What is no object (patches, values) is passed over, as are the settings of kustomize: its
    prefixes and patches are applied only in what it has rendered. Raises ConfigError.
    """
    found: list[Json] = []
    for path in paths:
        if path == STDIN:
            found += parse(sys.stdin.read(), "standard input")
        for file in _files(path):
            try:
                text = file.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{file}: cannot be read: {error}") from error
            found += parse(text, str(file))
    return found


def _files(path: Path) -> list[Path]:
    if path == STDIN:
        return []
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in {".yaml", ".yml"})
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file or directory")
    return [path]


def parse(text: str, source: str) -> Iterator[Json]:
    """Yield the objects of a text of YAML; `source` is its name in errors (ConfigError)."""
    try:
        parsed: list[Any] = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: is no YAML: {error}") from error
    for body in parsed:
        items = body.get("items") if isinstance(body, dict) and body.get("kind") == "List" else None
        yield from (one for one in items or [body] if _is_object(one))


def _is_object(body: Any) -> bool:
    named = isinstance(body, dict) and "kind" in body and "apiVersion" in body
    return named and bool((body.get("metadata") or {}).get("name"))
