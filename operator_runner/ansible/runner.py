"""One run by ansible-runner in this process; its events go out as JSON, an object a line.

The last line is `{"exit_status": N, "left_processes": BOOL}`, or `{"broken": reason}`. The
programs of the cold and the warm launcher are two ways to get here.
"""

from __future__ import annotations

import json
import os
from typing import Any, TextIO

from ansible_runner.config.runner import RunnerConfig
from ansible_runner.runner import Runner

from operator_runner.ansible.cold import playbook
from operator_runner.ansible.event_results import with_bounded_result
from operator_runner.ansible.processes import end_descendants, has_children


def config_of(spec: dict[str, Any]) -> RunnerConfig:
    """Return ansible-runner's configuration of a run that `spec.run_spec` describes."""
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
    # The operator writes the output itself, without what no_log hides. As one of `settings`
    # this would be lost: ansible-runner drops them all where there is no file of them.
    config.suppress_output_file = True
    config.command = [*playbook.PROGRAM, *config.command[1:]]
    return config


def run_environment(envvars: dict[str, str], scratch: str) -> dict[str, str]:
    """Return the environment that ansible-runner gives a run with these variables.

    `scratch` is a directory to try it in.
    """
    spec = {"private_data_dir": scratch, "ident": "0", "playbook": "none", "roles_path": None}
    config = config_of({**spec, "verbosity": 0, "envvars": envvars})
    return dict(config.env)


def play(spec: dict[str, Any], lines: TextIO) -> bool:
    """Run the play to its end and tell of it on `lines`; return whether it left processes."""

    def keep(event: dict[str, Any]) -> bool:
        say(lines, with_bounded_result(event, spec["result_limit"]))
        # The operator keeps the events of a run in one file instead of one file each.
        return False

    runner = Runner(config_of(spec), event_handler=keep, remove_partials=True)
    _, exit_status = runner.run()
    if exit_status is None:
        # What it started would go on, and nobody would ever look for it.
        end_descendants(os.getpid(), 0.0)
        say(lines, {"broken": "ansible-playbook was killed by a signal"})
        return False
    left = has_children()
    say(lines, {"exit_status": exit_status, "left_processes": left})
    return left


def say(lines: TextIO, line: dict[str, Any]) -> None:
    """Write one object as one line, at once."""
    lines.write(json.dumps(line) + "\n")
    lines.flush()
