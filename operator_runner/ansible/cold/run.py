"""Run one play with ansible-runner: the program that the cold launcher starts.

Started as `python -m operator_runner.ansible.cold.run`. Reads one JSON object from standard input
and writes lines to standard output, see `runner`. On SIGTERM it terminates all its descendants.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from operator_runner.ansible.process_tree import (
    END_SIGNALS,
    adopt_orphans,
    die_with_parent,
    end_run,
)
from operator_runner.ansible.runner import play
from operator_runner.ansible.sandbox.isolation import Sandbox


def main() -> None:
    """Run the play that standard input describes."""
    arguments = json.load(sys.stdin)
    for number in END_SIGNALS:
        signal.signal(number, lambda *_: end_run())
    adopt_orphans()
    die_with_parent(arguments["parent"])
    # Output of libraries must not be mixed with the events.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    Sandbox.from_json(arguments["run"]["sandbox"]).enter()
    play(arguments["run"], lines)


if __name__ == "__main__":
    main()
