"""The command behind `make bench-patches`: the gain of each patch of ansible-core.

Two operators reconcile in turns, one with all patches, the other without one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from bench import docs_page
from bench.api import FILES, LONG, THREE, Kind
from bench.environment import BenchEnvironment, Setup, Site, open_environment
from bench.figures import Cost, percent
from bench.steady import reconcile_steadily
from operator_runner.ansible.patches.registry import switchable_names

_ROLES = {kind.name.lower(): kind for kind in (THREE, LONG, FILES)}
_DISABLED = "OPERATOR_RUNNER_DISABLE_PATCHES"
_SWITCHABLE = switchable_names()


@dataclass(frozen=True, slots=True)
class Gain:
    """Costs of a reconcile with a patch and without it, measured in turns."""

    patch: str
    pairs: tuple[tuple[Cost, Cost], ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """Return patch, medians of the CPU time, and medians of what the patch saves."""
        with_it, without = (Cost.median(costs) for costs in zip(*self.pairs, strict=True))
        cpu = median(1 - ours.cpu / other.cpu for ours, other in self.pairs)
        wall = median(1 - ours.wall / other.wall for ours, other in self.pairs)
        seconds = (f"{cost.cpu:.3f} s" for cost in (with_it, without))
        return (self.patch, *seconds, percent(cpu), percent(wall))


@click.command()
@click.argument("patches", nargs=-1, type=click.Choice(_SWITCHABLE))
@click.option("--role", type=click.Choice(tuple(_ROLES)), default="long", show_default=True)
@click.option("--pairs", default=8, show_default=True, help="Measurements of each operator.")
@click.option("--batch", default=1, show_default=True, help="Reconciles in a measurement.")
def main(*, patches: tuple[str, ...], role: str, pairs: int, batch: int) -> None:
    """Print what each of PATCHES gains, all of them by default."""
    console = Console(highlight=False)
    table = Table("patch", "with it", "without", "CPU time", "wall time")
    console.print(f"Role: {role}; {pairs} pairs; {docs_page.circumstances()} at the start")
    with open_environment() as environment:
        for gain in measure_gains(environment, patches or _SWITCHABLE, _ROLES[role], pairs, batch):
            console.print("  ".join(gain.cells))
            table.add_row(*gain.cells)
    console.print(table)


def measure_gains(
    environment: BenchEnvironment, patches: tuple[str, ...], kind: Kind, pairs: int, batch: int
) -> Iterator[Gain]:
    """Yield the gain of each patch."""
    with environment.site(Setup(kind)) as all_patches:
        _prepare(all_patches, batch)
        for patch in patches:
            setup = Setup(kind, environment={_DISABLED: patch})
            with environment.site(setup) as without:
                _prepare(without, batch)
                sites = (all_patches, without)
                measured = [
                    tuple(reconcile_steadily(site, batch) for site in sites) for _ in range(pairs)
                ]
            yield Gain(patch, tuple((ours, other) for ours, other in measured))


def _prepare(site: Site, batch: int) -> None:
    """Create the resource; its first runs fill the caches."""
    site.api.create(site.setup.kind, site.namespace, "a", {"size": 1})
    site.wait_for_end(1)
    reconcile_steadily(site, batch)


if __name__ == "__main__":
    main()
