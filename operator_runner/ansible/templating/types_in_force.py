"""Which types templates give, and which setting says so; see `templates`."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from operator_runner.core.model import Watch

_log = structlog.get_logger(__name__)

VARIABLE = "ANSIBLE_JINJA2_NATIVE"
_KEY = "nativeTypes"
_TRUE = {"1", "y", "yes", "t", "true", "on"}


@dataclass(frozen=True, slots=True)
class TemplateTypes:
    """The types of some kinds: `native`, or `text` as ansible-core 2.18 had them."""

    types: str
    set_by: str
    kinds: tuple[str, ...]


def log_types(watches: Sequence[Watch]) -> None:
    """Log which types are in force, once for each reason."""
    for found in types_in_force(watches, os.environ, Path.home()):
        _log.info("Template types", types=found.types, set_by=found.set_by, kinds=list(found.kinds))


def types_in_force(
    watches: Sequence[Watch], environ: Mapping[str, str], home: Path
) -> Iterator[TemplateTypes]:
    """Return the types of all watches, those with the same reason together."""
    native, reason = _of_ansible(environ, home)
    found: dict[tuple[bool, str], list[str]] = {}
    for watch in watches:
        asked = watch.native_types
        key = (native, reason) if asked is None else (asked, f"{_KEY} in watches.yaml")
        found.setdefault(key, []).append(watch.gvk.kind)
    for (is_native, set_by), kinds in found.items():
        yield TemplateTypes("native" if is_native else "text", set_by, tuple(kinds))


def _of_ansible(environ: Mapping[str, str], home: Path) -> tuple[bool, str]:
    """Return what Ansible's own settings say, as ansible-core looks for them, and which does."""
    if environ.get(VARIABLE):
        return environ[VARIABLE].lower() in _TRUE, VARIABLE
    given = environ.get("ANSIBLE_CONFIG")
    for path in (
        *([Path(given)] if given else []),
        home / ".ansible.cfg",
        Path("/etc/ansible/ansible.cfg"),
    ):
        if path.is_file():
            value = _jinja2_native(path)
            return (False, "default") if value is None else (value.lower() in _TRUE, str(path))
    return False, "default"


def _jinja2_native(path: Path) -> str | None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(path)
        return parser.get("defaults", "jinja2_native", fallback=None)
    except (configparser.Error, OSError, UnicodeDecodeError):
        return None  # each run reports what is wrong with it
