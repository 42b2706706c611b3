"""Random faults of a cluster of etcd whose client records each acknowledged write."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console

from bench.environment import wait_until
from bench.errors import BenchError
from bench.etcd.client import EtcdClient
from bench.etcd.idle import idle_seconds
from bench.etcd.writer import Writer
from bench.faults import stall_api_server
from tests.support.examples import Example
from tests.support.kubectl import Json, Kubectl

KIND = "etcdclusters.etcd.database.coreos.com"
NAME = "chaos"
OLDER, VERSION = "3.5.35", "3.6.8"
_SIZES = (3, 5)
_CONVERGENCE_SECONDS = 400.0
_STEPS = ("Change the members", "Create the Pod chaos", "Delete its Pod", "Upgrade a member")
"""Beginnings of the names of tasks that take a step."""
_WEIGHTS = {"kill member": 4, "kill operator": 4, "stall API server": 2, "scale": 3}


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration and random seed."""

    minutes: float
    seed: int
    pause: float = 3.0
    """Mean seconds between two faults."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the client and the log of the operator show afterwards."""

    acknowledged: int
    lost: int
    failed_reads: int
    unavailable: float
    done: Counter[str]
    steps: Counter[str]
    idle: float
    """Median seconds of a pass with nothing to do."""

    def table(self) -> str:
        """Return all numbers as a Markdown table."""
        rows = [
            ("acknowledged writes", str(self.acknowledged)),
            ("lost writes", str(self.lost)),
            ("failed reads", str(self.failed_reads)),
            ("seconds without an acknowledgement", f"{self.unavailable:.1f}"),
            ("seconds of a pass with nothing to do", f"{self.idle:.2f}"),
            *((name, str(count)) for name, count in sorted(self.done.items())),
            *((f"task: {name}", str(count)) for name, count in sorted(self.steps.items())),
        ]
        return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)])


@dataclass(slots=True)
class Chaos:
    """A running cluster of etcd and its faults."""

    example: Example
    plan: Plan
    console: Console
    namespace: str = "default"
    done: Counter[str] = field(default_factory=Counter)
    _kubectl: Kubectl = field(init=False)
    _chance: random.Random = field(init=False)
    _size: int = _SIZES[0]

    def __post_init__(self) -> None:
        self._kubectl = Kubectl(self.example.system.program, self.namespace)
        self._chance = random.Random(self.plan.seed)  # noqa: S311 (no secret)

    def run(self) -> Result:
        """Return the result. Raises BenchError if the cluster does not converge."""
        self._kubectl.apply(_resource(self._size))
        self._wait_until_settled()
        address = (self._kubectl.get("service", f"{NAME}-client") or {})["spec"]["clusterIP"]
        with Writer(EtcdClient(f"{address}:2379")).writing() as writer:
            self._inject_faults(writer)
            self._wait_until_settled()
            target = len(writer.acknowledged) + 10
            wait_until(lambda: len(writer.acknowledged) >= target, "writes go on", 60, every=0.1)
        lost = writer.lost()
        for key in sorted(lost)[:10]:
            self.console.print(f"lost: {key}", markup=False)
        for read in writer.failed_reads[:10]:
            self.console.print(f"failed read: {read}", markup=False)
        return Result(
            len(writer.acknowledged),
            len(lost),
            len(writer.failed_reads),
            writer.unavailable_seconds(),
            self.done,
            self._steps(),
            idle_seconds(self.example.operator, self._kubectl, KIND, NAME),
        )

    def _inject_faults(self, writer: Writer) -> None:
        actions: dict[str, Callable[[], bool]] = {
            "kill member": self._kill_member,
            "kill operator": self._kill_operator,
            "stall API server": self._stall,
            "scale": self._scale,
        }
        begin, length, upgraded = time.monotonic(), self.plan.minutes * 60, False
        # Each fault occurs at least once.
        due = self._chance.sample(sorted(actions), len(actions))
        while (passed := time.monotonic() - begin) < length or due:
            if not upgraded and passed > length / 2:
                upgraded = self._upgrade()
                self.done["upgrade"] += 1
            (name,) = due[-1:] or self._chance.choices([*_WEIGHTS], [*_WEIGHTS.values()])
            if actions[name]():
                self.done[name] += 1
                due = due[:-1]
                count = len(writer.acknowledged)
                self.console.print(f"{passed:.0f} s: {name}; {count} writes", markup=False)
            time.sleep(self._chance.expovariate(1 / self.plan.pause))

    def _kill_member(self) -> bool:
        """Kill one Pod, if the others are a majority of what was asked for."""
        found = self._kubectl.list("pods", f"etcd_cluster={NAME}")
        ready = [pod["metadata"]["name"] for pod in found if _is_ready(pod)]
        if len(ready) < len(found) or len(ready) < _SIZES[0]:
            return False
        name = self._chance.choice(ready)
        self._kubectl("delete", "pod", name, "--grace-period=0", "--force")
        return True

    def _kill_operator(self) -> bool:
        operator = self.example.operator
        operator.kill()
        # It does not wait for the lease of the one that was killed.
        arguments = [a for a in self.example.arguments if "--leader-elect" not in a]
        operator.start(*arguments)
        return True

    def _stall(self) -> bool:
        stall_api_server(self.example.cluster)
        return True

    def _scale(self) -> bool:
        self._size = self._chance.choice([size for size in _SIZES if size != self._size])
        self._kubectl.merge(KIND, NAME, {"spec": {"size": self._size}})
        return True

    def _upgrade(self) -> bool:
        self._kubectl.merge(KIND, NAME, {"spec": {"version": VERSION}})
        return True

    def _wait_until_settled(self) -> None:
        try:
            wait_until(self._is_settled, "the cluster is settled", _CONVERGENCE_SECONDS, every=0.5)
        except BenchError as error:
            status = (self._kubectl.get(KIND, NAME) or {}).get("status")
            raise BenchError(f"{error}; its status is {status}") from None

    def _is_settled(self) -> bool:
        body = self._kubectl.get(KIND, NAME) or {}
        status, version = body.get("status", {}), body.get("spec", {}).get("version")
        if status.get("phase") != "Running" or status["reason"] != "":
            return False
        ready = len(status["members"]["ready"])
        return bool(status["currentVersion"] == version and ready == self._size == status["voters"])

    def _steps(self) -> Counter[str]:
        names = [str(line["task"]) for line in self.example.operator.lines("[playbook task]")]
        return Counter(step for name in names for step in _STEPS if name.startswith(step))


def _resource(size: int) -> Json:
    return {
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": NAME},
        "spec": {"size": size, "version": OLDER},
    }


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
