"""Commands `operator-runner reconcile`, `retry`, `suspend` and `resume`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.durations import format_duration
from operator_runner.core.errors import ConfigError, Forbidden, NotFound
from operator_runner.core.model import Json, ObjectRef, uid_of
from operator_runner.core.texts import printable
from operator_runner.reconcile.annotations import (
    REQUEST_ANNOTATION,
    RESET_ANNOTATION,
    SUSPEND_ANNOTATION,
    HandledRequest,
    RequestResult,
    Suspension,
    annotations_of,
    handled_request,
    suspension,
    wants_suspension,
)
from operator_runner.reconcile.conditions import conditions_by_type, is_suspended, read_conditions
from operator_runner.tools.resources.cluster import (
    ClusterView,
    Deadline,
    NamedResource,
    open_cluster,
)
from operator_runner.tools.resources.options import DurationType, complete
from operator_runner.tools.resources.output import EXIT_UNANSWERED, OutputFormat
from operator_runner.tools.resources.targets import Results, Targets, target_options
from operator_runner.tools.run_lines import with_short_paths

if TYPE_CHECKING:
    from operator_runner.tools.operator_api.watched_kinds import Queues


_PROGRESS_SECONDS = 2.0
_Function = TypeVar("_Function", bound=Callable[..., None])


def _request_options(function: _Function) -> _Function:
    for option in (
        click.option(
            "--timeout",
            type=DurationType(),
            default="5m",
            show_default=True,
            help="Time to wait with --wait.",
        ),
        click.option("--wait", is_flag=True, help="Wait for the end of the runs."),
        target_options,
    ):
        function = option(function)
    return function


@click.command()
@_request_options
def reconcile(*, output: OutputFormat, wait: bool, timeout: timedelta, **where: Any) -> None:
    """Run resources now.

    KIND is spelled as for kubectl: wikis, wiki, a short name, wiki.apps.example.com. With --wait
    the exit status is 0 if all runs succeed, 1 if one fails or its resource is deleted, and 3 if no
    operator answers in time.
    With --all and -A, suspended resources are left out.
    """
    sys.exit(complete(_request(Targets(**where), timeout if wait else None, output)))


@click.command()
@_request_options
def retry(*, output: OutputFormat, wait: bool, timeout: timedelta, **where: Any) -> None:
    """Run failing resources now, and reset their backoff.

    Otherwise the same as `reconcile`.
    """
    work = _request(Targets(**where), timeout if wait else None, output, reset=True)
    sys.exit(complete(work))


async def _request(
    targets: Targets, within: timedelta | None, output: OutputFormat, *, reset: bool = False
) -> int:
    """Request a run of each resource; with `within`, wait for the ends. Return the exit status."""
    request = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    annotations = {REQUEST_ANNOTATION: request, RESET_ANNOTATION: request if reset else None}
    results = Results(targets, output)
    word = "retry" if reset else "run"
    async with open_cluster(targets.kubeconfig, targets.namespace) as cluster:
        requested: list[tuple[NamedResource, Json]] = []
        async for target in targets.find(cluster):
            try:
                body = await cluster.read(target)
                if targets.are_all and wants_suspension(body):
                    results.add(target, "is suspended; skipped", "suspended")
                    continue
                _check_active(target, body)
                body = await cluster.annotate(target, annotations)
            except (ConfigError, Forbidden, NotFound) as error:
                results.fail(target, error)
            else:
                results.add(target, f"{word} requested", "requested")
                requested.append((target, body))
        statuses = [int(results.has_failed)]
        if within is not None:
            deadline = Deadline(within)
            progress = asyncio.create_task(_report_progress(cluster, requested))
            statuses += await asyncio.gather(
                *(_outcome(cluster, target, body, results, deadline) for target, body in requested)
            )
            await end_tasks([progress])
        results.end(cluster.namespace)
        return max(statuses)


async def _report_progress(
    cluster: ClusterView, requested: Sequence[tuple[NamedResource, Json]]
) -> None:
    """Print what the resources wait for, when that changes, until cancelled."""
    from operator_runner.tools.operator_api.watched_kinds import queues_of  # noqa: PLC0415 (slow)

    shown: dict[NamedResource, str] = {}
    await asyncio.sleep(_PROGRESS_SECONDS)
    async with cluster.follow_operators(pause=_PROGRESS_SECONDS) as found:
        async for operators in found:
            queues = await queues_of(operators)
            for target, body in requested:
                text = activity(queues, target.ref, uid_of(body))
                if text and shown.get(target) != text:
                    shown[target] = text
                    click.echo(printable(f"{target} {text}"), err=True)


def activity(queues: Queues, ref: ObjectRef, uid: str) -> str:
    """Return the current task of a resource, or what it is queued behind; empty if unknown."""
    next_run, run = queues.next_run(ref), queues.last_run(ref, uid) or {}
    if next_run is not None and next_run.behind:
        return f"is queued behind {next_run.behind}"
    task = run.get("task") or {}
    return f"runs task '{task.get('name') or task.get('action')}'" if task else ""


def _check_active(target: NamedResource, body: Json) -> None:
    """Raise ConfigError for a resource that is suspended."""
    if wants_suspension(body):
        place = f" --namespace {target.ref.namespace}" if target.ref.namespace else ""
        hint = f"operator-runner resume {target}{place}"
        raise ConfigError(f"{target} is suspended; to resume: {hint}")


async def _outcome(
    cluster: ClusterView, target: NamedResource, before: Json, results: Results, deadline: Deadline
) -> int:
    """Wait for the end of the requested run and print it; return the exit status.

    `before` is the resource with the request.
    """
    request = annotations_of(before)[REQUEST_ANNOTATION]

    def is_over(body: Json) -> bool:
        if uid_of(body) != uid_of(before):
            raise NotFound(f"{target} was deleted, and created again")
        _check_active(target, body)
        return _answer(body, request) is not None

    try:
        body = await cluster.wait(target, is_over, deadline)
        if body is None:
            reason = _silence(await cluster.read(target), deadline.within)
            click.echo(printable(f"Error: {target}: {reason}"), err=True)
            results.keep(target, result="unanswered", message=reason)
            return EXIT_UNANSWERED
    except NotFound:
        return _deleted(target, before, results)
    except (ConfigError, Forbidden) as error:
        results.fail(target, error)
        return 1
    answer = _answer(body, request)
    assert answer is not None
    return _print(target, answer, results)


def _deleted(target: NamedResource, before: Json, results: Results) -> int:
    """Print that the resource is deleted; return the exit status.

    That is the success of the requested run only if this run was the clean-up. With all resources
    of a kind, those that are deleted meanwhile are not part of it, as in `Results.fail`.
    """
    if before["metadata"].get("deletionTimestamp") or results.targets.are_all:
        results.add(target, "deleted", "deleted")
        return 0
    text = "deleted before the operator reported the end of the run"
    results.add(target, text, "deleted", err=True, message=text)
    return 1


def _answer(body: Json, request: str) -> HandledRequest | None:
    """Return the end of the requested run, or of a run that was requested later."""
    annotations = annotations_of(body)
    handled = handled_request(annotations)
    latest = annotations.get(REQUEST_ANNOTATION)
    return handled if handled is not None and handled.id in {request, latest} else None


def _print(target: NamedResource, answer: HandledRequest, results: Results) -> int:
    run = f" (run {answer.run_id})" if answer.run_id else ""
    is_failed = answer.result is RequestResult.FAILED
    reason = with_short_paths(answer.message)
    message = f"{': ' if is_failed else '; '}{reason}" if reason else ""
    results.add(
        target,
        f"{'failed' if is_failed else 'succeeded'}{run}{message}",
        answer.result.value,
        err=is_failed,
        runID=answer.run_id,
        message=reason,
    )
    return int(is_failed)


def _silence(body: Json, within: timedelta) -> str:
    """Return why there is no answer, as far as the resource shows it."""
    conditions = conditions_by_type(body)
    waited = format_duration(within)
    if "Running" not in conditions:
        return (
            f"no operator has answered within {waited}, and none has written its conditions; check "
            "that one watches this kind and namespace, and selects the labels of the resource"
        )
    if conditions["Running"].get("reason") == "Running":
        return f"the run has not ended within {waited}; it goes on"
    return f"no operator has answered within {waited}; check that it runs, and its log"


_timeout_option = click.option(
    "--timeout",
    type=DurationType(),
    default="5s",
    show_default=True,
    help="Time to wait for the operator's answer; 0s does not wait.",
)


@click.command()
@target_options
@click.option("--cancel", is_flag=True, help="End the current run; else it runs to its end.")
@_timeout_option
def suspend(*, output: OutputFormat, cancel: bool, timeout: timedelta, **where: Any) -> None:
    """Suspend resources: no run starts until they are resumed.

    KIND is spelled as for kubectl: wikis, wiki, a short name, wiki.apps.example.com. A resource
    that is deleted meanwhile keeps its finalizer until it is resumed.
    """
    wanted = Suspension.CANCEL if cancel else Suspension.TRUE
    sys.exit(complete(_set(Targets(**where), wanted, timeout, output)))


@click.command()
@target_options
@_timeout_option
def resume(*, output: OutputFormat, timeout: timedelta, **where: Any) -> None:
    """Resume suspended resources, and run them now."""
    sys.exit(complete(_set(Targets(**where), Suspension.NONE, timeout, output)))


async def _set(
    targets: Targets, wanted: Suspension, within: timedelta, output: OutputFormat
) -> int:
    """Set or remove the annotation, and wait until operators show it; return the exit status."""
    results = Results(targets, output)
    async with open_cluster(targets.kubeconfig, targets.namespace) as cluster:
        changed: list[NamedResource] = []
        async for target in targets.find(cluster):
            try:
                if await _annotate(cluster, target, wanted, results):
                    changed.append(target)
            except (Forbidden, NotFound) as error:
                results.fail(target, error)
        if within:
            deadline = Deadline(within)
            await asyncio.gather(
                *(_wait(cluster, target, wanted, results, deadline) for target in changed)
            )
        results.end(cluster.namespace)
    return int(results.has_failed)


async def _annotate(
    cluster: ClusterView, target: NamedResource, wanted: Suspension, results: Results
) -> bool:
    """Set or remove the annotation; return whether that was a change."""
    before = suspension(annotations_of(await cluster.read(target)))
    word = "suspended" if wanted.value else "resumed"
    is_suspended_already = wanted is Suspension.TRUE and before is not Suspension.NONE
    if before is wanted or is_suspended_already:
        text = "is already suspended" if wanted.value else "is not suspended"
        results.add(target, text, "unchanged")
        return False
    await cluster.annotate(target, {SUSPEND_ANNOTATION: wanted.value or None})
    results.add(target, word, word)
    return True


async def _wait(
    cluster: ClusterView,
    target: NamedResource,
    wanted: Suspension,
    results: Results,
    deadline: Deadline,
) -> None:
    """Wait until a resource shows the suspension, or its end; print a warning if it does not."""
    shows = _shows_suspension if wanted.value else lambda body: not _shows_suspension(body)
    try:
        if await cluster.wait(target, shows, deadline) is None:
            results.warn(target, _reason(await cluster.read(target), deadline.within))
    except NotFound as error:
        if wanted.value:
            results.fail(target, error)
    except Forbidden as error:
        results.fail(target, error)


def _shows_suspension(body: Json) -> bool:
    return is_suspended(read_conditions(body))


def _reason(body: Json, within: timedelta) -> str:
    """Return why the resource does not show the suspension, or still does."""
    conditions = conditions_by_type(body)
    if "Running" not in conditions:
        return (
            "no operator has written its conditions; the annotation is set, and takes effect "
            "when one watches the kind"
        )
    if (conditions["Running"]).get("reason") == "Running":
        return "the current run continues to its end; `suspend --cancel` cancels it"
    return (
        f"no operator has answered within {format_duration(within)}; the annotation is set, and "
        "takes effect when the operator runs, or has finished runs that occupy it"
    )
