"""Write the input of a Job: project and variables of a run, in the format of `transmit`.

The private data dir has the roles beside the playbook, so that no path of this machine is in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from operator_runner.ansible import event_results
from operator_runner.ansible.extravars_file import serialize
from operator_runner.ansible.run_spec import (
    COLLECTIONS,
    LENIENT,
    NO_TURBO,
    collection_of,
    role_play,
    roles_path_of,
)
from operator_runner.ansible.rundir import PLAYBOOK, RunDir, command_line
from operator_runner.core.model import RunRequest
from operator_runner.core.settings import AnsibleSettings

_HOST = (
    "localhost ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}\n"
)
_MAX_RESULT = str(2_000_000)
"""Characters of a result; ansible-runner empties larger ones. The operator cuts it further."""
_IGNORED = shutil.ignore_patterns(".git", ".venv", "__pycache__")


@dataclass(frozen=True, slots=True)
class Transmission:
    """The file with the input of a run, and a digest of its project without the variables."""

    file: Path
    digest: str


def write_transmission(
    request: RunRequest, rundir: RunDir, ansible: AnsibleSettings
) -> Transmission:
    """Write the input of a run below its temporary directory. Raises OSError."""
    # Imported here to keep the start of operators without Jobs fast.
    from ansible_runner import interface  # noqa: PLC0415

    folder = rundir.temp_dir(request.run_id)
    staged = folder / "transmitted"
    shutil.rmtree(staged, ignore_errors=True)
    project = staged / "project"
    for part in (project, staged / "env", staged / "inventory"):
        part.mkdir(mode=0o700, parents=True)
    playbook = _copy_content(request, project, ansible)
    _copy_inventory(ansible.inventory, staged / "inventory")
    (staged / "env" / "cmdline").write_text(command_line(request, ansible))
    digest = _digest(staged)
    (staged / "env" / "extravars").write_text(serialize(request.extra_vars), encoding="utf-8")
    file = folder / "transmission"
    with file.open("wb") as output:
        interface.run(
            streamer="transmit",
            _output=output,
            private_data_dir=str(staged),
            playbook=playbook,
            ident=request.run_id,
            verbosity=request.verbosity,
            envvars={
                **request.environment,
                event_results.VARIABLE: _MAX_RESULT,
                LENIENT: os.environ.get(LENIENT, "true"),
                **NO_TURBO,
            },
        )
    shutil.rmtree(staged)
    return Transmission(file, digest)


def _copy_content(request: RunRequest, project: Path, ansible: AnsibleSettings) -> str:
    """Copy the playbook's directory, roles and own collection; return the name of the playbook."""
    # One of the project takes precedence, so it is copied later.
    _copy(COLLECTIONS, project / "collections")
    roles = [Path(each) for each in roles_path_of(ansible).split(os.pathsep) if each]
    if request.content.role is not None:
        role = request.content.role
        roles.insert(0, role.parent)
        if collection := collection_of(role, ansible):
            target = project.joinpath("collections", "ansible_collections", *collection)
            _copy(role.parent.parent, target)
        plays = role_play(role, ansible, gather_facts=not ansible.skip_facts)
        name = PLAYBOOK
        (project / name).write_text(json.dumps(plays))
    else:
        playbook = request.content.path
        _copy(playbook.parent, project)
        name = playbook.name
    for folder in reversed(roles):
        # The first in the search path takes precedence, so it is copied last.
        if folder.is_dir():
            _copy(folder, project / "roles")
    return name


def _copy_inventory(source: Path | None, target: Path) -> None:
    if source is None:
        (target / "hosts").write_text(_HOST)
    elif source.is_dir():
        _copy(source, target)
    else:
        shutil.copyfile(source, target / "hosts")


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, ignore=_IGNORED, dirs_exist_ok=True)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()))
        elif path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
