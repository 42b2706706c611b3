"""Kill, stall, scale and upgrade at random; exit with 1 if an acknowledged write is lost."""

from __future__ import annotations

import random
import secrets
import signal
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from bench.errors import BenchError
from bench.etcd.chaos import Chaos, Plan
from bench.etcd.idle import nginx_idle_seconds
from operator_runner.devcluster import Cluster
from operator_runner.devcluster.errors import ClusterError
from tests.support.examples import running


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="Duration of the faults.")
@click.option("--seed", default=None, type=int, help="Random seed.  [default: random]")
def main(*, minutes: float, seed: int | None) -> None:
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
            example.operator.kill()
            nginx = nginx_idle_seconds(cluster, Path(scratch))
    except (BenchError, ClusterError) as error:
        console.print(f"Failed: {error}", style="bold red", markup=False)
        sys.exit(1)
    finally:
        cluster.down()
    console.print(result.table(), markup=False)
    ratio = f"{result.idle / nginx:.2f} times the nginx operator's {nginx:.2f} s"
    console.print(f"A pass with nothing to do takes {ratio}")
    sys.exit(bool(result.lost))


if __name__ == "__main__":
    main()
