"""What a module leaves in its process: clients of the API, their defaults, and messages.

Modules of kubernetes.core and operator_sdk.util that only send requests to the API server differ in
their arguments alone. They run in the process of the play (`modules_in_play`), which keeps the
client of the API on purpose, with connection and discovery; kubernetes.core caches it by the
parameters of the connection.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any

from ansible.module_utils.common import warnings as module_warnings

from operator_runner.ansible.forkserver.module_calls import ModuleCall
from operator_runner.core.ansible_modules import Trait, modules_with

_CORE = "ansible_collections.kubernetes.core.plugins"
_MODULES = frozenset(
    f"ansible_collections.{namespace}.{collection}.plugins.modules.{name}"
    for namespace, collection, name in (
        action.split(".") for action in modules_with(Trait.ONLY_SENDS_REQUESTS)
    )
)
"""Others, such as `k8s_exec` and `k8s_drain`, change the client or start programs."""
_IDLE_SECONDS = 30.0
"""A connection is used again within this time: the proxy keeps it much longer, other servers
close theirs after a minute."""


def only_sends_requests(call: ModuleCall) -> bool:
    """Return whether the process of a module may go on after it."""
    loaded = sys.modules.get(call.name)
    # A role may have a module of the same name.
    return call.name in _MODULES and loaded is not None and loaded.__file__ == call.path


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


def current_umask() -> int:
    """Return the umask of this process, which can only be read by setting it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


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
