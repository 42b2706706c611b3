"""Preview a reconcile: run the play so that it writes nothing, and return what it would change.

Tasks whose effects cannot be previewed are named.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from operator_runner.core.ansible_modules import Trait, has_trait
from operator_runner.core.errors import ApiError, RunError
from operator_runner.core.json_bounds import failure_reason
from operator_runner.core.model import (
    Json,
    ObjectRef,
    Prune,
    RunEvent,
    RunRequest,
    Watch,
)
from operator_runner.core.object_diff import ObjectDifference, object_difference
from operator_runner.core.settings import AnsibleSettings
from operator_runner.reconcile.conditions import failure_line
from operator_runner.reconcile.protocols import Executor, VariableNames
from operator_runner.reconcile.reserved_fields import dropped_fields, names_of
from operator_runner.reconcile.variables import extra_vars

_MESSAGE_BYTES = 2000


class DryRunResult(Protocol):
    """The writes that a dry run would have made."""

    refused: list[str]
    """Requests that cannot be previewed, as method and path."""

    def differences(self) -> Sequence[ObjectDifference]:
        """Return the objects that would differ."""


class DryRunAccess(Protocol):
    """Gives a dry run access to the API."""

    def dry_run(
        self, owner: Json, watch: Watch, run_id: str, *, of_finalizer: bool
    ) -> AbstractContextManager[tuple[str, DryRunResult]]:
        """Return the text of a kubeconfig that is valid inside the block, and its result.

        Nothing that is written with it is stored; see `protocols.Access` for the arguments.
        """

    async def orphans(self, run_id: str, prune: Prune) -> Sequence[Json]:
        """Return the objects that a complete dry run would delete by `prune`. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class Preview:
    """Changes that a run of a resource would make.

    `unpreviewed` are tasks and requests whose effects are unknown. `failure` is why the dry run
    failed, so that the differences may be incomplete; empty if it succeeded.
    """

    ref: ObjectRef
    differences: tuple[ObjectDifference, ...] = ()
    unpreviewed: tuple[str, ...] = ()
    failure: str = ""


class Previewer:
    """Previews runs."""

    def __init__(
        self,
        access: DryRunAccess,
        executor: Executor,
        variable_names: VariableNames,
        ansible: AnsibleSettings,
    ) -> None:
        """Run plays with `executor`, as the operator does."""
        self._access = access
        self._executor = executor
        self._variable_names = variable_names
        self._ansible = ansible

    async def preview(self, body: Json, watch: Watch, *, limit: timedelta | None = None) -> Preview:
        """Return what a run of a resource would change; of its clean-up if it is being deleted.

        `limit` is the timeout of runs that have none.
        """
        ref = ObjectRef.of(body)
        if fault := failure_reason(body):
            return Preview(ref, failure=fault)
        cleanup = bool(body["metadata"].get("deletionTimestamp"))
        content = watch.content_for(cleanup=cleanup)
        try:
            excluded = await dropped_fields(body, watch, content, self._variable_names)
        except RunError as error:
            return Preview(ref, failure=str(error))
        run_id = secrets.token_hex(8)
        tasks = UnpreviewedTasks()
        with self._access.dry_run(body, watch, run_id, of_finalizer=cleanup) as (text, result):
            request = RunRequest(
                run_id=run_id,
                ref=ref,
                content=content,
                extra_vars=extra_vars(body, watch, cleanup=cleanup, excluded=names_of(excluded)),
                kubeconfig=text,
                verbosity=max(self._ansible.verbosity_for(ref.gvk), VERBOSITY),
                max_artifacts=0,
                timeout=watch.timeout or self._ansible.timeout or limit,
                native_types=watch.native_types,
                field_manager=watch.field_manager,
                gather_facts=watch.gather_facts,
                dry_run=True,
            )
            outcome = await self._executor.run(request, tasks)
            differences = [*result.differences()]
            is_whole = outcome.is_complete and not (cleanup or tasks.tasks or result.refused)
            unknown = [*tasks.tasks, *(f"request {each}" for each in result.refused)]
            if watch.prune is not None and is_whole:
                try:
                    orphans = await self._access.orphans(run_id, watch.prune)
                    differences += filter(None, (object_difference(each, None) for each in orphans))
                except ApiError as error:
                    unknown.append(f"prune: {error}")
        return Preview(
            ref,
            tuple(differences),
            tuple(unknown),
            "" if outcome.successful else failure_line(outcome.failures, _MESSAGE_BYTES),
        )


VERBOSITY = 1
"""The least verbosity at which the output has the reason why a task was skipped."""
_SKIPPED = frozenset({"runner_on_skipped", "runner_item_on_skipped"})
_COMPLETE = Trait.PREVIEWED | Trait.REQUEUES
"""Modules whose effects are previewed, or have none on the cluster."""
_WRITES_FILE = Trait.WRITES_FILE | Trait.MAKES_TEMPORARY_FILE
_RUN_DIR = re.compile(r"/\.run-[0-9a-f]{16}/")
"""In paths of files in the run's own directory, which `ansible/rundir.py` makes."""
_REASONS = ("check mode", '"censored"')
"""In the output of a skipped task: check mode, or a reason that no_log hides."""


class UnpreviewedTasks:
    """Collects the tasks of a dry run whose effects cannot be previewed, from each event."""

    def __init__(self) -> None:
        """Start without any."""
        self.tasks: dict[str, None] = {}

    def __call__(self, event: RunEvent) -> None:
        """Take the next event."""
        action = str(event.data.get("resolved_action") or event.data.get("task_action") or "")
        if has_trait(action, _COMPLETE):
            return
        if event.kind in _SKIPPED:
            found = any(reason in event.stdout for reason in _REASONS)
        else:
            found = event.kind == "runner_on_ok" and self._is_predicted(action, event.data)
        if found:
            self.tasks[_text(action, event.data)] = None

    def _is_predicted(self, action: str, data: Mapping[str, Any]) -> bool:
        """Return whether check mode has predicted a change that was not made."""
        result = data.get("res")
        if not isinstance(result, dict) or result.get("changed") is not True:
            return False
        if has_trait(action, _WRITES_FILE):
            return not _RUN_DIR.search(str(result.get("dest") or result.get("path") or ""))
        if has_trait(action, Trait.RUNS_COMMAND):
            return not result.get("start")  # it is run if its task has `check_mode: false`
        return not has_trait(action, Trait.PLAY)


def _text(action: str, data: Mapping[str, Any]) -> str:
    """Return `task Migrate the database (ansible.builtin.command), roles/a/tasks/main.yml:3`."""
    place = f", {data['task_path']}" if data.get("task_path") else ""
    return f"task {data.get('task') or 'without a name'} ({action}){place}"
