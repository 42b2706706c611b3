"""Load what runs need, once: ansible-core, its plugins, kubernetes.core and their imports.

The client of the core API has 250 models, and is loaded if a role uses a module that needs them. Of
`kubernetes.core` these are k8s_cp, k8s_drain, k8s_exec and k8s_taint; the others use the dynamic
client. A run whose use was not noticed loads them itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pty
import re
import ssl
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path

from operator_runner.ansible.forkserver.forks import redirected
from operator_runner.ansible.forkserver.plugins import load_plugins
from operator_runner.ansible.libc import trim_heap
from operator_runner.ansible.patches.registry import PATCHES
from operator_runner.ansible.patches.selection import Mismatch, PatchSelection, select
from operator_runner.core.ansible_modules import Trait, modules_with
from operator_runner.core.imports import import_lazily, without_garbage_collection
from operator_runner.net import certificates

_CORE_API = "kubernetes.client.api.core_v1_api"
_CORE_API_CLASS = "CoreV1Api"
_CORE_API_USERS = re.compile(r"\bk8s_(cp|drain|exec|taint)\b")
_YAML_FILES, _ROLES = "*.y*ml", "roles"
_MAX_FILES = 5_000


def import_core_api_lazily() -> None:
    """Make the modules import the API without its models; the first use loads them.

    k8s_exec imports it by the package's former name, which would import all 67 APIs.
    """
    sys.modules.setdefault("kubernetes.client.apis", import_module("kubernetes.client.api"))
    import_lazily(_CORE_API)


def load_core_api_for(contents: Iterable[Path]) -> None:
    """Load the API if a role or playbook, or a role beside it, uses it."""
    files = (file for content in contents for file in islice(_files_near(content), _MAX_FILES))
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            if load_core_api_if_used(file.read_text()):
                return


def load_core_api_if_used(text: str) -> bool:
    """Load the API if tasks name a module that needs it; return whether they do."""
    used = _CORE_API_USERS.search(text) is not None
    if used:
        getattr(import_module(_CORE_API), _CORE_API_CLASS)
    return used


def _files_near(content: Path) -> Iterator[Path]:
    """Yield the YAML files of a role and of the roles beside it, or of a playbook and its roles."""
    if content.is_file():
        yield from content.parent.glob(_YAML_FILES)
        roles = [content.parent / _ROLES, content.parent.parent / _ROLES]
    else:
        roles = [content.parent if content.parent.name == _ROLES else content]
    for folder in roles:
        yield from folder.rglob(_YAML_FILES)


_HUGE_PAGE_BYTES = 2 * 1024 * 1024
_MADV_COLLAPSE = 25
_LIBRARIES = (
    "kubernetes.dynamic",
    "requests",
    "jsonpatch",
    "jinja2",
    "yaml",
    "multiprocessing.synchronize",
    "multiprocessing.popen_fork",
    "ansible.cli.playbook",
    "ansible.executor.playbook_executor",
    "ansible.executor.process.worker",
    "ansible.executor.task_queue_manager",
    "ansible.module_utils.urls",
    "ansible.plugins.strategy.linear",
    "operator_runner.ansible.templating.text_templates",
    "operator_runner.ansible.forkserver.supervisor",
)
_MODULES = tuple(
    name.replace("ansible.builtin", "ansible.modules")
    for name in sorted(modules_with(Trait.PRELOADED_PROGRAM))
)
_PACKAGES = (
    "ansible_collections.kubernetes.core.plugins.modules",
    "ansible_collections.operator_sdk.util.plugins.modules",
)
"""Collections of which each module is loaded, with all that it imports before it does its work."""
_SERVER_NAME = "localhost"
_GUARD = re.compile(rb"""^if __name__ == ["']__main__["']""", re.MULTILINE)
"""Guard of a module that does nothing when it is imported."""
_LATE = (
    *(
        f"ansible.module_utils._internal._json._profiles._module_{profile}_{direction}"
        for profile in ("legacy", "modern")
        for direction in ("c2m", "m2c")
    ),
    "kubernetes.client.models.v1_delete_options",
    "kubernetes.client.models.v1_eviction",
    "kubernetes.client.models.v1_object_meta",
)
"""Imports of these modules while they work; tests/contract/ansible/test_preloaded.py looks."""
_PATCHES = (*("compiled-templates", "deep-copies", "plugin-lookups", "caller-frames", "data-maps"),)
"""Patches that hold in the fork server, and so in all its forks."""
_FIRST = "existing-projects"
"""The patch that decides which collections are loaded."""


def preload(
    environment: dict[str, str],
    scratch: str,
    disabled: Collection[str] = (),
    contents: Collection[Path] = (),
    on_core_loaded: Callable[[], None] = lambda: None,
) -> tuple[PatchSelection, list[Mismatch]]:
    """Import everything as a run with this environment would; leave no threads.

    `scratch` is a directory for temporary files; it may be removed when this returns. Applies the
    patches of this process. Returns the patches of the run's processes, and the reasons why others
    are left out. `disabled` names patches to leave out; `contents` are roles and playbooks.
    `on_core_loaded` is called once ansible-core and its plugins are loaded, as they are.
    """
    with without_garbage_collection(), _as_a_run(environment, scratch):
        with contextlib.chdir(scratch):
            # An ansible.cfg in the directory where the operator was started is not that of runs.
            importlib.import_module("ansible.constants")
        from operator_runner.ansible.templating.compatibility import keep_injected_facts

        keep_injected_facts()
        for name in _LIBRARIES:
            importlib.import_module(name)
        # Plugins and modules of collections are loaded from where runs find them.
        select(disabled, [each for each in PATCHES if each.name == _FIRST])[0].install(_FIRST)
        load_plugins()
        on_core_loaded()
        from operator_runner.ansible.forkserver.module_files import learn_interpreters

        learn_interpreters()
        patches, mismatches = select(disabled)
        for name in _PATCHES:
            patches.install(name)
        import_core_api_lazily()
        for name in (*_MODULES, *_LATE):
            _import_if_installed(name)
        for name in _modules_of_collections():
            # One that cannot be imported fails in the task that uses it.
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        load_core_api_for(contents)
        # A run reports what is wrong with the configuration of OpenSSL.
        with contextlib.suppress(ssl.SSLError):
            _start_openssl(Path(scratch))
    trim_heap()  # 60 MiB after compiling, if there was no bytecode
    assert threading.active_count() == 1, "a library started a thread; forks would lose it"
    return patches, mismatches


def prepare_for_many_forks(patches: PatchSelection) -> None:
    """Make forks of this process share more of its memory, which takes as long as ten runs gain.

    Call it once more than a few runs have been forked.
    """
    with without_garbage_collection():
        patches.install("immortal-objects")
    _use_huge_pages()
    trim_heap()  # last: huge pages allocate memory again


@contextlib.contextmanager
def _as_a_run(environment: dict[str, str], scratch: str) -> Iterator[None]:
    """Imitate a run while modules are imported: its environment, and a terminal as output."""
    before = dict(os.environ)
    terminal, output = pty.openpty()
    os.environ.update(environment)
    os.environ["ANSIBLE_LOCAL_TEMP"] = scratch
    try:
        with redirected(1, output):
            yield
    finally:
        for descriptor in (terminal, output):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(before)


def _import_if_installed(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Projects may have no kubernetes.core, or only a part of a collection.
        if error.name != name and not name.startswith(f"{error.name}."):
            raise


def _modules_of_collections() -> Iterator[str]:
    """Yield those that do nothing when they are imported: their work is behind a guard."""
    for package in _PACKAGES:
        _import_if_installed(package)
        if package in sys.modules:
            for folder in map(Path, sys.modules[package].__path__):
                guarded = (path for path in sorted(folder.glob("*.py")) if _is_guarded(path))
                yield from (f"{package}.{path.stem}" for path in guarded)


def _is_guarded(module: Path) -> bool:
    return _GUARD.search(module.read_bytes()) is not None


def _start_openssl(scratch: Path) -> None:
    """Make OpenSSL load all that a connection needs: 14 ms in every new process.

    It reads its configuration and loads its providers for the first context, and finds each
    algorithm when it is first used: by a handshake in memory, with a certificate like the proxy's.
    Raises ssl.SSLError.
    """
    authority = scratch / "tls.crt"
    server_context = certificates.server_context(authority, [_SERVER_NAME])
    client_context = ssl.create_default_context(cafile=str(authority))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=_SERVER_NAME)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    waiting = {client.do_handshake, server.do_handshake}
    while waiting:
        for shake_hands in tuple(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                shake_hands()
                waiting.remove(shake_hands)


def _use_huge_pages() -> None:
    """Make the kernel map the heap in pages of 2 MiB: a fork copies one entry for 512.

    Source: madvise(2), MADV_COLLAPSE, since Linux 6.1; where it is missing nothing changes.
    """
    libc = ctypes.CDLL(None)
    size = _HUGE_PAGE_BYTES
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _offset, _device, _inode, *name = line.split(maxsplit=5)
        if not access.startswith("rw") or name not in ([], ["[heap]"]):
            continue
        start, end = (int(part, 16) for part in addresses.split("-"))
        start, end = -(-start // size) * size, end // size * size
        if start < end:
            libc.madvise(start, end - start, _MADV_COLLAPSE)
