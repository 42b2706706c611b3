"""One reconcile as spans of time, from what log, events, processes and requests tell. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bench.process_timeline import Life
from bench.recorder import Request

LANES = ("operator", "play", "processes", "API")
_PLAY = 2
"""How deep below the fork server a play is; what it forks is deeper."""
_ENDS = {"runner_on_ok", "runner_on_failed", "runner_on_skipped"}


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time. `begin` and `end` are milliseconds since the edit."""

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
    """What was seen of one reconcile that began with an edit. Times are seconds of the clock."""

    edited: float
    prepared: float
    """When the private data dir was ready."""
    log: Sequence[dict[str, Any]]
    """Lines of the operator's log, with `ts` and `msg`."""
    events: Sequence[dict[str, Any]]
    """ansible-runner's events."""
    lives: Sequence[Life]
    """Processes below the fork server."""
    requests: Sequence[Request]

    def spans(self) -> list[Span]:
        """Return all spans; those of the lanes operator and play follow one another."""
        tasks = list(self._tasks())
        # The one for the next run may be there already before it, or soon after.
        head = min(self._heads(tasks), key=lambda life: life.end)
        over, run = head.end, self._below(head)
        marks = [
            ("the edit reaches the operator", self._logged("Queued")),
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
            # Nothing where it had been forked before the run came.
            Span("play", "fork", start, forked := max(start, self._ms(run[0].begin))),
            Span("play", "play set-up", forked, first),
            *_with_gaps(tasks),
            Span("play", "end of play", last, stop),
        ]
        return [*operator, *play, *self._processes(head, run), *self._requests()]

    def _heads(self, tasks: Sequence[Span]) -> list[Life]:
        """Return the lives of what could be the run's supervisor."""
        lives = (life for life in self.lives if life.depth == 1)
        return [life for life in lives if self._ms(life.end) >= tasks[-1].end]

    def _tasks(self) -> Iterable[Span]:
        begin = 0.0
        for event in self.events:
            at = datetime.fromisoformat(event["created"]).timestamp()
            if event["event"] == "playbook_on_task_start":
                begin = at
            elif event["event"] in _ENDS:
                yield self._span("play", event["event_data"]["task"], begin, at)

    def _below(self, head: Life) -> list[Life]:
        """Return the lives of a run's play and of its modules, which the supervisor has forked."""
        below = [life for life in self.lives if life.parent == head.pid]
        return sorted(below, key=lambda life: life.begin)

    def _processes(self, head: Life, run: Sequence[Life]) -> Iterable[Span]:
        names = {head.pid: "supervisor", run[0].pid: "play"} | {
            life.pid: "module" for life in run[1:]
        }
        for life in self.lives:
            begin = max(life.begin, self.prepared)
            if begin < head.end:
                other = "for the next run" if life.depth <= _PLAY else "worker"
                name = names.get(life.pid, other)
                yield self._span("processes", name, begin, min(life.end, head.end))

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
