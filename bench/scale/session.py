"""The parts of the bench, on one control plane with an audit log."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml
from rich.console import Console

from bench.scale.chaos import Chaos, Plan, Result
from bench.scale.many import Many, measure_many
from bench.scale.replicas import FLAGS, running
from bench.scale.throughput import Throughput, measure
from operator_runner.devcluster import Cluster
from tests.support.audit_log import AuditLog
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY

PROJECT = REPOSITORY / "tests" / "functional" / "project"
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


PARTS: Mapping[str, Callable[[Session], Figures]] = {
    "throughput": Session.throughput,
    "many resources": Session.many,
    "faults": Session.faults,
}


def _project(target: Path, seconds: int) -> Path:
    """Write a project whose role waits before it writes."""
    shutil.copytree(PROJECT, target)
    role = target / "roles" / "echo" / "tasks" / "main.yml"
    wait = {"name": "Wait", "ansible.builtin.pause": {"seconds": seconds}}
    role.write_text(yaml.safe_dump([wait, *yaml.safe_load(role.read_text())]))
    return target
