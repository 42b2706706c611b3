"""Set up what all runs of a process share: private data dirs, and names of variables."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog

from operator_runner.ansible.plugin_memory import plugins_beside, plugins_of_collections
from operator_runner.ansible.reserved_names import AnsibleVariableNames, ReservedNamesLoader
from operator_runner.ansible.rundir import RunDirs, resolve_work_dir
from operator_runner.config.watches.declared_variables import declared_variables
from operator_runner.config.watches.lookup import Lookup
from operator_runner.core.model import Watch
from operator_runner.core.settings import AnsibleSettings, Settings
from operator_runner.kube.credential_files import credential_files

_log = structlog.get_logger(__name__)


def variable_names_of(settings: Settings, names: ReservedNamesLoader) -> AnsibleVariableNames:
    """Return the names of variables that Ansible and the roles use."""
    lookup = _lookup(settings.ansible)
    return AnsibleVariableNames(names, partial(declared_variables, lookup=lookup))


def log_plugins_with_memory(ansible: AnsibleSettings, contents: Sequence[Path]) -> None:
    """Log each plugin for templates of the project that costs tasks a process of their own."""
    collections = {*_lookup(ansible).collections}
    folders = set()
    for content in contents:
        place = content if content.is_dir() else content.parent
        collections.add(place.parent / "collections" if content.is_dir() else place / "collections")
        roles = place.parent.glob("*") if content.is_dir() else place.glob("roles/**/")
        folders |= {place, *roles}
    found = [
        *(plugin for folder in sorted(folders) for plugin in plugins_beside(folder)),
        *(plugin for path in sorted(collections) for plugin in plugins_of_collections(path)),
    ]
    for plugin in found:
        if plugin.memory:
            is_for_all = plugin.names is None or plugin.changes_when_loaded
            names = "all" if is_for_all else ", ".join(sorted(plugin.names or ()))
            _log.info(
                "Tasks that use this plugin need a process each",
                file=str(plugin.path),
                plugins=names,
                reason=plugin.memory,
            )


def _lookup(ansible: AnsibleSettings) -> Lookup:
    home = {"HOME": str(Path("~").expanduser())}
    return Lookup.of(home, ansible.roles_path, ansible.collections_path)


def rundirs_of(settings: Settings, watches: Sequence[Watch]) -> RunDirs:
    """Return the private data dirs; warn about files and processes that runs can access."""
    work_dir = resolve_work_dir(settings.work_dir)
    contents = [watch.content.path.resolve() for watch in watches]
    hidden = next((path for path in contents if path.is_relative_to(work_dir.resolve())), None)
    isolate = settings.ansible.isolate_runs
    credentials: Sequence[Path] = ()
    if settings.hide_credentials:
        credentials = credential_files(settings.kubeconfig, settings.webhook.cert_dir)
    home = Path.home()
    rundirs = RunDirs(
        work_dir,
        isolate=isolate and hidden is None,
        credentials=credentials,
        protected=_protected(settings, contents, home),
        home=home,
    )
    fault = rundirs.fault
    if isolate and hidden is not None:
        fault = f"{hidden} is inside --work-dir, which is hidden from runs; set another --work-dir"
    if fault is not None:
        extent = "partial" if rundirs.isolation.processes else "unavailable"
        _log.warning(f"Run isolation is {extent}", reason=fault)
    return rundirs


def _protected(settings: Settings, contents: Sequence[Path], home: Path) -> list[Path]:
    """Return directories of this user with what the operator, or later runs, load or obey."""
    temporary = Path(tempfile.gettempdir()).resolve()
    folders = [
        home,
        settings.watches_file.parent,
        Path(sys.prefix),
        *_lookup(settings.ansible).roles,
    ]
    folders += [path if path.is_dir() else path.parent for path in contents]
    resolved = dict.fromkeys(path.resolve() for path in folders if path.is_dir())
    found = [
        path for path in resolved if os.access(path, os.W_OK) and not temporary.is_relative_to(path)
    ]
    return [path for path in found if not {*path.parents} & {*found}]
