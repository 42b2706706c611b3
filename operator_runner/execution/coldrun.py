"""The program behind the cold launcher: one run by ansible-runner in a process of its own.

Started by `cold.py` as `python -m operator_runner.execution.coldrun`. Reads one JSON object
from standard input and writes ansible-runner's events to standard output, a JSON object a
line; the last line is `{"exit_status": N}`. On SIGTERM it ends all that it started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType
from typing import Any, TextIO

from ansible_runner.config.runner import RunnerConfig
from ansible_runner.runner import Runner

from operator_runner.execution.processes import adopt_orphans, die_with_parent, end_descendants

_GRACE = 5.0
"""Seconds that a play gets between SIGTERM and SIGKILL."""


def main() -> None:
    """Run what standard input describes."""
    spec = json.load(sys.stdin)
    signal.signal(signal.SIGTERM, _end)
    adopt_orphans()
    die_with_parent(spec["parent"])
    # Whatever a library prints must not end up between the events.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    exit_status = _run(spec, events)
    _say(events, {"exit_status": exit_status})


def _run(spec: dict[str, Any], events: TextIO) -> int:
    config = RunnerConfig(
        spec["private_data_dir"],
        ident=spec["ident"],
        playbook=spec["playbook"],
        roles_path=spec["roles_path"],
        verbosity=spec["verbosity"],
        envvars=spec["envvars"],
        quiet=True,
        # The parent writes the output itself, without what no_log hides.
        settings={"suppress_output_file": True},
    )
    config.prepare()

    def keep(event: dict[str, Any]) -> bool:
        _say(events, event)
        # The parent keeps the events of a run in one file instead of one file each.
        return False

    runner = Runner(config, event_handler=keep, remove_partials=True)
    _, exit_status = runner.run()
    return int(exit_status)


def _say(events: TextIO, line: dict[str, Any]) -> None:
    events.write(json.dumps(line) + "\n")
    events.flush()


def _end(_signal: int, _frame: FrameType | None) -> None:
    end_descendants(os.getpid(), _GRACE)
    # Nothing of the interrupted run is worth a clean exit.
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
