"""Random faults of replicas while resources are edited, judged by the API server's audit log."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from rich.console import Console

from bench.environment import wait_until
from bench.errors import BenchError
from bench.scale.replicas import LEASE_SECONDS, Replica
from tests.support.audit_log import AuditLog, Write
from tests.support.kubectl import Json, Kubectl

KIND = "echoes.test.example.com"
TAKEOVER_SECONDS = LEASE_SECONDS + 5.0
"""Limit of the time between a failure and the removal of the member."""
_RESOURCES = tuple(f"echo-{number}" for number in range(15))
_CONVERGENCE_SECONDS = 300.0
_OUTAGES = (3.0, 8.0, 14.0, 20.0)
"""Seconds of a freeze or cut: shorter and longer than the lease duration."""
_TERMINATE, _ROLL = "terminate", "rolling restart"
"""Not a failure: the member releases its slots itself."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration and random seed."""

    minutes: float
    seed: int
    pause: float = 15.0
    """Mean seconds between two faults."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A fault of a replica; after all but a termination it cannot renew its lease."""

    fault: str
    member: str
    begin: datetime


@dataclass(frozen=True, slots=True)
class Takeover:
    """The removal of a member that had failed."""

    failure: Failure
    seconds: float
    meanwhile: tuple[Failure, ...]
    """Failures of other members before the removal, and in the lease duration before."""

    def __str__(self) -> str:
        """Return what happened, with times relative to the failure."""
        begin = self.failure.begin
        others = [
            f"{each.fault} {each.member} at {(each.begin - begin).total_seconds():+.1f} s"
            for each in self.meanwhile
        ]
        text = f"{self.failure.fault} {self.failure.member}: removed after {self.seconds:.1f} s"
        return f"{text}; {', '.join(others) or 'no other faults'}"


