"""Decide which modules may share a process, one after the other, and restore it between them.

Consecutive modules of kubernetes.core and operator_sdk.util in a run differ in their arguments
alone. A process that has run one of them runs the next one if it is unchanged, except for the parts
that `ProcessState` restores. It keeps the client of the API on purpose, with connection and
discovery, which kubernetes.core caches by the parameters of the connection.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import yaml
from ansible.module_utils.common import warnings as module_warnings
from urllib3 import HTTPConnectionPool

from operator_runner.ansible.forkserver.module_calls import ModuleCall
from operator_runner.ansible.patches.replacing import replace
from operator_runner.ansible.process_tree import has_unreaped_children
from operator_runner.core.ansible_modules import Trait, modules_with

_CORE = "ansible_collections.kubernetes.core.plugins"
_UTIL = "ansible_collections.operator_sdk.util.plugins"
_ACTIONS = modules_with(Trait.SHARES_PROCESS)
"""Others, such as `k8s_exec` and `k8s_drain`, change the client or start programs."""
_MODULES = frozenset(
    f"ansible_collections.{namespace}.{collection}.plugins.modules.{name}"
    for namespace, collection, name in (action.split(".") for action in _ACTIONS)
)
_IDLE_SECONDS = 30.0
"""A connection is used again within this time: the proxy keeps it much longer, other servers
close theirs after a minute."""
_SIGNALS = tuple(
    sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, *range(32, signal.NSIG)})
)

_enabled = False


def install() -> None:
    """Let this process and its forks request modules that share a process.

    kubernetes.core finds the shared client by the content of the kubeconfig, which each module
    parses: with libyaml in a tenth of the time, and with the same result, because it is plain data.
    """
    global _enabled  # noqa: PLW0603 (a switch of this process, as all patches)
    _enabled = True
    if yaml.__with_libyaml__:
        load = partial(yaml.load, Loader=yaml.CSafeLoader)
        parser = SimpleNamespace(**{**vars(yaml), "safe_load": load})
        replace("kubernetes.config.kube_config:yaml", parser)


def is_shareable(call: ModuleCall) -> bool:
    """Return whether a process may run further modules after this one."""
    loaded = sys.modules.get(call.name)
    if not _enabled or call.name not in _MODULES or loaded is None:
        return False
    return loaded.__file__ == call.path  # a role may have a module of the same name


def share_key(call: ModuleCall) -> str:
    """Return the key of calls that may share a process; empty for a call that may not.

    It covers everything but module and arguments.
    """
    if not is_shareable(call):
        return ""
    common = (call.profile, call.utils, call.playbook_paths, call.open_files, call.environment)
    text = json.dumps([*common, call.cwd, call.umask], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The parts of a process that a module must leave unchanged, or that are restored after it."""

    compared: dict[str, Any]
    locale: str
    sys_path: list[str]

    @classmethod
    def now(cls, ended: int) -> ProcessState:
        """Return the state of this process, which is settled for a module that has not run.

        `ended` is the descriptor for the exit status, another one for each module.
        """
        return cls(
            _compared(ended),
            locale.setlocale(locale.LC_ALL),
            list(sys.path),
        )

    def difference(self, ended: int) -> str:
        """Return the name of a part that differs and is not restored; empty if there is none."""
        now = _compared(ended)
        return next((name for name, value in self.compared.items() if now[name] != value), "")

    def put_back(self) -> None:
        """Restore what a module may have changed: globals of libraries, locale and paths."""
        forget_client_defaults()
        forget_messages()
        locale.setlocale(locale.LC_ALL, self.locale)
        sys.path[:] = self.sys_path


def forget_client_defaults() -> None:
    """Forget the configuration that the Kubernetes client takes from the last kubeconfig.

    Later clients would inherit its certificates.
    """
    loaded = sys.modules.get("kubernetes.client.configuration")
    if loaded is not None:
        loaded.Configuration.set_default(None)


def forget_messages() -> None:
    """Forget the warnings and deprecations that ansible-core has kept for the last module."""
    if module_warnings.get_warnings() or module_warnings.get_deprecations():
        importlib.reload(module_warnings)  # no function clears them


def _compared(ended: int) -> dict[str, Any]:
    return {
        "working directory": os.getcwd(),  # noqa: PTH109
        "umask": current_umask(),
        "environment": dict(os.environ),
        "open files": _open_files() - {ended, *_kept_connections()},
        "threads": threading.active_count(),
        "child processes": has_unreaped_children(),
        "signal handlers": [signal.getsignal(number) for number in _SIGNALS],
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "limits": [resource.getrlimit(limit) for limit in _LIMITS],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        # Only their number: reading each one would copy the pages that they are on.
        "modules": len(sys.modules),
        "importers": (list(map(id, sys.meta_path)), list(map(id, sys.path_hooks))),
        "hooks": (sys.excepthook, sys.displayhook, sys.gettrace(), sys.getprofile()),
        "recursion limit": sys.getrecursionlimit(),
        "log handlers": (logging.root.level, list(logging.root.handlers)),
        "socket timeout": socket.getdefaulttimeout(),
        "user": (os.getresuid(), os.getresgid()),
    }


_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE)


def current_umask() -> int:
    """Return the umask of this process, which can only be read by setting it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _open_files() -> set[int]:
    found = set(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
    # listdir has one open itself, which is closed by now.
    return {number for number in found if _is_open(number)}


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def forget_other_clients() -> None:
    """Make kubernetes.core keep only clients that later modules can use."""
    pool = _clients()
    temporary = _temporary_files()
    for key, client in list(pool.items()):
        configuration = client.configuration
        files = {configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file}
        if files & temporary:
            # The files of its certificates are deleted with the module, as at its exit.
            _close(pool.pop(key))


def forget_clients() -> None:
    """Make kubernetes.core keep no client, without a word to the server.

    In a fork, the connections of its parent go on.
    """
    pool = _clients()
    for client in pool.values():
        _close(client)
    pool.clear()


def keep_connections() -> None:
    """Let connections of clients outlive the exit functions, which would close them."""
    finalizers = weakref.finalize._registry  # type: ignore[attr-defined]
    for finalizer in list(finalizers):
        alive = finalizer.peek()
        if alive is not None and isinstance(alive[0], HTTPConnectionPool):
            finalizer.atexit = False


class Idleness:
    """Closes connections that were idle for so long that the server may be about to."""

    def __init__(self) -> None:
        """Begin now."""
        self._since = time.monotonic()

    def begin(self) -> None:
        """Note that a module has ended."""
        self._since = time.monotonic()

    def end(self) -> None:
        """Prepare for the next module."""
        if time.monotonic() - self._since > _IDLE_SECONDS:
            for client in _clients().values():
                _close(client)


def _clients() -> dict[str, Any]:
    module = sys.modules.get(f"{_CORE}.module_utils.k8s.client")
    return getattr(module, "_pool", None) or {}


def _temporary_files() -> set[str]:
    module = sys.modules.get("kubernetes.config.kube_config")
    return set((getattr(module, "_temp_files", None) or {}).values())


def _close(client: Any) -> None:
    client.client.rest_client.pool_manager.clear()


def _kept_connections() -> Iterator[int]:
    """Yield the descriptors of idle connections of clients that are kept."""
    for client in _clients().values():
        pools = client.client.rest_client.pool_manager.pools
        for key in pools.keys():  # noqa: SIM118 (it has no iterator)
            for connection in list(pools[key].pool.queue):
                sock = getattr(connection, "sock", None)
                if sock is not None:
                    yield sock.fileno()
