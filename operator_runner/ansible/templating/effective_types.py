"""Find the types of template results and the setting that selects them; see `compatibility`."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from operator_runner.core.model import Watch
from operator_runner.core.settings import config_file

_log = structlog.get_logger(__name__)

VARIABLE = "ANSIBLE_JINJA2_NATIVE"
_KEY = "nativeTypes"
_TRUE = {"1", "y", "yes", "t", "true", "on"}


@dataclass(frozen=True, slots=True)
class TemplateTypes:
    """The types for some kinds: `native`, or `text` as in ansible-core 2.18."""

    types: str
    set_by: str
    kinds: tuple[str, ...]


def log_types(watches: Sequence[Watch]) -> None:
    """Log the types of template results, once for each setting."""
    for found in effective_types(watches, os.environ):
        _log.info("Template types", types=found.types, set_by=found.set_by, kinds=list(found.kinds))


def effective_types(
    watches: Sequence[Watch], environ: Mapping[str, str]
) -> Iterator[TemplateTypes]:
    """Yield the types of all watches, grouped by the setting that selects them."""
    native, reason = _of_ansible(environ)
    found: dict[tuple[bool, str], list[str]] = {}
    for watch in watches:
        wanted = watch.native_types
        key = (native, reason) if wanted is None else (wanted, f"{_KEY} in watches.yaml")
        found.setdefault(key, []).append(watch.gvk.kind)
    for (is_native, set_by), kinds in found.items():
        yield TemplateTypes("native" if is_native else "text", set_by, tuple(kinds))


def _of_ansible(environ: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether Ansible's settings select native types, and the name of the setting."""
    if environ.get(VARIABLE):
        return environ[VARIABLE].lower() in _TRUE, VARIABLE
    path = config_file(environ)
    value = path and _jinja2_native(path)
    return (value.lower() in _TRUE, str(path)) if value else (False, "default")


def _jinja2_native(path: Path) -> str | None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(path)
        return parser.get("defaults", "jinja2_native", fallback=None)
    except (configparser.Error, OSError, UnicodeDecodeError):
        return None  # each run reports the error
