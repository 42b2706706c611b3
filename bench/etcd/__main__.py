"""Kill, stall, scale and upgrade at random.

The exit code is 1 if an acknowledged write is lost or the cluster does not settle; then the log of
the operator is kept.
"""

from __future__ import annotations

import random
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from bench.docs_page import circumstances, write_part
from bench.errors import BenchError
from bench.etcd.chaos import KIND, NAME, Chaos, Plan, Result
from bench.etcd.idle import IdlePass, Subject, idle_passes, nginx_operator
from bench.etcd.picture import svg
from bench.etcd.timeline import stays
from bench.table import name_table
from operator_runner.devcluster import Cluster
from operator_runner.devcluster.errors import ClusterError
from tests.support.examples import Example, running
from tests.support.kubectl import Kubectl

_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="Duration of the faults.")
@click.option("--seed", default=None, type=int, help="Random seed.  [default: random]")
@click.option("--picture", type=_FILE, help="Draw the members over time into this SVG file.")
@click.option("--keep", is_flag=True, help="Write the figures into docs/performance.md.")
def main(*, minutes: float, seed: int | None, picture: Path | None, keep: bool) -> None:
    """Run the example etcd under faults, on a local cluster of its own."""
    console = Console(highlight=False, soft_wrap=True)
    plan = Plan(minutes, random.randrange(10**6) if seed is None else seed)  # noqa: S311 (no secret)
    console.print(f"{plan.minutes:g} minutes, seed {plan.seed}")
    # SIGTERM cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cluster = Cluster(f"bench-etcd-{secrets.token_hex(3)}")
    try:
        cluster.up(install_packages=True)
        with (
            tempfile.TemporaryDirectory(prefix="operator-runner-bench-") as scratch,
            running("etcd", cluster, Path(scratch), outage=True) as example,
        ):
            for image in ("image.yaml", "image-3.5.yaml"):
                example.load_image(image)
            result = Chaos(example, plan, console).run()
            if picture is not None:
                picture.write_text(_drawn(result))
            failed = bool(result.lost or result.unsettled)
            # What an hour has shown must not be lost with what follows.
            _print(console, result)
            if failed:
                console.print(f"Log of the operator: {_kept_log(example)}", markup=False)
                idle = ""
            else:
                kubectl = Kubectl(cluster.bin / "kubectl", "default")
                subject = Subject(example.operator, kubectl, KIND, NAME)
                with nginx_operator(cluster, Path(scratch)) as other:
                    idle = _idle_table(*idle_passes(subject, other))
    except (BenchError, ClusterError) as error:
        console.print(f"Failed: {error}", style="bold red", markup=False)
        sys.exit(1)
    finally:
        cluster.down()
    if idle:
        console.print(idle, markup=False)
    if keep and not failed:
        head = f"Measured: {circumstances()}; {plan.minutes:g} minutes, seed {plan.seed}."
        table = name_table("faults", result.rows())
        write_part("etcd", f"{head}\n\n{table}\n\n{idle}")
    sys.exit(failed)


def _print(console: Console, result: Result) -> None:
    for name, problems in (("lost", result.lost), ("failed read", result.failed_reads)):
        for problem in problems[:10]:
            console.print(f"{name}: {problem}", markup=False)
    if result.unsettled:
        console.print(f"not settled: {result.unsettled}", markup=False)
    console.print(name_table("faults", result.rows()), markup=False)


def _kept_log(example: Example) -> Path:
    """Copy the log of the operator to where it stays."""
    folder = Path(tempfile.mkdtemp(prefix="bench-etcd-"))
    return Path(shutil.copy(example.operator.log_file, folder))


def _idle_table(own: IdlePass, nginx: IdlePass) -> str:
    """Return the duration of an unchanged pass, beside that of the nginx operator."""
    ratio = [("ratio", f"{own.seconds / nginx.seconds:.2f}")]
    ours = name_table("etcd: a pass with nothing to do", [*own.rows(), *ratio])
    return f"{ours}\n\n{name_table('nginx operator', nginx.rows())}"


def _drawn(result: Result) -> str:
    timeline = result.timeline
    title = "Members of a cluster of etcd under faults"
    return svg(list(stays(timeline.observations)), timeline.marks, result.silences, title)


if __name__ == "__main__":
    main()
