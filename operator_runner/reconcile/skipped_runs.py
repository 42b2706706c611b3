"""Decide which runs may be skipped because all of their inputs are unchanged. Pure.

See docs/adr/0046-unchanged-inputs.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from operator_runner.core.ansible_modules import Trait, has_trait
from operator_runner.core.model import Cause, Json, RunEvent, Trigger, Watch
from operator_runner.reconcile.conditions import is_successful, is_suspended, read_conditions
from operator_runner.reconcile.request_annotations import annotations_of, pending_request
from operator_runner.reconcile.variables import templated_fields

INPUTS_UNCHANGED = "inputs unchanged"
_SKIPPABLE = frozenset({Trigger.START, Trigger.PERIOD, Trigger.DEPENDENT})
"""Causes that ask for no change; runs with other causes are not skipped."""


def may_skip(body: Json, watch: Watch, causes: Iterable[Cause], *, succeeded: bool) -> bool:
    """Return whether a run with these causes is skipped if its inputs are unchanged.

    `succeeded` is whether the last run in this process did. After a restart the condition
    Successful shows it.
    """
    causes = tuple(causes)
    conditions = read_conditions(body)
    return (
        watch.skip_unchanged
        and bool(causes)
        and all(cause.trigger in _SKIPPABLE for cause in causes)
        and (is_successful(conditions) if watch.manage_status else succeeded)
        and not is_suspended(conditions)
        and not pending_request(annotations_of(body))
    )


def has_known_inputs(body: Json, watch: Watch, is_template: Callable[[str], bool]) -> bool:
    """Return whether the inputs of a run of this resource can be known at all."""
    if not watch.skip_unchanged or watch.job is not None or _has_template(watch.vars, is_template):
        return False
    return watch.mark_unsafe or not any(templated_fields(body))


def _has_template(value: object, is_template: Callable[[str], bool]) -> bool:
    match value:
        case str():
            return is_template(value)
        case list() | tuple():
            return any(_has_template(each, is_template) for each in value)
        case Mapping():
            return any(_has_template(each, is_template) for each in value.values())
    return False


class ExecutedTasks:
    """Finds executed tasks with inputs beside the proxy: call it with each event of a play."""

    def __init__(self, roots: Iterable[Path], impurity: str = "") -> None:
        """`roots` have the tasks that are known; `impurity` is that of their content."""
        self._roots = tuple(roots)
        self.impurity = impurity

    def __call__(self, event: RunEvent) -> None:
        """Take the next event."""
        action = str(event.data.get("resolved_action") or event.data.get("task_action") or "")
        if not action or self.impurity:
            return
        if not has_trait(action, Trait.PURE):
            self.impurity = f"module {action}"
        path = str(event.data.get("task_path") or "").rpartition(":")[0]
        # Facts are gathered by a task of the play, which is a file of the run.
        if (
            path
            and not has_trait(action, Trait.GATHERS_FACTS)
            and not any(Path(path).is_relative_to(root) for root in self._roots)
        ):
            self.impurity = f"tasks of {path}"
