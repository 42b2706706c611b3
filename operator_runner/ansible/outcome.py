"""Build the outcome of a run from its events. Pure: time and files are arguments."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from operator_runner.ansible.api_errors import readable, reason_and_code, unserved_kind
from operator_runner.ansible.templating.hints import with_type_hint
from operator_runner.core.ansible_modules import Trait, has_trait
from operator_runner.core.durations import parse_duration
from operator_runner.core.errors import exhausted_in
from operator_runner.core.model import (
    FORMER_OWNER,
    NOT_OWNED,
    Json,
    RunEvent,
    RunOutcome,
    Stats,
    TaskFailure,
)
from operator_runner.core.texts import truncated, without_colours

# ansible-operator reports the recap of this host only; its inventory has no other.
_HOST = "localhost"
_REQUEUE_EVENTS = {"runner_on_ok", "runner_item_on_ok"}
_ERROR_START = re.compile(r"^(\[ERROR\]: |ERROR! |ansible-playbook: error: )")
_UNEXPECTED = "Unexpected Exception, this is probably a bug: "
"""What precedes the error in ansible-core's report with a traceback."""
_EMPTY_MESSAGES = (None, "", "Unknown error.", "Task failed: Action failed: Unknown error.")
_UNKNOWN = "unknown playbook failure"
"""What ansible-operator says of a failed task without a message."""
_FAILED_WHEN = "A 'failed_when' expression evaluated to 'True'."
"""Message of ansible-core 2.21 for a module that has succeeded."""
REASON_VARIABLE = "failure_reason"
"""Variable of a task or block with the reason of its failures."""
_OWNERSHIP = (NOT_OWNED, FORMER_OWNER)
"""Reasons that no variable replaces: they are about an object of another owner."""
REASON_PATTERN = r"[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?"
_NON_ZERO = re.compile(r"non-zero return code\.?\Z")
"""End of the message of `command`, `shell` and `script`; `no_log` hides their output."""
_NOT_STARTED = "Error executing command."
"""End of the message of a module whose program cannot be started, in ansible-core 2.21."""
_ENDED_WAITS = ("Resource scaling timed out", "Resource update timed out")
"""Messages of k8s_scale and k8s_json_patch, which do not name what they have waited for."""
_COUNTS = ("ok", "failures", "dark", "skipped", "rescued", "ignored", "processed")
_NO_HOSTS = (
    "no hosts matched, so nothing was run: write `hosts: localhost` in the playbook, or set"
    " ANSIBLE_INVENTORY to an inventory with its hosts"
)
_MAX_REASON_CHARACTERS = 2000
_MAX_MESSAGE_BYTES = 16 * 1024
"""Maximum of one failure's message; with task and path it fits into a condition."""


