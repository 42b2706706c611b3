"""Measure replicas that share resources; exit with 1 if a part fails or misses its bar."""

from __future__ import annotations

import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import click
import yaml
from rich.console import Console

from bench.document import DOCS, circumstances, write_part
from bench.errors import BenchError
from bench.scale.chaos import KIND, Chaos, Plan, Result
from bench.scale.many import Many, measure_many
from bench.scale.replicas import FLAGS, running
from bench.scale.throughput import Throughput, measure
from bench.table import name_table
from operator_runner.core.errors import OperatorRunnerError
from operator_runner.devcluster import Cluster
from operator_runner.devcluster.errors import ClusterError
from tests.support.audit_log import AuditLog, audited_cluster
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY

_PROJECT = REPOSITORY / "tests" / "functional" / "project"
_PAUSE, _LONG_PAUSE, _ENDLESS_PAUSE = 1, 6, 24 * 3600
"""Seconds that the role waits, with faults, for the throughput, and with many resources."""


class Figures(Protocol):
    """The result of a part."""

    @property
    def is_good(self) -> bool:
        """Whether its bars are met."""

    def rows(self) -> list[tuple[str, str]]:
        """Return all numbers with their names."""


@dataclass(frozen=True)
class Session:
    """A control plane with an audit log, and what the command was asked for."""

    cluster: Cluster
    scratch: Path
    replicas: int
    resources: int
    plan: Plan
    console: Console

    def throughput(self) -> Throughput:
        """Compare the runs of one replica with those of several."""
        folder = self._folder("throughput")
        return measure(self._kubectl(), _project(folder / "project", _LONG_PAUSE), folder)

    def many(self) -> Many:
        """Measure replicas that watch many resources."""
        folder = self._folder("many")
        project = _project(folder / "project", _ENDLESS_PAUSE)
        kubectl = self._kubectl()
        return measure_many(self.cluster, kubectl, project, folder / "replicas", self.resources)

    def faults(self) -> Result:
        """Fail replicas at random while resources are edited."""
        kubectl, folder = self._kubectl(), self._folder("faults")
        audit_log = AuditLog(self.cluster.home.log_of("audit"), kubectl.namespace)
        project = _project(folder / "project", _PAUSE)
        with running(kubectl, project, folder, self.replicas, FLAGS, started=False) as replicas:
            result = Chaos(replicas, kubectl, audit_log, self.plan, self.console).run()
        for problem in (*result.overlaps[:10], *result.unreconciled):
            self.console.print(problem, markup=False)
        slowest = sorted(result.takeovers, key=lambda each: each.seconds, reverse=True)
        for takeover in slowest[:5]:
            self.console.print(f"{takeover}", markup=False)
        return result

    def _kubectl(self) -> Kubectl:
        kubectl = Kubectl(self.cluster.bin / "kubectl", f"bench-{secrets.token_hex(3)}")
        kubectl("create", "namespace", kubectl.namespace)
        return kubectl

    def _folder(self, name: str) -> Path:
        folder = self.scratch / name
        folder.mkdir()
        return folder


_PARTS: Mapping[str, Callable[[Session], Figures]] = {
    "throughput": Session.throughput,
    "many resources": Session.many,
    "faults": Session.faults,
}


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="Duration of the faults.")
@click.option("--replicas", default=5, show_default=True, help="Number of replicas with faults.")
@click.option("--resources", default=10_000, show_default=True, help="Number of many resources.")
@click.option("--seed", default=None, type=int, help="Random seed.  [default: random]")
@click.option("--only", type=click.Choice([*_PARTS]), multiple=True, help="Measure this part.")
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
    parts = {name: _PARTS[name] for name in only or _PARTS}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="operator-runner-bench-") as folder,
            audited_cluster(Path(folder) / "policy.yaml", _PROJECT / "crd.yaml", KIND) as cluster,
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


def _project(target: Path, seconds: int) -> Path:
    """Write a project whose role waits before it writes."""
    shutil.copytree(_PROJECT, target)
    role = target / "roles" / "echo" / "tasks" / "main.yml"
    wait = {"name": "Wait", "ansible.builtin.pause": {"seconds": seconds}}
    role.write_text(yaml.safe_dump([wait, *yaml.safe_load(role.read_text())]))
    return target


if __name__ == "__main__":
    main()
