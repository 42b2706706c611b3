"""Keep what no_log hides out of every sink. Pure.

ansible-core censors the result of a task with no_log, but since 2.19 its display prints the
error message of a failed one beside it, and ansible-runner takes that over as the output of
the event.
"""

from __future__ import annotations

from typing import Any

from operator_runner.core.model import Json

_HIDDEN = "the output has been hidden due to the fact that 'no_log: true' was specified"


def censored(event: Json) -> Json:
    """Return the event of ansible-runner without output that its result hides."""
    result = (event.get("event_data") or {}).get("res")
    if not _is_hidden(result) or not event.get("stdout"):
        return event
    told = [line for line in event["stdout"].splitlines() if '"censored"' in line]
    return {**event, "stdout": "\r\n".join(told) or _HIDDEN}


def _is_hidden(result: Any) -> bool:
    if not isinstance(result, dict):
        return False
    items = result.get("results")
    parts = items if isinstance(items, list) else ()
    return "censored" in result or any(_is_hidden(part) for part in parts)
