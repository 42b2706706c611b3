"""Run plays: private data dir, launcher, timeout and outcome of each run."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import structlog

from operator_runner.ansible import rerun_command
from operator_runner.ansible.cold.launcher import ColdLauncher
from operator_runner.ansible.completeness import partial_by
from operator_runner.ansible.forkserver.launcher import WarmLauncher
from operator_runner.ansible.no_log import Censor
from operator_runner.ansible.outcome import OutcomeBuilder
from operator_runner.ansible.patches.registry import PATCHES, unknown_names
from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.ansible.run_spec import run_spec
from operator_runner.ansible.rundir import RunDir, RunDirs
from operator_runner.core.ansible_yaml import task_keyword, task_variable
from operator_runner.core.async_tasks import finish_in_thread
from operator_runner.core.errors import ConfigError, RunError, exhausted_resource
from operator_runner.core.model import Json, ObjectRef, RunEvent, RunOutcome, RunRequest
from operator_runner.core.settings import AnsibleSettings, ExecutorName, ServerStart

_log = structlog.get_logger(__name__)
_HEADER = re.compile(
    r"(?:\x1b\[[\d;]*m)?(?:ansible-playbook \[core |Using .* as config file|No config file found;"
    r"|Skipping callback '|  (?:config file|configured module search path|executable location"
    r"|ansible (?:python module|collection) location|\w+ version|libyaml) = )"
)
"""What ansible-playbook prints at -vv before it reads the playbook: the same in each run."""


class LaunchedRun(Protocol):
    """A started run, cold or warm."""

    def events(self) -> AsyncIterator[Json]:
        """Yield ansible-runner's events in order until the run ends."""

    async def wait(self) -> int:
        """Return the exit status of ansible-playbook. Raises RunError if it was not run."""

    @property
    def left_processes(self) -> bool:
        """Whether the play completed and left processes running (async tasks)."""

    @property
    def is_adopted(self) -> bool:
        """Whether an earlier operator has started the run and answered requests of it."""


class Launcher(Protocol):
    """Starts runs."""

    async def ready(self) -> None:
        """Return when runs can be started; prepare for one that is about to."""

    def start(
        self, request: RunRequest, rundir: RunDir
    ) -> AbstractAsyncContextManager[LaunchedRun]:
        """Start a run; leaving the block terminates its process tree."""


class JobsLauncher(Launcher, Protocol):
    """Starts runs as Jobs, which may outlive the operator."""

    async def end_unadopted(self, ref: ObjectRef, current: str) -> None:
        """Delete the Jobs of an earlier operator that no run adopts.

        Those of the resource with the uid `current` are kept for its next run.
        """


def check_patches(ansible: AnsibleSettings) -> None:
    """Raise ConfigError if settings disable a patch that is unknown, or that results depend on."""
    if problems := unknown_names(ansible.disabled_patches, PATCHES):
        raise ConfigError(*problems)


@asynccontextmanager
async def open_launcher(
    kind: ExecutorName,
    ansible: AnsibleSettings,
    started: Callable[[ServerStart], None] = lambda _: None,
    contents: Sequence[Path] = (),
    names: ReservedNamesLoader | None = None,
    *,
    work_dir: Path | None = None,
) -> AsyncIterator[Launcher]:
    """Open a launcher; fall back to cold, with a warning, if warm cannot be started.

    `started` is called with the reason of each start of a process to fork runs from; `contents` are
    the roles and playbooks to be run, `work_dir` is the directory of `RunDirs`. `names` begins to
    load beside it. Raises ConfigError; see `check_patches`.
    """
    check_patches(ansible)
    if kind == "warm":
        listing = None if names is None else names.start_from_fork_server()
        warm = WarmLauncher(ansible, started, contents, listing, work_dir)
        try:
            await warm.open()
        except (RunError, OSError) as error:
            _log.warning("Running plays cold, each in new processes", error=str(error))
        else:
            try:
                yield warm
            finally:
                await warm.close()
            return
    elif names is not None:
        names.start()
    yield ColdLauncher(ansible)


