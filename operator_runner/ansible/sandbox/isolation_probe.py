"""Find out how far runs can be kept apart, by trying it in a process of its own.

Capabilities, the kernel, seccomp and security modules all have a say, so nothing else is sure.
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

from operator_runner.ansible.sandbox import capabilities, landlock, mounts
from operator_runner.ansible.sandbox.isolation import Isolation, beside, unsettled


@dataclass(frozen=True, slots=True)
class Found:
    """What is possible, and in words for people what is not, if anything."""

    isolation: Isolation
    fault: str | None
    secrets: tuple[str, ...] = ()
    """The credentials that runs can be kept from."""


@dataclass(frozen=True, slots=True)
class _Refusals:
    """Why something cannot be done here, None where it can."""

    mounting: str | None
    restricting: str | None
    """By Landlock."""
    scoping: str | None
    """Landlock's scopes of signals."""


def find_isolation(work_dir: Path, credentials: Sequence[Path] = ()) -> Found:
    """Return how runs can be kept apart and from the operator.

    Its files are in `work_dir`, its `credentials` in these files and directories; those that do
    not exist may come later.
    """
    refusals = _refusals()
    if refusals.restricting is not None:
        return Found(Isolation(), _UNAVAILABLE.format(refusals.restricting))
    hiding = refusals.mounting and _why_not_by_paths(work_dir)
    isolation = Isolation(
        mounts=refusals.mounting is None,
        paths=refusals.mounting is not None and hiding is None,
        processes=True,
        signals=refusals.scoping is None,
    )
    open_ones = {} if isolation.mounts else _open_credentials(credentials)
    secrets = tuple(str(path) for path in credentials if path not in open_ones)
    return Found(isolation, "; ".join(_faults(refusals, hiding, open_ones)) or None, secrets)


_UNAVAILABLE = (
    "runs can read each other's files, environment and memory and the operator's credentials, and"
    " send signals to all of them ({}); this takes Linux 5.19 with Landlock, and"
    " allowPrivilegeEscalation: false in the securityContext"
)


def _open_credentials(credentials: Sequence[Path]) -> dict[Path, str]:
    """Return those that rules for paths cannot close, with the reason."""
    found: dict[Path, str] = {}
    for path in credentials:
        writable = unsettled(path)
        if writable is not None:
            found[path] = f"{writable} can be written to by runs"
        elif path.exists() and (reason := _why_not_by_paths(path)) is not None:
            found[path] = reason
    return found


def _why_not_by_paths(path: Path) -> str | None:
    writable = unsettled(path)
    if writable is not None:
        return f"{writable} can be written to by runs"
    try:
        beside(path)
    except OSError as error:
        return str(error)
    return None


def _faults(
    refusals: _Refusals, hiding: str | None, open_ones: Mapping[Path, str]
) -> Iterator[str]:
    if hiding is not None:
        yield (
            f"runs can read each other's files below --work-dir ({hiding}); name a directory in one"
            " that they can list and not write, as /var/lib/operator-runner is in the image"
        )
    for path, reason in open_ones.items():
        if path.exists():
            yield (
                f"runs can read {path} ({reason}); move it to a directory that they can list and"
                " not write, nor any above it"
            )
    if refusals.scoping is not None:
        yield f"runs can send signals to the operator and to each other ({refusals.scoping})"


def signals_scoped() -> bool:
    """Return whether a run can be kept from sending signals to others."""
    return _refusals().scoping is None


def can_mount() -> bool:
    """Return whether a run can have mounts of its own."""
    return _refusals().mounting is None


@functools.cache
def _refusals() -> _Refusals:
    """Try what a run does in a process."""
    program = [sys.executable, "-P", "-m", __name__]
    tried = subprocess.run(program, capture_output=True, text=True, check=False)
    try:
        return _Refusals(*json.loads(tried.stdout))
    except ValueError:
        reason = (tried.stderr.strip().splitlines() or [f"status {tried.returncode}"])[-1]
        return _Refusals(reason, reason, reason)


def _main() -> None:
    # In this order: rules for paths forbid to mount.
    scoping = _refusal(lambda: landlock.scope_signals(paths_follow=False))
    mounting = _refusal(_join_what_is_hidden)
    restricting = _refusal(lambda: landlock.restrict(["/"])) or _refusal(capabilities.drop)
    print(json.dumps([mounting, restricting, scoping]))  # noqa: T201 (read by _refusals)


def _join_what_is_hidden() -> None:
    """Do what a run's first process does, and then the others. Raises OSError."""
    mounts.hide(tempfile.gettempdir())
    mounts.join(os.getpid())


def _refusal(attempt: Callable[[], None]) -> str | None:
    try:
        attempt()
    except (OSError, AttributeError) as error:
        # AttributeError: a C library without such a function.
        return str(error)
    return None


if __name__ == "__main__":
    _main()
