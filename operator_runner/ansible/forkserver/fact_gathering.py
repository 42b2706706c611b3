"""The fork server's side of cached facts: a separate process gathers them.

The process is forked before data of any run is in its memory. It has the sandbox of a run without
a directory of its own, so that its programs can read no more than those of a run.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, NoReturn

from ansible import module_utils
from ansible.modules import setup

from operator_runner.ansible.forkserver import facts
from operator_runner.ansible.forkserver.forks import fork, use_environment
from operator_runner.ansible.forkserver.module_calls import ModuleCall
from operator_runner.ansible.forkserver.module_process import run_module, start_afresh
from operator_runner.ansible.process_tree import die_with_parent
from operator_runner.ansible.sandbox.isolation import Sandbox

_CHUNK_BYTES = 256 * 1024
_LONGEST_SECONDS = 60
"""Seconds after which the process is ended: a program that it has started hangs."""
_PAUSE_SECONDS = 5.0
"""Seconds before another attempt after a failure, or if the dependencies of facts change often."""


class FactGathering:
    """Gathers facts before a run if they are old or their dependencies have changed."""

    def __init__(self, environment: dict[str, str]) -> None:
        """Take the environment of runs."""
        self._environment = environment
        self._enclosure: dict[str, Any] | None = None
        self._signals: dict[str, Any] = {}
        self._cache = facts.FactCache()
        self._reader: int | None = None
        self._received = b""
        self._next = float("-inf")

    @property
    def watched(self) -> list[int]:
        """The descriptor to read the facts from, while they are gathered."""
        return [] if self._reader is None else [self._reader]

    def note(self, sandbox: dict[str, Any]) -> None:
        """Record the sandbox of a run, which the next gathering gets too."""
        self._enclosure = sandbox

    def begin_if_due(self) -> int | None:
        """Start to gather facts if they are due; return the process."""
        now = time.monotonic()
        if self._enclosure is None or self._reader is not None or now < self._next:
            return None
        signals = facts.system_signals()
        if signals == self._signals and not self._cache.is_old:
            return None
        self._signals, self._received = signals, b""
        self._next = now + _PAUSE_SECONDS
        self._reader, writer = os.pipe2(os.O_CLOEXEC)
        with os.fdopen(writer, "wb") as output:
            parent = os.getpid()
            pid = fork()
            if not pid:
                _become_gatherer(parent, output.fileno(), self._environment, self._enclosure)
        return pid

    def receive(self) -> bool:
        """Read from the gathering process; return whether there are new facts, for later forks."""
        assert self._reader is not None
        data = os.read(self._reader, _CHUNK_BYTES)
        self._received += data
        if data:
            return False
        os.close(self._reader)
        self._reader = None
        if not self._received:
            return False  # it has failed, and runs gather facts themselves
        self._cache = facts.FactCache.of(self._received)
        facts.inherit(self._cache)
        return True


def _become_gatherer(
    parent: int, output: int, environment: dict[str, str], sandbox: dict[str, Any]
) -> NoReturn:
    try:
        die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LONGEST_SECONDS)
        output = start_afresh(output)
        Sandbox.from_json(sandbox).enter()
        kept = _gather(environment)
        with os.fdopen(output, "wb") as file:
            file.write(kept.as_json())
    except BaseException:  # noqa: BLE001 (the last line of a process)
        os._exit(1)
    os._exit(0)


def _gather(environment: dict[str, str]) -> facts.FactCache:
    os.chdir("/")
    use_environment(environment)
    gathered_at = time.monotonic()
    signals = facts.all_signals()
    results = facts.record()
    arguments = {"gather_subset": ["all", "!facter", "!ohai", "!local"]}
    run_module(
        ModuleCall(
            name=setup.__name__,
            path=str(setup.__file__),
            params=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
            profile="legacy",
            utils=list(module_utils.__path__),
            playbook_paths=[],
            open_files=0,
            environment=environment,
            cwd="/",
            umask=0o022,
        )
    )
    return facts.FactCache(results, signals, gathered_at)
