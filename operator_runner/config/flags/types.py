"""Readers of flag values as Go programs write them, and of environment variables.

Each reader of booleans, durations and addresses raises click.BadParameter, to which click adds the
name of the flag. The number of concurrent runs is computed for the machine, or for the container.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import click

from operator_runner.core.durations import DURATION_HINT, parse_duration
from operator_runner.core.host_resources import HostResources
from operator_runner.core.model import GVK
from operator_runner.core.object_names import LABEL_PATTERN
from operator_runner.core.settings import DISABLED_PATCHES, Address, ExecutorName, ShardSettings

_SERVICE = re.compile(rf"(?:({LABEL_PATTERN})/)?({LABEL_PATTERN})(?::([1-9][0-9]{{0,4}}))?")

GO_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
GO_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def go_bool(text: str) -> bool:
    """Read a boolean in any of the ways of Go's strconv.ParseBool."""
    if text not in GO_TRUE | GO_FALSE:
        raise click.BadParameter(
            f"invalid boolean {text!r}: write the flag alone, or with =true or =false"
        )
    return text in GO_TRUE


def go_duration(text: str) -> timedelta:
    """Read `90s` or `1h30m`; negative values are accepted, the flag defines their meaning."""
    try:
        return parse_duration(text)
    except ValueError as error:
        message = f"{error}; {DURATION_HINT}"
        raise click.BadParameter(message) from error


def bind_address(text: str) -> str:
    """Check `:8443`, `127.0.0.1:8443`, or `0`; return the text, because None means `not given`."""
    try:
        Address.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


def service(text: str) -> tuple[str, str, int]:
    """Read `namespace/name:port`; the namespace may be left out (empty), the port too (443)."""
    found = _SERVICE.fullmatch(text)
    if found is None or int(found[3] or 0) > 65535:  # noqa: PLR2004
        raise click.BadParameter(f"invalid Service {text!r}: expected [namespace/]name[:port]")
    return found[1] or "", found[2], int(found[3] or 443)


def shards(text: str) -> ShardSettings:
    """Read `auto`, or the maximum number of replicas that work."""
    if text == "auto":
        return ShardSettings()
    if not text.isascii() or not text.isdigit() or not int(text):
        raise click.BadParameter(f"invalid number of shards {text!r}: write auto, or 1 or more")
    return ShardSettings(int(text))


_MB = 1024**2
_MIN_RUNS = 2
"""Two, so that one slow run does not block all runs, even on one core."""


_OWN_MEMORY = 150 * _MB
"""Bytes of the operator itself, with the fork server."""
_RUN_MEMORY: dict[ExecutorName, int] = {
    # A fork shares most of its memory with the server.
    "warm": 40 * _MB,
    # ansible-runner, ansible-playbook, its worker and a module in it.
    "cold": 100 * _MB,
}
"""Bytes of each run."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Number of runs that fit, and the memory of each."""

    runs: int
    """One for each core, at least two, fewer where memory is short; at least 1."""
    extra: int
    """Further runs where memory allows them: room for kinds without a run in progress."""
    run_memory: int
    """Bytes of memory for each run."""


def cores() -> int:
    """Return the number of cores that this process may use, as Go's runtime.NumCPU does."""
    return len(os.sched_getaffinity(0))


def capacity(machine: HostResources, executor: ExecutorName, wanted: int) -> Capacity:
    """Return the number of runs for which the machine has cores and memory.

    `wanted` is the user's limit for one kind; it may exceed the cores, never the memory.
    Memory that other processes use now is not subtracted, because the result is used until the
    operator ends. The workqueue checks free memory before each start instead.
    """
    run_memory = _RUN_MEMORY[executor]
    by_memory = max(1, (machine.memory() - _OWN_MEMORY) // run_memory)
    runs = min(max(_MIN_RUNS, machine.cores(), wanted), by_memory)
    return Capacity(runs, min(runs, by_memory - runs), run_memory)


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
