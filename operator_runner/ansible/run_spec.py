"""Build the arguments of the process that runs a play, equal for all launchers."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from operator_runner.ansible import dry_run_tasks, event_results
from operator_runner.ansible.rundir import RunDir
from operator_runner.ansible.templating.effective_types import VARIABLE
from operator_runner.config.watches.lookup import Lookup
from operator_runner.core.image_paths import PROJECT, project_modules
from operator_runner.core.model import Json, RunRequest
from operator_runner.core.settings import AnsibleSettings, config_file

COLLECTIONS = Path(__file__).parent.parent / "collections"
"""The collection operator_sdk.util."""
LENIENT = "ANSIBLE_ALLOW_BROKEN_CONDITIONALS"
"""Variable for conditions of any type."""
_NO_CONFIG = Path(__file__).parent / "empty.cfg"
"""A file of settings without any: otherwise Ansible looks in the working directory."""
_SOCKETS = {
    "ANSIBLE_SSH_CONTROL_PATH_DIR": "~/.ansible/cp",
    "ANSIBLE_PERSISTENT_CONTROL_PATH_DIR": "~/.ansible/pc",
}
NO_TURBO = {"ENABLE_TURBO_MODE": "false"}
"""Turbo mode of cloud.common cannot start its processes since ansible-core 2.19."""
METRIC_ADDRESS = "OSDK_METRIC_ADDRESS"
"""Variable for the URL to which `osdk_metric` sends metrics."""


def run_spec(request: RunRequest, rundir: RunDir, ansible: AnsibleSettings) -> Json:
    """Return the arguments of one run, as `runner.play` takes them; writes a role's playbook."""
    temp_dir = str(rundir.temp_dir(request.run_id))
    home = rundir.temp_dirs.home(rundir.path, request.run_id)
    playbook = str(request.content.path)
    roles_path = None
    if request.content.role is not None:
        role = request.content.role
        play = role_play(role, ansible, request)
        playbook = rundir.write_playbook(play)
        roles_path = roles_path_for(role, ansible)
    return {
        "private_data_dir": str(rundir.path),
        "ident": request.run_id,
        "playbook": playbook,
        "roles_path": roles_path,
        "verbosity": request.verbosity,
        "result_limit": result_limit(os.environ),
        "sandbox": asdict(rundir.sandbox(request.run_id)),
        "envvars": {
            **request.environment,
            **common_environment(ansible),
            **_template_types(request.native_types),
            **({dry_run_tasks.VARIABLE: "true"} if request.dry_run else {}),
            **({} if home is None else {"HOME": str(home)}),
            "TMPDIR": temp_dir,
            "ANSIBLE_LOCAL_TEMP": os.environ.get("ANSIBLE_LOCAL_TEMP", temp_dir),
            "K8S_AUTH_KUBECONFIG": str(rundir.kubeconfig),
            "KUBECONFIG": str(rundir.kubeconfig),
        },
    }


def result_limit(environ: Mapping[str, str]) -> int:
    """Return the limit that the user has set for results in ansible-runner, or its default."""
    try:
        return int(environ[event_results.VARIABLE])
    except (KeyError, ValueError):
        return event_results.DEFAULT_LIMIT


def _template_types(native: bool | None) -> dict[str, str]:
    return {} if native is None else {VARIABLE: str(native).lower()}


