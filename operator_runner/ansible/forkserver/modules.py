"""Run Python modules for this host in a fork of the run.

ansible-core packs a module and all it imports into a file, starts a shell that starts an
interpreter, and has that unpack, import and run it. All of it is loaded in this process:
a fork of it that behaves as a module's process does the same. Only modules that are certain to
give the same result are forked: new-style Python modules for the local host, without become and
async, with the interpreter of this process.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ansible import constants
from ansible.executor.module_common import _BuiltModule
from ansible.module_utils.common.json import Direction, get_module_encoder
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible.utils.collection_loader import AnsibleCollectionConfig

from operator_runner.ansible.data_maps import module_arguments
from operator_runner.ansible.forkserver import modules_in_play
from operator_runner.ansible.forkserver.module_calls import ModuleCall, call_module
from operator_runner.ansible.forkserver.module_files import ModuleFile, find_module
from operator_runner.ansible.forkserver.tasks import current_umask
from operator_runner.ansible.patches.replacing import wrap

_ACTION = "ansible.plugins.action:ActionBase"
_READ_AT_START = ("GCONV_", "GLIBC_", "LANG", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PYTHON")
"""Names of variables that an interpreter, or a library in it, reads when it starts."""


_created: set[str] = set()
"""Directories for files of tasks that this process has created and not removed."""


class Payload(bytes):
    """Module that the action passes to the connection: a call to make, no bytes to transfer."""

    call: ModuleCall


def install(requests: socket.socket) -> None:
    """Make this process and its forks request modules there if the result is the same."""
    wrap(f"{_ACTION}._configure_module", _configure_module)
    exec_command = "ansible.plugins.connection.local:Connection.exec_command"
    wrap(exec_command, functools.partial(_exec_command, requests))


def install_temporary_directories() -> None:
    """Create and remove directories for modules of this host in this process, without shells."""
    wrap(f"{_ACTION}._make_tmp_path", _make_tmp_path)
    wrap(f"{_ACTION}._remove_tmp_path", _remove_tmp_path)


def _is_here(action: Any) -> bool:
    """Whether the task's host is this one, and its user the one of this process."""
    connection = action._connection
    return (
        type(connection) is Connection
        and type(connection._shell) is ShellModule
        and connection.become is None
    )


def _find_module(action: Any, name: str, task_vars: dict[str, Any]) -> ModuleFile | None:
    """Return the module if it can be run in a fork with the same result, else None."""
    if not _is_here(action) or action._task.async_val or constants.DEFAULT_KEEP_REMOTE_FILES:
        return None
    environment = _environment(action)
    if environment is None or any(name.startswith(_READ_AT_START) for name in environment):
        return None
    return find_module(action, name, task_vars, environment)


def _environment(action: Any) -> dict[str, str] | None:
    """Return what the task adds to the environment; None if ansible-core reports an error."""
    environment: dict[str, Any] = {}
    for declared in action._task.environment or ():
        each = action._templar.template(declared or {})
        if not isinstance(each, dict):
            return None
        environment.update(each)
    return {name: str(value) for name, value in environment.items()}


def _configure_module(
    original: Callable[..., Any],
    action: Any,
    module_name: str,
    module_args: dict[str, Any],
    task_vars: dict[str, Any],
) -> Any:
    module = _find_module(action, module_name, task_vars)
    if module is None:
        return original(
            action, module_name=module_name, module_args=module_args, task_vars=task_vars
        )
    # Pipelining is what passes the module to the connection instead of writing a file.
    action._connection.always_pipeline_modules = True
    encoder = get_module_encoder(module.profile, Direction.CONTROLLER_TO_MODULE)
    payload = Payload(b"#")
    payload.call = ModuleCall(
        name=module.name,
        path=module.path,
        params=module_arguments({"ANSIBLE_MODULE_ARGS": module_args}, encoder),
        profile=module.profile,
        utils=list(module.utils),
        # Without the `collections` that setting them puts behind each.
        playbook_paths=[os.path.dirname(path) for path in AnsibleCollectionConfig.playbook_paths],  # noqa: PTH120
        open_files=module.open_files,
        environment={**os.environ, **module.environment},
        cwd=os.getcwd(),  # noqa: PTH109
        umask=current_umask(),
    )
    built = _BuiltModule(
        b_module_data=payload,
        module_style="new",
        shebang=f"#!{sys.executable}",
        serialization_profile=module.profile,
    )
    return built, module.path


def _exec_command(
    requests: socket.socket,
    original: Callable[..., Any],
    connection: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    payload = kwargs.get("in_data")
    if not isinstance(payload, Payload):
        return original(connection, *args, **kwargs)
    connection.always_pipeline_modules = False
    connection._connect()
    call = payload.call
    if connection.cwd is not None:
        call = replace(call, cwd=os.fsdecode(connection.cwd))
    ended = modules_in_play.run_module(call)
    if ended is not None:
        return ended
    return call_module(requests, call)


def _make_tmp_path(original: Callable[..., Any], action: Any, *args: Any, **kwargs: Any) -> Any:
    """Make the directory for the files of a task, for which ansible-core starts three shells."""
    if not _is_here(action) or action._task.async_val:
        # An async task that continues after the play needs a directory that is not removed.
        return original(action, *args, **kwargs)
    name = f"ansible-tmp-{time.time()}-{os.getpid()}-{random.randint(0, 2**48)}"  # noqa: S311
    folder = os.path.join(constants.DEFAULT_LOCAL_TMP, name, "")  # noqa: PTH118
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102
    except OSError:
        # ansible-core reports the error.
        return original(action, *args, **kwargs)
    action._connection._shell.tmpdir = folder
    _created.add(folder)
    return folder


def _remove_tmp_path(
    original: Callable[..., Any], action: Any, tmp_path: str | None, force: bool = False
) -> Any:
    path = tmp_path or action._connection._shell.tmpdir
    if path not in _created:
        return original(action, tmp_path, force=force)
    if force or not constants.DEFAULT_KEEP_REMOTE_FILES:
        try:
            os.rmdir(path)  # noqa: PTH106 (nearly always there is nothing in it)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
        _created.remove(path)
        action._connection._shell.tmpdir = None
    return None
