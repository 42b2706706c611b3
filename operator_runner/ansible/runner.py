"""Run a play with ansible-runner in this process; write its events as JSON, one per line.

The last line is `{"exit_status": N, "left_processes": BOOL}`, or `{"error": reason}` if the play
could not be run. The supervisor of a warm run calls `play`. The cold launcher starts this module as
`python -m operator_runner.ansible.runner`, which reads one JSON object from standard input and
writes the lines to standard output; on SIGTERM it terminates all its descendants.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, TextIO

from ansible_runner.config.runner import RunnerConfig
from ansible_runner.runner import Runner

from operator_runner.ansible.cold import playbook
from operator_runner.ansible.event_results import bounded
from operator_runner.ansible.process_tree import (
    END_SIGNALS,
    adopt_orphans,
    die_with_parent,
    end_descendants,
    end_run,
    has_children,
)
from operator_runner.ansible.sandbox.isolation import Sandbox

KILLED = (
    "ansible-playbook was killed by a signal, as the kernel does where the memory limit is reached:"
    " raise resources.limits.memory of the container, or let the task use less memory"
)


def config_of(spec: dict[str, Any]) -> RunnerConfig:
    """Return ansible-runner's configuration of a run that `run_spec.run_spec` describes."""
    config = RunnerConfig(
        spec["private_data_dir"],
        ident=spec["ident"],
        playbook=spec["playbook"],
        roles_path=spec["roles_path"],
        verbosity=spec["verbosity"],
        envvars=spec["envvars"],
        quiet=True,
    )
    config.prepare()
    # The operator writes the output itself, censored. As a `settings` argument this would have no
    # effect: ansible-runner ignores them if env/settings does not exist.
    config.suppress_output_file = True
    config.command = [*playbook.PROGRAM, *config.command[1:]]
    return config


def run_environment(envvars: dict[str, str], temp_dir: str) -> dict[str, str]:
    """Return the environment that ansible-runner gives a run with these variables.

    `temp_dir` is a directory for the configuration that is created to find out.
    """
    spec = {"private_data_dir": temp_dir, "ident": "0", "playbook": "none", "roles_path": None}
    config = config_of({**spec, "verbosity": 0, "envvars": envvars})
    return dict(config.env)


def play(spec: dict[str, Any], lines: TextIO) -> bool:
    """Run the play, write its events to `lines`; return whether it left processes running."""

    def on_event(event: dict[str, Any]) -> bool:
        write_line(lines, bounded(event, spec["result_limit"]))
        # False: do not write a file per event; the operator writes one file per run.
        return False

    runner = Runner(config_of(spec), event_handler=on_event, remove_partials=True)
    _, exit_status = runner.run()
    if exit_status is None:
        # Its processes would keep running, and nothing else terminates them.
        end_descendants(os.getpid(), 0.0)
        write_line(lines, {"error": KILLED})
        return False
    left = has_children()
    write_line(lines, {"exit_status": exit_status, "left_processes": left})
    return left


def write_line(lines: TextIO, line: dict[str, Any]) -> None:
    """Write an object as one line and flush."""
    lines.write(json.dumps(line) + "\n")
    lines.flush()


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
