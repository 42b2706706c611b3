"""Run plays: launcher, private data dir, timeout and outcome of each run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import structlog

from operator_runner.ansible import rerun_command
from operator_runner.ansible.cold.launcher import ColdLauncher
from operator_runner.ansible.forkserver.launcher import WarmLauncher
from operator_runner.ansible.outcome import OutcomeBuilder, partial_by
from operator_runner.ansible.patches.registry import PATCHES, unknown_names
from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.ansible.run_spec import run_spec
from operator_runner.ansible.rundir import RunDir, RunDirs
from operator_runner.core.ansible_yaml import task_keyword, task_variable
from operator_runner.core.async_tasks import end_tasks, finish_in_thread
from operator_runner.core.errors import ConfigError, RunError, exhausted_resource
from operator_runner.core.model import Json, ObjectRef, RunEvent, RunOutcome, RunRequest
from operator_runner.core.settings import AnsibleSettings, ExecutorName, ServerStart

if TYPE_CHECKING:
    from operator_runner.ansible.jobs.launcher import JobLauncher

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
        jobs: JobLauncher | None = None,
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


_HIDDEN = "the output has been hidden due to the fact that 'no_log: true' was specified"
_ANSI = r"(?:\x1b\[[0-9;]*m)*"
_STATUS = re.compile(
    rf"^{_ANSI}(?P<word>ok|changed): \[[\w. >:-]*\](?: => \(item=\(censored due to no_log\)\))?"
)
"""Result of a task or item, as ansible-core's default callback plugin prints it."""
_RESULTS = {"runner_on_ok", "runner_item_on_ok"}


class Censor:
    """Removes output that no_log hides from the events of one run, in order.

    ansible-core censors the result of a task with no_log, but since 2.19 its display also prints
    the error message of a failed task, which becomes the stdout of ansible-runner's event.

    ansible-runner removes the whole result, `changed` included. The first line of the output has
    it: `changed: [localhost]` or `ok: [localhost]`.
    """

    def __init__(self) -> None:
        """Begin with the first event."""
        self._changed_loops: set[str] = set()

    def __call__(self, event: Json) -> Json:
        """Return an event of ansible-runner, without the stdout of a result that is hidden.

        A hidden result of a task that did not fail has `censored` and `changed`.
        """
        data = event.get("event_data") or {}
        result = data.get("res")
        if not _is_hidden(result):
            return event
        stdout = event.get("stdout") or ""
        has_status = event.get("event") in _RESULTS
        if has_status and "changed" not in result:
            changed = self._is_changed(event["event"], str(data.get("task_uuid")), stdout)
            event = {**event, "event_data": {**data, "res": {**result, "changed": changed}}}
        if not stdout:
            return event
        lines = [kept for line in stdout.splitlines() if (kept := _kept(line, has_status))]
        return {**event, "stdout": "\r\n".join(lines) or _HIDDEN}

    def _is_changed(self, kind: str, task: str, stdout: str) -> bool:
        """Return whether a task or item changed something; a loop prints its items only."""
        words = [found["word"] for line in stdout.splitlines() if (found := _STATUS.match(line))]
        if kind == "runner_item_on_ok" and "changed" in words:
            self._changed_loops.add(task)
        return "changed" in words or (kind == "runner_on_ok" and task in self._changed_loops)


def _kept(line: str, has_status: bool) -> str:
    """Return what may be shown of a line of output, empty if nothing."""
    if '"censored"' in line:
        return line
    status = _STATUS.match(line) if has_status else None
    return status.group() if status else ""


def _is_hidden(result: Any) -> TypeGuard[Json]:
    if not isinstance(result, dict):
        return False
    items = result.get("results")
    parts = items if isinstance(items, list) else ()
    return "censored" in result or any(_is_hidden(part) for part in parts)


_REPORT_SECONDS = 60.0
"""Loading takes a few seconds; on a busy node some ten."""


@dataclass(frozen=True, slots=True)
class BackgroundLauncher:
    """A launcher that is opened in the background: the operator watches meanwhile, runs wait."""

    _opening: asyncio.Task[Launcher]

    async def ready(self) -> None:
        """Return when a run can start. Raises the error of the launcher's opening."""
        launcher = await self._opened()
        await launcher.ready()

    async def failed(self) -> None:
        """Wait until the opening fails, and raise its error; never return if it succeeds."""
        await self._opened()
        await asyncio.Event().wait()

    @property
    def fault(self) -> str | None:
        """Why no run can start; None if runs can, or will when the launcher is open."""
        if not self._opening.done() or self._opening.cancelled():
            return None
        error = self._opening.exception()
        return None if error is None else f"cannot load Ansible: {error or type(error).__name__}"

    @asynccontextmanager
    async def start(self, request: RunRequest, rundir: RunDir) -> AsyncIterator[LaunchedRun]:
        """See `executor.Launcher`."""
        launcher = await self._opened()
        async with launcher.start(request, rundir) as run:
            yield run

    async def _opened(self) -> Launcher:
        # A cancelled run must not cancel the opening for other runs.
        return await asyncio.shield(self._opening)


@asynccontextmanager
async def open_in_background(
    opening: AbstractAsyncContextManager[Launcher], report_seconds: float = _REPORT_SECONDS
) -> AsyncIterator[BackgroundLauncher]:
    """Begin to open a launcher; it is closed at the end of the block, also half-way.

    An opening that takes long is logged every `report_seconds`.
    """
    async with AsyncExitStack() as stack:
        task = asyncio.create_task(stack.enter_async_context(opening), name="loading of Ansible")
        reporting = asyncio.create_task(_report(task, report_seconds))
        try:
            yield BackgroundLauncher(task)
        finally:
            await end_tasks([reporting, task])


async def _report(opening: asyncio.Task[Launcher], pause: float) -> None:
    """Log at intervals that the launcher is still being opened."""
    started = time.monotonic()
    while not (await asyncio.wait({opening}, timeout=pause))[0]:
        _log.warning(
            "Ansible is still loading; runs wait for it",
            seconds=round(time.monotonic() - started),
            hint="give the operator more CPU; if it never ends, set --executor=cold",
        )
