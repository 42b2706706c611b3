"""The program behind the cold launcher: one run by ansible-runner in a process of its own.

Started by `cold.py` as `python -m operator_runner.ansible.cold.run`. Reads one JSON object
from standard input and writes its lines to standard output, see `runner`. On SIGTERM it ends
all that it started.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from operator_runner.ansible.processes import (
    END_SIGNALS,
    adopt_orphans,
    die_with_parent,
    end_run,
)
from operator_runner.ansible.runner import play
from operator_runner.ansible.sandbox.isolation import Sandbox


def main() -> None:
    """Run what standard input describes."""
    orders = json.load(sys.stdin)
    for number in END_SIGNALS:
        signal.signal(number, lambda *_: end_run())
    adopt_orphans()
    die_with_parent(orders["parent"])
    # Whatever a library prints must not end up between the events.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    Sandbox.from_json(orders["run"]["sandbox"]).enter()
    play(orders["run"], lines)


if __name__ == "__main__":
    main()