@dataclass(slots=True)
class OutcomeBuilder:
    """Collects events: call `add` with each, in order, then `build`."""

    keyword_of: Callable[[str, str], str] = lambda *_: ""
    """Returns the text of a keyword of the task at a path; see `ansible_yaml.task_keyword`."""
    variable_of: Callable[[str, str], str] = lambda *_: ""
    """Returns a variable of the task or of a block; see `ansible_yaml.task_variable`."""
    started: datetime | None = None
    """The start of the play; set when Ansible is loaded."""
    task: str = ""
    """The current task, which is reported if the run is aborted."""
    _has_play: bool = False
    _is_unmatched: bool = False
    """Whether a play of the playbook has no hosts."""
    _recap: Json | None = None
    _failed: dict[str, list[TaskFailure]] = field(default_factory=dict)
    _requeue_after: timedelta | None = None
    _invalid_requeue: TaskFailure | None = None
    _reports: int = 0
    _completeness: Completeness = field(init=False)

    def __post_init__(self) -> None:
        """Look for tasks that leave something undone."""
        self._completeness = Completeness(self.keyword_of)

    def add(self, event: RunEvent) -> None:
        """Add the next event."""
        match event.kind:
            case "playbook_on_play_start":
                self._has_play = True
            case "playbook_on_no_hosts_matched":
                self._is_unmatched = True
            case "playbook_on_task_start":
                self.task = str(event.data.get("name") or event.data.get("task") or "")
            case "playbook_on_stats":
                self._recap = event.data
            case "runner_on_ok" if _is_report(event.data):
                self._reports += 1
            case "runner_on_failed" if not event.data.get("ignore_errors"):
                self._add_failure(event)
            case "runner_on_unreachable" if not event.data.get("ignore_unreachable"):
                self._add_failure(event)
            case _:
                pass
        self._add_requeue(event)
        self._completeness.add(event)

    def build(self, now: datetime, exit_status: int, output: str) -> RunOutcome:
        """Return the outcome of a run that ended by itself. `output` is what it printed."""
        if self._recap is None:
            reason = reason_from_output(output) or f"ansible-playbook ended with {exit_status}"
            aborted = self.build_aborted(now, reason)
            # Ansible loads all plays before it starts the first one.
            load_failed = not self._has_play and _error_starts(_lines(output)) != []
            if load_failed:
                failures = tuple(replace(each, reason="LoadFailed") for each in aborted.failures)
                return replace(aborted, failures=failures, load_failed=True)
            return aborted
        failures = tuple(self._final_failures(self._recap))
        if exit_status != 0 and not failures:
            reason = reason_from_output(output) or f"ansible-playbook ended with {exit_status}"
            failures = (TaskFailure(self.task, reason),)
        if self._is_unmatched and not any(self._recap.get(name) for name in _COUNTS):
            failures = (TaskFailure(self.task, _NO_HOSTS),)
        if self._invalid_requeue is not None:
            failures = (*failures, self._invalid_requeue)
        return RunOutcome(
            _stats(self._recap, self._reports),
            failures,
            self._requeue_after,
            now,
            started=self.started,
            incomplete=self._completeness.fault(self._recap),
        )

    def build_aborted(self, now: datetime, reason: str) -> RunOutcome:
        """Return the outcome of a run that did not complete, for this reason."""
        word, code = reason_and_code(reason, "RunFailed")
        failures = (TaskFailure(self.task, reason, reason=word, code=code),)
        return RunOutcome(None, failures, None, now, started=self.started)

    def _add_failure(self, event: RunEvent) -> None:
        path = str(event.data.get("task_path") or "")
        result = event.data.get("res")
        message = _message(result, partial(self.keyword_of, path))
        is_unreachable = event.kind == "runner_on_unreachable"
        reason, code = reason_and_code(message, "Unreachable" if is_unreachable else "TaskFailed")
        chosen = "" if reason in _OWNERSHIP else self.variable_of(path, REASON_VARIABLE)
        failure = TaskFailure(
            task=str(event.data.get("task") or ""),
            message=with_type_hint(truncated(message, _MAX_MESSAGE_BYTES)),
            path=path,
            reason=chosen if re.fullmatch(REASON_PATTERN, chosen) else reason,
            code=code,
            unserved=unserved_kind(message),
        )
        self._failed.setdefault(str(event.data.get("host") or _HOST), []).append(failure)

    def _add_requeue(self, event: RunEvent) -> None:
        # Only the first one counts, as in ansible-operator.
        if self._requeue_after is not None or event.kind not in _REQUEUE_EVENTS:
            return
        if not has_trait(str(event.data.get("task_action")), Trait.REQUEUES):
            return
        period = (event.data.get("res") or {}).get("period")
        if period is None:
            return
        try:
            # Zero means the regular period: a resource must not be run without a pause.
            self._requeue_after = parse_duration(str(period)) or None
        except ValueError as error:
            reason = f"requeue_after: {error}; write hours, minutes and seconds, such as 1h30m"
            path = str(event.data.get("task_path") or "")
            self._invalid_requeue = TaskFailure(str(event.data.get("task") or ""), reason, path)

    def _final_failures(self, recap: Json) -> Iterator[TaskFailure]:
        # Only the recap shows whether a failure was rescued. The failures of a host that count are
        # its last ones, because a failure that is not rescued ends the play for the host.
        for host, failed in self._failed.items():
            count = _count(recap, "failures", host) + _count(recap, "dark", host)
            yield from failed[len(failed) - min(count, len(failed)) :]


