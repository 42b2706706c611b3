"""Keep the command that repeats the last failed run of a resource, for `operator-runner why`.

It uses the files of the private data dir and the kubeconfig of the user who enters it, because the
token of a run ends with it. It is stored outside of the directories that runs can write.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from operator_runner.ansible import event_results
from operator_runner.ansible.cold import playbook
from operator_runner.ansible.directories import command_file, open_directory
from operator_runner.core.model import Json, ObjectRef

_OF_THE_RUN = {
    *("PATH", "HOME", "TMPDIR", "ANSIBLE_LOCAL_TEMP", "K8S_AUTH_KUBECONFIG", "KUBECONFIG"),
    *("ANSIBLE_SSH_CONTROL_PATH_DIR", "ANSIBLE_PERSISTENT_CONTROL_PATH_DIR", "ANSIBLE_HOME"),
    *("TRACEPARENT", "TRACESTATE"),
    event_results.VARIABLE,
}
"""Variables that refer to files of the run or to its launcher, and those that a shell has."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """The shell command that repeats a run."""

    run_id: str
    command: str


def command_line(
    spec: Json,
    args: str,
    kubeconfig: Path | None,
    *,
    native_types: bool,
    context: str = "",
    impersonated: Sequence[str] = (),
) -> str:
    """Return the shell command for a run that `run_spec.run_spec` describes.

    `args` are those of --ansible-args. `kubeconfig` and `context` are those of the operator; None
    and an empty text leave them to the environment. kubectl has no variable for the context.
    `impersonated` are the user and groups of `as`, which modules do not read there. With text
    types the program is ansible-playbook with the types of 2.18. Pure.
    """
    environment: dict[str, str] = spec["envvars"]
    variables = {name: text for name, text in environment.items() if name not in _OF_THE_RUN}
    if spec["roles_path"] is not None:
        variables["ANSIBLE_ROLES_PATH"] = spec["roles_path"]
    if kubeconfig is not None:
        variables["KUBECONFIG"] = str(kubeconfig.absolute())
    if context:
        variables |= {"K8S_AUTH_CONTEXT": context, "HELM_KUBECONTEXT": context}
    if impersonated:
        user, *groups = impersonated
        variables |= {"K8S_AUTH_IMPERSONATE_USER": user}
        variables |= {"K8S_AUTH_IMPERSONATE_GROUPS": ",".join(groups)} if groups else {}
    plain = str(Path(sys.executable).with_name("ansible-playbook"))
    verbosity = ["-" + "v" * spec["verbosity"]] if spec["verbosity"] else []
    words = [
        *((plain,) if native_types else playbook.PROGRAM),
        *("-i", "../inventory", "-e", "@../env/extravars"),
        *shlex.split(args),
        *verbosity,
        spec["playbook"],
    ]
    project = Path(spec["private_data_dir"]) / "project"
    assignments = " ".join(f"{name}={shlex.quote(text)}" for name, text in variables.items())
    return f"cd {shlex.quote(str(project))} && {assignments} {shlex.join(words)}"


def write(base: Path, ref: ObjectRef, rerun: Rerun) -> None:
    """Store the command of the last failed run. Raises OSError."""
    path = command_file(base, ref)
    with open_directory(path.parent, create=True) as directory:
        directory.write(path.name, json.dumps(asdict(rerun)))


def read(base: Path, ref: ObjectRef) -> Rerun | None:
    """Return the command of the last failed run; None if the last run succeeded. Raises OSError."""
    path = command_file(base.resolve(), ref)
    try:
        with open_directory(path.parent) as directory:
            content = json.loads(directory.read(path.name))
    except (FileNotFoundError, ValueError):
        # The operator may be writing it.
        return None
    return Rerun(content["run_id"], content["command"])
