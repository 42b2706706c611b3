"""One Python module of Ansible in a fork: what an interpreter started for it would do."""

from __future__ import annotations

import atexit
import gc
import os
import resource
import selectors
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import ansible.module_utils
from ansible.module_utils import _internal
from ansible.module_utils._internal import _traceback
from ansible.module_utils._internal._ansiballz import _loader

from operator_runner.execution.warm.processes import end_process, exit_status, open_streams

_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class ForkedModule:
    """A module and what it is called with."""

    name: str
    """Dotted name to import it by."""
    path: str
    params: str
    """Arguments as ansible-core encodes them for the module."""
    profile: str
    """ansible-core's name for the encoding of arguments and result."""
    environment: dict[str, str]
    """What the task adds to the environment."""
    utils: tuple[str, ...]
    """Directories of `ansible.module_utils`, in the order of the search."""
    open_files: int
    """Soft limit of open files; 0 leaves it as it is."""

    def run(self, cwd: str | bytes | None) -> tuple[int, bytes, bytes]:
        """Run it; return exit status (as a shell gives it), standard output and error."""
        out, err = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            self._be(cwd, out[1], err[1])
        for writer in (out[1], err[1]):
            os.close(writer)
        stdout, stderr = _read_all(out[0], err[0])
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            dumped = " (core dumped)" if os.WCOREDUMP(status) else ""
            said = f"{signal.strsignal(number)}{dumped}\n".encode()
            return 128 + number, stdout, stderr + said
        return os.WEXITSTATUS(status), stdout, stderr

    def _be(self, cwd: str | bytes | None, out: int, err: int) -> NoReturn:
        status = 1
        try:
            _start_afresh(out, err)
            self._settle(cwd)
            status = self._call()
        except KeyboardInterrupt:
            traceback.print_exc()
            status = 128 + signal.SIGINT
        except BaseException:  # noqa: BLE001 (the last line of a process)
            traceback.print_exc()
        end_process(status)

    def _settle(self, cwd: str | bytes | None) -> None:
        if cwd is not None:
            os.chdir(cwd)
            os.environ["PWD"] = str(Path.cwd())
        os.environ.update(self.environment)
        if self.open_files:
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, self.open_files), hard))
        sys.argv = [self.path]
        excluded = {"", ".", os.path.dirname(sys.argv[0])}  # noqa: PTH120
        sys.path = [entry for entry in sys.path if entry not in excluded]
        package, _, _ = self.name.rpartition(".")
        if package == "ansible.legacy":
            # Where ansible-core packs modules that have no name of their own.
            legacy = ModuleType(package)
            legacy.__path__ = [os.path.dirname(self.path)]  # noqa: PTH120
            sys.modules[package] = legacy

    def _call(self) -> int:
        _take_the_modules_side(self.utils)
        try:
            _loader.run_module(
                json_params=self.params.encode(),
                profile=self.profile,
                module_fqn=self.name,
                modlib_path="",
                extensions={},
            )
        except SystemExit as ended:
            return exit_status(ended.code)
        return 0


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


def _take_the_modules_side(utils: tuple[str, ...]) -> None:
    """Undo what makes this process a controller; see ansible._internal.setup."""
    ansible.module_utils.__path__ = list(utils)
    _internal.is_controller = False
    _internal.import_controller_module = lambda _name: None
    _internal.get_controller_serialize_map = dict
    _traceback._is_traceback_enabled = _traceback._is_module_traceback_enabled


def _read_all(*readers: int) -> list[bytes]:
    found: dict[int, list[bytes]] = {reader: [] for reader in readers}
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, _CHUNK)
                if data:
                    found[key.fd].append(data)
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [b"".join(parts) for parts in found.values()]
