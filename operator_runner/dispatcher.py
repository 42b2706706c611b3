"""Takes keys from the workqueue, has them reconciled, and puts them back when they are due."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

import structlog

from operator_runner.errors import ApiError
from operator_runner.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.observe.metrics import Metrics, Result
from operator_runner.reconcile.reconciler import (
    Failed,
    Gone,
    Reconciler,
    Succeeded,
    Superseded,
    Verdict,
)
from operator_runner.workqueue import Item, WorkQueue, describe

_log = structlog.get_logger(__name__)

_JITTER = 0.1
"""Share of a period by which resyncs are spread, so that resources do not stay in step."""


class Dispatcher:
    """Runs reconciles as the queue gives them out."""

    def __init__(
        self,
        queue: WorkQueue,
        reconcilers: Mapping[GVK, Reconciler],
        metrics: Metrics,
        gone: Callable[[ObjectRef], None],
    ) -> None:
        """`gone` is told of each resource that does not exist any more."""
        self._queue = queue
        self._reconcilers = reconcilers
        self._metrics = metrics
        self._gone = gone
        self._running: set[asyncio.Task[None]] = set()
        queue.listen(lambda key, cause: reconcilers[key.gvk].heard(key, cause))

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
            while item is not None:
                verdict = await self._turn(item)
                superseded = isinstance(verdict, Superseded)
                item = self._queue.take_again(first.key) if superseded else None
        finally:
            self._queue.done(first.key)

    async def _turn(self, item: Item) -> Verdict:
        key, gvk = item.key, item.key.gvk
        structlog.contextvars.bind_contextvars(
            kind=gvk.kind, namespace=key.namespace, name=key.name, cause=describe(item.causes)
        )
        _log.debug("Reconciling", waited=round(item.waited, 3))
        self._metrics.queue_waited(gvk, item.waited)
        self._metrics.queue_depth(gvk, self._queue.depth(gvk))
        self._metrics.reconcile_started(gvk)
        began = asyncio.get_running_loop().time()
        result: Result = "error"
        try:
            verdict = await self._reconcile(key, item)
            result = self._settle(key, verdict)
        finally:
            seconds = asyncio.get_running_loop().time() - began
            self._metrics.reconcile_finished(gvk, result, seconds)
            self._metrics.queue_worked(gvk, seconds)
        trigger = item.causes[0].trigger
        if isinstance(verdict, Succeeded | Failed):
            self._metrics.run_finished(gvk, trigger, isinstance(verdict, Succeeded), seconds)
        if isinstance(verdict, Superseded):
            self._metrics.run_superseded(gvk, trigger, seconds)
        return verdict

    async def _reconcile(self, key: ObjectRef, item: Item) -> Verdict:
        try:
            return await self._reconcilers[key.gvk].reconcile(key, item.causes)
        except ApiError as error:
            _log.error("Reconciliation failed: the Kubernetes API refused", reason=str(error))
        except Exception:  # noqa: BLE001
            # One resource that trips over a mistake of ours must not stop all others.
            _log.exception("Reconciliation failed: a mistake in operator-runner")
        return Failed()

    def _settle(self, key: ObjectRef, verdict: Verdict) -> Result:
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


def _spread(seconds: float, trigger: Trigger) -> float:
    if trigger is not Trigger.PERIOD:
        return seconds
    # The period that a user names is the longest, so jitter only shortens it.
    return seconds * (1 - random.uniform(0, _JITTER))  # noqa: S311 (no secret)
