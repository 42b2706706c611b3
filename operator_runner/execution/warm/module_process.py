"""Become a Python module of Ansible: what an interpreter started for it would do, in a fork."""

from __future__ import annotations

import atexit
import gc
import os
import resource
import signal
import sys
import traceback
from types import ModuleType
from typing import NoReturn

import ansible.module_utils
from ansible.module_utils import _internal
from ansible.module_utils._internal import _traceback
from ansible.module_utils._internal._ansiballz import _loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

from operator_runner.execution.warm.module_calls import ModuleCall
from operator_runner.execution.warm.processes import end_process, exit_status, open_streams


def become_module(call: ModuleCall, out: int, err: int) -> NoReturn:
    """Run the module with these descriptors as standard output and error, and exit."""
    status = 1
    try:
        _start_afresh(out, err)
        _settle(call)
        status = _run(call)
    except KeyboardInterrupt:
        traceback.print_exc()
        status = 128 + signal.SIGINT
    except BaseException:  # noqa: BLE001 (the last line of a process)
        traceback.print_exc()
    end_process(status)


def _start_afresh(out: int, err: int) -> None:
    """Have what a program starts with: streams, signal handlers, no exit functions of others."""
    atexit._clear()
    gc.freeze()
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for stream, descriptor in enumerate((nothing, out, err)):
        os.dup2(descriptor, stream)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    open_streams()


def _settle(call: ModuleCall) -> None:
    """Find itself where the task has it run."""
    os.chdir(call.cwd)
    os.umask(call.umask)
    os.environ.clear()
    os.environ.update(call.environment, PWD=call.cwd)
    if call.open_files:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, call.open_files), hard))
    sys.argv = [call.path]
    folder = os.path.dirname(call.path)  # noqa: PTH120
    sys.path = [entry for entry in sys.path if entry not in {"", ".", folder}]
    package, _, _ = call.name.rpartition(".")
    if package == "ansible.legacy":
        # Where ansible-core packs modules that have no name of their own.
        legacy = ModuleType(package)
        legacy.__path__ = [folder]
        sys.modules[package] = legacy
    AnsibleCollectionConfig.playbook_paths = call.playbook_paths
    _take_the_modules_side(call.utils)


def _take_the_modules_side(utils: list[str]) -> None:
    """Undo what makes this process a controller; see ansible._internal.setup."""
    ansible.module_utils.__path__ = utils
    _internal.is_controller = False
    _internal.import_controller_module = lambda _name: None
    _internal.get_controller_serialize_map = dict
    _traceback._is_traceback_enabled = _traceback._is_module_traceback_enabled


def _run(call: ModuleCall) -> int:
    try:
        _loader.run_module(
            json_params=call.params.encode(),
            profile=call.profile,
            module_fqn=call.name,
            modlib_path="",
            extensions={},
        )
    except SystemExit as ended:
        return exit_status(ended.code)
    return 0