def common_environment(ansible: AnsibleSettings) -> dict[str, str]:
    """Return the variables that every run has in addition to the operator's environment."""
    tools = str(Path(sys.executable).parent)
    variables = {
        # Programs of this installation, whether its virtual environment is activated or not.
        "PATH": os.pathsep.join(filter(None, (tools, os.environ.get("PATH")))),
        # Last in Ansible's search path, so that the user's own collections take precedence.
        "PYTHONPATH": os.pathsep.join(
            filter(None, (os.environ.get("PYTHONPATH"), str(COLLECTIONS)))
        ),
        # Results are cut when events are passed on, see `event_results`.
        event_results.VARIABLE: event_results.UNLIMITED,
        # Before ansible-core 2.19 conditions could have any type: `when: x | length`.
        LENIENT: os.environ.get(LENIENT, "true"),
        **_places_of_settings(),
        **NO_TURBO,
        **_user_name(),
    }
    if roles_path_of(ansible):
        variables["ANSIBLE_ROLES_PATH"] = roles_path_of(ansible)
    if ansible.collections_path:
        variables["ANSIBLE_COLLECTIONS_PATH"] = _absolute(ansible.collections_path)
    if ansible.project is not None:
        variables[PROJECT] = str(ansible.project)
        if modules := project_modules(ansible.project):
            own = filter(None, [os.environ.get("ANSIBLE_LIBRARY")])
            variables["ANSIBLE_LIBRARY"] = ":".join([*own, *map(_absolute, map(str, modules))])
    if ansible.metric_address:
        variables[METRIC_ADDRESS] = ansible.metric_address
    return variables


def _places_of_settings() -> dict[str, str]:
    """Return where Ansible finds settings, plugins and collections, and keeps sockets.

    Named explicitly, because runs write to their working and home directories. Only the files that
    a run makes itself are below its own home directory.
    """
    return {
        "ANSIBLE_CONFIG": str(config_file(os.environ) or _NO_CONFIG),
        "ANSIBLE_HOME": str(
            Path(os.environ.get("ANSIBLE_HOME", "~/.ansible")).expanduser().absolute()
        ),
        **{name: os.environ.get(name, path) for name, path in _SOCKETS.items()},
    }


def _user_name() -> dict[str, str]:
    """Return a name for a user who has none, such as an arbitrary user id in a container.

    ansible-core does so too, but not for the error that Python raises since 3.13.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):
        return {"LOGNAME": f"uid={os.getuid()}"}
    return {}


def roles_path_of(ansible: AnsibleSettings) -> str:
    """Return the search path of roles: the flag takes precedence over the variable."""
    return _absolute(ansible.roles_path or os.environ.get("ANSIBLE_ROLES_PATH", ""))


def roles_path_for(role: Path, ansible: AnsibleSettings) -> str:
    """Return the search path of a play with this role, instead of ANSIBLE_ROLES_PATH."""
    return os.pathsep.join(filter(None, (str(role.parent), roles_path_of(ansible))))


def _absolute(paths: str) -> str:
    """Make a search path absolute, because runs have other working directories."""
    parts = (Path(part).expanduser().absolute() for part in paths.split(os.pathsep) if part)
    return os.pathsep.join(map(str, parts))


def role_play(role: Path, ansible: AnsibleSettings, request: RunRequest) -> list[Json]:
    """Return the plays that run a role; with a field manager it writes by server-side apply."""
    name = ".".join((*collection_of(role, ansible), role.name))
    facts = request.gather_facts and not ansible.skip_facts
    play: Json = {"hosts": "localhost", "gather_facts": facts, "roles": [{"name": name}]}
    if request.field_manager:
        # Nobody else decides on what a role writes, so a conflict is not an error.
        apply = {"field_manager": request.field_manager, "force_conflicts": True}
        defaults = {"apply": True, "server_side_apply": apply}
        play["module_defaults"] = {"kubernetes.core.k8s": defaults}
    return [play]


def collection_of(role: Path, ansible: AnsibleSettings) -> tuple[str, ...]:
    """Return namespace and name of the collection in which runs find a role; empty without one.

    By its full name a role finds modules and roles of its collection by short names.
    """
    *_, top, namespace, collection, roles = ("", "", "", "", *role.parts[:-1])
    if (top, roles) != ("ansible_collections", "roles") or not role.name.isidentifier():
        return ()
    lookup = Lookup.of(os.environ, "", ansible.collections_path)
    found = lookup.role(f"{namespace}.{collection}.{role.name}")
    return (namespace, collection) if found == role else ()
