"""Run modules of kubernetes.core and operator_sdk.util in the process of the play.

These modules only send requests to the API server, and differ in their arguments alone. A process
for them costs more than they do. Where a task runs in the play's process, its module does so too,
and what a module may change is put back after it. The clients of the API are kept on purpose, with
their connections and discovery; kubernetes.core caches them by the parameters of the connection.
"""

from __future__ import annotations

import contextlib
import importlib
import locale
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import yaml
from ansible import module_utils
from ansible.module_utils.common import warnings as module_warnings

from operator_runner.ansible.forkserver.forks import captured_output, redirected
from operator_runner.ansible.forkserver.module_calls import ModuleCall
from operator_runner.ansible.forkserver.module_process import MODULE_SIDE, run_program
from operator_runner.ansible.forkserver.tasks import is_in_play, process_as_it_was
from operator_runner.ansible.patches.replacing import replace, replaced, wrap
from operator_runner.core.ansible_modules import Trait, modules_with
from operator_runner.core.imports import environment_variable

_CORE = "ansible_collections.kubernetes.core.plugins.module_utils"
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
_enabled = False
_last_used = time.monotonic()
"""Time of the end of the last module."""


def install() -> None:
    """Let this process run modules itself; its forks, which are workers, make their own clients.

    kubernetes.core finds the client that it keeps by the content of the kubeconfig, which each
    module parses: with libyaml in a tenth of the time, and with the same result, because it is
    plain data.

    Its implementation of apply reads the object before a server-side apply, too, and drops it. The
    proxy may answer the read before that from what it has seen last, because the apply fails if it
    is outdated (docs/adr/0079-no-read-before-an-apply.md).

    The Kubernetes client discovers everything again for a kind that it does not find, several times
    for each name. Roles ask for kinds that only OpenShift has.
    """
    global _enabled  # noqa: PLW0603 (a switch of this process, as all patches)
    _enabled = True
    os.register_at_fork(after_in_child=_forget_clients)
    if yaml.__with_libyaml__:
        load = partial(yaml.load, Loader=yaml.CSafeLoader)
        parser = SimpleNamespace(**{**vars(yaml), "safe_load": load})
        replace("kubernetes.config.kube_config:yaml", parser)
    wrap("kubernetes.dynamic.discovery:LazyDiscoverer.search", _search)
    with contextlib.suppress(ModuleNotFoundError):  # projects may have no kubernetes.core
        wrap(f"{_CORE}.k8sdynamicclient:k8s_apply", _apply)
        wrap(f"{_CORE}.k8s.service:K8sService.retrieve", _retrieve)


def _apply(original: Callable[..., Any], resource: Any, definition: Any, **kwargs: Any) -> Any:
    """Apply an object, without a read that server-side apply does not use."""
    if not kwargs.get("server_side"):
        return original(resource, definition, **kwargs)
    with replaced({f"{_CORE}.apply:apply_object": lambda *_: (None, None)}):
        return original(resource, definition, **kwargs)


def _retrieve(original: Callable[..., Any], service: Any, resource: Any, definition: Any) -> Any:
    """Read an object before it is changed; before a server-side apply it may be an older one."""
    params = service.module.params
    applies = params.get("apply") and params.get("server_side_apply")
    if not applies or params.get("state") == "absent" or service.module.check_mode:
        return original(service, resource, definition)
    headers = service.client.client.client.default_headers
    headers["Cache-Control"] = "max-stale"
    try:
        return original(service, resource, definition)
    finally:
        del headers["Cache-Control"]


def _search(original: Callable[..., Any], discoverer: Any, **kwargs: Any) -> Any:
    """Look for a kind; one that is not known is discovered in its API version only."""
    group, version = kwargs.get("group") or "", kwargs.get("api_version") or ""
    if not group and "/" in version:
        group, version = version.split("/")
    if not version:
        return original(discoverer, **kwargs)
    own = vars(discoverer)  # a search may search for the kind of a list
    before = own.get("invalidate_cache")
    own["invalidate_cache"] = partial(_discover_again, discoverer, group, version)
    try:
        found = original(discoverer, **kwargs)
    finally:
        own.pop("invalidate_cache")
        own |= {} if before is None else {"invalidate_cache": before}
        was_unknown = own.pop("_write_cache", None) is not None
    if found and was_unknown:
        discoverer._write_cache()
    return found


