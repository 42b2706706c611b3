"""Command `operator-runner runs` and its subcommands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from operator_runner.tools.kubeconfig import Kubeconfig
from operator_runner.tools.resources.options import (
    KindOrNameType,
    NameType,
    ResourceName,
    cluster_options,
    complete,
    list_output_option,
    output_option,
    work_dir_option,
)
from operator_runner.tools.resources.output import OutputFormat


class IdOrNameType(click.ParamType[str | ResourceName]):
    """An argument ID of a run, or KIND/NAME."""

    name = "ID"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | ResourceName:
        """Return the ID or the name; end with a usage error for an invalid name."""
        is_id = isinstance(value, str) and "/" not in value
        return str(value) if is_id else NameType().convert(value, param, ctx)


class _ListsByDefault(click.Group):
    """A group whose command is `list` unless its first argument is a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list`; --help stays that of the group."""
        if not args or args[0] not in {*self.commands, "--help", "-h"}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListsByDefault)
def runs() -> None:
    """List runs of operators, and show one of them.

    `operator-runner runs [KIND/NAME]` is the same as `operator-runner runs list [KIND/NAME]`.
    """


@runs.command("list")
@click.argument("wanted", metavar="[KIND | KIND/NAME]", required=False, type=KindOrNameType())
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Runs of all namespaces.")
@list_output_option
@click.option("-w", "--watch", is_flag=True, help="List, then print each change until interrupted.")
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1, 500), help="Maximum runs."
)
@work_dir_option
def list_runs(
    wanted: str | None,
    *,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    output: OutputFormat,
    limit: int,
    work_dir: Path | None,
    all_namespaces: bool,
    watch: bool,
) -> None:
    """List the last runs, newest first.

    They are those of all resources, of a kind or of one resource. The exit status is 3 if no
    operator answers.
    """
    if all_namespaces and wanted and "/" in wanted:
        raise click.UsageError("KIND/NAME excludes --all-namespaces; use --namespace")
    # The API client is slow to import, and --help does not need it.
    from operator_runner.tools.runs.listing import Listing  # noqa: PLC0415

    listing = Listing(wanted, namespace, all_namespaces, limit, output)
    raise SystemExit(complete(listing.run(kubeconfig, work_dir, watch=watch)))


@runs.command("show")
@click.argument("what", metavar="ID | KIND/NAME", type=IdOrNameType())
@cluster_options
@output_option
@click.option(
    "--html",
    default=None,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a report to this file instead: one static page.",
)
@work_dir_option
def show(
    what: str | ResourceName,
    *,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    output: OutputFormat,
    html: Path | None,
    work_dir: Path | None,
) -> None:
    """Show one run, or the last one of a resource.

    Print its tasks, changed fields, output and log. The exit status is 3 if no operator answers.
    """
    from operator_runner.tools.runs.run_details import show_run  # noqa: PLC0415 (slow import)

    work = show_run(what, kubeconfig, namespace, work_dir, output=output, html=html)
    raise SystemExit(complete(work))


@runs.command("logs")
@click.argument("what", metavar="ID | KIND/NAME", type=IdOrNameType())
@cluster_options
@click.option("-f", "--follow", is_flag=True, help="Continue until the run ends.")
@work_dir_option
def logs(
    what: str | ResourceName,
    namespace: str | None,
    kubeconfig: Kubeconfig,
    work_dir: Path | None,
    *,
    follow: bool,
) -> None:
    """Print the output of a run, or of the last run of a resource."""
    from operator_runner.tools.runs.run_details import print_output  # noqa: PLC0415 (slow import)

    work = print_output(what, kubeconfig, namespace, work_dir, follow=follow)
    raise SystemExit(complete(work))
