"""Divide a reconcile into time spans, from its log, events, processes and requests. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bench.process_timeline import ProcessLifetime
from bench.recorder import Request

LANES = ("operator", "play", "processes", "API")
_PLAY = 2
"""Depth of a play below the fork server; its forks are deeper."""
_ENDS = {"runner_on_ok", "runner_on_failed", "runner_on_skipped"}


@dataclass(frozen=True, slots=True)
class Span:
    """A time span; `begin` and `end` are milliseconds since the edit."""

    lane: str
    name: str
    begin: float
    end: float

    @property
    def length(self) -> float:
        """Milliseconds."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Traces:
    """Observations of one reconcile, which an edit started. Times are Unix timestamps."""

    edited: float
    prepared: float
    """Time at which the private data dir was complete."""
    log: Sequence[dict[str, Any]]
    """Lines of the operator's log, with `ts` and `msg`."""
    events: Sequence[dict[str, Any]]
    """ansible-runner's events."""
    lifetimes: Sequence[ProcessLifetime]
    """Processes below the fork server."""
    requests: Sequence[Request]

    def spans(self) -> list[Span]:
        """Return all spans; those of the lanes operator and play are consecutive."""
        tasks = list(self._tasks())
        # The one for the next run may be there already before it, or soon after.
        head = min(self._heads(tasks), key=lambda lifetime: lifetime.end)
        over, run = head.end, self._below(head)
        marks = [
            ("edit to event", self._logged("Queued")),
            ("queue", self._logged("Reconciling")),
            ("read, status, private data dir", self.prepared),
            ("run", over),
            ("report", max(self._logged("Reconciled"), over)),
        ]
        times = [self.edited, *(at for _, at in marks)]
        operator = [
            self._span("operator", name, begin, end)
            for (name, _), (begin, end) in zip(marks, itertools.pairwise(times), strict=True)
        ]
        first, last = tasks[0].begin, tasks[-1].end
        start, stop = self._ms(self.prepared), self._ms(over)
        play = [
            # Zero if the play was forked before the run was requested.
            Span("play", "fork", start, forked := max(start, self._ms(run[0].begin))),
            Span("play", "play set-up", forked, first),
            *_with_gaps(tasks),
            Span("play", "end of play", last, stop),
        ]
        return [*operator, *play, *self._processes(head, run), *self._requests()]

    def _heads(self, tasks: Sequence[Span]) -> list[ProcessLifetime]:
        """Return the processes that may be the run's supervisor."""
        lifetimes = [each for each in self.lifetimes if each.depth == 1 and self._below(each)]
        found = [each for each in lifetimes if self._ms(each.end) >= tasks[-1].end]
        # On a busy machine it may have been looked at for the last time before the last task ended.
        return found or [max(lifetimes, key=lambda lifetime: lifetime.end)]

    def _tasks(self) -> Iterable[Span]:
        begin = 0.0
        for event in self.events:
            at = datetime.fromisoformat(event["created"]).timestamp()
            if event["event"] == "playbook_on_task_start":
                begin = at
            elif event["event"] in _ENDS:
                yield self._span("play", event["event_data"]["task"], begin, at)

    def _below(self, head: ProcessLifetime) -> list[ProcessLifetime]:
        """Return the lives of a run's play and of its modules, which the supervisor has forked."""
        below = [lifetime for lifetime in self.lifetimes if lifetime.parent == head.pid]
        return sorted(below, key=lambda lifetime: lifetime.begin)

    def _processes(self, head: ProcessLifetime, run: Sequence[ProcessLifetime]) -> Iterable[Span]:
        names = {head.pid: "supervisor", run[0].pid: "play"} | {
            lifetime.pid: "module" for lifetime in run[1:]
        }
        for lifetime in self.lifetimes:
            begin = max(lifetime.begin, self.prepared)
            if begin < head.end:
                other = "for the next run" if lifetime.depth <= _PLAY else "worker"
                name = names.get(lifetime.pid, other)
                yield self._span("processes", name, begin, min(lifetime.end, head.end))

    def _requests(self) -> Iterable[Span]:
        for request in self.requests:
            if request.end > self.edited:
                yield self._span("API", request.text, request.begin, request.end)

    def _logged(self, message: str) -> float:
        line = next(line for line in self.log if line["msg"] == message)
        return datetime.fromisoformat(line["ts"]).timestamp()

    def _span(self, lane: str, name: str, begin: float, end: float) -> Span:
        return Span(lane, name, self._ms(begin), self._ms(end))

    def _ms(self, at: float) -> float:
        return (at - self.edited) * 1000


def _with_gaps(tasks: Sequence[Span]) -> Iterable[Span]:
    yield tasks[0]
    for before, task in itertools.pairwise(tasks):
        yield Span("play", "between tasks", before.end, task.begin)
        yield task