def _discover_again(discoverer: Any, group: str, version: str) -> None:
    """Request the API versions, and forget the kinds of this one; the cache file stays as it is."""
    discoverer._write_cache = lambda: None
    known = discoverer.parse_api_groups()
    core = known.get("api")
    discoverer.parse_api_groups(update=True)
    if core is not None:
        known["api"] = core
    if (own := known["apis" if group else "api"].get(group, {}).get(version)) is not None:
        own.resources = {}
    discoverer.discover()


def run_module(call: ModuleCall) -> tuple[int, bytes, bytes] | None:
    """Run a module; return its exit status, standard output and error; None: it needs a process."""
    global _last_used  # noqa: PLW0603 (of this process, as its clients)
    if not _needs_nothing_else(call):
        return None
    if time.monotonic() - _last_used > _IDLE_SECONDS:
        # The server may be about to close the connections.
        for client in _clients().values():
            _close(client)
    status = None
    try:
        with (
            process_as_it_was(),
            _empty_input(),
            captured_output() as (out, err),
            _as_the_module(call),
        ):
            status = run_program(call)
    finally:
        if status != 0:  # or interrupted: a connection may be in the middle of a response
            _forget_clients()
        _last_used = time.monotonic()
    return status, out.getvalue(), err.getvalue()


def _needs_nothing_else(call: ModuleCall) -> bool:
    """Return whether the module can run here, in the environment that this process has."""
    return (
        _enabled
        and is_in_play()
        and _only_sends_requests(call)
        and call.utils == list(module_utils.__path__)
        and not call.open_files
        and call.environment == dict(os.environ)
    )


@contextlib.contextmanager
def _empty_input() -> Iterator[None]:
    """Let programs that the module starts, as those for credentials, read the end of an input.

    That of the play, a terminal, is closed in its programs.
    """
    with open(os.devnull, "rb") as nothing, redirected(0, nothing.fileno()):  # noqa: PTH123
        yield


@contextlib.contextmanager
def _as_the_module(call: ModuleCall) -> Iterator[None]:
    """Be the process of a module within the block; then put back what it may have changed."""
    argv, path, language = sys.argv, list(sys.path), locale.setlocale(locale.LC_ALL)
    handlers = logging.root.handlers
    sys.argv = [call.path]
    logging.root.handlers = []  # those of the play write to its log, not to the streams of a module
    os.chdir(call.cwd)  # the directory of the playbook, in the private data dir that of the project
    try:
        with (
            environment_variable("PWD", call.cwd),
            replaced(MODULE_SIDE),
            warnings.catch_warnings(),
            _exit_functions(),
        ):
            yield
    finally:
        _forget_messages()
        sys.argv = argv
        sys.path[:] = path
        logging.root.handlers = handlers
        if locale.setlocale(locale.LC_ALL) != language:
            locale.setlocale(locale.LC_ALL, language)


@contextlib.contextmanager
def _exit_functions() -> Iterator[None]:
    """Call functions that are registered within the block at its end, as at that of a process."""
    registered = contextlib.ExitStack()
    with replaced({"atexit:register": registered.callback}):
        try:
            yield
        finally:
            _forget_other_clients()
            try:
                registered.close()
            except Exception:  # noqa: BLE001 (as at the exit of an interpreter)
                traceback.print_exc()


def _only_sends_requests(call: ModuleCall) -> bool:
    """Return whether the process of a module may go on after it."""
    loaded = sys.modules.get(call.name)
    # A role may have a module of the same name.
    return call.name in _MODULES and loaded is not None and loaded.__file__ == call.path


def _forget_messages() -> None:
    """Forget the warnings and deprecations that ansible-core has kept for the last module."""
    if module_warnings.get_warnings() or module_warnings.get_deprecations():
        importlib.reload(module_warnings)  # no function clears them


def _forget_other_clients() -> None:
    """Make kubernetes.core keep only clients that later modules can use."""
    pool = _clients()
    temporary = _temporary_files()
    for key, client in list(pool.items()):
        configuration = client.configuration
        files = {configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file}
        if files & temporary:
            # The files of its certificates are deleted with the module, as at its exit.
            _close(pool.pop(key))


def _forget_clients() -> None:
    """Make kubernetes.core keep no client, without a word to the server.

    In a fork, the connections of its parent go on.
    """
    pool = _clients()
    for client in pool.values():
        _close(client)
    pool.clear()


def _clients() -> dict[str, Any]:
    module = sys.modules.get(f"{_CORE}.k8s.client")
    return getattr(module, "_pool", None) or {}


def _temporary_files() -> set[str]:
    module = sys.modules.get("kubernetes.config.kube_config")
    return set((getattr(module, "_temp_files", None) or {}).values())


def _close(client: Any) -> None:
    client.client.rest_client.pool_manager.clear()
