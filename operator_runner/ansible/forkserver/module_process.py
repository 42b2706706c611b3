"""Run a Python module of Ansible in a fork, as a new interpreter would."""

from __future__ import annotations

import gc
import importlib.machinery
import os
import resource
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

import ansible
from ansible.module_utils._internal import _traceback
from ansible.module_utils._internal._ansiballz import _loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

from operator_runner.ansible.forkserver.forks import (
    begin_process,
    exit_status,
    finish_process,
    use_environment,
)
from operator_runner.ansible.forkserver.module_calls import ModuleCall, received_call, report_exit
from operator_runner.ansible.patches.replacing import replace


def become_module(message: int, out: int, err: int, ended: int) -> NoReturn:
    """Run the module of a message of `call_module`, in a process just forked for it, and exit."""
    process, status = os.getpid(), 1
    try:
        call = received_call(message)
        ended = _start_afresh(ended, out, err)
        status = _run_module(call)
    except KeyboardInterrupt:
        traceback.print_exc()
        status = 128 + signal.SIGINT
    except BaseException:  # noqa: BLE001 (the last line of a process)
        traceback.print_exc()
    status = finish_process(status)
    if os.getpid() == process:  # not a fork that the module has made
        report_exit(ended, status)
    os._exit(status)


_KEPT = 3
"""The first descriptor after the standard ones."""


def _start_afresh(kept: int, out: int, err: int) -> int:
    """Begin as a program, with one descriptor beside the standard ones; return its new number.

    Programs do not inherit it. The input is empty.
    """
    gc.freeze()
    nothing, _ = os.pipe()
    for stream, descriptor in enumerate((nothing, out, err)):
        os.dup2(descriptor, stream)
    if kept != _KEPT:
        os.dup2(kept, _KEPT)
    os.set_inheritable(_KEPT, False)
    os.closerange(_KEPT + 1, os.sysconf("SC_OPEN_MAX"))
    begin_process()
    return _KEPT


def _run_module(call: ModuleCall) -> int:
    """Run the module in the process environment of its task; return its exit status."""
    os.chdir(call.cwd)
    os.umask(call.umask)
    use_environment({**call.environment, "PWD": call.cwd})
    if call.open_files:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, call.open_files), hard))
    sys.argv = [call.path]
    folder = os.path.dirname(call.path)  # noqa: PTH120
    sys.path = [entry for entry in sys.path if entry not in {"", ".", folder}]
    package, _, _ = call.name.rpartition(".")
    if package == "ansible.legacy":
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = []
        sys.meta_path.insert(0, _NamelessModule(call))
    AnsibleCollectionConfig.playbook_paths = call.playbook_paths
    install(call.utils)
    return run_program(call)


class _NamelessModule(importlib.machinery.SourceFileLoader):
    """Finds a module that has no name of its own, of a role or a `library/`.

    ansible-core packs it as `ansible/legacy/NAME.py`, and identifies deprecations of such modules
    by that path.
    """

    def __init__(self, call: ModuleCall) -> None:
        packed = Path(ansible.__file__).parent / "legacy" / Path(call.path).name
        super().__init__(call.name, str(packed))
        self._source = call.path

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the one module; see importlib.abc.MetaPathFinder."""
        del path, target
        if fullname != self.name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=self.path)

    def get_code(self, fullname: str) -> CodeType:
        """See importlib.abc.InspectLoader."""
        return compile(self.get_data(self.path), self.get_filename(fullname), "exec")

    def get_data(self, path: str) -> bytes:
        """See importlib.abc.ResourceLoader."""
        return super().get_data(self._source if path == self.path else path)


def install(utils: list[str]) -> None:
    """Set up this process for a module instead of a controller.

    `utils` are the directories of `ansible.module_utils`, in the order of the search.
    """
    replace("ansible.module_utils:__path__", utils)
    for address, value in MODULE_SIDE.items():
        replace(address, value)


MODULE_SIDE: Mapping[str, object] = {
    "ansible.module_utils._internal:is_controller": False,
    "ansible.module_utils._internal:import_controller_module": lambda _name: None,
    "ansible.module_utils._internal._traceback:_is_traceback_enabled": (
        _traceback._is_module_traceback_enabled
    ),
}
"""What differs in the process of a module; see ansible._internal.setup."""


def run_program(call: ModuleCall) -> int:
    """Run the module in this process, which is set up for it; return its exit status."""
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
