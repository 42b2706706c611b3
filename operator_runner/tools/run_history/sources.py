"""Where past runs are told: the Events of a resource, and the files beside its artifacts.

From anywhere with a kubeconfig the Events tell the runs that were news. In the operator's own
container its work dir tells every run whose artifacts are kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from operator_runner import __version__
from operator_runner.ansible.history import PastRun, past_runs
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.kube.api import Api
from operator_runner.kube.events import CAUSE_ANNOTATION, CONTROLLER, DURATION_ANNOTATION
from operator_runner.kube.paging import list_pages
from operator_runner.kube.session import connect
from operator_runner.telemetry.printable import printable

_INDENT = " " * 4
_WORDS = {
    "Successful": "succeeded",
    "Failed": "failed",
    "ReconcileLoop": "looping",
    "NotIdempotent": "not idempotent",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One run, or several equal ones, as it is printed; `seconds` is None if not known."""

    when: datetime
    seconds: float | None
    outcome: str
    why: str
    note: str = ""
    count: int = 1

    def __str__(self) -> str:
        """Time, duration, outcome and causes; what went wrong stands below."""
        time = self.when.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        took = "" if self.seconds is None else f"{self.seconds:.1f} s"
        times = f" (x{self.count})" if self.count > 1 else ""
        line = f"{time}  {took:>8}  {self.outcome + times:<13}  {self.why}".rstrip()
        below = (_INDENT + text for text in self.note.splitlines())
        # Names of fields come from the resource and may hold line breaks.
        return printable("\n".join((line.replace("\n", "\\n"), *below)))


def line_of(event: Json) -> Line:
    """Read an Event of the operator (events.k8s.io/v1) as a line."""
    annotations = event["metadata"].get("annotations") or {}
    series = event.get("series") or {}
    reason: str = event["reason"]
    causes, seconds = annotations.get(CAUSE_ANNOTATION, ""), annotations.get(DURATION_ANNOTATION)
    bad = event["type"] == "Warning"
    return Line(
        when=datetime.fromisoformat(series.get("lastObservedTime") or event["eventTime"]),
        seconds=float(seconds) if seconds else None,
        outcome=_WORDS.get(reason, reason),
        why=causes,
        note=event["note"].rpartition(" (why: ")[0] or event["note"] if bad else "",
        count=int(series.get("count") or 1),
    )


def from_files(work_dir: Path, kind: str, namespace: str | None, name: str) -> list[Line]:
    """Return the runs that an operator with this work dir has kept, newest first.

    `kind` may be in any case; `namespace` None looks in all. Raises ConfigError and OSError.
    """
    if not os.access(work_dir, os.R_OK | os.X_OK):
        raise ConfigError(
            f"--work-dir {work_dir} may not be read; run this as the operator's own user"
        )
    return [_line_of_run(run) for run in past_runs(work_dir, kind, namespace, name)]


def _line_of_run(run: PastRun) -> Line:
    return Line(run.started, run.seconds, run.outcome, "; ".join(run.causes), run.message)


async def from_events(
    kubeconfig: Path | None, kind: str, namespace: str | None, name: str
) -> list[Line]:
    """Return what the Events of a resource tell, newest first.

    `namespace` None is that of the kubeconfig. Raises ApiError and ConfigError.
    """
    connection = await connect(kubeconfig, user_agent=f"operator-runner/{__version__}")
    try:
        api = Api(connection)
        events = await _events(api, namespace or connection.namespace, name)
        if namespace is None:
            # Events about cluster-scoped objects live in `default`.
            elsewhere = await _events(api, "default", name)
            events += [event for event in elsewhere if "namespace" not in event["regarding"]]
    finally:
        await connection.close()
    ours = {
        event["metadata"]["uid"]: line_of(event)
        for event in events
        if event.get("reportingController") == CONTROLLER
        and event["regarding"].get("kind", "").lower() == kind.lower()
    }
    return sorted(ours.values(), key=lambda line: line.when, reverse=True)


async def _events(api: Api, namespace: str, name: str) -> list[Json]:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    params = {"fieldSelector": f"regarding.name={name}"}
    return [event async for page in list_pages(api, path, params=params) for event in page["items"]]