def reason_from_output(output: str) -> str:
    """Return the error that Ansible printed before any play could run, empty if none."""
    lines = _lines(output)
    starts = _error_starts(lines)
    if not starts:
        return "\n".join(lines[-10:])[-_MAX_REASON_CHARACTERS:]
    # Ignored errors of tasks may precede the one that ended the run.
    text = _ERROR_START.sub("", "\n".join(lines[starts[-1] :]))
    if (cure := exhausted_in(text)) is not None:
        return f"{text.splitlines()[0].removeprefix(_UNEXPECTED)}; {cure}"
    return text[:_MAX_REASON_CHARACTERS].rstrip()


def _lines(output: str) -> list[str]:
    return without_colours(output).replace("\r", "").strip().splitlines()


def _error_starts(lines: list[str]) -> list[int]:
    return [number for number, line in enumerate(lines) if _ERROR_START.match(line)]


def _message(result: Any, keyword_of: Callable[[str], str]) -> str:
    """Return the message of a failed result; of a loop, those of its failed items."""
    if not isinstance(result, dict):
        return readable(str(result or _UNKNOWN))
    parts = [
        _message(item, keyword_of)
        for item in result.get("results") or ()
        if isinstance(item, dict) and item.get("failed")
    ]
    words = ("msg", "message", "reason", "module_stderr", "censored")
    messages = (result[word] for word in words if result.get(word) not in _EMPTY_MESSAGES)
    own = str(next(messages, result.get("msg")) or "")
    if parts:
        return "\n".join(dict.fromkeys(parts))
    if not own or own.endswith(_FAILED_WHEN):
        own = _condition(result, keyword_of) or own or _UNKNOWN
    if _NON_ZERO.search(own):
        own = f"{own.rstrip('.')} {_command_result(result)}"
    if own.endswith(_NOT_STARTED) and (command := str(result.get("cmd") or "")).strip():
        status = result.get("rc")
        reason = os.strerror(status) if isinstance(status, int) and status else "not started"
        # Not its arguments, which may be secret.
        own = f"cannot run {command.split(maxsplit=1)[0]}: {reason}"
    if own in _ENDED_WAITS and isinstance(waited := result.get("result"), dict):
        with suppress(KeyError, TypeError):
            own = f"timed out waiting for {waited['kind']} {waited['metadata']['name']}"
    own, detail = readable(own), _detail(result.get("error"))
    return own if detail in own else f"{own}: {detail}"


def _command_result(result: Json) -> str:
    """Return the return code of a command, and the last line that it has written."""
    outputs = (str(result.get(name) or "").strip() for name in ("stderr", "stdout"))
    last = next(filter(None, outputs), "").rpartition("\n")[2].strip()
    return f"{result.get('rc')}: {last}" if last else str(result.get("rc"))


def _condition(result: Json, keyword_of: Callable[[str], str]) -> str:
    """Return the condition that has failed the task instead of its module, empty if none."""
    if result.get("failed_when_result") is True:
        return f"{_keyword('failed_when', keyword_of)} is true"
    if isinstance(attempts := result.get("attempts"), int):
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        return f"{_keyword('until', keyword_of)} is false after {times}"
    return ""


def _keyword(name: str, keyword_of: Callable[[str], str]) -> str:
    text = keyword_of(name)
    return f"`{name}: {text}`" if text else f"the condition of `{name}`"


