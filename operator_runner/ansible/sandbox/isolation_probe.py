"""Probe which kinds of isolation the host supports, by trying them in a child process.

Capabilities, the kernel, seccomp and security modules all matter, so only a trial is reliable.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from operator_runner.ansible.sandbox import capabilities, landlock, limits, mounts
from operator_runner.ansible.sandbox.isolation import Isolation, all_except, writable_ancestor


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The supported isolation; `fault` describes what is not isolated, None if everything is."""

    isolation: Isolation
    fault: str | None
    secrets: tuple[str, ...] = ()
    """The credentials that are hidden from runs."""
    protected: tuple[str, ...] = ()
    """The directories that runs can only read."""


@dataclass(frozen=True, slots=True)
class _Errors:
    """Reason why each mechanism is unavailable, None if it is available."""

    mounting: str | None
    restricting: str | None
    """Landlock path rules."""
    scoping: str | None
    """Landlock signal scopes."""
    limiting: str | None
    """The seccomp filter for resource limits."""


def probe_isolation(
    work_dir: Path, credentials: Sequence[Path] = (), protected: Sequence[Path] = ()
) -> ProbeResult:
    """Return how far runs can be isolated from each other and from the operator.

    Their files are below `work_dir`. `credentials` are files and directories of the operator,
    which may not exist yet. Directories in `protected` are not to be written by runs.
    """
    errors = _probe()
    if errors.restricting is not None:
        return ProbeResult(Isolation(), _UNAVAILABLE.format(errors.restricting))
    unprotected = {} if errors.mounting is None else _unprotected(protected)
    kept = [path for path in protected if path not in unprotected]
    path_error = errors.mounting and _path_rule_error(work_dir, kept)
    isolation = Isolation(
        mounts=errors.mounting is None,
        paths=errors.mounting is not None and path_error is None,
        processes=True,
        signals=errors.scoping is None,
        limits=errors.limiting is None,
    )
    exposed = {} if isolation.mounts else _exposed_credentials(credentials, kept)
    secrets = tuple(str(path) for path in credentials if path not in exposed)
    fault = "; ".join(_faults(errors, path_error, exposed, unprotected)) or None
    return ProbeResult(isolation, fault, secrets, tuple(map(str, kept)))


_UNAVAILABLE = (
    "runs can read each other's files, environment and memory and the operator's credentials, and"
    " send signals to all of them ({}); isolation requires Linux 5.19 with Landlock, and"
    " allowPrivilegeEscalation: false in the securityContext"
)


def _exposed_credentials(credentials: Sequence[Path], protected: Sequence[Path]) -> dict[Path, str]:
    """Return the credentials that path rules cannot hide, with the reason."""
    found: dict[Path, str] = {}
    for path in credentials:
        writable = writable_ancestor(path, protected)
        if writable is not None:
            found[path] = f"runs can write to {writable}"
        elif path.exists() and (reason := _path_rule_error(path, protected)) is not None:
            found[path] = reason
    return found


def _unprotected(protected: Sequence[Path]) -> dict[Path, str]:
    """Return the directories that path rules cannot protect from changes, with the reason."""
    errors = {path: _path_rule_error(path) for path in protected}
    return {path: error for path, error in errors.items() if error is not None}


def _path_rule_error(path: Path, protected: Sequence[Path] = ()) -> str | None:
    writable = writable_ancestor(path, protected)
    if writable is not None:
        return f"runs can write to {writable}"
    try:
        all_except(path)
    except OSError as error:
        return str(error)
    return None


def _faults(
    errors: _Errors,
    path_error: str | None,
    exposed: Mapping[Path, str],
    unprotected: Mapping[Path, str],
) -> Iterator[str]:
    if path_error is not None:
        yield (
            f"runs can read each other's files below --work-dir ({path_error}); set it to a"
            " directory whose parents they can list but not write to, such as"
            " /var/lib/operator-runner in the image"
        )
    for path, reason in exposed.items():
        if path.exists():
            yield (
                f"runs can read {path} ({reason}); move it to a directory that they can list but"
                " not write to, nor any parent of it"
            )
    for path, reason in unprotected.items():
        yield (
            f"runs can change files in {path}, which later runs load ({reason}); move it to a"
            " directory that they can list but not write to, nor any parent of it"
        )
    if errors.scoping is not None:
        yield f"runs can send signals to the operator and to each other ({errors.scoping})"
    if errors.limiting is not None:
        yield f"runs can change resource limits of the operator ({errors.limiting})"


def signals_scoped() -> bool:
    """Return whether Landlock signal scopes are available."""
    return _probe().scoping is None


def can_mount() -> bool:
    """Return whether runs can have mount namespaces of their own."""
    return _probe().mounting is None


@functools.cache
def _probe() -> _Errors:
    """Try in a child process what runs do."""
    program = [sys.executable, "-P", "-m", __name__]
    tried = subprocess.run(program, capture_output=True, text=True, check=False)
    try:
        return _Errors(*json.loads(tried.stdout))
    except ValueError:
        reason = (tried.stderr.strip().splitlines() or [f"status {tried.returncode}"])[-1]
        return _Errors(reason, reason, reason, reason)


def _main() -> None:
    # In this order, because path rules deny mounting.
    scoping = _error(lambda: landlock.scope_signals(paths_follow=False))
    mounting = _error(_hide_and_join)
    restricting = _error(lambda: landlock.restrict(["/"]))
    limiting = _error(limits.restrict_calls)  # needs a capability that is dropped next
    restricting = restricting or _error(capabilities.drop)
    print(json.dumps([mounting, restricting, scoping, limiting]))  # noqa: T201 (read by _probe)


def _hide_and_join() -> None:
    """Do what the first process of a run does, and then the others. Raises OSError."""
    mounts.hide(tempfile.gettempdir())
    mounts.join(os.getpid())


def _error(attempt: Callable[[], None]) -> str | None:
    try:
        attempt()
    except (OSError, AttributeError) as error:
        # AttributeError: the C library has no such function.
        return str(error)
    return None


if __name__ == "__main__":
    _main()
