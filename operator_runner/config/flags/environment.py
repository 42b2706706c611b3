"""Environment variables of the operator."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from operator_runner.config.flags.types import GO_FALSE, GO_TRUE
from operator_runner.core.model import GVK
from operator_runner.core.object_names import LABEL_PATTERN
from operator_runner.core.settings import DISABLED_PATCHES

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_CONCURRENCY, _WORKERS = "MAX_CONCURRENT_RECONCILES", "WORKER"
_VERBOSITY = "ANSIBLE_VERBOSITY"
_CLOSE = 0.8
"""Similarity of names, of which one may be a misspelling of the other."""


@dataclass(frozen=True, slots=True)
class PerKind:
    """Numbers for single kinds, and warnings about invalid or deprecated variables."""

    values: Mapping[GVK, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def namespaces(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the namespaces of WATCH_NAMESPACE, a comma list; none means all."""
    names = (name.strip() for name in environ.get("WATCH_NAMESPACE", "").split(","))
    return tuple(dict.fromkeys(filter(None, names)))


def namespace_problems(environ: Mapping[str, str]) -> list[str]:
    """Return a problem for each name in WATCH_NAMESPACE that no namespace can have."""
    return [
        f'WATCH_NAMESPACE: invalid namespace "{name}"; write names of lower-case letters, digits'
        " and - with commas between them, or nothing for all namespaces"
        for name in namespaces(environ)
        if not re.fullmatch(LABEL_PATTERN, name)
    ]


def concurrency(environ: Mapping[str, str], kinds: Sequence[GVK]) -> PerKind:
    """Read MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>, or the old WORKER_<KIND>_<GROUP>."""
    names: dict[GVK, str] = {}
    deprecated: list[str] = []
    for gvk in kinds:
        name, old = _name(_CONCURRENCY, gvk), _name(_WORKERS, gvk)
        if name not in environ and old in environ:
            deprecated.append(f"{old} is deprecated; use {name}")
            name = old
        names[gvk] = name
    read = _read(environ, names, range(1, 1_000_000))
    return PerKind(read.values, (*deprecated, *read.warnings))


def verbosity(environ: Mapping[str, str], kinds: Sequence[GVK]) -> PerKind:
    """Read ANSIBLE_VERBOSITY_<KIND>_<GROUP>, 0 to 7."""
    return _read(environ, {gvk: _name(_VERBOSITY, gvk) for gvk in kinds}, range(8))


def unwatched_kinds(environ: Mapping[str, str], kinds: Sequence[GVK]) -> tuple[str, ...]:
    """Return warnings about variables for single kinds whose name belongs to no watched kind."""
    warnings: list[str] = []
    for prefix in (_CONCURRENCY, _WORKERS, _VERBOSITY):
        valid = [_name(prefix, gvk) for gvk in kinds]
        # Variables of other programs begin with WORKER_, such as those of a Service `worker`.
        similarity = _CLOSE if prefix == _WORKERS else 0.0
        for name in sorted(environ):
            if not name.startswith(f"{prefix}_") or name in valid:
                continue
            if nearest := difflib.get_close_matches(name, valid, n=1, cutoff=similarity):
                warnings.append(
                    f"{name} is ignored: it is not the variable of a watched kind;"
                    f" the nearest is {nearest[0]}"
                )
    return tuple(warnings)


def raw_output(environ: Mapping[str, str]) -> bool:
    """Return whether ANSIBLE_VERBOSITY is above 0: then the raw output of runs replaces events."""
    text = environ.get("ANSIBLE_VERBOSITY", "")
    return _INTEGER.fullmatch(text) is not None and int(text) > 0


def disabled_patches(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of disabled patches, a comma list in the environment."""
    names = (name.strip() for name in environ.get(DISABLED_PATCHES, "").split(","))
    return tuple(dict.fromkeys(filter(None, names)))


def debug_logs(environ: Mapping[str, str]) -> bool:
    """Read ANSIBLE_DEBUG_LOGS, a boolean as Go writes it; anything else is false."""
    return environ.get("ANSIBLE_DEBUG_LOGS") in GO_TRUE


def log_warnings(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return warnings about invalid variables that concern the log."""
    text = environ.get("ANSIBLE_DEBUG_LOGS")
    if not text or text in GO_TRUE | GO_FALSE:
        return ()
    return (f"ANSIBLE_DEBUG_LOGS={text} is ignored; write true or false",)


def turbo_warnings(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return a warning if turbo mode is switched on."""
    if environ.get("ENABLE_TURBO_MODE", "").lower() not in {"1", "true", "yes", "on", "y", "t"}:
        return ()
    return ("ENABLE_TURBO_MODE is ignored; warm runs load modules once without it",)


def _name(prefix: str, gvk: GVK) -> str:
    # Only the dots of the group are replaced: a dash is kept, as in ansible-operator.
    return f"{prefix}_{gvk.kind}_{gvk.group}".replace(".", "_").upper()


def _read(environ: Mapping[str, str], names: Mapping[GVK, str], allowed: range) -> PerKind:
    """Read the variables that are set; invalid ones leave the flag's value."""
    values: dict[GVK, int] = {}
    warnings: list[str] = []
    for gvk, name in names.items():
        text = environ.get(name)
        if text is None:
            continue
        if _INTEGER.fullmatch(text) and int(text) in allowed:
            values[gvk] = int(text)
        else:
            bounds = f"from {allowed.start} to {allowed.stop - 1}"
            warnings.append(f"{name}={text} is ignored; write a whole number {bounds}")
    return PerKind(values, tuple(warnings))
