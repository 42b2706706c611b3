"""Kill an operator between any two tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from bench.errors import BenchError
from tests.support.operator import Operator

_ENDED = "[playbook task]"
_INTERVAL_SECONDS = 0.02
_DEADLINE_SECONDS = 300.0


class TaskKiller:
    """Kills an operator once at the end of each task, and starts it again."""

    def __init__(
        self,
        operator: Operator,
        arguments: Sequence[str],
        namespace: str,
        chosen: Callable[[str], bool] = bool,
    ) -> None:
        """Take a running operator and its arguments.

        It is killed after tasks of runs in a namespace whose names are `chosen`.
        """
        self.kills: list[str] = []
        """Names of the tasks after which it was killed."""
        self._operator, self._arguments = operator, arguments
        self._namespace, self._chosen = namespace, chosen
        self._seen = len(self._operator.lines(_ENDED))

    def kill_until(self, settled: Callable[[], bool]) -> None:
        """Kill after each task, until no other one comes and `settled` is true."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while True:
            task = next(self._new_tasks(), None)
            if task is not None:
                self.kills.append(task)
                self._operator.kill()
                self._operator.start(*self._arguments)
            elif settled():
                return
            if time.monotonic() > deadline:
                raise BenchError(f"not settled after the operator was killed after {self.kills}")
            time.sleep(_INTERVAL_SECONDS)

    def _new_tasks(self) -> Iterator[str]:
        for line in self._operator.lines(_ENDED)[self._seen :]:
            self._seen += 1
            task = str(line["task"])
            is_chosen = line["namespace"] == self._namespace and self._chosen(task)
            if is_chosen and task not in self.kills:
                yield task
