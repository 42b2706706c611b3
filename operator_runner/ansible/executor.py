"""The executor: private data dir, launcher, deadline and outcome of each run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

import structlog

from operator_runner.ansible import history
from operator_runner.ansible.censor import censored
from operator_runner.ansible.cold.launcher import ColdLauncher
from operator_runner.ansible.forkserver.launcher import WarmLauncher
from operator_runner.ansible.outcome import OutcomeBuilder
from operator_runner.ansible.rundir import RunDir, RunDirs
from operator_runner.core.errors import RunError
from operator_runner.core.model import Json, ObjectRef, RunEvent, RunOutcome, RunRequest
from operator_runner.core.settings import AnsibleSettings, ExecutorName

_log = structlog.get_logger(__name__)


class LaunchedRun(Protocol):
    """A run under way, cold or warm."""

    def events(self) -> AsyncIterator[Json]:
        """Yield ansible-runner's events in order, until the run has ended."""

    async def wait(self) -> int:
        """Return the exit status of ansible-playbook. Raises RunError if it never ran."""

    @property
    def left_processes(self) -> bool:
        """Whether the play went to its end and has processes that go on (async tasks)."""


class Launcher(Protocol):
    """Starts runs."""

    def start(
        self, request: RunRequest, rundir: RunDir
    ) -> AbstractAsyncContextManager[LaunchedRun]:
        """Start a run; leaving the block ends its whole process tree."""


@asynccontextmanager
async def open_launcher(
    kind: ExecutorName, ansible: AnsibleSettings, started: Callable[[], None] = lambda: None
) -> AsyncIterator[Launcher]:
    """Return a launcher that is ready; cold, with a warning, where warm cannot be had.

    `started` is told of each process that is started to fork runs from.
    """
    if kind == "warm":
        warm = WarmLauncher(ansible, started)
        try:
            await warm.open()
        except (RunError, OSError) as error:
            _log.warning("Running plays cold, each in new processes", reason=str(error))
        else:
            try:
                yield warm
            finally:
                await warm.close()
            return
    yield ColdLauncher(ansible)


class AnsibleExecutor:
    """Runs plays through a launcher; see `reconcile.ports.Executor`."""

    def __init__(self, launcher: Launcher, rundirs: RunDirs, ansible: AnsibleSettings) -> None:
        """Take the parts that the executor joins."""
        self._launcher = launcher
        self._rundirs = rundirs
        self._ansible = ansible

    async def run(self, request: RunRequest, on_event: Callable[[RunEvent], None]) -> RunOutcome:
        """Run to the end, or to the deadline; see the port."""
        rundir = self._rundirs.of(request.ref)
        fold = OutcomeBuilder()
        started = datetime.now(UTC)
        outcome: RunOutcome | None = None
        left_processes = False
        try:
            await asyncio.to_thread(rundir.prepare, request, self._ansible)
            outcome, left_processes = await self._run(request, rundir, fold, on_event)
        except (RunError, OSError) as error:
            outcome = fold.broken(datetime.now(UTC), f"Unable to run reconciliation: {error}")
        finally:
            await asyncio.to_thread(history.leave, rundir, request, started, outcome)
            await asyncio.to_thread(_close, rundir, request, left_processes)
        return outcome

    async def forget(self, ref: ObjectRef) -> None:
        """Remove the private data dir and the artifacts of a resource that is gone."""
        await asyncio.to_thread(self._rundirs.remove, ref)

    async def _run(
        self,
        request: RunRequest,
        rundir: RunDir,
        fold: OutcomeBuilder,
        on_event: Callable[[RunEvent], None],
    ) -> tuple[RunOutcome, bool]:
        """Return how it ended, and whether it left processes behind that go on."""
        seconds = request.timeout.total_seconds() if request.timeout else None
        try:
            async with (
                asyncio.timeout(seconds) as deadline,
                self._launcher.start(request, rundir) as run,
            ):
                await _consume(run, rundir, request.run_id, fold, on_event)
                status = await run.wait()
        except TimeoutError:
            if not deadline.expired():
                raise
            ended = fold.broken(datetime.now(UTC), _deadline_text(request))
            return replace(ended, timed_out=True), False
        output = await asyncio.to_thread(rundir.output, request.run_id)
        return fold.outcome(datetime.now(UTC), status, output), run.left_processes


async def _consume(
    run: LaunchedRun,
    rundir: RunDir,
    run_id: str,
    fold: OutcomeBuilder,
    on_event: Callable[[RunEvent], None],
) -> None:
    with rundir.artifact(run_id, "events.jsonl") as log, rundir.artifact(run_id, "stdout") as out:
        async for uncensored in run.events():
            raw = censored(uncensored)
            log.write(json.dumps(raw) + "\n")
            if raw.get("stdout"):
                out.write(raw["stdout"] + "\n")
            event = RunEvent(
                raw.get("event", ""), raw.get("event_data") or {}, raw.get("stdout") or ""
            )
            fold.feed(event)
            on_event(event)


def _close(rundir: RunDir, request: RunRequest, left_processes: bool) -> None:
    try:
        rundir.close(request, left_processes=left_processes)
    except OSError as error:
        # The run itself is judged already; a full disk must not change its outcome.
        _log.warning("Could not tidy up after a run", path=str(rundir.path), error=str(error))


def _deadline_text(request: RunRequest) -> str:
    assert request.timeout is not None
    seconds = request.timeout.total_seconds()
    source = "key timeout of the watch, or flag --run-timeout"
    return f"deadline passed: the run was ended after {seconds:g} s ({source})"
