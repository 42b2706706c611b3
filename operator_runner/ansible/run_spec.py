"""What a launcher tells the process that runs a play: the same for every launcher."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from operator_runner.ansible.rundir import RunDir
from operator_runner.ansible.templating.types_in_force import VARIABLE
from operator_runner.core.model import Json, RunRequest
from operator_runner.core.settings import AnsibleSettings

_COLLECTIONS = Path(__file__).parent.parent / "collections"
_LENIENT = "ANSIBLE_ALLOW_BROKEN_CONDITIONALS"


def run_spec(request: RunRequest, rundir: RunDir, ansible: AnsibleSettings) -> Json:
    """Return the arguments of one run, as `runner.play` takes them; writes a role's playbook."""
    scratch = str(rundir.temp_dirs.path(request.run_id))
    playbook = str(request.content.path)
    roles_path = None
    if request.content.role is not None:
        role = request.content.role
        play = _role_play(role.name, gather_facts=not ansible.skip_facts)
        playbook = rundir.write_playbook(play)
        # The variable that this becomes replaces the one of the environment.
        roles_path = os.pathsep.join(filter(None, (str(role.parent), _roles_path(ansible))))
    return {
        "private_data_dir": str(rundir.path),
        "ident": request.run_id,
        "playbook": playbook,
        "roles_path": roles_path,
        "verbosity": request.verbosity,
        "sandbox": rundir.sandbox(request.run_id).as_json(),
        "envvars": {
            **common_environment(ansible),
            **_template_types(request.native_types),
            "TMPDIR": scratch,
            "ANSIBLE_LOCAL_TEMP": os.environ.get("ANSIBLE_LOCAL_TEMP", scratch),
            "K8S_AUTH_KUBECONFIG": str(rundir.kubeconfig),
            "KUBECONFIG": str(rundir.kubeconfig),
        },
    }


def _template_types(native: bool | None) -> dict[str, str]:
    return {} if native is None else {VARIABLE: str(native).lower()}


def common_environment(ansible: AnsibleSettings) -> dict[str, str]:
    """Return what every run has on top of the operator's environment."""
    tools = str(Path(sys.executable).parent)
    variables = {
        # ansible-playbook and its kin of this installation, activated or not.
        "PATH": os.pathsep.join(filter(None, (tools, os.environ.get("PATH")))),
        # Last in Ansible's search, so that a collection of the user's own wins.
        "PYTHONPATH": os.pathsep.join(
            filter(None, (os.environ.get("PYTHONPATH"), str(_COLLECTIONS)))
        ),
        # Until ansible-core 2.19 any value was a condition, and roles say `when: x | length`.
        _LENIENT: os.environ.get(_LENIENT, "true"),
    }
    if _roles_path(ansible):
        variables["ANSIBLE_ROLES_PATH"] = _roles_path(ansible)
    if ansible.collections_path:
        variables["ANSIBLE_COLLECTIONS_PATH"] = _absolute(ansible.collections_path)
    if ansible.metric_address:
        variables["OSDK_METRIC_ADDRESS"] = ansible.metric_address
    return variables


def _roles_path(ansible: AnsibleSettings) -> str:
    """Return where roles are looked for: the flag beats the variable."""
    return _absolute(ansible.roles_path or os.environ.get("ANSIBLE_ROLES_PATH", ""))


def _absolute(paths: str) -> str:
    """Anchor a list of paths where the operator was started: runs have directories of their own."""
    parts = (Path(part).expanduser().absolute() for part in paths.split(os.pathsep) if part)
    return os.pathsep.join(map(str, parts))


def _role_play(role: str, *, gather_facts: bool) -> list[Json]:
    return [{"hosts": "localhost", "gather_facts": gather_facts, "roles": [{"name": role}]}]
