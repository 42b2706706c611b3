"""Check the name of the task to begin with (`--start-at-task`).

ansible-playbook runs nothing for an unknown name, and its exit status is 0.
"""

from __future__ import annotations

import asyncio
import difflib
import fnmatch
import json
import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from operator_runner.ansible.child_process import end_tree
from operator_runner.ansible.cold import playbook
from operator_runner.ansible.run_spec import common_environment, role_play, roles_path_for
from operator_runner.ansible.rundir import PLAYBOOK
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import RunContent
from operator_runner.core.settings import AnsibleSettings

_GRACE_SECONDS = 5.0
"""Time between SIGTERM and SIGKILL of ansible-playbook."""
_INDENT, _TAGS = " " * 6, "\tTAGS: ["
"""Around the name of a task in the output of --list-tasks."""
_MAX_NAMES = 5


async def check_first_task(content: RunContent, ansible: AnsibleSettings) -> None:
    """Raise ConfigError if a role or playbook has no task to begin with, with similar names.

    A role or playbook that Ansible cannot read passes: its run reports the error.
    """
    wanted = ansible.start_at_task
    names = await _list_tasks(content, ansible)
    if names is not None and not any(is_named(name, wanted) for name in names):
        raise ConfigError(unknown_task(wanted, names, content))


def is_named(task: str, wanted: str) -> bool:
    """Return whether `wanted` selects a task: its name, with or without its role, or a pattern.

    `task` is a name as --list-tasks prints it. Pure.
    """
    _, _, own = task.rpartition(" : ")
    return any(name == wanted or fnmatch.fnmatch(name, wanted) for name in (task, own))


def unknown_task(wanted: str, names: Sequence[str], content: RunContent) -> str:
    """Return the message about a name that no task has. Pure."""
    own = list(dict.fromkeys(name.rpartition(" : ")[2] for name in names))
    near = difflib.get_close_matches(wanted, own, n=_MAX_NAMES, cutoff=0.5)
    where = f"role {content.role.name}" if content.role else f"playbook {content.path.name}"
    found = ", ".join(repr(name) for name in near or own[:_MAX_NAMES])
    has = "similar names" if near else "its first tasks" if own else "it has no tasks"
    return (
        f"--start-at-task={wanted}: {where} has no task of this name; {has}"
        f"{f': {found}' if found else ''}. Tasks of include_tasks and include_role cannot be the"
        " first one"
    )


def names_in(output: str) -> list[str]:
    """Return the names of tasks in the output of `ansible-playbook --list-tasks`. Pure."""
    return [
        line.removeprefix(_INDENT).rpartition(_TAGS)[0]
        for line in output.splitlines()
        if line.startswith(_INDENT) and _TAGS in line
    ]


async def _list_tasks(content: RunContent, ansible: AnsibleSettings) -> list[str] | None:
    """Return the names of the tasks, None if Ansible cannot list them."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, **common_environment(ansible), "ANSIBLE_LOCAL_TEMP": scratch}
        book = str(content.path)
        if content.role is not None:
            book = PLAYBOOK
            play = role_play(content.role.name, gather_facts=False)
            (Path(scratch) / book).write_text(json.dumps(play))
            environment["ANSIBLE_ROLES_PATH"] = roles_path_for(content.role, ansible)
        process = await asyncio.create_subprocess_exec(
            *playbook.PROGRAM,
            *("-i", "localhost,", "--list-tasks"),
            *shlex.split(ansible.args),
            book,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=scratch,
            env=environment,
            start_new_session=True,
        )
        try:
            output, _ = await process.communicate()
        finally:
            await end_tree(process, _GRACE_SECONDS)
    return names_in(output.decode(errors="replace")) if process.returncode == 0 else None
