"""Run the module `setup` in the process of the play, if cached facts suffice.

A process costs more than what `setup` then does in it. Arguments and environment are those of the
module. As soon as it would start a program, or need a fact that is not cached, it ends, and a
process of its own runs the module; so it does where the module warns or fails.
"""

from __future__ import annotations

import contextlib
import json
import os

from ansible import module_utils
from ansible.modules import setup

from operator_runner.ansible.forkserver import facts
from operator_runner.ansible.forkserver.forks import captured_output
from operator_runner.ansible.forkserver.module_calls import ModuleCall
from operator_runner.ansible.forkserver.module_effects import forget_messages
from operator_runner.ansible.forkserver.module_process import MODULE_SIDE, run_program
from operator_runner.ansible.forkserver.modules_in_play import working_directory
from operator_runner.ansible.patches.replacing import replaced

_is_installed = False


def install() -> None:
    """Run `setup` in this process and its forks themselves if facts are cached."""
    global _is_installed  # noqa: PLW0603 (a switch of this process, as all patches)
    _is_installed = True


def gather(call: ModuleCall) -> bytes | None:
    """Return what the module prints; None: it needs a process, or is another module."""
    if not _may_gather() or not _is_setup(call):
        return None
    status = None
    try:
        with (
            captured_output() as (out, _),
            working_directory(call.cwd),
            replaced(MODULE_SIDE),
            facts.cached_only() as attempt,
            contextlib.suppress(Exception, facts.CacheMissError),
        ):
            status = run_program(call)
    finally:
        is_silent = not facts.warnings()
        forget_messages()
    return out.getvalue() if status == 0 and is_silent and not attempt.failed else None


def _may_gather() -> bool:
    return _is_installed and facts.are_cached()


def _is_setup(call: ModuleCall) -> bool:
    return (
        (call.name, call.path) == (setup.__name__, setup.__file__)
        and call.utils == list(module_utils.__path__)
        and not call.open_files
        and call.environment == dict(os.environ)
        and all(map(os.path.isabs, _searched(call)))
    )


def _searched(call: ModuleCall) -> list[str]:
    """Return the paths that depend on the working directory if they are relative."""
    arguments = json.loads(call.params)["ANSIBLE_MODULE_ARGS"]
    own = arguments.get("fact_path") or "/"
    return [*os.environ.get("PATH", "").split(os.pathsep), str(own)]
