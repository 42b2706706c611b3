"""The thin shell around one reconcile: read, decide, run, report."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import structlog

from operator_runner.core.bounds import fault_of
from operator_runner.core.errors import Conflict, NotFound, RunError
from operator_runner.core.model import (
    GVK,
    Cause,
    Json,
    ObjectRef,
    RunContent,
    RunEvent,
    RunOutcome,
    RunRequest,
    Trigger,
    Watch,
    uid_of,
)
from operator_runner.core.settings import AnsibleSettings
from operator_runner.reconcile.annotations import Overrides, read_overrides
from operator_runner.reconcile.conditions import is_successful, is_waiting
from operator_runner.reconcile.decide import AddFinalizer, Run, Skip, decide
from operator_runner.reconcile.playlog import PlayLog, task_time
from operator_runner.reconcile.ports import Access, Cluster, Executor, VariableNames
from operator_runner.reconcile.report import Reporter, RunContext
from operator_runner.reconcile.reserved_fields import (
    ReservedField,
    Use,
    dropped,
    reserved_fields,
)
from operator_runner.reconcile.status import generation_of, read_conditions
from operator_runner.reconcile.superseding import Superseding
from operator_runner.reconcile.variables import extra_vars, templated_fields

_log = structlog.get_logger(__name__)
MIN_PERIOD = timedelta(seconds=1)
"""Shorter periods than this one are taken for it, whoever asks for them."""
_TEMPLATES = "Text of the resource is evaluated as a template"


@dataclass(frozen=True, slots=True)
class Gone:
    """The resource does not exist any more; nothing of it is left behind."""


@dataclass(frozen=True, slots=True)
class Idle:
    """There was nothing to do, or the clean-up is done; come back on the next event."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The play succeeded. `after` is when to come back by itself, None for never."""

    after: timedelta | None
    trigger: Trigger
    by_resource: bool = field(default=False, compare=False)
    """Whether the resource itself asks for this period, by its annotation."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The play failed or could not be run; come back after a backoff."""

    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Superseded:
    """The play was ended, for the resource has changed; come back at once."""


Verdict: TypeAlias = Gone | Idle | Succeeded | Failed | Superseded


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Everything that a reconciler calls; `ports` documents each Protocol."""

    cluster: Cluster
    access: Access
    executor: Executor
    is_relevant: Callable[[Json, Watch], bool]
    """Return whether the watch's selector and `when` match a resource."""
    latest_version: Callable[[ObjectRef], str]
    """Return the newest resourceVersion seen in events, empty if none; it saves a GET."""
    on_task_end: Callable[[GVK, str, str, float], None]
    """Called with kind, task name, action and duration in seconds of each finished task."""
    run_guard: Callable[[Json, Watch], AbstractAsyncContextManager[None]]
    """Entered around each run, with the resource as it was when the run began."""
    on_replaced: Callable[[ObjectRef], None]
    """Called when a new resource has the name of a deleted one."""
    variable_names: VariableNames


@dataclass(frozen=True, slots=True)
class _Start:
    """A run to be: of which resource, as it is now, and whether it cleans up after it."""

    ref: ObjectRef
    body: Json
    run_id: str
    cleanup: bool
    causes: tuple[Cause, ...]
    without: frozenset[str] = frozenset()
    """Fields of the spec that the role does not get."""


