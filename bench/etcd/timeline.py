"""Record the states of the members of a cluster of etcd over time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby

from bench.api import Api, Json, Kind
from bench.etcd.client import EtcdClient, NotAcknowledged

READY, UNREADY, LEARNER, LOST = "ready", "not ready", "learner", "without a Pod"
_POD = Kind("v1", "Pod")
_PAUSE_SECONDS = 0.2

Observation = tuple[float, Mapping[str, str]]
"""A time in seconds, and the state of each member by name."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A member is in a state from `begin` to `end`, in seconds."""

    member: str
    state: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A fault at a time, in seconds."""

    text: str
    at: float


def is_ready(pod: Json) -> bool:
    """Return whether the condition Ready of a Pod is True."""
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def states(pods: Sequence[Json], learners: Mapping[str, bool]) -> dict[str, str]:
    """Return the state of each member by name. Pure.

    `learners` has the members that etcd lists, and whether each is a learner. A Pod that is not a
    member yet, or no longer, counts too.
    """
    found = {name: LEARNER if learner else LOST for name, learner in learners.items()}
    for pod in pods:
        name = pod["metadata"]["name"]
        found[name] = LEARNER if learners.get(name) else READY if is_ready(pod) else UNREADY
    return found


def stays(observations: Sequence[Observation]) -> Iterator[Stay]:
    """Yield how long each member was in which state, by member and time. Pure."""
    times = [at for at, _ in observations]
    for member in sorted({member for _, found in observations for member in found}):
        seen = zip((found.get(member) for _, found in observations), times, times[1:], strict=False)
        for state, parts in groupby(seen, key=lambda part: part[0]):
            (_, begin, end), *others = parts
            if state is not None:
                yield Stay(member, state, begin, others[-1][2] if others else end)


@dataclass(slots=True)
class Timeline:
    """Observes Pods and members in a thread. Times are seconds since `recording` began."""

    api: Api
    namespace: str
    cluster: str
    client: EtcdClient
    """A client of the Service of the cluster."""
    marks: list[Mark] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    began: float = 0.0
    """By the monotonic clock."""
    _learners: Mapping[str, bool] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def recording(self) -> Iterator[Timeline]:
        """Record for as long as the context lasts."""
        self.began = time.monotonic()
        thread = threading.Thread(target=self._observe, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def now(self) -> float:
        """Return the time."""
        return time.monotonic() - self.began

    def _observe(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            # If no member can be reached, the last list is the best there is.
            with contextlib.suppress(NotAcknowledged):
                self._learners = self.client.learners()
            pods = [
                pod
                for pod in self.api.list(_POD, self.namespace)
                if pod["metadata"].get("labels", {}).get("etcd_cluster") == self.cluster
            ]
            self.observations.append((self.now(), states(pods, self._learners)))
