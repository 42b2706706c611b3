"""What each run leaves beside its artifacts: when it ran, how it ended, and why it was run.

One small file for each run, `artifacts/<run id>/why.json`; it goes when the artifacts go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from operator_runner.ansible import nofollow_io
from operator_runner.ansible.rundir import RunDir
from operator_runner.core.model import Json, RunOutcome, RunRequest

_log = structlog.get_logger(__name__)
FILE = "why.json"
_UNREADABLE = (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What comes of a file that is not as `leave` writes it."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run as it is remembered; `message` says why a failed one failed."""

    run_id: str
    started: datetime
    seconds: float
    outcome: str
    causes: tuple[str, ...]
    message: str = ""


def leave(
    rundir: RunDir, request: RunRequest, started: datetime, outcome: RunOutcome | None
) -> None:
    """Write the file of a run that has ended; `outcome` is None for one that was cancelled."""
    content = {
        "run_id": request.run_id,
        "started": started.isoformat(timespec="milliseconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 3),
        "outcome": _word(outcome),
        "causes": [
            {"trigger": cause.trigger.value, "detail": cause.detail} for cause in request.causes
        ],
        "message": outcome.failures[0].message if outcome and outcome.failures else "",
    }
    try:
        with rundir.artifact(request.run_id, FILE) as file:
            json.dump(content, file)
    except OSError as error:
        # The run itself is judged already; a full disk must not change its outcome.
        _log.warning("Could not keep why a run was run", path=str(rundir.path), error=str(error))


def past_runs(base: Path, kind: str, namespace: str | None, name: str) -> list[PastRun]:
    """Return the runs of a resource that are kept below the work dir `base`, newest first.

    `kind` may be in any case; `namespace` None looks in all. Raises OSError.
    """
    # Of links there may be none but those that a run has made.
    base = base.resolve()
    runs = [
        run
        for folder in _private_dirs(base, kind.lower(), namespace, name)
        for file in folder.glob(f"artifacts/*/{FILE}")
        if not file.parent.is_symlink() and (run := _read(file)) is not None
    ]
    return sorted(runs, key=lambda run: run.started, reverse=True)


def _private_dirs(base: Path, kind: str, namespace: str | None, name: str) -> Iterator[Path]:
    # <group>/<version>/<kind>/<namespace>/<name>; there is no group for the core group, and
    # no namespace for cluster-scoped resources.
    for depth in (2, 3, 4):
        for folder in base.glob("*/" * depth + name):
            parts = folder.relative_to(base).parts
            lower = [part.lower() for part in parts]
            if kind in lower[-3:-1] and (namespace is None or parts[-2] == namespace):
                yield folder


def _read(file: Path) -> PastRun | None:
    try:
        return _run_of(json.loads(nofollow_io.read(file)))
    except _UNREADABLE:
        # Removed or half written at this moment: the operator goes on working. Or a run has put
        # something of its own there.
        return None


def _run_of(content: Json) -> PastRun:
    return PastRun(
        run_id=str(content["run_id"]),
        started=datetime.fromisoformat(content["started"]).astimezone(UTC),
        seconds=float(content["seconds"]),
        outcome=str(content["outcome"]),
        causes=tuple(
            f"{cause['trigger']}: {cause['detail']}" if cause["detail"] else str(cause["trigger"])
            for cause in content["causes"]
        ),
        message=str(content["message"]),
    )


def _word(outcome: RunOutcome | None) -> str:
    if outcome is None:
        return "cancelled"
    return "succeeded" if outcome.successful else "failed"
