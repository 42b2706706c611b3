"""Remove output that no_log hides from events.

ansible-core censors the result of a task with no_log, but since 2.19 its display also prints the
error message of a failed task, which becomes the stdout of ansible-runner's event.

ansible-runner removes the whole result, `changed` included. The first line of the output has it:
`changed: [localhost]` or `ok: [localhost]`.
"""

from __future__ import annotations

import re
from typing import Any, TypeGuard

from operator_runner.core.model import Json

_HIDDEN = "the output has been hidden due to the fact that 'no_log: true' was specified"
_ANSI = r"(?:\x1b\[[0-9;]*m)*"
_STATUS = re.compile(
    rf"^{_ANSI}(?P<word>ok|changed): \[[\w. >:-]*\](?: => \(item=\(censored due to no_log\)\))?"
)
"""Result of a task or item, as ansible-core's default callback plugin prints it."""
_RESULTS = {"runner_on_ok", "runner_item_on_ok"}


class Censor:
    """Censors the events of one run, in order."""

    def __init__(self) -> None:
        """Begin with the first event."""
        self._changed_loops: set[str] = set()

    def __call__(self, event: Json) -> Json:
        """Return an event of ansible-runner, without the stdout of a result that is hidden.

        A hidden result of a task that did not fail has `censored` and `changed`.
        """
        data = event.get("event_data") or {}
        result = data.get("res")
        if not _is_hidden(result):
            return event
        stdout = event.get("stdout") or ""
        has_status = event.get("event") in _RESULTS
        if has_status and "changed" not in result:
            changed = self._is_changed(event["event"], str(data.get("task_uuid")), stdout)
            event = {**event, "event_data": {**data, "res": {**result, "changed": changed}}}
        if not stdout:
            return event
        lines = [kept for line in stdout.splitlines() if (kept := _kept(line, has_status))]
        return {**event, "stdout": "\r\n".join(lines) or _HIDDEN}

    def _is_changed(self, kind: str, task: str, stdout: str) -> bool:
        """Return whether a task or item changed something; a loop prints its items only."""
        words = [found["word"] for line in stdout.splitlines() if (found := _STATUS.match(line))]
        if kind == "runner_item_on_ok" and "changed" in words:
            self._changed_loops.add(task)
        return "changed" in words or (kind == "runner_on_ok" and task in self._changed_loops)


def _kept(line: str, has_status: bool) -> str:
    """Return what may be shown of a line of output, empty if nothing."""
    if '"censored"' in line:
        return line
    status = _STATUS.match(line) if has_status else None
    return status.group() if status else ""


def _is_hidden(result: Any) -> TypeGuard[Json]:
    if not isinstance(result, dict):
        return False
    items = result.get("results")
    parts = items if isinstance(items, list) else ()
    return "censored" in result or any(_is_hidden(part) for part in parts)