def _detail(error: Any) -> str:
    """Return the error that Kubernetes modules add: a text, or a Status of the API."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("reason")
    return error if isinstance(error, str) else ""


def _is_report(data: Json) -> bool:
    """Return whether a task on localhost reports that it changed a report."""
    actions = (str(data.get(key)) for key in ("resolved_action", "task_action"))
    is_changed = (data.get("res") or {}).get("changed") is True
    is_local = data.get("host") == _HOST
    return is_changed and is_local and any(has_trait(each, Trait.REPORTS) for each in actions)


def _stats(recap: Json, reports: int) -> Stats:
    return Stats(
        ok=_count(recap, "ok"),
        changed=_count(recap, "changed"),
        skipped=_count(recap, "skipped"),
        failures=_count(recap, "failures"),
        reports=reports,
    )


def _count(recap: Json, name: str, host: str = _HOST) -> int:
    return int((recap.get(name) or {}).get(host) or 0)


_META = ("meta", "ansible.builtin.meta", "ansible.legacy.meta")
_ENDS = ("end_batch", "end_host", "end_play", "end_role")
_HARMLESS = ("clear_facts", "flush_handlers", "noop", "refresh_inventory", "reset_connection")
_BAD_COUNTS = {
    "failures": "a task failed",
    "dark": "a host was unreachable",
    "rescued": "a task failed and was rescued",
    "ignored": "a task failed and was ignored",
}
"""Counts of the recap, and what they mean."""


_PARTIAL = ("--check", "--limit", "--skip-tags", "--start-at-task", "--step", "--tags")
_PARTIAL_LETTERS = ("-C", "-l", "-t")
_PARTIAL_VARIABLES = ("ANSIBLE_RUN_TAGS", "ANSIBLE_SKIP_TAGS")


def partial_by(arguments: str, environment: Mapping[str, str]) -> str:
    """Return what makes runs leave out tasks or changes, empty if nothing does.

    `arguments` are those for ansible-playbook; long ones may be abbreviated.
    """
    for word in shlex.split(arguments):
        name = word.partition("=")[0]
        is_long = name.startswith("--") and any(each.startswith(name) for each in _PARTIAL)
        if (is_long and name != "--") or name.startswith(_PARTIAL_LETTERS):
            return name
    return next((name for name in _PARTIAL_VARIABLES if environment.get(name)), "")


@dataclass(slots=True)
class Completeness:
    """Collects events: call `add` with each, in order, then `fault`."""

    keyword_of: Callable[[str, str], str]
    """Returns the text of a keyword of the task at a path; see `ansible_yaml.task_keyword`."""
    _asynchronous: set[str] = field(default_factory=set)
    """Ids of asynchronous tasks that have not been seen to finish."""
    _metas: dict[str, str] = field(default_factory=dict)
    """Paths of meta tasks that were not skipped, by their uuids."""

    def add(self, event: RunEvent) -> None:
        """Add the next event."""
        data = event.data
        if event.kind == "playbook_on_task_start":
            # Those without a path are Ansible's own.
            if data.get("task_action") in _META and data.get("task_path"):
                self._metas[str(data.get("task_uuid"))] = str(data["task_path"])
        elif event.kind == "runner_on_skipped":
            self._metas.pop(str(data.get("task_uuid")), None)
        elif event.kind.startswith("runner_") and isinstance(result := data.get("res"), dict):
            self._add_result(result)

    def fault(self, recap: Json) -> str:
        """Return why the run was not complete, empty if it was; `recap` is Ansible's."""
        for name, text in _BAD_COUNTS.items():
            if any((recap.get(name) or {}).values()):
                return text
        if self._asynchronous:
            return "an asynchronous task was not waited for"
        for path in self._metas.values():
            action = next(filter(None, (self.keyword_of(path, each) for each in _META)), "")
            if action in _ENDS:
                return f"the role was ended by `meta: {action}` ({path})"
            if action not in _HARMLESS:
                return f"unknown effect of `meta` ({path})"
        return ""

    def _add_result(self, result: Json) -> None:
        job: Any = result.get("ansible_job_id")
        if job is None:
            return
        if result.get("finished"):
            self._asynchronous.discard(str(job))
        else:
            self._asynchronous.add(str(job))
