"""Run a Python module of Ansible in a fork, as a new interpreter would."""

from __future__ import annotations

import gc
import importlib.machinery
import os
import resource
import signal
import socket
import sys
import threading
import traceback
import warnings
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
    finish_module,
    finish_process,
    open_streams,
    use_environment,
)
from operator_runner.ansible.forkserver.module_calls import (
    GivenModule,
    ModuleCall,
    receive_module,
)
from operator_runner.ansible.forkserver.module_process_reuse import (
    Idleness,
    ProcessState,
    forget_other_clients,
    keep_connections,
)
from operator_runner.ansible.patches.replacing import replace


def become_module(orders: socket.socket) -> NoReturn:
    """Run the module that arrives at `orders`, and exit; exit as well if `orders` closes.

    After a module that may share its process, wait for the next one if this process is as it was.
    """
    try:
        start_afresh(orders.fileno())
        _run_modules(orders)
    except BaseException:  # noqa: BLE001 (the last line of a process)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _run_modules(orders: socket.socket) -> None:
    """Run modules until none comes; exit after one that does not share its process."""
    initial: ProcessState | None = None
    idleness = Idleness()
    while (given := receive_module(orders)) is not None:
        if not given.is_shared:
            orders.close()
        status, process = 1, os.getpid()
        try:
            for stream, descriptor in ((1, given.out), (2, given.err)):
                os.dup2(descriptor, stream)
                os.close(descriptor)
            if given.is_shared:
                _settle(given.call)
                initial = initial or ProcessState.now(given.ended)
                idleness.end()
                with warnings.catch_warnings():
                    status = run_program(given.call)
                forget_other_clients()
                keep_connections()
            else:
                status = run_module(given.call)
        except KeyboardInterrupt:
            traceback.print_exc()
            status = 128 + signal.SIGINT
        except BaseException:  # noqa: BLE001 (the last line of a process)
            traceback.print_exc()
        is_again = given.is_shared and not status and threading.active_count() == 1
        status = finish_module() if is_again else finish_process(status)
        if os.getpid() != process:  # a fork that the module has made
            os._exit(status)
        given.report_ending(orders)
        given.report_exit(status)
        if status or not is_again or not _is_put_back(given, initial):
            os._exit(status)
        idleness.begin()
        try:
            given.offer_process(orders)
        except OSError:
            return  # the supervisor wants no more modules


def _is_put_back(given: GivenModule, initial: ProcessState | None) -> bool:
    """Return whether the process is as before its first module, after restoring it."""
    _have_no_output()
    if initial is None or initial.difference(given.ended):
        return False
    initial.put_back()
    open_streams()
    return True


def start_afresh(kept: int) -> None:
    """Begin as a program, with one descriptor beside the standard ones, which have no output."""
    gc.freeze()
    _have_no_output()
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    begin_process()


def _have_no_output() -> None:
    """Discard output for now; the input is empty, also later."""
    nothing, nowhere = os.pipe()
    for stream, descriptor in enumerate((nothing, nowhere, nowhere)):
        os.dup2(descriptor, stream)
    for descriptor in {nothing, nowhere} - {0, 1, 2}:
        os.close(descriptor)


def run_module(call: ModuleCall) -> int:
    """Run the module in the process environment of its task; return its exit status."""
    _settle(call)
    return run_program(call)


def _settle(call: ModuleCall) -> None:
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
