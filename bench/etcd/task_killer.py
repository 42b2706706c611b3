"""Kill an operator at the beginning and at the end of tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from bench.errors import BenchError
from tests.support.operator import Operator

_MOMENTS = {"[playbook task start]": "start", "[playbook task]": "end"}
_INTERVAL_SECONDS = 0.02
_DEADLINE_SECONDS = 300.0


class TaskKiller:
    """Kills an operator once at each moment, and starts it again."""

    def __init__(
        self,
        operator: Operator,
        arguments: Sequence[str],
        namespace: str,
        chosen: Callable[[str], bool] = bool,
    ) -> None:
        """Take a running operator and its arguments.

        It is killed at tasks of runs in a namespace whose names are `chosen`.
        """
        self.kills: list[tuple[str, str]] = []
        """`start` or `end`, and the name of the task."""
        self._operator, self._arguments = operator, arguments
        self._namespace, self._chosen = namespace, chosen
        self._seen = len(self._operator.lines(*_MOMENTS))

    def kill_until(self, settled: Callable[[], bool]) -> None:
        """Kill at each new moment, until none comes any more and `settled` is true."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while True:
            moment = next(self._new_moments(), None)
            if moment is not None:
                self.kills.append(moment)
                self._operator.kill()
                self._operator.start(*self._arguments)
            elif settled():
                return
            if time.monotonic() > deadline:
                raise BenchError(f"not settled after the operator was killed at {self.kills}")
            time.sleep(_INTERVAL_SECONDS)

    def _new_moments(self) -> Iterator[tuple[str, str]]:
        lines = self._operator.lines(*_MOMENTS)
        for line in lines[self._seen :]:
            self._seen += 1
            moment = (_MOMENTS[line["msg"]], str(line["task"]))
            mine = line["namespace"] == self._namespace and self._chosen(moment[1])
            if mine and moment not in self.kills:
                yield moment
