"""The command behind `make bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from bench import (
    burst,
    churn,
    docs_page,
    facts,
    latency,
    many_resources,
    memory,
    native,
    restart,
    side_by_side,
    single,
    start,
    traffic,
)
from bench.breakdown import Breakdown, measure_breakdown
from bench.environment import BenchEnvironment, open_environment
from bench.errors import BenchError
from bench.figures import Row, Verdict
from bench.table import markdown_table, terminal_table
from operator_runner.devcluster.errors import ClusterError

_WIDTH = 160
_PICTURE = Path("build/bench/breakdown.svg")
_BREAKDOWN = "breakdown"


@dataclass(frozen=True, slots=True)
class Effort:
    """Amount of measurements."""

    repetitions: int = 9
    """Pairs of measurements; the median is reported."""
    resources: int = 40
    many: int = 1000
    pods: int = 100
    unchanged: int = 1000
    """Unchanged resources of an operator that is restarted."""


QUICK = Effort(repetitions=3, resources=20, many=60, pods=20, unchanged=60)

GROUPS: Mapping[str, Callable[[BenchEnvironment, Effort], Iterator[Row]]] = {
    "three": lambda environment, effort: single.three_tasks(environment, effort.repetitions),
    "edit": lambda environment, effort: latency.edit(environment, effort.repetitions),
    "native": lambda environment, effort: native.native(environment, effort.repetitions),
    "empty": lambda environment, effort: single.empty_role(environment, effort.repetitions),
    "long": lambda environment, effort: single.long_role(environment, effort.repetitions),
    "facts": lambda environment, effort: facts.facts(environment, effort.repetitions),
    "burst": lambda environment, effort: burst.burst(environment, effort.resources),
    "start": lambda environment, effort: start.measure_start(environment, effort.repetitions),
    "memory": lambda environment, _: memory.measure_memory(environment),
    "many": lambda environment, effort: many_resources.many_resources(environment, effort.many),
    "churn": lambda environment, effort: churn.churn(environment, effort.pods),
    "restart": lambda environment, effort: restart.restart(environment, effort.unchanged),
    "requests": lambda environment, _: traffic.traffic(environment),
    "ansible-operator": lambda environment, effort: side_by_side.side_by_side(
        environment, effort.repetitions, effort.resources
    ),
}


@click.command()
@click.option("--quick", is_flag=True, help="Measure with fewer repetitions and resources.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([*GROUPS, _BREAKDOWN]),
    help="Measure only this part; may be repeated.",
)
@click.option("--keep", is_flag=True, help="Write the results into docs/performance.md.")
def main(*, quick: bool, only: tuple[str, ...], keep: bool) -> None:
    """Measure and print a table; exit with status 1 if a limit is exceeded."""
    console = Console(highlight=False)
    # Lines are not wrapped in a file.
    console = console if console.is_terminal else Console(highlight=False, width=_WIDTH)
    circumstances = docs_page.circumstances()
    console.print(f"Measured: {circumstances} at the start.", style="dim")
    try:
        rows, found = _measure(console, QUICK if quick else Effort(), only or (*GROUPS, _BREAKDOWN))
    except (BenchError, ClusterError) as error:
        console.print(f"The bench failed: {error}", style="bold red", markup=False)
        sys.exit(1)
    _show(console, rows, found)
    if keep:
        _keep(rows, found, circumstances)
    sys.exit(any(row.verdict is Verdict.LIMIT_EXCEEDED for row in rows))


def _measure(
    console: Console, effort: Effort, names: Sequence[str]
) -> tuple[list[Row], Breakdown | None]:
    rows: list[Row] = []
    found = None
    with open_environment() as environment:
        for name in names:
            console.print(f"Measuring: {name} ...", style="dim")
            if name == _BREAKDOWN:
                found = measure_breakdown(environment, effort.repetitions)
                continue
            for row in GROUPS[name](environment, effort):
                rows.append(row)
                console.print("  ".join(filter(None, row.cells())), style="dim", markup=False)
    return rows, found


def _show(console: Console, rows: Sequence[Row], found: Breakdown | None) -> None:
    if rows:
        console.print(terminal_table(rows))
    if found is not None:
        _PICTURE.parent.mkdir(parents=True, exist_ok=True)
        _PICTURE.write_text(found.picture)
        console.print(f"\nTime breakdown of an edit (picture: {_PICTURE}):")
        console.print(found.text(), markup=False)


def _keep(rows: Sequence[Row], found: Breakdown | None, circumstances: str) -> None:
    if rows:
        docs_page.write_part(
            "table", f"Measured: {circumstances} at the start.\n\n{markdown_table(rows)}"
        )
    if found is not None:
        docs_page.write_part("breakdown", f"```\n{found.text()}\n```")
        docs_page.PICTURE.write_text(found.picture)


if __name__ == "__main__":
    main()
