"""Command `operator-runner why KIND/NAME`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import click

from operator_runner.core.model import Json
from operator_runner.core.texts import printable
from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.resources.options import (
    KindOrNameType,
    cluster_options,
    complete,
    output_option,
    work_dir_option,
)
from operator_runner.tools.resources.output import OutputFormat, print_data, print_document
from operator_runner.tools.run_lines import History, Widths, header

_INDENT = " " * 4


@click.command()
@click.argument("wanted", metavar="KIND/NAME | KIND", type=KindOrNameType())
@cluster_options
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Runs of all resources of a KIND, everywhere."
)
@output_option
@click.option(
    "-w", "--watch", is_flag=True, help="List, then print each new run until interrupted."
)
@work_dir_option
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Maximum lines."
)
def why(
    *,
    wanted: str,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    all_namespaces: bool,
    output: OutputFormat,
    watch: bool,
    work_dir: Path | None,
    limit: int,
) -> None:
    """List the last runs of resources, and their causes.

    The newest is first. KIND is spelled as for kubectl: wikis, wiki, a short name,
    wiki.apps.example.com.
    """
    if all_namespaces and "/" in wanted:
        raise click.UsageError("KIND/NAME excludes --all-namespaces; use --namespace")
    kind, _, name = wanted.partition("/")
    # The API client is slow to import, and other commands do not need it.
    from operator_runner.tools.runs.past_runs import follow_histories  # noqa: PLC0415

    histories = follow_histories(
        kubeconfig, kind, namespace, name, work_dir, everywhere=all_namespaces
    )

    async def run() -> None:
        async with aclosing(histories):
            history = await anext(histories)
            widths: Widths = (0, 0)
            if not output.is_data:
                widths = _print(history, limit, is_wide=output is OutputFormat.WIDE)
            elif watch:
                for line in reversed(history.lines[:limit]):
                    print_document(line.as_json(), output)
            else:
                found = [each.as_json() for each in history.lines[:limit]]
                print_data(_facts(history) | {"items": found}, output)
            if watch:
                await _watch(histories, history, widths, output)

    complete(run())


def _facts(history: History) -> Json:
    """Return what is known beside the runs, for `--output=json`."""
    facts = {"suspended": bool(history.suspended), "deleting": bool(history.deleting)}
    return {**facts, "message": history.exclusion} if history.exclusion else facts


def _print(history: History, limit: int, *, is_wide: bool) -> Widths:
    """Print the runs and what the user can do; return the widths of the columns."""
    for ref in history.suspended:
        place = f" -n {ref.namespace}" if ref.namespace else ""
        hint = f"operator-runner resume {ref.full_name}{place}"
        which = "" if history.ref.name else f" {ref.gvk.kind.lower()}/{ref.name}"
        state, run = "Suspended", "run starts"
        if ref in history.deleting:
            state, run = "Suspended while being deleted", "clean-up runs"
        click.echo(printable(f"{state}{which}: no {run} until `{hint}`."))
    widths = history.widths(is_wide=is_wide)
    if not history.lines:
        click.echo(_quiet(history))
        return widths
    now = datetime.now(UTC)
    click.echo(header(widths))
    for line in history.lines[:limit]:
        click.echo(line.text(now, widths))
    if (rerun := history.rerun) is not None:
        heading = f"To repeat run {rerun.run_id} with your kubeconfig:"
        click.echo(f"\n{heading}\n\n{_INDENT}{printable(rerun.command)}")
    elif hint := history.rerun_hint:
        run_id = history.lines[0].run_id
        click.echo(f"\nTo print the command that repeats run {run_id} in its Pod:")
        click.echo(f"\n{_INDENT}{printable(hint)}")
    return widths


async def _watch(
    histories: AsyncIterator[History], shown: History, widths: Widths, output: OutputFormat
) -> None:
    """Print each run that is new, without end. Raises ApiError and ConfigError."""
    has_header = bool(shown.lines) or output.is_data
    before = set(shown.lines)
    async for history in histories:
        new = [line for line in reversed(history.lines) if line not in before]
        before |= set(new)
        if new and not has_header:
            has_header = True
            click.echo(header(widths))
        for line in new:
            if output.is_data:
                print_document(line.as_json(), output)
            else:
                click.echo(line.text(datetime.now(UTC), widths))


def _quiet(history: History) -> str:
    ref = history.ref
    resource = str(ref) if ref.name else ref.gvk.kind
    if history.exclusion:
        return printable(f"No runs of {resource}: {history.exclusion}.")
    return (
        f"No runs of {resource} yet, or none that is recorded: Events expire, and unchanged runs "
        "emit none. An operator that answers has all runs; its log shows what it waits for."
    )
