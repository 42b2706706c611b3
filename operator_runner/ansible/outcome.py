"""Fold the events of a run into one outcome. Pure: no I/O, the clock is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from operator_runner.ansible.templating.type_hints import with_type_hint
from operator_runner.core.durations import parse_duration
from operator_runner.core.model import Json, RunEvent, RunOutcome, Stats, TaskFailure
from operator_runner.core.truncation import truncated

# The contract reads the recap of this host alone; ansible-operator's inventory has no other.
_HOST = "localhost"
_REQUEUE_ACTIONS = {"operator_sdk.util.requeue_after", "requeue_after"}
_REQUEUE_EVENTS = {"runner_on_ok", "runner_item_on_ok"}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_START = re.compile(r"^(\[ERROR\]: |ERROR! |ansible-playbook: error: )")
_NOTHING_SAID = (None, "", "Unknown error.")
_MAX_REASON = 2000
_MAX_MESSAGE_BYTES = 16 * 1024
"""Of the message of one failure; name and place of its task fit into a condition beside it."""


@dataclass(slots=True)
class OutcomeBuilder:
    """What the events so far say. Feed each event once, in order."""

    task: str = ""
    """The task that runs now, for a run that is ended in the middle."""
    _recap: Json | None = None
    _failed: dict[str, list[TaskFailure]] = field(default_factory=dict)
    _requeue_after: timedelta | None = None
    _unreadable: TaskFailure | None = None

    def feed(self, event: RunEvent) -> None:
        """Take the next event in."""
        match event.kind:
            case "playbook_on_task_start":
                self.task = str(event.data.get("name") or event.data.get("task") or "")
            case "playbook_on_stats":
                self._recap = event.data
            case "runner_on_failed" if not event.data.get("ignore_errors"):
                self._note_failure(event)
            case "runner_on_unreachable" if not event.data.get("ignore_unreachable"):
                self._note_failure(event)
            case _:
                pass
        self._note_requeue(event)

    def outcome(self, now: datetime, exit_status: int, output: str) -> RunOutcome:
        """Judge a run that ended by itself. `output` is what it printed."""
        if self._recap is None:
            reason = reason_from_output(output) or f"ansible-playbook ended with {exit_status}"
            return self.broken(now, reason)
        failures = tuple(self._final_failures(self._recap))
        if exit_status != 0 and not failures:
            reason = reason_from_output(output) or f"ansible-playbook ended with {exit_status}"
            failures = (TaskFailure(self.task, reason),)
        if self._unreadable is not None:
            failures = (*failures, self._unreadable)
        return RunOutcome(_stats(self._recap), failures, self._requeue_after, now)

    def broken(self, now: datetime, reason: str) -> RunOutcome:
        """Judge a run that did not come to its end, for this reason."""
        return RunOutcome(None, (TaskFailure(self.task, reason),), None, now)

    def _note_failure(self, event: RunEvent) -> None:
        failure = TaskFailure(
            task=str(event.data.get("task") or ""),
            message=with_type_hint(truncated(_message(event.data.get("res")), _MAX_MESSAGE_BYTES)),
            path=str(event.data.get("task_path") or ""),
        )
        self._failed.setdefault(str(event.data.get("host") or _HOST), []).append(failure)

    def _note_requeue(self, event: RunEvent) -> None:
        # The first one counts, as in ansible-operator, which stops listening there.
        if self._requeue_after is not None or event.kind not in _REQUEUE_EVENTS:
            return
        if event.data.get("task_action") not in _REQUEUE_ACTIONS:
            return
        period = (event.data.get("res") or {}).get("period")
        if period is None:
            return
        try:
            # Zero means the ordinary period: a resource must not be run without a pause.
            self._requeue_after = parse_duration(str(period)) or None
        except ValueError as error:
            reason = f"requeue_after: {error}; write hours, minutes and seconds, such as 1h30m"
            place = str(event.data.get("task_path") or "")
            self._unreadable = TaskFailure(str(event.data.get("task") or ""), reason, place)

    def _final_failures(self, recap: Json) -> Iterator[TaskFailure]:
        # Whether a failure was rescued stands in the recap alone: a host's failures that
        # count are its last ones, for a failure that is not rescued ends the host's play.
        for host, failed in self._failed.items():
            count = _count(recap, "failures", host) + _count(recap, "dark", host)
            yield from failed[len(failed) - min(count, len(failed)) :]


def reason_from_output(output: str) -> str:
    """Return the error that Ansible printed before any play could run, or an empty text."""
    lines = _ANSI.sub("", output).replace("\r", "").strip().splitlines()
    starts = [number for number, line in enumerate(lines) if _ERROR_START.match(line)]
    if not starts:
        return "\n".join(lines[-10:])[-_MAX_REASON:]
    # Errors of tasks that were ignored may stand before the one that ended it all.
    text = "\n".join(lines[starts[-1] :])
    return _ERROR_START.sub("", text)[:_MAX_REASON].rstrip()


def _message(result: Any) -> str:
    """Return what a failed result says of itself; items of a loop speak for their task."""
    if not isinstance(result, dict):
        return str(result or "unknown playbook failure")
    parts = [
        _message(item)
        for item in result.get("results") or ()
        if isinstance(item, dict) and item.get("failed")
    ]
    words = ("msg", "message", "reason", "module_stderr", "censored")
    said = (result[word] for word in words if result.get(word) not in _NOTHING_SAID)
    own = str(next(said, result.get("msg")) or "unknown playbook failure")
    if parts:
        return "\n".join(dict.fromkeys(parts))
    detail = _detail(result.get("error"))
    return own if detail in own else f"{own}: {detail}"


def _detail(error: Any) -> str:
    """Return what Kubernetes modules tell beside their message: a text, or the API's answer."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("reason")
    return error if isinstance(error, str) else ""


def _stats(recap: Json) -> Stats:
    return Stats(
        ok=_count(recap, "ok"),
        changed=_count(recap, "changed"),
        skipped=_count(recap, "skipped"),
        failures=_count(recap, "failures"),
    )


def _count(recap: Json, name: str, host: str = _HOST) -> int:
    return int((recap.get(name) or {}).get(host) or 0)
