"""Write one report of many runs: of the operators of a cluster, or of artifacts in work dirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from operator_runner.ansible.history import details_of, recorded_resources
from operator_runner.core.errors import ApiError, NotFound
from operator_runner.core.model import Json
from operator_runner.telemetry.printable import printable
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.record import matches
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.operator_api.discovery import Operators
from operator_runner.tools.resources.output import EXIT_UNANSWERED
from operator_runner.tools.runs.html_report import report_of_runs
from operator_runner.tools.runs.listing import newest, warn_invalid, without_repetitions
from operator_runner.tools.runs.run_details import open_operators, read_output, read_run

_MAX_OUTPUT_CHARACTERS = 64 * 1024
"""Length of the output of each run, its end: a report has hundreds of runs."""


async def report_operators(
    html: Path, kubeconfig: Kubeconfig, namespace: str | None, limit: int
) -> int:
    """Write the report of runs that operators keep; return the exit status. Raises ApiError."""
    async with open_operators(kubeconfig, namespace, None) as (_, operators):
        if not operators.clients:
            reason = printable(operators.reason)
            click.echo(
                f"Error: no operator answers: {reason}; if one has ended on this machine, add"
                " --work-dir",
                err=True,
            )
            return EXIT_UNANSWERED
        query = {"namespace": namespace} if namespace else {}
        params = {**query, "limit": str(limit)}
        listed = newest(without_repetitions(await operators.collect("/runs", check_run, params)))
        warn_invalid(operators)
        found = [await _details(operators, each) for each in listed[:limit]]
    return await _write(html, found)


async def report_artifacts(
    html: Path, work_dirs: Sequence[Path], namespace: str | None, limit: int
) -> int:
    """Write the report of runs whose artifacts are kept; return the exit status. Raises OSError."""
    query = {"namespace": namespace} if namespace else {}

    def read() -> list[tuple[Json, str]]:
        found = {run["id"]: (run, text) for each in work_dirs for run, text in _recorded(each)}
        chosen = [run for run, _ in found.values() if matches(run["resource"], query)]
        return [found[each["id"]] for each in newest(chosen)[:limit]]

    return await _write(html, await asyncio.to_thread(read))


def _recorded(work_dir: Path) -> Iterator[tuple[Json, str]]:
    """Yield the valid records below a work dir, each with its output."""
    for folder in recorded_resources(work_dir).values():
        for document, text in details_of(folder):
            try:
                yield check_run(document), text
            except ValueError as error:
                reason = printable(f"{folder}: {error}")
                click.echo(f"Warning: left out an invalid record in {reason}", err=True)


async def _details(operators: Operators, listed: Json) -> tuple[Json, str]:
    """Return a run and its output; what was listed if the operator no longer keeps it."""
    client = next((each for each in operators.clients if each.name == listed["operator"]), None)
    if client is None:
        return listed, ""
    try:
        run = await read_run(client, str(listed["id"]))
        return run, await read_output(client, str(listed["id"]))
    except NotFound:
        return listed, ""
    except ApiError as error:
        operators.drop(client, error)
        click.echo(f"Warning: {printable(str(error))}", err=True)
        return listed, ""


async def _write(html: Path, found: Sequence[tuple[Json, str]]) -> int:
    cut = [(run, text[-_MAX_OUTPUT_CHARACTERS:]) for run, text in reversed(found)]
    # Utf-8 even where the locale has another encoding.
    await asyncio.to_thread(html.write_text, report_of_runs(cut), encoding="utf-8")
    failed = sum(run["outcome"] == "failed" for run, _ in found)
    click.echo(f"Wrote {html}: {len(found)} runs, {failed} failed")
    return 0
