"""The command behind `make bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from bench import burst, document, facts, latency, memory, single, thousand, traffic
from bench.breakdown import Where, where
from bench.environment import World, open_world
from bench.errors import BenchError
from bench.figures import Row, Verdict
from bench.table import markdown_table, terminal_table
from operator_runner.devcluster.errors import ClusterError

_WIDTH = 160
_PICTURE = Path("build/bench/where.svg")
_WHERE = "where"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    repetitions: int = 9
    """Pairs of measurements of which the median counts."""
    resources: int = 40
    herd: int = 1000


QUICK = Effort(repetitions=3, resources=6, herd=60)

GROUPS: Mapping[str, Callable[[World, Effort], Iterator[Row]]] = {
    "three": lambda world, effort: single.three_tasks(world, effort.repetitions),
    "edit": lambda world, effort: latency.edit(world, effort.repetitions),
    "empty": lambda world, effort: single.empty_role(world, effort.repetitions),
    "facts": lambda world, effort: facts.facts(world, effort.repetitions),
    "herd": lambda world, effort: burst.herd(world, effort.resources),
    "memory": lambda world, _: memory.weight(world),
    "thousand": lambda world, effort: thousand.thousand(world, effort.herd),
    "requests": lambda world, _: traffic.traffic(world),
}


@click.command()
@click.option("--quick", is_flag=True, help="Fewer repetitions and resources; a first look.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([*GROUPS, _WHERE]),
    help="Only this part; can be given several times.",
)
@click.option("--keep", is_flag=True, help="Write the results into docs/performance.md.")
def main(*, quick: bool, only: tuple[str, ...], keep: bool) -> None:
    """Measure, print the table, and end with 1 if a bar is missed."""
    console = Console(highlight=False)
    # In a file, lines may be as long as they are.
    console = console if console.is_terminal else Console(highlight=False, width=_WIDTH)
    begun = document.circumstances()
    try:
        rows, found = _measure(console, QUICK if quick else Effort(), only or (*GROUPS, _WHERE))
    except (BenchError, ClusterError) as error:
        console.print(f"The bench stops here: {error}", style="bold red", markup=False)
        sys.exit(1)
    _show(console, rows, found)
    if keep:
        _keep(rows, found, begun)
    sys.exit(any(row.verdict is Verdict.MISSED for row in rows))


def _measure(
    console: Console, effort: Effort, names: Sequence[str]
) -> tuple[list[Row], Where | None]:
    rows: list[Row] = []
    found = None
    with open_world() as world:
        for name in names:
            console.print(f"Measuring: {name} ...", style="dim")
            if name == _WHERE:
                found = where(world, effort.repetitions)
                continue
            for row in GROUPS[name](world, effort):
                rows.append(row)
                console.print("  ".join(filter(None, row.cells())), style="dim", markup=False)
    return rows, found


def _show(console: Console, rows: Sequence[Row], found: Where | None) -> None:
    if rows:
        console.print(terminal_table(rows))
    if found is not None:
        _PICTURE.parent.mkdir(parents=True, exist_ok=True)
        _PICTURE.write_text(found.picture)
        console.print(f"\nWhere the time of an edit goes (picture: {_PICTURE}):")
        console.print(found.text(), markup=False)


def _keep(rows: Sequence[Row], found: Where | None, begun: str) -> None:
    if rows:
        document.write_part("table", f"Measured: {begun} at the begin.\n\n{markdown_table(rows)}")
    if found is not None:
        document.write_part("where", f"```\n{found.text()}\n```")
        document.PICTURE.write_text(found.picture)


if __name__ == "__main__":
    main()
