"""The command that repeats a failed run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from operator_runner.ansible import rerun_command
from operator_runner.ansible.directories import COMMANDS, command_file
from operator_runner.ansible.rerun_command import Rerun, command_line
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.model import GVK, Json, ObjectRef

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a.b")
NODE = ObjectRef(GVK("", "v1", "Node"), "", "a")


def spec(**more: object) -> Json:
    return {
        "private_data_dir": "/work dir/foo",
        "playbook": "main.json",
        "roles_path": "/my roles:/others",
        "verbosity": 2,
        "envvars": {
            "PATH": "/bin",
            "TMPDIR": "/work dir/tmp/1",
            "KUBECONFIG": "/work dir/foo/env/kubeconfig",
            "ANSIBLE_COLLECTIONS_PATH": "/collections",
        },
        **more,
    }


def test_the_command_uses_the_files_of_the_run() -> None:
    """Variables, roles and collections; not the token and the deleted directories."""
    command = command_line(spec(), "--tags 'a b'", None, native_types=True)
    changed, _, call = command.partition(" && ")
    assert shlex.split(changed) == ["cd", "/work dir/foo/project"]
    assert shlex.split(call) == [
        "ANSIBLE_COLLECTIONS_PATH=/collections",
        "ANSIBLE_ROLES_PATH=/my roles:/others",
        str(Path(sys.executable).with_name("ansible-playbook")),
        *("-i", "../inventory", "-e", "@../env/extravars", "--tags", "a b", "-vv", "main.json"),
    ]


def test_the_command_has_the_cluster_and_the_types_of_templates() -> None:
    """A flag is not in the environment of a shell; text types need the patched ansible-playbook."""
    quiet = spec(verbosity=0, roles_path=None, playbook="/project/a.yml")
    command = command_line(
        quiet,
        "",
        Path("/my/config"),
        native_types=False,
        context="a b",
        impersonated=("ann", "g", "h"),
    )
    assert "K8S_AUTH_IMPERSONATE_USER=ann K8S_AUTH_IMPERSONATE_GROUPS=g,h " in command
    assert "K8S_AUTH_CONTEXT='a b' HELM_KUBECONTEXT='a b' " in command
    assert "KUBECONFIG=/my/config " in command
    assert " -m operator_runner.ansible.cold.playbook -i " in command
    assert command.endswith("@../env/extravars /project/a.yml")


@pytest.mark.parametrize("ref", [REF, NODE])
def test_the_command_is_private_and_is_removed_with_the_resource(
    ref: ObjectRef, tmp_path: Path
) -> None:
    """It is outside of the directories that runs can write."""
    dirs = RunDirs(tmp_path)
    assert rerun_command.read(tmp_path, ref) is None
    rerun_command.write(tmp_path, ref, Rerun("1", "true"))
    path = command_file(tmp_path, ref)
    assert path.stat().st_mode & 0o077 == 0
    assert not path.is_relative_to(dirs.path_of(ref))
    assert rerun_command.read(tmp_path, ref) == Rerun("1", "true")
    dirs.remove(ref)
    assert rerun_command.read(tmp_path, ref) is None
    assert not (tmp_path / COMMANDS).exists()
