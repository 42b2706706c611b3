"""The command behind `make bench-cores`: warm runs against cold ones, with each ansible-core.

The operators of all versions, each warm and cold, reconcile in turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean

import click
from rich.console import Console

from bench import docs_page
from bench.api import NGINX, THREE, Kind
from bench.environment import BenchEnvironment, Setup, open_environment
from bench.figures import Goal, Row, ratio_row
from bench.steady import reconcile_steadily
from bench.table import markdown_table, terminal_table

_ROLES = {THREE: ("role of three tasks", {"size": 1}), NGINX: ("nginx operator", {"replicas": 1})}
_BATCHES = {"warm": 5, "cold": 1}
"""Reconciles in a measurement; cold ones take long enough."""
_TOLERANCE = 1.1
"""Of the ratio, to that of the first program."""
_PROGRAM = click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path)
"""Absolute, because operators start in directories of their own."""


@click.command()
@click.argument("programs", nargs=-1, required=True, type=_PROGRAM)
@click.option("--rounds", default=4, show_default=True, help="Measurements of each operator.")
@click.option("--keep", is_flag=True, help="Write the results into docs/performance.md.")
def main(*, programs: tuple[Path, ...], rounds: int, keep: bool) -> None:
    """Compare the CPU time of warm and cold runs of PROGRAMS, operator-runner in environments."""
    console = Console(highlight=False)
    measured = f"Measured: {docs_page.circumstances()} at the start."
    console.print(measured)
    with open_environment() as environment:
        rows = []
        for kind in _ROLES:
            for row in _compare(environment, kind, programs, rounds):
                console.print("  ".join(filter(None, row.cells())), markup=False)
                rows.append(row)
    console.print(terminal_table(rows))
    if keep:
        docs_page.write_part("cores", f"{measured}\n\n{markdown_table(rows)}")


def _compare(
    environment: BenchEnvironment, kind: Kind, programs: tuple[Path, ...], rounds: int
) -> Iterator[Row]:
    """Yield a row for each program."""
    name, spec = _ROLES[kind]
    with ExitStack() as stack:
        sites = {
            (program, executor): stack.enter_context(
                environment.site(Setup(kind, (f"--executor={executor}",), program=program))
            )
            for program in programs
            for executor in _BATCHES
        }
        for (_, executor), site in sites.items():
            site.api.create(kind, site.namespace, "a", spec)
            site.wait_for_end(1)
            # The first runs fill caches.
            reconcile_steadily(site, _BATCHES[executor])
        costs: dict[tuple[Path, str], list[float]] = {each: [] for each in sites}
        for _ in range(rounds):
            for each, site in sites.items():
                costs[each].append(reconcile_steadily(site, _BATCHES[each[1]]).cpu)
    goal = Goal()
    for program in programs:
        warm, cold = (fmean(costs[program, executor]) for executor in _BATCHES)
        yield ratio_row(f"{name}, {_versions(program)}, CPU", warm, cold, goal)
        if program == programs[0]:
            goal = Goal(None, _TOLERANCE * warm / cold)


def _versions(program: Path) -> str:
    """Return the versions of ansible-core and Python in the environment of a program."""
    pattern = "lib/python*/site-packages/ansible_core-*.dist-info"
    (found,) = program.parents[1].glob(pattern)
    core = found.name.removeprefix("ansible_core-").removesuffix(".dist-info")
    python = found.parts[-3].removeprefix("python")
    return f"ansible-core {core}, Python {python}"


if __name__ == "__main__":
    main()
