"""Copy the log lines of runs to their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from structlog.typing import EventDict, WrappedLogger

from operator_runner.telemetry.redaction import printable

_OWN_KEYS = frozenset(
    {
        *("event", "level", "logger", "run_id", "trace_id", "span_id"),
        *("kind", "namespace", "name", "cause"),
    }
)
"""Keys that the record or the beginning of the line already has, and ids of traces."""


class RunLog:
    """A processor of structlog that passes lines with a `run_id` on; it changes nothing."""

    def __init__(self) -> None:
        """Pass nothing on yet."""
        self._sink: Callable[[str, str], None] | None = None

    def open(self, sink: Callable[[str, str], None]) -> None:
        """From now on, call `sink` with run and text of each line."""
        self._sink = sink

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Act as a processor, after the one that redacts secrets."""
        run_id = event.get("run_id")
        if self._sink is not None and isinstance(run_id, str):
            self._sink(run_id, _line(event))
        return event


def _line(event: EventDict) -> str:
    rest: dict[str, Any] = {key: value for key, value in event.items() if key not in _OWN_KEYS}
    fields = "".join(f" {key}={value}" for key, value in rest.items() if key[:1] != "_")
    return printable(f"{event.get('level', '')}: {event.get('event', '')}{fields}")


RUN_LOG = RunLog()
"""The instance of the process: there is one log."""