class Reconciler:
    """Reconciles the resources of one watch, one call for each turn of a resource."""

    def __init__(
        self, watch: Watch, dependencies: Dependencies, ansible: AnsibleSettings, period: timedelta
    ) -> None:
        """`period` is the resync period where neither watch nor annotation has one."""
        self._watch = watch
        self._deps = dependencies
        self._ansible = ansible
        self._period = _floored(
            watch.reconcile_period if watch.reconcile_period is not None else period
        )
        self._reporter = Reporter(watch, dependencies.cluster)
        self._superseding = Superseding(watch, dependencies.cluster.get, dependencies.is_relevant)
        # Generation at the last successful run: how a steady resource is known.
        self._well: dict[ObjectRef, int] = {}
        # What is remembered by name is about the resource with this uid.
        self._uids: dict[ObjectRef, str] = {}
        # uid and generation for which fields were last reported as dropped.
        self._dropped: dict[ObjectRef, tuple[str, int]] = {}

    def heard(self, ref: ObjectRef, cause: Cause) -> None:
        """Take note of an event that may end a run of the resource, where the watch wants that."""
        self._superseding.heard(ref, cause)

    async def reconcile(self, ref: ObjectRef, causes: Sequence[Cause]) -> Verdict:
        """Bring the world to what the resource asks for. Raises ApiError; nothing is lost by it."""
        with self._superseding.listening(ref):
            try:
                return await self._reconcile(ref, causes)
            except _Vanished:
                await self._forget(ref)
                return Gone()

    async def _reconcile(self, ref: ObjectRef, causes: Sequence[Cause]) -> Verdict:
        body = await self._deps.cluster.get(ref)
        if body is not None and self._uids.setdefault(ref, uid_of(body)) != uid_of(body):
            await self._forget(ref)
            self._deps.on_replaced(ref)
            self._uids[ref] = uid_of(body)
        while body is not None:
            relevant = self._deps.is_relevant(body, self._watch)
            match decide(body, self._watch, relevant=relevant):
                case Skip(reason):
                    _log.debug("Skipping reconciliation", reason=reason)
                    if self._superseding.forget(ref):
                        await self._reporter.interrupted(ref, body, reason)
                    return Idle()
                case AddFinalizer() | Run() if fault := fault_of(body):
                    told = RunContext(ref, body, causes, datetime.now(UTC))
                    await self._reporter.error(told, fault)
                    return Idle()
                case AddFinalizer(name):
                    finalizers = [*(body["metadata"].get("finalizers") or ()), name]
                    body = await self._deps.cluster.set_finalizers(body, finalizers)
                case Run(cleanup):
                    run_id = secrets.token_hex(8)
                    with structlog.contextvars.bound_contextvars(run_id=run_id):
                        return await self._run(_Start(ref, body, run_id, cleanup, tuple(causes)))
        raise _Vanished

    async def _forget(self, ref: ObjectRef) -> None:
        """Drop everything that is remembered of a resource that is gone."""
        self._uids.pop(ref, None)
        self._well.pop(ref, None)
        self._dropped.pop(ref, None)
        self._superseding.forget(ref)
        await self._deps.executor.forget(ref)

    async def failed(self, ref: ObjectRef, causes: Sequence[Cause], message: str) -> None:
        """Say on the resource why its reconcile ended before its time. Raises ApiError."""
        body = await self._deps.cluster.get(ref)
        if body is not None:
            await self._reporter.failed(RunContext(ref, body, causes, datetime.now(UTC)), message)

    async def looping(self, ref: ObjectRef, echoes: Sequence[Cause]) -> None:
        """Say that the resource keeps triggering itself, by these causes. Raises ApiError."""
        await self._reporter.loop(ref, echoes)

    async def _run(self, start: _Start) -> Verdict:
        ref, body = start.ref, start.body
        began = datetime.now(UTC)
        overrides = read_overrides(body)
        told = RunContext(ref, body, start.causes, began)
        if overrides.error:
            await self._reporter.error(told, overrides.error)
            return Failed()
        try:
            content = _content(self._watch, cleanup=start.cleanup)
            without = await self._drop_fields(ref, body, content)
        except RunError as error:
            message = f"Unable to run reconciliation: {error}"
            _log.error("Reconciliation failed", reason=message)
            await self._reporter.failed(told, message)
            return Failed()
        if not self._is_steady(ref, body, start.causes):
            body = _existing(await self._reporter.start(ref, body))
        told = RunContext(ref, body, start.causes, began)
        play = self._play(replace(start, body=body, without=without), overrides)
        if start.cleanup:
            outcome = await play
        elif (ended := await self._superseding.run(ref, body, play)) is not None:
            outcome = ended
        else:
            self._well.pop(ref, None)
            return Superseded()
        if outcome.successful and start.cleanup and outcome.requeue_after is None:
            await self._release(ref, uid_of(body))
            return Idle()
        return await self._conclude(told, outcome, overrides.period)

    async def _conclude(
        self, told: RunContext, outcome: RunOutcome, period: timedelta | None
    ) -> Succeeded | Failed:
        """Report how a run ended; `period` is what the resource itself asks for, if anything."""
        ref, current = told.ref, self._current(told.ref, told.before)
        if not outcome.successful:
            self._well.pop(ref, None)
            _existing(await self._reporter.failure(told, outcome, current))
            return Failed(outcome.timed_out)
        _existing(await self._reporter.success(told, outcome, current))
        self._well[ref] = generation_of(told.before)
        if outcome.requeue_after is not None:
            return Succeeded(outcome.requeue_after, Trigger.REQUEUE)
        if period is None:
            return Succeeded(self._period or None, Trigger.PERIOD)
        return Succeeded(_floored(period) or None, Trigger.PERIOD, by_resource=True)

    async def _drop_fields(self, ref: ObjectRef, body: Json, content: RunContent) -> frozenset[str]:
        """Return the fields that Ansible would act on; report them once for each generation.

        Raises RunError if it is unknown which these are.
        """
        names = await self._deps.variable_names.reserved()
        fields: Sequence[ReservedField] = reserved_fields(body, self._watch, names)
        if any(field.use is Use.KEYWORD for field in fields):
            fields = dropped(fields, await self._deps.variable_names.declared(content))
        spec = (body["metadata"].get("uid", ""), generation_of(body))
        if fields and self._dropped.get(ref) != spec:
            await self._reporter.dropped(body, fields)
            self._dropped[ref] = spec
        return frozenset(field.name for field in fields)

    def _current(self, ref: ObjectRef, body: Json) -> Json | None:
        """Return the resource if events have told of no write since `body`, else None.

        What is written with it has its resourceVersion as precondition all the same.
        """
        told = self._deps.latest_version(ref)
        if not told or _is_newer(told, body["metadata"]["resourceVersion"]):
            return None
        return body

    def _is_steady(self, ref: ObjectRef, body: Json, causes: Sequence[Cause]) -> bool:
        """Whether the run will most likely change nothing, so that its start is no news."""
        conditions = read_conditions(body)
        if body["metadata"].get("deletionTimestamp"):
            # A deletion is a new generation: the last run that asked was one of the clean-up.
            return is_waiting(conditions) and self._well.get(ref) == generation_of(body)
        if not (is_successful(conditions) or is_waiting(conditions)):
            return False
        if ref in self._well:
            return self._well[ref] == generation_of(body)
        return all(cause.trigger is Trigger.START for cause in causes)

    async def _play(self, start: _Start, overrides: Overrides) -> RunOutcome:
        watch, ansible = self._watch, self._ansible
        verbosity = ansible.verbosity_for(start.ref.gvk)
        artifacts = watch.max_runner_artifacts
        if not watch.mark_unsafe and (fields := list(templated_fields(start.body))):
            _log.warning(_TEMPLATES, fields=fields, cure="markUnsafe: true, or --mark-unsafe")
        content = _content(watch, cleanup=start.cleanup)
        # A watch's own role that cleans up by vars may make what it always makes, which is to go.
        own = content != watch.content
        with self._deps.access.grant(
            start.body, watch, start.run_id, of_finalizer=own
        ) as kubeconfig:
            request = RunRequest(
                run_id=start.run_id,
                ref=start.ref,
                content=content,
                extra_vars=extra_vars(
                    start.body, watch, cleanup=start.cleanup, without=start.without
                ),
                kubeconfig=kubeconfig,
                verbosity=verbosity if overrides.verbosity is None else overrides.verbosity,
                max_artifacts=artifacts if overrides.artifacts is None else overrides.artifacts,
                timeout=watch.timeout or ansible.timeout,
                causes=start.causes,
                native_types=watch.native_types,
            )
            raw = ansible.raw_output or (overrides.verbosity or 0) > 0
            playlog = PlayLog(start.ref, start.run_id, ansible, raw=raw)

            def follow(event: RunEvent) -> None:
                playlog(event)
                if (took := task_time(event)) is not None:
                    self._deps.on_task_end(watch.gvk, *took)

            async with self._deps.run_guard(start.body, watch):
                outcome = await self._deps.executor.run(request, follow)
            playlog.end(outcome)
            return outcome

    async def _release(self, ref: ObjectRef, uid: str) -> None:
        """Take our finalizer off the resource with this uid, now that the clean-up is done."""
        assert self._watch.finalizer is not None
        name = self._watch.finalizer.name
        while (body := await self._deps.cluster.get(ref)) is not None:
            finalizers = body["metadata"].get("finalizers") or []
            if uid_of(body) != uid or name not in finalizers:
                return
            try:
                left = [finalizer for finalizer in finalizers if finalizer != name]
                await self._deps.cluster.set_finalizers(body, left)
            except Conflict:
                continue
            except NotFound:
                return


class _Vanished(Exception):
    """The resource does not exist any more; another one may have its name."""


def _existing(body: Json | None) -> Json:
    if body is None:
        raise _Vanished
    return body


def _floored(period: timedelta) -> timedelta:
    """Return a period that a resource may have; zero stays zero."""
    return max(period, MIN_PERIOD) if period > timedelta(0) else timedelta(0)


def _content(watch: Watch, *, cleanup: bool) -> RunContent:
    """Return what to run; a finalizer without content runs the watch's own, with its vars."""
    finalizer = watch.finalizer
    if cleanup and finalizer is not None and finalizer.content is not None:
        return finalizer.content
    return watch.content


def _is_newer(version: str, other: str) -> bool:
    """Whether one resourceVersion of an object is newer than the other, or might be.

    Those of one kind compare as numbers since Kubernetes 1.35; where they are no numbers,
    another one might be newer.
    """
    if version.isdigit() and other.isdigit():
        return int(version) > int(other)
    return version != other
