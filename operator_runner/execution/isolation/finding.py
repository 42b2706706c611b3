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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from operator_runner.execution.isolation import capabilities, landlock, mounts
from operator_runner.execution.isolation.isolation import Isolation, beside, unsettled


@dataclass(frozen=True, slots=True)
class Found:
    """What is possible, and in words for whoever runs the operator what is not, if anything."""

    isolation: Isolation
    fault: str | None


def find_isolation(work_dir: Path) -> Found:
    """Return how the runs of an operator can be kept apart, whose files lie in `work_dir`."""
    mounting, restricting = _refusals()
    hiding = mounting and _why_not_by_paths(work_dir)
    isolation = Isolation(
        mounts=mounting is None and restricting is None,
        paths=mounting is not None and hiding is None and restricting is None,
        processes=restricting is None,
    )
    return Found(isolation, _fault(restricting, hiding))


def _why_not_by_paths(work_dir: Path) -> str | None:
    writable = unsettled(work_dir)
    if writable is not None:
        return f"{writable} can be written to by runs"
    try:
        beside(work_dir)
    except OSError as error:
        return str(error)
    return None


def _fault(restricting: str | None, hiding: str | None) -> str | None:
    if restricting is not None:
        return (
            "runs can read each other's files, environment and memory"
            f" ({restricting}); this takes Linux 5.19 with Landlock, and"
            " allowPrivilegeEscalation: false in the securityContext"
        )
    if hiding is not None:
        return (
            f"runs can read each other's files below --work-dir ({hiding}); name a directory in one"
            " that they can list and not write, as /var/lib/operator-runner is in the image"
        )
    return None


@functools.cache
def _refusals() -> tuple[str | None, str | None]:
    """Return why there can be no mounts of a run's own, and no Landlock; None where there can."""
    program = [sys.executable, "-P", "-m", __name__]
    tried = subprocess.run(program, capture_output=True, text=True, check=False)
    try:
        mounting, restricting = json.loads(tried.stdout)
    except ValueError:
        reason = (tried.stderr.strip().splitlines() or [f"status {tried.returncode}"])[-1]
        return reason, reason
    return mounting, restricting


def _main() -> None:
    # In this order: Landlock forbids to mount.
    mounting = _refusal(_join_what_is_hidden)
    restricting = _refusal(lambda: landlock.restrict(["/"])) or _refusal(capabilities.drop)
    print(json.dumps([mounting, restricting]))  # noqa: T201 (read by _refusals)


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