class AnsibleExecutor:
    """Runs plays through a launcher; see `reconcile.protocols.Executor`."""

    def __init__(
        self,
        launcher: Launcher,
        rundirs: RunDirs,
        ansible: AnsibleSettings,
        kubeconfig: Path | None = None,
        jobs: JobsLauncher | None = None,
        *,
        context: str = "",
        impersonated: Sequence[str] = (),
        timeout: Callable[[float | None], asyncio.Timeout] = asyncio.timeout,
    ) -> None:
        """Run plays with `launcher`, in the directories of `rundirs`.

        `kubeconfig` and `context` are the flags, and `impersonated` is the user of `as` with its
        groups, for users who repeat a run. `jobs` starts the
        runs of watches with `execution.job`. `timeout` opens the timeout of a run, in seconds.
        """
        self._jobs = jobs
        self._kubeconfig, self._context = kubeconfig, context
        self._impersonated = impersonated
        self._timeout = timeout
        self._launcher = launcher
        self._rundirs = rundirs
        self._ansible = ansible
        self._partial_by = partial_by(ansible.args, os.environ)

    async def run(self, request: RunRequest, on_event: Callable[[RunEvent], None]) -> RunOutcome:
        """Run a play to its end or its timeout; see the port."""
        builder = OutcomeBuilder(task_keyword, task_variable)
        try:
            with self._rundirs.open(request.ref) as rundir:
                return await self._run_in(rundir, request, builder, on_event)
        except OSError as error:
            return _aborted(builder, error)

    async def _run_in(
        self,
        rundir: RunDir,
        request: RunRequest,
        builder: OutcomeBuilder,
        on_event: Callable[[RunEvent], None],
    ) -> RunOutcome:
        outcome: RunOutcome | None = None
        left_processes = False
        try:
            launcher = self._launcher_of(request)
            await launcher.ready()  # not part of the timeout and the duration
            await finish_in_thread(rundir.prepare, request, self._ansible)
            outcome, left_processes = await self._run(launcher, request, rundir, builder, on_event)
        except (RunError, OSError) as error:
            outcome = _aborted(builder, error)
        finally:
            await finish_in_thread(self._end, rundir, request, outcome, left_processes)
        return outcome

    def _end(
        self, rundir: RunDir, request: RunRequest, outcome: RunOutcome | None, left_processes: bool
    ) -> None:
        """Keep the command of a finished run, and remove what it no longer needs.

        Errors are only logged: the outcome is already known, and a full disk must not change it.
        """
        try:
            if not request.dry_run:
                self._keep_command(rundir, request, outcome)
        except (OSError, ValueError) as error:
            _log.warning(
                "Cannot write the command of a run", path=str(rundir.path), error=str(error)
            )
        try:
            rundir.clean_up(request, left_processes=left_processes)
        except OSError as error:
            _log.warning("Cannot clean up after a run", path=str(rundir.path), error=str(error))

    def _keep_command(
        self, rundir: RunDir, request: RunRequest, outcome: RunOutcome | None
    ) -> None:
        """Store the command that repeats a failed run; remove it after a successful one."""
        if outcome is None:
            return
        if outcome.successful:
            self._rundirs.forget_command(request.ref)
            return
        # The run may have changed its playbook and variables.
        rundir.write_variables(request)
        spec = run_spec(request, rundir, self._ansible)
        command = rerun_command.command_line(
            spec,
            self._ansible.args,
            self._kubeconfig,
            native_types=request.native_types is True,
            context=self._context,
            impersonated=self._impersonated,
        )
        rerun_command.write(
            self._rundirs.base, request.ref, rerun_command.Rerun(request.run_id, command)
        )

    async def end_unadopted(self, ref: ObjectRef, current: str) -> None:
        """End the runs of an earlier operator that no run continues; see the port."""
        if self._jobs is not None:
            await self._jobs.end_unadopted(ref, current)

    async def forget(self, ref: ObjectRef) -> None:
        """Remove the private data dir and the artifacts of a deleted resource."""
        await finish_in_thread(self._rundirs.remove, ref)

    async def output(self, ref: ObjectRef, run_id: str) -> str:
        """Return the output of a run from its artifacts, empty if they are not kept."""

        def read() -> str:
            with self._rundirs.open(ref, create=False) as rundir:
                return rundir.output(run_id)

        try:
            return await finish_in_thread(read)
        except OSError:
            return ""

    def _launcher_of(self, request: RunRequest) -> Launcher:
        if request.job is None:
            return self._launcher
        assert self._jobs is not None
        return self._jobs

    async def _run(
        self,
        launcher: Launcher,
        request: RunRequest,
        rundir: RunDir,
        builder: OutcomeBuilder,
        on_event: Callable[[RunEvent], None],
    ) -> tuple[RunOutcome, bool]:
        """Return the outcome, and whether processes of the run are still running."""
        seconds = request.timeout.total_seconds() if request.timeout else None
        builder.started = datetime.now(UTC)
        try:
            async with self._timeout(seconds) as deadline, launcher.start(request, rundir) as run:
                await _consume(run, rundir, request, builder, on_event)
                status = await run.wait()
        except TimeoutError:
            if not deadline.expired():
                raise
            ended = builder.build_aborted(datetime.now(UTC), _timeout_message(request))
            return replace(ended, timed_out=True), False
        output = await finish_in_thread(rundir.output, request.run_id)
        outcome = builder.build(datetime.now(UTC), status, output)
        if not outcome.incomplete and (run.is_adopted or run.left_processes):
            fault = "an earlier operator" if run.is_adopted else "processes that outlive the run"
            outcome = replace(outcome, incomplete=f"{fault} may have sent requests of it")
        if not outcome.incomplete and self._partial_by:
            outcome = replace(outcome, incomplete=f"{self._partial_by} leaves out tasks or changes")
        return outcome, run.left_processes


