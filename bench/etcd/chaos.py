"""Random faults of a cluster of etcd whose client records each acknowledged write."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rich.console import Console

from bench.api import Api
from bench.environment import wait_until
from bench.errors import BenchError
from bench.etcd.client import EtcdClient, NotAcknowledged
from bench.etcd.timeline import Mark, Timeline, is_ready
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
    """Results from the client and the log of the operator."""

    acknowledged: int
    lost: tuple[str, ...]
    """Keys of acknowledged writes that the cluster does not have."""
    failed_reads: tuple[str, ...]
    silences: tuple[tuple[float, float], ...]
    """Begin and end of each time without an acknowledgement, in seconds of the timeline."""
    done: Counter[str]
    """How often each fault occurred."""
    steps: Counter[str]
    """How often each step of the operator was taken."""
    timeline: Timeline
    unsettled: str = ""
    """Why the cluster did not settle after the faults; empty if it did."""

    def rows(self) -> list[tuple[str, str]]:
        """Return all numbers with their names."""
        silent = sorted(end - begin for begin, end in self.silences)
        return [
            ("acknowledged writes", str(self.acknowledged)),
            ("lost writes", str(len(self.lost))),
            ("failed reads", str(len(self.failed_reads))),
            ("unavailability: seconds without an acknowledgement", f"{sum(silent):.1f}"),
            ("longest of these times", f"{silent[-1] if silent else 0:.1f} s"),
            *((f"fault: {name}", str(count)) for name, count in sorted(self.done.items())),
            *((f"step: {name}", str(count)) for name, count in sorted(self.steps.items())),
        ]


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
        """Return the result. Raises BenchError if the cluster is not settled before the faults.

        One that is not settled after them is part of the result, as its losses count all the more.
        """
        since = len(self._tasks())
        self._kubectl.apply(_resource(self._size))
        self._wait_until_settled()
        address = (self._kubectl.get("service", f"{NAME}-client") or {})["spec"]["clusterIP"]
        client = EtcdClient(f"{address}:2379")
        cluster = self.example.cluster
        api = Api(cluster.kubeconfig, self.example.operator.scratch / "discovery.json")
        timeline = Timeline(api, self.namespace, NAME, client)
        with timeline.recording(), Writer(client).writing() as writer:
            self._inject_faults(writer, timeline)
            unsettled = self._settle(writer)
        return Result(
            acknowledged=len(writer.acknowledged),
            lost=tuple(sorted(writer.lost())),
            failed_reads=tuple(writer.failed_reads),
            silences=tuple(
                (begin - timeline.began, end - timeline.began) for begin, end in writer.silences()
            ),
            done=self.done,
            steps=_steps(self._tasks()[since:]),
            timeline=timeline,
            unsettled=unsettled,
        )

    def _settle(self, writer: Writer) -> str:
        """Wait until the cluster is settled and takes writes; return why it is not, or nothing."""
        try:
            self._wait_until_settled()
            target = len(writer.acknowledged) + 10
            wait_until(lambda: len(writer.acknowledged) >= target, "writes go on", 60, every=0.1)
        except BenchError as error:
            return str(error)
        return ""

    def _inject_faults(self, writer: Writer, timeline: Timeline) -> None:
        actions: dict[str, Callable[[], str]] = {
            "kill member": lambda: self._kill_member(timeline),
            "kill operator": self._kill_operator,
            "stall API server": self._stall,
            "scale": self._scale,
        }
        begin, length, upgraded = time.monotonic(), self.plan.minutes * 60, False
        # Each fault occurs at least once.
        due = self._chance.sample(sorted(actions), len(actions))
        while (passed := time.monotonic() - begin) < length or due:
            if not upgraded and passed > length / 2:
                self._kubectl.merge(KIND, NAME, {"spec": {"version": VERSION}})
                upgraded = True
                timeline.marks.append(Mark(f"upgrade to {VERSION}", timeline.now()))
                self.done["upgrade"] += 1
            (name,) = due[-1:] or self._chance.choices([*_WEIGHTS], [*_WEIGHTS.values()])
            mark = timeline.now()
            if what := actions[name]():
                timeline.marks.append(Mark(what, mark))
                self.done[name] += 1
                due = due[:-1]
                count = len(writer.acknowledged)
                self.console.print(f"{passed:.0f} s: {name}; {count} writes", markup=False)
            time.sleep(self._chance.expovariate(1 / self.plan.pause))

    def _kill_member(self, timeline: Timeline) -> str:
        """Kill a ready Pod, if the others still are a majority of the members."""
        try:
            learners = timeline.client.learners()
        except NotAcknowledged:
            return ""
        pods = self._kubectl.list("pods", f"etcd_cluster={NAME}")
        ready = [pod["metadata"]["name"] for pod in pods if is_ready(pod)]
        voters = [name for name, learner in learners.items() if not learner]
        names = sorted({*ready} & {*voters})
        if len(names) - 1 < len(voters) // 2 + 1:
            return ""
        name = self._chance.choice(names)
        # The operator may have removed it meanwhile.
        flags = ("--grace-period=0", "--force", "--ignore-not-found")
        return f"kill {name}" if self._kubectl("delete", "pod", name, *flags) else ""

    def _kill_operator(self) -> str:
        operator = self.example.operator
        operator.kill()
        # It does not wait for the lease of the one that was killed.
        arguments = [a for a in self.example.arguments if "--leader-elect" not in a]
        operator.start(*arguments)
        return "kill operator"

    def _stall(self) -> str:
        stall_api_server(self.example.cluster)
        return "stall API server"

    def _scale(self) -> str:
        self._size = self._chance.choice([size for size in _SIZES if size != self._size])
        self._kubectl.merge(KIND, NAME, {"spec": {"size": self._size}})
        return f"scale to {self._size}"

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

    def _tasks(self) -> list[str]:
        """Return the names of the tasks that have ended."""
        lines = self.example.operator.lines("[playbook task]")
        return [str(line["task"]) for line in lines if line["namespace"] == self.namespace]


def _steps(tasks: Iterable[str]) -> Counter[str]:
    return Counter(step for task in tasks for step in _STEPS if task.startswith(step))


def _resource(size: int) -> Json:
    return {
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": NAME},
        "spec": {"size": size, "version": OLDER},
    }
