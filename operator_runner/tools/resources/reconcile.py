"""Commands `operator-runner reconcile` and `operator-runner retry`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from operator_runner.core.durations import format_duration
from operator_runner.core.errors import ConfigError, NotFound
from operator_runner.core.model import Json
from operator_runner.reconcile.conditions import read_conditions
from operator_runner.reconcile.user_requests import (
    REQUEST_ANNOTATION,
    RESET_ANNOTATION,
    HandledRequest,
    RequestResult,
    Suspension,
    annotations_of,
    handled_request,
    suspension,
)
from operator_runner.telemetry.printable import printable
from operator_runner.tools.resources.options import (
    EXIT_UNANSWERED,
    DurationType,
    Names,
    cluster_options,
    complete,
    names_argument,
)

if TYPE_CHECKING:
    from operator_runner.tools.resources.cluster import ClusterView, Target

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
        click.option("--wait", is_flag=True, help="Wait for the end of the run."),
        cluster_options,
        names_argument,
    ):
        function = option(function)
    return function


@click.command()
@_request_options
def reconcile(
    names: Names, namespace: str | None, kubeconfig: Path | None, wait: bool, timeout: timedelta
) -> None:
    """Run a resource now.

    KIND is spelled as for kubectl: wikis, wiki, a short name, wiki.apps.example.com. With --wait
    the exit status is 0 if the run succeeds, 1 if it fails, and 3 if no operator answers in time.
    """
    sys.exit(complete(_request(names, namespace, kubeconfig, timeout if wait else None)))


@click.command()
@_request_options
def retry(
    names: Names, namespace: str | None, kubeconfig: Path | None, wait: bool, timeout: timedelta
) -> None:
    """Run a failing resource now, and reset its backoff.

    Otherwise the same as `reconcile`.
    """
    work = _request(names, namespace, kubeconfig, timeout if wait else None, reset=True)
    sys.exit(complete(work))


async def _request(
    names: Names,
    namespace: str | None,
    kubeconfig: Path | None,
    within: timedelta | None,
    *,
    reset: bool = False,
) -> int:
    """Request a run of each resource; with `within`, wait for the ends. Return the exit status."""
    # The API client is slow to import, and --help does not need it.
    from operator_runner.tools.resources.cluster import open_cluster  # noqa: PLC0415

    request = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    annotations = {REQUEST_ANNOTATION: request, RESET_ANNOTATION: request if reset else None}
    async with open_cluster(kubeconfig, namespace) as cluster:
        targets = [cluster.find(name) for name in names]
        for target in targets:
            _check_active(target, await cluster.read(target))
            await cluster.annotate(target, annotations)
            click.echo(f"{target} {'retry' if reset else 'run'} requested")
        if within is None:
            return 0
        return max([await _outcome(cluster, target, request, within) for target in targets])


def _check_active(target: Target, body: Json) -> None:
    """Raise ConfigError for a resource that is suspended."""
    if suspension(annotations_of(body)) is not Suspension.NONE:
        place = f" --namespace {target.ref.namespace}" if target.ref.namespace else ""
        cure = f"operator-runner resume {target}{place}"
        raise ConfigError(f"{target} is suspended; to resume: {cure}")


async def _outcome(cluster: ClusterView, target: Target, request: str, within: timedelta) -> int:
    """Wait for the end of the requested run and print it; return the exit status."""

    def is_over(body: Json) -> bool:
        _check_active(target, body)
        return _answer(body, request) is not None

    try:
        body = await cluster.wait(target, is_over, within.total_seconds())
        if body is None:
            reason = _silence(await cluster.read(target), within)
            click.echo(f"Error: {target}: {reason}", err=True)
            return EXIT_UNANSWERED
    except NotFound:
        click.echo(f"{target} deleted")
        return 0
    answer = _answer(body, request)
    assert answer is not None
    return _print(target, answer)


def _answer(body: Json, request: str) -> HandledRequest | None:
    """Return the end of the requested run, or of a run that was requested later."""
    annotations = annotations_of(body)
    handled = handled_request(annotations)
    latest = annotations.get(REQUEST_ANNOTATION)
    return handled if handled is not None and handled.id in {request, latest} else None


def _print(target: Target, answer: HandledRequest) -> int:
    run = f" (run {answer.run_id})" if answer.run_id else ""
    if answer.result is RequestResult.FAILED:
        click.echo(printable(f"{target} failed{run}: {answer.message}"), err=True)
        return 1
    more = f"; {answer.message}" if answer.message else ""
    click.echo(printable(f"{target} succeeded{run}{more}"))
    return 0


def _silence(body: Json, within: timedelta) -> str:
    """Return why there is no answer, as far as the resource shows it."""
    conditions = {each.get("type"): each for each in read_conditions(body)}
    waited = format_duration(within)
    if "Running" not in conditions:
        return (
            f"no operator has answered within {waited}, and none has written its conditions; check "
            "that one watches this kind and namespace, and selects the labels of the resource"
        )
    if conditions["Running"].get("reason") == "Running":
        return f"the run has not ended within {waited}; it goes on"
    return f"no operator has answered within {waited}; check that it runs, and its log"
