"""Remove output that no_log hides from events. Pure.

ansible-core censors the result of a task with no_log, but since 2.19 its display also prints the
error message of a failed task, which becomes the stdout of ansible-runner's event.
"""

from __future__ import annotations

from typing import Any

from operator_runner.core.model import Json

_HIDDEN = "the output has been hidden due to the fact that 'no_log: true' was specified"


def censor(event: Json) -> Json:
    """Return an event of ansible-runner, without the stdout of a result that is hidden."""
    result = (event.get("event_data") or {}).get("res")
    if not _is_hidden(result) or not event.get("stdout"):
        return event
    lines = [line for line in event["stdout"].splitlines() if '"censored"' in line]
    return {**event, "stdout": "\r\n".join(lines) or _HIDDEN}


def _is_hidden(result: Any) -> bool:
    if not isinstance(result, dict):
        return False
    items = result.get("results")
    parts = items if isinstance(items, list) else ()
    return "censored" in result or any(_is_hidden(part) for part in parts)
