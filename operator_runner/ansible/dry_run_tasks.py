"""Choose how each task of a dry run is executed.

A dry run is a play in check mode. Tasks that act on the cluster run all the same, because the
proxy turns their writes into dry runs; so do tasks that write only files of the run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operator_runner.core.ansible_modules import Trait, has_trait

VARIABLE = "OPERATOR_RUNNER_DRY_RUN"
"""Set to `true` in the environment of a dry run."""
_OTHER_CLUSTER = frozenset(
    {"api_key", "ca_cert", "client_cert", "context", "host", "kubeconfig", "password", "username"}
)
"""Arguments of modules that select another connection than that of the run."""
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_REFUSED_VARIABLES = (*("HELM_DRIVER", "HELM_KUBE", "HELM_PLUGINS", "K8S_AUTH_", "KUBECONFIG"),)
"""Starts of variables that select another cluster or database, or enable plugins."""


def is_previewed(
    action: str, args: Mapping[str, Any], environment: Mapping[str, str], temp_dir: str
) -> bool:
    """Return whether a task of a dry run is run as in any other run.

    `args` and `environment` are those of the task, without templates. `temp_dir` is that of the
    run, which is removed at its end.
    """
    if any(name.startswith(_REFUSED_VARIABLES) for name in environment):
        return False
    if has_trait(action, Trait.PREVIEWED):
        return not any(args.get(name) for name in _OTHER_CLUSTER)
    if has_trait(action, Trait.MAKES_TEMPORARY_FILE):
        return not args.get("path") or _is_below(str(args["path"]), temp_dir)
    path = str(args.get("dest") or args.get("path"))
    return has_trait(action, Trait.WRITES_FILE) and _is_below(path, temp_dir)


def _is_below(path: str, directory: str) -> bool:
    return bool(directory) and Path(os.path.normpath(path)).is_relative_to(directory)


# In the play ----------------------------------------------------------------------------


def install() -> None:
    """Apply the choice to the tasks of this process and its forks."""
    # Imported here because the operator's own process does not import Ansible.
    from operator_runner.ansible.patches.replacing import wrap  # noqa: PLC0415

    wrap("ansible.playbook.task:Task.post_validate", _post_validate)


def _post_validate(original: Any, task: Any, templar: Any) -> None:
    original(task, templar=templar)
    # A task that asks for check mode is the same in every run.
    if task.check_mode is not True or _asks_for_check_mode(task):
        return
    action = str(task.resolved_action or task.action)
    if has_trait(action, Trait.CONTAINER):
        # In check mode this is skipped, with the fields of a result of k8s_exec.
        task.action, task.args = "ansible.builtin.command", {"argv": ["true"]}
        return
    arguments = {**_defaults(task), **task.args}
    variables = task.environment if isinstance(task.environment, Mapping) else {}
    temp_dir = os.environ.get("TMPDIR", "")
    if _is_local(task, templar) and is_previewed(action, arguments, variables, temp_dir):
        task.check_mode = False
        may_wait = "wait" in task.args or has_trait(action, Trait.WAITS)
        if may_wait and has_trait(action, Trait.PREVIEWED):
            task.args["wait"] = False  # nothing that it waits for happens in a dry run


def _asks_for_check_mode(task: Any) -> bool:
    """Return whether the text of a task or of a block around it has `check_mode`."""
    while task is not None:
        text = task.get_ds()
        if isinstance(text, Mapping) and "check_mode" in text:
            return True
        task = getattr(task, "_parent", None)
    return False


def _defaults(task: Any) -> dict[str, Any]:
    """Return the arguments that any module_defaults of a task give."""
    groups = task.module_defaults if isinstance(task.module_defaults, list) else []
    return {
        name: value
        for group in groups
        if isinstance(group, Mapping)
        for arguments in group.values()
        if isinstance(arguments, Mapping)
        for name, value in arguments.items()
    }


def _is_local(task: Any, templar: Any) -> bool:
    """Return whether a task is run on this host, where the kubeconfig of the run is."""
    host = task.delegate_to or templar.available_variables.get("inventory_hostname")
    return host in _LOCAL_HOSTS
