"""The command behind `make bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console

from bench import docs_page
from bench.breakdown import Breakdown, measure_breakdown
from bench.churn import churn
from bench.comparison import Pace, comparison
from bench.environment import BenchEnvironment, open_environment
from bench.errors import BenchError
from bench.figures import Row, Verdict
from bench.flux import flux
from bench.memory import measure_memory
from bench.table import markdown_table, terminal_table
from bench.user_comparison import commit, compare_project
from bench.user_project import UserProject, parse_edit, read_project
from operator_runner.devcluster.errors import ClusterError

_WIDTH = 160
_PICTURE = Path("build/bench/breakdown.svg")
_BREAKDOWN = "breakdown"
_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Effort:
    """Amount of measurements."""

    pace: Pace = field(default_factory=Pace)
    applications: int = 1000
    pods: int = 100
    edits: int = 9
    """Edits that are broken down; the medians are reported."""


QUICK = Effort(
    # Ansible is unloaded at the end of the long pause, as it is after fifteen minutes.
    Pace(20, 60, 1, 10, 15, ("--fork-server-idle-timeout=40s",)),
    applications=50,
    pods=20,
    edits=3,
)

GROUPS: Mapping[str, Callable[[BenchEnvironment, Effort], Iterator[Row]]] = {
    "ansible-operator": lambda environment, effort: comparison(environment, effort.pace),
    "flux": lambda environment, effort: flux(environment, effort.applications),
    "memory": lambda environment, _: measure_memory(environment),
    "churn": lambda environment, effort: churn(environment, effort.pods),
}


@click.command()
@click.option("--quick", is_flag=True, help="Measure with fewer repetitions and resources.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([*GROUPS, _BREAKDOWN]),
    help="Measure only this part; may be repeated.",
)
@click.option("--applications", type=click.IntRange(min=1), help="Applications of the group flux.")
@click.option("--keep", is_flag=True, help="Write the results into docs/performance.md.")
@click.option("--project", type=_FILE, help="Compare both operators on this project instead.")
@click.option("--resource", type=_FILE, help="The custom resource for --project.")
@click.option("--edit", metavar="FIELD=VALUE", help="An edit to measure: spec.replicas=3.")
@click.option("--crd", "crds", type=_FILE, multiple=True, help="CRDs: a file or directory.")
@click.option("--create", type=_FILE, multiple=True, help="Objects that must exist before.")
@click.option("--watches-file", type=_FILE, help="Default: watches.yaml of the project.")
@click.option("--exec-output", default="", help="What commands in Pods print.")
def main(
    *,
    quick: bool,
    only: tuple[str, ...],
    applications: int | None,
    keep: bool,
    project: Path | None,
    resource: Path | None,
    edit: str | None,
    crds: tuple[Path, ...],
    create: tuple[Path, ...],
    watches_file: Path | None,
    exec_output: str,
) -> None:
    """Measure and print a table; exit with status 1 if a limit is exceeded."""
    console = Console(highlight=False)
    # Lines are not wrapped in a file.
    console = console if console.is_terminal else Console(highlight=False, width=_WIDTH)
    if project is not None:
        if resource is None:
            raise click.UsageError("--project needs --resource, the file of a custom resource")
        try:
            found_project = read_project(project, resource, crds, watches_file, create)
            _compare(console, found_project, edit, exec_output, 1 if quick else 3)
        except (BenchError, ClusterError) as error:
            _fail(console, error)
        return
    effort = QUICK if quick else Effort()
    if applications is not None:
        effort = replace(effort, applications=applications)
    found: list[Row] = []
    try:
        with open_environment() as environment:
            for name in only or (*GROUPS, _BREAKDOWN):
                measured = f"Measured: {docs_page.circumstances()} at the start."
                console.print(f"{name}. {measured}", style="dim")
                if name == _BREAKDOWN:
                    _show(console, measure_breakdown(environment, effort.edits), keep=keep)
                    continue
                rows = list(_rows(console, GROUPS[name](environment, effort)))
                found += rows
                if keep:
                    docs_page.write_part(name, f"{measured}\n\n{markdown_table(rows)}")
    except (BenchError, ClusterError) as error:
        _fail(console, error)
    if found:
        console.print(terminal_table(found))
    sys.exit(any(row.verdict is Verdict.LIMIT_EXCEEDED for row in found))


def _compare(
    console: Console, project: UserProject, edit: str | None, output: str, repetitions: int
) -> None:
    """Print the table of a project of a user. Raises BenchError and ClusterError."""
    change = None if edit is None else parse_edit(edit)

    def note(text: str) -> None:
        console.print(text, style="yellow", markup=False)

    with open_environment() as environment:
        name = f"{project.folder.name} {commit(project.folder)}".strip()
        console.print(f"{name}. Measured: {docs_page.circumstances()} at the start.", style="dim")
        rows = compare_project(
            environment, project, change, output=output, repetitions=repetitions, show=note
        )
        console.print(terminal_table(list(_rows(console, rows))))


def _fail(console: Console, error: Exception) -> NoReturn:
    console.print(f"The bench failed: {error}", style="bold red", markup=False)
    sys.exit(1)


def _rows(console: Console, rows: Iterable[Row]) -> Iterator[Row]:
    """Print each row as soon as it is measured."""
    for row in rows:
        console.print("  ".join(filter(None, row.cells())), style="dim", markup=False)
        yield row


def _show(console: Console, found: Breakdown, *, keep: bool) -> None:
    _PICTURE.parent.mkdir(parents=True, exist_ok=True)
    _PICTURE.write_text(found.picture)
    console.print(f"\nTime breakdown of an edit (picture: {_PICTURE}):")
    console.print(found.text(), markup=False)
    if keep:
        docs_page.write_part("breakdown", f"```\n{found.text()}\n```")
        docs_page.PICTURE.write_text(found.picture)


if __name__ == "__main__":
    main()