async def _consume(
    run: LaunchedRun,
    rundir: RunDir,
    request: RunRequest,
    builder: OutcomeBuilder,
    on_event: Callable[[RunEvent], None],
) -> None:
    with ExitStack() as stack:
        artifacts = stack.enter_context(rundir.artifacts(request.run_id))
        log = stack.enter_context(artifacts.open_new("events.jsonl"))
        out = stack.enter_context(artifacts.open_new("stdout"))
        censor = Censor()
        async for uncensored in run.events():
            if _is_header(uncensored):
                continue
            raw = censor(uncensored)
            log.write(json.dumps(raw) + "\n")
            if raw.get("stdout"):
                out.write(raw["stdout"] + "\n")
            event = RunEvent(
                raw.get("event", ""),
                raw.get("event_data") or {},
                raw.get("stdout") or "",
                is_remote=request.job is not None,
            )
            builder.add(event)
            on_event(event)


def _is_header(event: Mapping[str, Any]) -> bool:
    """Return whether it is one of the lines that begin each run of ansible-playbook at -vv."""
    return event.get("event") == "verbose" and _HEADER.match(event.get("stdout") or "") is not None


def _aborted(builder: OutcomeBuilder, error: Exception) -> RunOutcome:
    cure = exhausted_resource(error)
    reason = str(error) if cure is None else f"{error}; {cure}"
    return builder.build_aborted(datetime.now(UTC), f"Unable to run reconciliation: {reason}")


def _timeout_message(request: RunRequest) -> str:
    assert request.timeout is not None
    seconds = request.timeout.total_seconds()
    source = "key timeout of the watch, or flag --run-timeout"
    return f"timeout: the run was ended after {seconds:g} s ({source})"
