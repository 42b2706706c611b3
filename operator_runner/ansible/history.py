"""Write and read a record of each run: its time, outcome and causes.

The record is a file among the artifacts of the run, `artifacts/<run id>/run.json`, with another one
for what was found after the run.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from operator_runner.ansible.nofollow_io import Directory, open_directory
from operator_runner.ansible.resource_dirs import decoded_name
from operator_runner.ansible.rundir import RunDir, RunDirs
from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.model import GVK, Json, ObjectRef, RunOutcome, RunRequest
from operator_runner.reconcile.conditions import failure_line
from operator_runner.telemetry.runs.record import causes_json

_log = structlog.get_logger(__name__)
_failures = Deduplicator()
FILE = "run.json"
MESSAGE_FILE = "message"
_MESSAGE_BYTES = 2048
_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")
_UNREADABLE = (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""Errors from a file that `write_record` did not write."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A recorded run; `message` is the first error of a failed one, or what was found about it."""

    run_id: str
    started: datetime
    seconds: float
    outcome: str
    causes: tuple[str, ...]
    message: str = ""


def write_record(
    rundir: RunDir, request: RunRequest, started: datetime, outcome: RunOutcome | None
) -> None:
    """Record a finished run; `outcome` is None for a cancelled one. Errors are only logged."""
    seconds = None if outcome is None else outcome.seconds
    if seconds is None:
        seconds = round((datetime.now(UTC) - started).total_seconds(), 3)
    content = {
        "run_id": request.run_id,
        "started": started.isoformat(timespec="milliseconds"),
        "seconds": seconds,
        "outcome": _outcome_name(outcome),
        "causes": causes_json(request.causes),
        "message": failure_line(outcome.failures[:1], _MESSAGE_BYTES) if outcome else "",
    }
    with recording(rundir.path), rundir.artifacts(request.run_id) as artifacts:
        artifacts.write(FILE, json.dumps(content))
        _failures.reset()


def add_message(rundirs: RunDirs, ref: ObjectRef, run_id: str, message: str) -> None:
    """Record what was found about a finished run. Errors are only logged.

    It has a file of its own: the record may have been replaced by processes of the run.
    """
    with (
        recording(rundirs.path_of(ref)),
        contextlib.suppress(FileNotFoundError),
        rundirs.open(ref, create=False) as rundir,
        rundir.artifacts(run_id, create=False) as artifacts,
    ):
        artifacts.write(MESSAGE_FILE, message)


@contextlib.contextmanager
def recording(path: Path) -> Iterator[None]:
    """Log an error while what is known of a run is written, once until a run can be recorded.

    The outcome is already known; a full disk must not change it.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if _failures.is_new(str(error)):
            _log.warning("Cannot write the record of a run", path=str(path), error=str(error))


def _artifacts_of(folder: Path) -> Iterator[Directory]:
    """Yield the artifacts of each run in a private data dir. Raises OSError."""
    with (
        contextlib.suppress(FileNotFoundError),
        open_directory(folder / "artifacts") as artifacts,
    ):
        for run_id in artifacts.directories():
            with contextlib.suppress(FileNotFoundError), artifacts.below(run_id) as run:
                yield run


def recorded_resources(base: Path) -> dict[ObjectRef, Path]:
    """Return the resources with artifacts below the work dir `base`, with their directories.

    Raises OSError.
    """
    # Resolved, so that any link found later was made by a run.
    base = base.resolve()
    # <group>/<version>/<kind>/<namespace>/<name>, without <group> for the core group and without
    # <namespace> for cluster-scoped resources.
    folders = (path.parent for depth in (3, 4, 5) for path in base.glob("*/" * depth + "artifacts"))
    # The last one of a resource counts: earlier versions did not encode names.
    ordered = sorted(folders, key=lambda folder: "%" in folder.name)
    return {_ref_of(folder.relative_to(base).parts): folder for folder in ordered}


def past_runs(folder: Path) -> list[PastRun]:
    """Return the recorded runs of a resource in its private data dir, newest first."""
    runs = [run for each in _artifacts_of(folder) if (run := _read(each, FILE)) is not None]
    return sorted(runs, key=lambda run: run.started, reverse=True)


def _ref_of(parts: tuple[str, ...]) -> ObjectRef:
    # Groups of resources other than the core group have a dot, or are older than CRDs.
    group, rest = ("", parts) if _VERSION.fullmatch(parts[0]) else (parts[0], parts[1:])
    version, kind, *where = rest
    name = where[-1] if where else ""
    return ObjectRef(GVK(group, version, kind), "/".join(where[:-1]), decoded_name(name))


def _read(directory: Directory, name: str) -> PastRun | None:
    try:
        run = _run_of(json.loads(directory.read(name)))
        return run if run.message else replace(run, message=_message(directory))
    except _UNREADABLE:
        # Removed or incomplete, because the operator is running; or replaced by a run.
        return None


def _message(artifacts: Directory) -> str:
    try:
        return artifacts.read(MESSAGE_FILE)
    except FileNotFoundError:
        return ""


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


def _outcome_name(outcome: RunOutcome | None) -> str:
    if outcome is None:
        return "cancelled"
    return "succeeded" if outcome.successful else "failed"
