"""Lines of past runs: what the Events of an operator report, in the columns of `why`. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from operator_runner.core.model import Json
from operator_runner.kube.events import (
    CAUSE_ANNOTATION,
    DURATION_ANNOTATION,
    RUN_ANNOTATION,
)
from operator_runner.telemetry.printable import printable
from operator_runner.tools.ages import age

_INDENT = " " * 4
_WORDS = {
    "Successful": "succeeded",
    "Failed": "failed",
    "ReconcileLoop": "looping",
    "NotIdempotent": "not idempotent",
}
_COLUMNS = "{:<20}  {:>5}  {:>8}  {:<15}  {:<16}  {}"
_HEADER = ("ENDED", "AGE", "DURATION", "RESULT", "RUN")
REPLICA = "REPLICA"


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run, or several equal ones, as it is printed.

    `ended` is the end of the last one; `seconds` is None and `run_id` empty if unknown.
    """

    ended: datetime
    seconds: float | None
    outcome: str
    why: str
    note: str = ""
    count: int = 1
    run_id: str = ""
    replica: str = ""
    """Name of the Pod that ran it; empty if unknown."""

    def text(self, now: datetime, replica_width: int = 0) -> str:
        """Return the columns of `header`, and the error of a failed run below."""
        took = "" if self.seconds is None else f"{self.seconds:.1f} s"
        times = f" (x{self.count})" if self.count > 1 else ""
        line = _COLUMNS.format(
            self.ended.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            age(now - self.ended),
            took,
            self.outcome + times,
            self.run_id,
            _with_replica(self.replica, self.why, replica_width),
        ).rstrip()
        below = (_INDENT + text for text in self.note.splitlines())
        # Names of fields are those of the resource and may contain line breaks.
        return printable("\n".join((line.replace("\n", "\\n"), *below)))

    def as_json(self) -> Json:
        """Return the fields that are known, for `--output=json`."""
        fields = {
            "ended": self.ended.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": self.seconds,
            "outcome": self.outcome,
            "runID": self.run_id,
            "replica": self.replica,
            "cause": self.why,
            "message": self.note,
            "count": self.count,
        }
        return {name: value for name, value in fields.items() if value not in {None, ""}}


def header(replica_width: int) -> str:
    """Return the names of the columns of `RunLine.text`."""
    return _COLUMNS.format(*_HEADER, _with_replica(REPLICA, "CAUSE", replica_width))


def _with_replica(replica: str, why: str, width: int) -> str:
    return f"{replica:<{width}}  {why}" if width else why


def line_of(event: Json) -> RunLine:
    """Read an Event of the operator (events.k8s.io/v1) as a line."""
    annotations = event["metadata"].get("annotations") or {}
    series = event.get("series") or {}
    reason: str = event["reason"]
    causes, seconds = annotations.get(CAUSE_ANNOTATION, ""), annotations.get(DURATION_ANNOTATION)
    bad = event["type"] == "Warning"
    return RunLine(
        ended=datetime.fromisoformat(series.get("lastObservedTime") or event["eventTime"]),
        seconds=float(seconds) if seconds else None,
        outcome=_WORDS.get(reason, reason),
        why=causes,
        note=event["note"].rpartition(" (why: ")[0] or event["note"] if bad else "",
        count=int(series.get("count") or 1),
        run_id=annotations.get(RUN_ANNOTATION, ""),
        replica=event.get("reportingInstance") or "",
    )


def is_valid_event(event: Json) -> bool:
    """Return whether an Event has what those of operators have; others may have written it."""
    try:
        line = line_of(event)
        line.ended.astimezone(UTC)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False
    return line.ended.tzinfo is not None and math.isfinite(line.seconds or 0.0)
