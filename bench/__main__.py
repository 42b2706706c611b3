"""The command behind `make bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import click
from rich.console import Console

from bench import herd, latency, single, thousand, traffic, weight
from bench.errors import BenchError
from bench.figures import Row, Verdict
from bench.table import terminal_table
from bench.world import World, open_world
from operator_runner.devcluster.errors import ClusterError

_WIDTH = 160


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
    "herd": lambda world, effort: herd.herd(world, effort.resources),
    "memory": lambda world, _: weight.weight(world),
    "thousand": lambda world, effort: thousand.thousand(world, effort.herd),
    "requests": lambda world, _: traffic.traffic(world),
}


@click.command()
@click.option("--quick", is_flag=True, help="Fewer repetitions and resources; a first look.")
@click.option(
    "--only", multiple=True, type=click.Choice(list(GROUPS)), help="Only these rows; repeatable."
)
def main(*, quick: bool, only: tuple[str, ...]) -> None:
    """Measure, print the table, and end with 1 if a bar is missed."""
    console = Console(highlight=False)
    # In a file, lines may be as long as they are.
    console = console if console.is_terminal else Console(highlight=False, width=_WIDTH)
    try:
        rows = _measure(console, QUICK if quick else Effort(), only or tuple(GROUPS))
    except (BenchError, ClusterError) as error:
        console.print(f"The bench stops here: {error}", style="bold red", markup=False)
        sys.exit(1)
    console.print(terminal_table(rows))
    sys.exit(any(row.verdict is Verdict.MISSED for row in rows))


def _measure(console: Console, effort: Effort, names: tuple[str, ...]) -> list[Row]:
    rows: list[Row] = []
    with open_world() as world:
        for name in names:
            console.print(f"Measuring: {name} ...", style="dim")
            for row in GROUPS[name](world, effort):
                rows.append(row)
                console.print("  ".join(filter(None, row.cells())), style="dim", markup=False)
    return rows


if __name__ == "__main__":
    main()
