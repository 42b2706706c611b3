"""Measure replicas that share resources; exit with 1 if a part fails or misses its limit."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from bench.docs_page import DOCS, circumstances, write_part
from bench.errors import BenchError
from bench.scale.chaos import KIND, Plan
from bench.scale.session import PARTS, PROJECT, Figures, Session
from bench.table import name_table
from operator_runner.core.errors import OperatorRunnerError
from operator_runner.devcluster.errors import ClusterError
from tests.support.audit_log import audited_cluster


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="Duration of the faults.")
@click.option("--replicas", default=5, show_default=True, help="Number of replicas with faults.")
@click.option("--resources", default=10_000, show_default=True, help="Number of many resources.")
@click.option("--seed", default=None, type=int, help="Random seed.  [default: random]")
@click.option("--only", type=click.Choice([*PARTS]), multiple=True, help="Measure this part.")
@click.option("--keep", is_flag=True, help="Write the figures into docs/scaling.md.")
def main(
    *,
    minutes: float,
    replicas: int,
    resources: int,
    seed: int | None,
    only: tuple[str, ...],
    keep: bool,
) -> None:
    """Run replicas that share resources, on a control plane of their own."""
    console = Console(highlight=False, soft_wrap=True)
    plan = Plan(minutes, random.randrange(10**6) if seed is None else seed)  # noqa: S311 (no secret)
    setup = f"{minutes:g} minutes, {replicas} replicas, seed {plan.seed}"
    console.print(setup)
    # SIGTERM cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parts = {name: PARTS[name] for name in only or PARTS}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="operator-runner-bench-") as folder,
            audited_cluster(Path(folder) / "policy.yaml", PROJECT / "crd.yaml", KIND) as cluster,
        ):
            session = Session(cluster, Path(folder), replicas, resources, plan, console)
            found = {name: _figures(session, name, part) for name, part in parts.items()}
    except ClusterError as error:
        console.print(f"Failed: {error}", style="bold red", markup=False)
        sys.exit(1)
    measured = {name: figures for name, figures in found.items() if figures is not None}
    text = "\n\n".join(name_table(name, figures.rows()) for name, figures in measured.items())
    console.print(text, markup=False)
    if keep and measured:
        head = f"Measured: {circumstances()}; {setup}."
        write_part("scale", f"{head}\n\n{text}", DOCS / "scaling.md")
    all_good = len(measured) == len(parts) and all(each.is_good for each in measured.values())
    sys.exit(not all_good)


def _figures(session: Session, name: str, part: Callable[[Session], Figures]) -> Figures | None:
    """Return the figures of a part, None if it failed: the others are measured all the same."""
    try:
        figures = part(session)
    # An assertion is that of kubectl, whose output it has.
    except (
        BenchError,
        OperatorRunnerError,
        AssertionError,
        OSError,
        subprocess.SubprocessError,
    ) as error:
        session.console.print(f"Failed: {name}: {error}", style="bold red", markup=False)
        return None
    session.console.print(name_table(name, figures.rows()), markup=False)
    return figures


if __name__ == "__main__":
    main()
