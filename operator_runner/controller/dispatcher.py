"""Takes keys from the workqueue, has them reconciled, and puts them back when they are due."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from operator_runner.controller.loop_throttle import LoopBreaker
from operator_runner.controller.workqueue import Item, WorkQueue
from operator_runner.core.errors import ApiError, Conflict, NotFound, Unavailable
from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger, describe
from operator_runner.reconcile.reconciler import (
    Failed,
    Gone,
    Reconciler,
    ReconcileResult,
    Succeeded,
    Superseded,
)
from operator_runner.telemetry.metrics import Metrics, Outcome, Result, RunTimes

_log = structlog.get_logger(__name__)

_OUTCOMES: Mapping[type[ReconcileResult], Outcome] = {
    Succeeded: "succeeded",
    Failed: "failed",
    Superseded: "superseded",
}
"""The verdicts of which there was a run, in the words of metrics."""
_JITTER = 0.1
"""Share of a period by which resyncs are spread, so that resources do not stay in step."""


class Dispatcher:
    """Runs reconciles as the queue gives them out."""

    def __init__(
        self,
        queue: WorkQueue,
        reconcilers: Mapping[GVK, Reconciler],
        metrics: Metrics,
        breaker: LoopBreaker,
        gone: Callable[[ObjectRef], None],
    ) -> None:
        """`gone` is told of each resource that does not exist any more."""
        self._queue = queue
        self._breaker = breaker
        self._reconcilers = reconcilers
        self._metrics = metrics
        self._gone = gone
        self._running: set[asyncio.Task[None]] = set()
        for gvk in reconcilers:
            metrics.measure_queue(gvk, partial(queue.depth, gvk))
        queue.listen(lambda key, cause: reconcilers[key.gvk].on_event(key, cause))

    async def run(self) -> None:
        """Start a reconcile for each key, until the queue is closed."""
        while (item := await self._queue.take()) is not None:
            task = asyncio.create_task(self._work(item), name=f"reconcile {item.key}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def drain(self, grace: float) -> None:
        """After the queue is closed: let reconciles end within `grace` seconds, then end them."""
        if not self._running:
            return
        _log.info("Waiting for running reconciles", count=len(self._running), seconds=grace)
        _, late = await asyncio.wait(set(self._running), timeout=grace)
        for task in late:
            task.cancel()
        if late:
            _log.warning("Ending reconciles that took too long", count=len(late))
            await asyncio.wait(late)

    async def _work(self, first: Item) -> None:
        """Reconcile a key; what supersedes a run is run in its place, at once."""
        item: Item | None = first
        try:
            if await self._hold(first):
                return
            while item is not None:
                verdict = await self._turn(item)
                superseded = isinstance(verdict, Superseded)
                item = self._queue.take_again(first.key) if superseded else None
        except Exception:  # noqa: BLE001 nobody waits for this task, and the key must not be lost
            _log.exception("Reconciliation failed: a mistake in operator-runner")
            self._queue.retry(first.key)
        finally:
            self._queue.done(first.key)

    async def _hold(self, item: Item) -> bool:
        """Whether the key waits, for it keeps triggering itself; it is put back then."""
        now = asyncio.get_running_loop().time()
        hold = self._breaker.check(item.key, item.causes, now - item.waited, now)
        if hold is None:
            return False
        self._queue.hold(item, hold.seconds)
        if hold.first:
            _bind(item)
            _log.warning("Reconcile loop: slowing down", seconds=round(hold.seconds), row=hold.row)
            self._metrics.run_throttled(item.key.gvk)
            try:
                await self._reconcilers[item.key.gvk].report_loop(item.key, hold.echoes)
            except ApiError as error:
                _log.warning("Cannot tell the resource of its loop", reason=str(error))
        return True

    async def _turn(self, item: Item) -> ReconcileResult:
        key, gvk = item.key, item.key.gvk
        _bind(item)
        _log.info("Reconciling", waited=round(item.waited, 3))
        self._metrics.queue_waited(gvk, item.waited)
        self._metrics.reconcile_started(gvk)
        began = asyncio.get_running_loop().time()
        result: Result = "error"
        period: float | None = None
        try:
            verdict = await self._reconcile(key, item)
            period = _own_period(verdict)
            result = self._settle(key, verdict)
        finally:
            seconds = asyncio.get_running_loop().time() - began
            self._metrics.reconcile_finished(gvk, result, seconds)
            self._metrics.queue_worked(gvk, seconds)
            self._breaker.ended(key, asyncio.get_running_loop().time(), period=period)
        outcome = _OUTCOMES.get(type(verdict))
        if outcome is not None:
            times = RunTimes(item.waited, seconds)
            self._metrics.run_finished(gvk, item.causes, outcome, times)
        if outcome != "superseded":
            self._metrics.resource_fared(key, failed=outcome == "failed")
        if verdict == Failed(timed_out=True):
            self._metrics.run_timed_out(gvk)
        if isinstance(verdict, Gone):
            self._breaker.forget(key)
        return verdict

    async def _reconcile(self, key: ObjectRef, item: Item) -> ReconcileResult:
        try:
            return await self._reconcilers[key.gvk].reconcile(key, item.causes)
        except ApiError as error:
            _log.error("Reconciliation failed: the Kubernetes API refused", reason=str(error))
            if not isinstance(error, Conflict | NotFound | Unavailable):
                await self._report(item, f"The Kubernetes API refused: {error}")
        except Exception as error:  # noqa: BLE001
            # One resource that trips over a mistake of ours must not stop all others.
            _log.exception("Reconciliation failed: a mistake in operator-runner")
            await self._report(
                item,
                f"Internal error in operator-runner ({type(error).__name__}): "
                "please report it with the traceback from the operator's log",
            )
        return Failed()

    async def _report(self, item: Item, message: str) -> None:
        """Say on the resource why it was not reconciled; where that fails too, the log has it."""
        try:
            await self._reconcilers[item.key.gvk].report_failure(item.key, item.causes, message)
        except ApiError as error:
            _log.debug("The failure cannot be written to the resource", reason=str(error))
        except Exception:  # noqa: BLE001 as above
            _log.exception("The failure cannot be written to the resource")

    def _settle(self, key: ObjectRef, verdict: ReconcileResult) -> Result:
        """Put the key back as the verdict asks; return the result's name in metrics."""
        if isinstance(verdict, Failed):
            delay = self._queue.retry(key)
            self._metrics.queue_retried(key.gvk)
            _log.info("Will retry", seconds=round(delay, 3))
            return "error"
        if isinstance(verdict, Superseded):
            return "requeue"
        self._queue.forget(key)
        if isinstance(verdict, Gone):
            self._queue.drop(key)
            self._gone(key)
        if isinstance(verdict, Succeeded) and verdict.after is not None:
            seconds = verdict.after.total_seconds()
            self._queue.add_later(
                key, Cause(verdict.trigger, f"{seconds:g} s"), _spread(seconds, verdict.trigger)
            )
            return "requeue_after"
        return "success"


def _bind(item: Item) -> None:
    """Put the resource and all causes on each line that is logged from here on."""
    key = item.key
    structlog.contextvars.bind_contextvars(
        kind=key.gvk.kind, namespace=key.namespace, name=key.name, cause=describe(item.causes)
    )


def _own_period(verdict: ReconcileResult) -> float | None:
    """Return after how many seconds the resource itself asks for a run, None if it does not."""
    if isinstance(verdict, Succeeded) and verdict.by_resource and verdict.after is not None:
        return verdict.after.total_seconds()
    return None


def _spread(seconds: float, trigger: Trigger) -> float:
    if trigger is not Trigger.PERIOD:
        return seconds
    # The period that a user names is the longest, so jitter only shortens it.
    return seconds * (1 - random.uniform(0, _JITTER))  # noqa: S311 (no secret)
