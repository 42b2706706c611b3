"""Workers of the queue: get keys, reconcile them, and requeue them according to the result."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import structlog

from operator_runner.controller.loop_throttle import LoopThrottle
from operator_runner.controller.workqueue import Item, WorkQueue
from operator_runner.core.durations import short_duration
from operator_runner.core.errors import (
    ApiError,
    Conflict,
    Fenced,
    NotFound,
    Unavailable,
    exhausted_resource,
)
from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger, describe
from operator_runner.core.resource_states import ResourceStates
from operator_runner.reconcile.annotations import RETRY_REQUESTED
from operator_runner.reconcile.reconciler import Reconciler
from operator_runner.reconcile.results import (
    Aborted,
    Failed,
    Gone,
    NoRun,
    ReconcileResult,
    Succeeded,
    Superseded,
)
from operator_runner.telemetry.metrics import Metrics, Outcome, Result, RunTimes
from operator_runner.telemetry.tracing.run_spans import Traces

_log = structlog.get_logger(__name__)

_OUTCOMES: Mapping[type[ReconcileResult], Outcome] = {
    Succeeded: "succeeded",
    Failed: "failed",
    Superseded: "superseded",
}
"""Names in metrics of the results that had a run."""
_JITTER = 0.1
"""Fraction of a period by which resyncs are spread, so that resources do not resync at once."""


_LOAD_BACKOFF_SECONDS = 1.0
"""First delay after a run whose play could not be loaded: only an edit of the role helps."""


class Dispatcher:
    """Runs a reconcile for each item of the queue."""

    def __init__(
        self,
        queue: WorkQueue,
        reconcilers: Mapping[GVK, Reconciler],
        metrics: Metrics,
        loop_throttle: LoopThrottle,
        on_deleted: Callable[[ObjectRef], None],
        *,
        states: ResourceStates,
        reload: bool = False,
        claim: Callable[[ObjectRef], bool] | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`on_deleted` is called for each resource that no longer exists.

        With shards, `claim` returns whether the current task may reconcile a resource: another
        replica may own it. `traces` has a trace for each reconcile.

        With `reload`, resources whose play could not be loaded are not retried: their state
        `awaits_edit` until something else adds them to the queue.
        """
        self._queue = queue
        self._loop_throttle = loop_throttle
        self._reconcilers = reconcilers
        self._metrics = metrics
        self._states = states
        self._on_deleted = on_deleted
        self._reload = reload
        self._claim = claim
        self._traces = traces
        self._running: set[asyncio.Task[None]] = set()
        for gvk in reconcilers:
            metrics.measure_queue(gvk, partial(queue.depth, gvk))
        metrics.measure_resources(states)
        queue.add_listener(self._on_added)

    def _on_added(self, key: ObjectRef, cause: Cause) -> None:
        self._metrics.queue_added(key.gvk)
        self._reconcilers[key.gvk].on_event(key, cause)

    async def run(self) -> None:
        """Start a reconcile for each key, until the queue is closed."""
        while (item := await self._queue.get()) is not None:
            task = asyncio.create_task(self._work(item), name=f"reconcile {item.key}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def reconcile_once(self, key: ObjectRef, cause: Cause) -> ReconcileResult:
        """Reconcile a key that is not in the queue; failures are reported as for any other."""
        item = Item(key, (cause,), 0.0)

        async def reconcile(_: Mapping[str, str] | None) -> ReconcileResult:
            _log.info("Reconciling")
            return await self._reconcile(key, item)

        return await self._traced(item, reconcile)

    async def drain(
        self, grace: float, before_cancel: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """After the queue is closed: wait `grace` seconds for reconciles, then cancel them.

        `before_cancel` is awaited in between if there are any.
        """
        if not self._running:
            return
        _log.info("Waiting for running reconciles", count=len(self._running), seconds=grace)
        _, late = await asyncio.wait(set(self._running), timeout=grace)
        if late and before_cancel is not None:
            await before_cancel()
        for task in late:
            task.cancel()
        if late:
            _log.warning("Cancelling reconciles at the end of the grace period", count=len(late))
            await asyncio.wait(late)

    async def _work(self, first: Item) -> None:
        """Reconcile a key; when a run is superseded, the next one follows at once."""
        item: Item | None = first
        try:
            if self._claim is not None and not self._claim(first.key):
                return
            if await self._throttled(first):
                return
            while item is not None:
                result = await self._traced(item, partial(self._process, item))
                superseded = isinstance(result, Superseded)
                item = self._queue.get_again(first.key) if superseded else None
        except Exception:  # noqa: BLE001 this task is not awaited, and the key must not be lost
            _log.exception("Reconciliation failed: internal error")
            self._queue.add_rate_limited(first.key)
        finally:
            self._queue.done(first.key)

    async def _throttled(self, item: Item) -> bool:
        """Return whether the key keeps triggering itself and was requeued for later."""
        now = asyncio.get_running_loop().time()
        throttle = self._loop_throttle.check(item.key, item.causes, now - item.waited, now)
        if throttle is None:
            return False
        self._queue.defer(item, throttle.seconds)
        if throttle.first:
            _bind(item)
            _log.warning(
                "Reconcile loop: throttling" if throttle.echoes else "Periodic runs: throttling",
                seconds=round(throttle.seconds),
                streak=throttle.streak,
            )
            self._metrics.run_throttled(item.key.gvk)
            try:
                await self._reconcilers[item.key.gvk].report_loop(item.key, throttle.echoes)
            except ApiError as error:
                _log.warning("Cannot emit ReconcileLoop event", error=str(error))
        return True

    async def _traced(
        self,
        item: Item,
        work: Callable[[Mapping[str, str] | None], Awaitable[ReconcileResult]],
    ) -> ReconcileResult:
        """Call `work` in a trace of its own, with the labels of exemplars if traces are on."""
        _bind(item)
        if self._traces is None:
            return await work(None)
        with self._traces.reconcile(item.key, item.causes, item.waited) as trace:
            result = await work(trace.exemplar)
            error = result.message if isinstance(result, Failed) else None
            trace.end(type(result).__name__.lower(), error)
        return result

    async def _process(self, item: Item, exemplar: Mapping[str, str] | None) -> ReconcileResult:
        key, gvk = item.key, item.key.gvk
        if (state := self._states.get(key)) is not None:
            state.awaits_edit = False
        _log.info("Reconciling", waited=round(item.waited, 3))
        if any(_resets_backoff(cause) for cause in item.causes):
            self._queue.forget(key)
        self._metrics.queue_waited(gvk, item.waited)
        self._metrics.reconcile_started(gvk)
        began = asyncio.get_running_loop().time()
        status: Result = "error"
        annotated = False
        try:
            result = await self._reconcile(key, item)
            annotated = isinstance(result, Succeeded) and result.by_resource
            status = self._settle(key, result)
        finally:
            seconds = asyncio.get_running_loop().time() - began
            self._metrics.reconcile_finished(gvk, status, seconds, exemplar)
            self._metrics.queue_worked(gvk, seconds)
            if self._states.get(key) is not None:  # else it is deleted, or has moved
                self._loop_throttle.run_ended(
                    key, began + seconds, seconds=seconds, annotated=annotated
                )
        outcome = _OUTCOMES.get(type(result))
        if outcome is not None:
            times = RunTimes(item.waited, seconds, exemplar)
            self._metrics.run_finished(gvk, item.causes, outcome, times)
        if outcome != "superseded" and result != Aborted():
            self._record_result(key, failed=outcome == "failed")
        if result == Failed(timed_out=True):
            self._metrics.run_timed_out(gvk)
        return result

    def _record_result(self, key: ObjectRef, *, failed: bool) -> None:
        state = self._states.of(key) if failed else self._states.get(key)
        if state is not None:
            self._metrics.record_result(state, failed=failed)

    async def _reconcile(self, key: ObjectRef, item: Item) -> ReconcileResult:
        try:
            return await self._reconcilers[key.gvk].reconcile(key, item.causes)
        except Fenced as error:
            _log.warning("Reconciliation aborted: another replica may lead", error=str(error))
            return Aborted()
        except ApiError as error:
            _log.error("Reconciliation failed: Kubernetes API error", error=str(error))
            if not isinstance(error, Conflict | NotFound | Unavailable):
                await self._report(item, f"Kubernetes API error: {error}")
        except Exception as error:  # noqa: BLE001
            # An internal error for one resource must not affect other resources.
            if (reason := exhausted_resource(error)) is not None:
                _log.error("Reconciliation failed: a limit is reached", error=reason)
                await self._report(item, f"Unable to run reconciliation: {reason}")
                return Failed()
            _log.exception("Reconciliation failed: internal error")
            await self._report(
                item,
                f"Internal error in operator-runner ({type(error).__name__}): "
                "please report it with the traceback from the operator's log",
            )
        return Failed()

    async def _report(self, item: Item, message: str) -> None:
        """Report the failure on the resource; log it if that fails too."""
        try:
            await self._reconcilers[item.key.gvk].report_failure(item.key, item.causes, message)
        except ApiError as error:
            _log.debug("Cannot report the failure on the resource", error=str(error))
        except Exception:  # noqa: BLE001 as above
            _log.exception("Cannot report the failure on the resource: internal error")

    def _settle(self, key: ObjectRef, result: ReconcileResult) -> Result:
        """Requeue the key according to the result; return the name of the result in metrics."""
        if isinstance(result, Failed):
            self._settle_failure(key, result)
            return "error"
        if isinstance(result, Superseded):
            return "requeue"
        if isinstance(result, Aborted):
            self._queue.add_rate_limited(key)
            return "requeue"
        self._queue.forget(key)
        if isinstance(result, Gone):
            _log.info("Deleted: the resource no longer exists")
            self._queue.remove(key)
            self._on_deleted(key)
        if isinstance(result, Succeeded) and result.after is not None:
            seconds = result.after.total_seconds()
            cause = Cause(result.trigger, short_duration(result.after))
            self._queue.add_after(key, cause, _spread(seconds, result.trigger))
            return "requeue_after"
        return "error" if isinstance(result, NoRun) and result.failed else "success"

    def _settle_failure(self, key: ObjectRef, result: Failed) -> None:
        """Requeue the key after a backoff, unless something else is awaited."""
        if result.load_failed and self._reload:
            self._states.of(key).awaits_edit = True
            _log.info("Will retry when a file of the project changes")
            return
        first = _LOAD_BACKOFF_SECONDS if result.load_failed else 0.0
        delay = self._queue.add_rate_limited(key, first)
        self._metrics.queue_retried(key.gvk)
        _log.info("Will retry", seconds=round(delay, 3))


def _bind(item: Item) -> None:
    """Add the resource and all causes to the log lines of this task."""
    key = item.key
    structlog.contextvars.bind_contextvars(
        kind=key.gvk.kind, namespace=key.namespace, name=key.name, cause=describe(item.causes)
    )


def _resets_backoff(cause: Cause) -> bool:
    return cause.trigger is Trigger.ANNOTATION and cause.detail == RETRY_REQUESTED


def _spread(seconds: float, trigger: Trigger) -> float:
    if trigger is not Trigger.PERIOD:
        return seconds
    # The configured period is the maximum, so jitter only shortens it.
    return seconds * (1 - random.uniform(0, _JITTER))  # noqa: S311 (no secret)
