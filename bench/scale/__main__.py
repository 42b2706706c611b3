"""Fail replicas at random, and compare throughputs; exit with 1 if a bar is missed."""

from __future__ import annotations

import json
import random
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
import yaml
from rich.console import Console

from bench.document import DOCS, circumstances, write_part
from bench.errors import BenchError
from bench.scale.chaos import KIND, Chaos, Plan, Result
from bench.scale.replicas import FLAGS, running
from bench.scale.throughput import Throughput, measure
from bench.table import name_table
from operator_runner.devcluster.errors import ClusterError
from tests.support.audit_log import AuditLog, audited_cluster
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY

_PROJECT = REPOSITORY / "tests" / "functional" / "project"
_PAUSE, _LONG_PAUSE = 1, 6
"""Seconds that the role waits, with faults and for the throughput."""
_MIN_RATIO = 2.7


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="Duration of the faults.")
@click.option("--replicas", default=4, show_default=True, help="Number of operator processes.")
@click.option("--seed", default=None, type=int, help="Random seed.  [default: random]")
@click.option("--keep", is_flag=True, help="Write the figures into docs/scaling.md.")
def main(*, minutes: float, replicas: int, seed: int | None, keep: bool) -> None:
    """Run replicas that share resources, on a control plane of their own."""
    console = Console(highlight=False, soft_wrap=True)
    plan = Plan(minutes, random.randrange(10**6) if seed is None else seed)  # noqa: S311 (no secret)
    console.print(f"{plan.minutes:g} minutes, {replicas} replicas, seed {plan.seed}")
    # SIGTERM cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory(prefix="operator-runner-bench-") as scratch:
            throughput, result = _measure(Path(scratch), replicas, plan, console)
    except (BenchError, ClusterError) as error:
        console.print(f"Failed: {error}", style="bold red", markup=False)
        sys.exit(1)
    for problem in (*result.overlaps[:10], *result.unreconciled):
        console.print(problem, markup=False)
    text = "\n\n".join(
        [name_table("throughput", throughput.rows()), name_table("faults", result.rows())]
    )
    console.print(text, markup=False)
    if keep:
        setup = f"{minutes:g} minutes, {replicas} replicas, seed {plan.seed}"
        head = f"Measured: {circumstances()}; {setup}."
        write_part("scale", f"{head}\n\n{text}", DOCS / "scaling.md")
    sys.exit(not (result.is_good and throughput.ratio >= _MIN_RATIO))


def _measure(scratch: Path, count: int, plan: Plan, console: Console) -> tuple[Throughput, Result]:
    with audited_cluster(scratch / "policy.yaml", _PROJECT / "crd.yaml", KIND) as cluster:
        kubectl = Kubectl(cluster.bin / "kubectl", f"bench-{secrets.token_hex(3)}")
        kubectl("create", "namespace", kubectl.namespace)
        throughput = measure(kubectl, _project(scratch / "waiting", _LONG_PAUSE), scratch)
        console.print(name_table("throughput", throughput.rows()), markup=False)
        audit_log = AuditLog(cluster.home.log_of("audit"), kubectl.namespace)
        project = _project(scratch / "project", _PAUSE)
        with running(kubectl, project, scratch, count, FLAGS) as replicas:
            result = Chaos(replicas, kubectl, audit_log, plan, console).run()
    return throughput, result


def _project(target: Path, seconds: int) -> Path:
    """Write a project whose role waits before it writes."""
    shutil.copytree(_PROJECT, target)
    role = target / "roles" / "echo" / "tasks" / "main.yml"
    wait = {"name": "Wait", "ansible.builtin.pause": {"seconds": seconds}}
    role.write_text(json.dumps([wait, *yaml.safe_load(role.read_text())]))
    return target


if __name__ == "__main__":
    main()
