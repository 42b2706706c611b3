"""Set up what all runs of a process share: private data dirs, and names of variables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog

from operator_runner.ansible.reserved_names import AnsibleVariableNames, ReservedNamesLoader
from operator_runner.ansible.rundir import RunDirs
from operator_runner.ansible.work_dir import resolve_work_dir
from operator_runner.config.watches.declared_variables import declared_variables
from operator_runner.config.watches.lookup import Lookup
from operator_runner.core.model import Watch
from operator_runner.core.settings import Settings
from operator_runner.kube.credential_files import credential_files

_log = structlog.get_logger(__name__)


def variable_names_of(settings: Settings, names: ReservedNamesLoader) -> AnsibleVariableNames:
    """Return the names of variables that Ansible and the roles use."""
    home = {"HOME": str(Path("~").expanduser())}
    ansible = settings.ansible
    lookup = Lookup.of(home, ansible.roles_path, ansible.collections_path)
    return AnsibleVariableNames(names, partial(declared_variables, lookup=lookup))


def rundirs_of(settings: Settings, watches: Sequence[Watch]) -> RunDirs:
    """Return the private data dirs; warn about files and processes that runs can access."""
    work_dir = resolve_work_dir(settings.work_dir)
    contents = [watch.content.path.resolve() for watch in watches]
    hidden = next((path for path in contents if path.is_relative_to(work_dir.resolve())), None)
    isolate = settings.ansible.isolate_runs
    credentials: Sequence[Path] = ()
    if settings.hide_credentials:
        credentials = credential_files(settings.kubeconfig, settings.webhook.cert_dir)
    rundirs = RunDirs(work_dir, isolate=isolate and hidden is None, credentials=credentials)
    fault = rundirs.fault
    if isolate and hidden is not None:
        fault = f"{hidden} is inside --work-dir, which is hidden from runs; set another --work-dir"
    if fault is not None:
        extent = "partial" if rundirs.isolation.processes else "unavailable"
        _log.warning(f"Run isolation is {extent}", reason=fault)
    return rundirs