@dataclass(frozen=True, slots=True)
class Result:
    """Results from the audit log and the logs of the replicas."""

    edits: int
    unreconciled: tuple[str, ...]
    """Resources whose last edit was not reconciled."""
    writes: int
    handovers: int
    """Changes of the writer of a resource."""
    overlaps: tuple[str, ...]
    """Writes that began before another replica's write of the same resource had ended."""
    takeovers: tuple[Takeover, ...]
    done: Counter[str]

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, and no resource had two writers."""
        late = [each for each in self.takeovers if each.seconds > TAKEOVER_SECONDS]
        return not (self.unreconciled or self.overlaps or late)

    def rows(self) -> list[tuple[str, str]]:
        """Return all numbers with their names."""
        times = [each.seconds for each in self.takeovers]
        longest = f"{max(times):.1f} s" if times else "none"
        return [
            ("edits", str(self.edits)),
            ("edits that were not reconciled", str(len(self.unreconciled))),
            ("writes of the replicas", str(self.writes)),
            ("resources that changed their replica", str(self.handovers)),
            ("writes of two replicas at the same time", str(len(self.overlaps))),
            ("members removed after a failure", str(len(self.takeovers))),
            (f"longest time until then (lease duration {LEASE_SECONDS} s)", longest),
            *((f"fault: {name}", str(count)) for name, count in sorted(self.done.items())),
        ]


@dataclass
class Chaos:
    """Replicas and their faults."""

    replicas: Sequence[Replica]
    kubectl: Kubectl
    audit_log: AuditLog
    plan: Plan
    console: Console
    done: Counter[str] = field(default_factory=Counter)
    _active: Sequence[Replica] = ()
    """The replicas that have been started and are to run."""
    _edits: int = 0
    _expected: dict[str, str] = field(default_factory=dict)
    _failures: list[Failure] = field(default_factory=list)
    _rolling: list[Replica] = field(default_factory=list)
    """Replicas that a rolling restart has yet to terminate."""
    _outages: dict[str, float] = field(default_factory=dict)
    """End of the freeze or cut of a replica, by its name."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.plan.seed)  # noqa: S311 (no secret)

    def run(self) -> Result:
        """Scale from one replica to all, inject faults, scale to one, and return the result.

        Raises BenchError if the replicas do not become ready.
        """
        self._scale(1)
        self._scale(len(self.replicas))
        self._inject_faults()
        self._end_outages(force=True)
        try:
            self._settle()
            self._scale(1)
        except BenchError as error:
            self.console.print(f"{error}", markup=False)
        return self._result()

    def _scale(self, count: int) -> None:
        """Start or stop replicas; return when the first `count` have reconciled all resources."""
        active = len(self._active)
        for replica in self.replicas[count:active]:
            replica.stop()
        for replica in self.replicas[active:count]:
            replica.start()
        self._active = self.replicas[:count]
        self._edit(*_RESOURCES)
        self._settle()
        self.console.print(f"replicas: {count}; all resources are reconciled", markup=False)

    def _settle(self) -> None:
        what = f"all edits reconciled by {len(self._active)} replicas"
        wait_until(self._is_settled, what, _CONVERGENCE_SECONDS, every=1)

    def _inject_faults(self) -> None:
        actions: Mapping[str, Callable[[Replica], None]] = {
            "kill": self._kill,
            _TERMINATE: self._terminate,
            "freeze": self._freeze,
            "cut the network": self._cut,
            _ROLL: self._roll,
        }
        # Each fault occurs at least once.
        due = self._chance.sample(sorted(actions), len(actions))
        begin = time.monotonic()
        next_fault = begin
        while True:
            passed = time.monotonic() - begin
            has_time = passed < self.plan.minutes * 60 or bool(due)
            if not (has_time or self._rolling):
                return
            self._edit(self._chance.choice(_RESOURCES))
            self._end_outages()
            self._restart_ended()
            self._continue_rolling()
            healthy = [each for each in self.replicas if each.name not in self._outages]
            is_due = has_time and time.monotonic() >= next_fault
            if is_due and len(healthy) > len(self.replicas) / 2:
                name = due.pop() if due else self._chance.choice(sorted(actions))
                replica = self._chance.choice(healthy)
                actions[name](replica)
                self.done[name] += 1
                self.console.print(f"{passed:.0f} s: {name} {replica.name}", markup=False)
                next_fault = time.monotonic() + self._chance.expovariate(1 / self.plan.pause)
            time.sleep(self._chance.uniform(0.2, 0.6))

    def _kill(self, replica: Replica) -> None:
        self._fails("kill", replica)
        replica.kill()

    def _terminate(self, replica: Replica) -> None:
        self._fails(_TERMINATE, replica)
        replica.terminate()

    def _roll(self, _: Replica) -> None:
        self._rolling = list(self._active)

    def _continue_rolling(self) -> None:
        """Terminate the next replica once all are ready, as an update of a Deployment does."""
        if self._rolling and not self._outages and self._all_ready():
            self._terminate(self._rolling.pop())

    def _freeze(self, replica: Replica) -> None:
        self._fails("freeze", replica)
        replica.freeze(runs=self._chance.random() < 1 / 2)
        self._begin_outage(replica)

    def _cut(self, replica: Replica) -> None:
        self._fails("cut the network", replica)
        replica.cut()
        self._begin_outage(replica)

    def _begin_outage(self, replica: Replica) -> None:
        self._outages[replica.name] = time.monotonic() + self._chance.choice(_OUTAGES)

    def _end_outages(self, *, force: bool = False) -> None:
        for replica in self.replicas:
            end = self._outages.get(replica.name)
            if end is not None and (force or time.monotonic() >= end):
                del self._outages[replica.name]
                replica.thaw()

    def _restart_ended(self) -> None:
        for replica in self._active:
            if replica.restart_if_ended():
                self.done["process that ended"] += 1

    def _fails(self, fault: str, replica: Replica) -> None:
        if member := replica.member():
            self._failures.append(Failure(fault, member, datetime.now(UTC)))

    def _edit(self, *names: str) -> None:
        for name in names:
            self._edits += 1
            self._expected[name] = f"edit {self._edits}"
        self.kubectl.apply(*(echo(name, self._expected[name]) for name in names))

    def _all_ready(self) -> bool:
        return all(replica.is_ready() for replica in self._active)

    def _unreconciled(self) -> list[str]:
        found = {each["metadata"]["name"]: each for each in self.kubectl.list("configmaps")}
        return [
            name
            for name, text in self._expected.items()
            if found.get(name, {}).get("data") != {"text": f"hello {text}"}
        ]

    def _is_settled(self) -> bool:
        self._restart_ended()
        return self._all_ready() and not self._unreconciled()

    def _result(self) -> Result:
        writes = [each for each in self.audit_log.writes() if each.name in self._expected]
        changes = list(handovers(writes))
        return Result(
            edits=self._edits,
            unreconciled=tuple(self._unreconciled()),
            writes=len(writes),
            handovers=len(changes),
            overlaps=tuple(f"{old} {new}" for old, new in changes if old.completed >= new.received),
            takeovers=tuple(self._takeovers()),
            done=self.done,
        )

    def _takeovers(self) -> list[Takeover]:
        removals = {
            member: at for replica in self.replicas for member, at in replica.removals().items()
        }
        return list(takeovers(self._failures, removals))


def takeovers(failures: Sequence[Failure], removals: Mapping[str, datetime]) -> Iterator[Takeover]:
    """Yield the takeover of each removed member from its failure.

    That is its last failure before: members survive outages that are shorter than the lease.
    """
    for member, removed in removals.items():
        before = [each for each in failures if each.begin <= removed]
        if own := [each for each in before if each.member == member and each.fault != _TERMINATE]:
            failure = max(own, key=lambda each: each.begin)
            since = failure.begin - timedelta(seconds=LEASE_SECONDS)
            others = [each for each in before if each.member != member and each.begin >= since]
            seconds = (removed - failure.begin).total_seconds()
            yield Takeover(failure, seconds, tuple(others))


def handovers(writes: Sequence[Write]) -> Iterator[tuple[Write, Write]]:
    """Yield the last write of a replica to a resource, and the first of the next replica.

    `writes` are in the order in which they were received.
    """
    for name in {each.name for each in writes}:
        for old, new in pairwise(each for each in writes if each.name == name):
            if old.account != new.account:
                yield old, new


def echo(name: str, text: str) -> Json:
    """Return a resource."""
    return {
        "apiVersion": "test.example.com/v1",
        "kind": "Echo",
        "metadata": {"name": name},
        "spec": {"sayThis": text},
    }
