"""Run ansible-playbook in a fork that has everything loaded, as a new process would."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import secrets
import socket
import sys
import traceback
from pathlib import Path
from typing import BinaryIO, NoReturn

from ansible import constants
from ansible.cli.playbook import PlaybookCLI
from ansible.config.manager import find_ini_config_file
from ansible.utils.display import Display

from operator_runner.ansible import dry_run_tasks
from operator_runner.ansible.cold import playbook
from operator_runner.ansible.forkserver.forks import (
    begin_process,
    end_process,
    exit_status,
    use_environment,
)
from operator_runner.ansible.forkserver.freshness import loaded_collections
from operator_runner.ansible.patches.replacing import replace
from operator_runner.ansible.patches.selection import PatchSelection
from operator_runner.ansible.process_tree import die_with_parent
from operator_runner.ansible.sandbox.isolation import Sandbox
from operator_runner.ansible.templating import compatibility

_PER_RUN = {
    "ANSIBLE_CACHE_PLUGIN_CONNECTION",
    "ANSIBLE_JINJA2_NATIVE",
    "ANSIBLE_LOCAL_TEMP",
    "ANSIBLE_PERSISTENT_CONTROL_PATH_DIR",
    "ANSIBLE_REMOTE_TEMP",
    "ANSIBLE_ROLES_PATH",
}
"""Settings that may differ from run to run: nothing loaded before has taken them over."""
_SETTINGS_PER_RUN = tuple(
    name
    for name, definition in constants.config.get_configuration_definitions().items()
    if _PER_RUN & {source["name"] for source in definition.get("env") or ()}
)


def become_play(
    orders: BinaryIO, preloaded: dict[str, str], requests: socket.socket, patches: PatchSelection
) -> NoReturn:
    """Run `ansible-playbook ARGUMENTS` to its end and exit with its status.

    `orders` gives command, working directory, environment and sandbox as a JSON object, once
    there is a run; modules are requested through `requests`. If a setting differs from the loaded
    one, or a collection beside the playbook takes precedence over a loaded one, this process
    executes an ordinary ansible-playbook.
    """
    status = 250
    try:
        _be_a_new_process()
        _prepare(requests, patches)
        run = json.loads(orders.read() or b"null")
        if run is None:
            os._exit(0)  # the run was not requested
        command, environment = run["command"], run["environment"]
        Sandbox.from_json(run["sandbox"]).join(os.getppid())
        os.chdir(run["cwd"])
        use_environment(environment)
        if dry_run_tasks.VARIABLE in environment:
            patches.install("dry-run-tasks")
        if not _is_as_loaded(environment, preloaded) or _hides_what_is_loaded(command[-1]):
            os.execvpe(command[0], command, environment)  # noqa: S606 (does not use a shell)
        status = _play(command, patches)
    except BaseException:  # noqa: BLE001 (the last line of a process)
        traceback.print_exc()
    end_process(status)


def _be_a_new_process() -> None:
    begin_process()
    die_with_parent(os.getppid())
    random.seed()
    # Who has the key of a play can run code in it: multiprocessing unpickles what clients send.
    multiprocessing.current_process().authkey = secrets.token_bytes()


def _is_as_loaded(environment: dict[str, str], preloaded: dict[str, str]) -> bool:
    names = {name for name in (*environment, *preloaded) if name.startswith("ANSIBLE_")}
    if any(environment.get(name) != preloaded.get(name) for name in names - _PER_RUN):
        return False
    return bool(find_ini_config_file() == constants.CONFIG_FILE)


def _hides_what_is_loaded(playbook: str) -> bool:
    """Whether a collection beside the playbook takes the place of one that is loaded."""
    beside = Path(playbook).parent / "collections" / "ansible_collections"
    return beside.is_dir() and any(
        beside.joinpath(*collection).is_dir() for collection in loaded_collections()
    )


def _prepare(requests: socket.socket, patches: PatchSelection) -> None:
    """Prepare everything that does not depend on the run."""
    # The Display was created at load time, for other streams and with messages of another process.
    Display().__init__()
    # The fork server has initialised it; a second time it would warn.
    replace("ansible.cli:init_plugin_loader", lambda *_: None)
    patches.install("events-in-output")
    patches.install("module-forks", requests)
    patches.install("temporary-directories")
    patches.install("tasks-in-play")
    patches.install("task-prompts")
    patches.install("modules-in-play")
    patches.install("plain-results")
    patches.install("template-error-lines")


def _play(command: list[str], patches: PatchSelection) -> int:
    _read_settings_of_this_run()
    compatibility.install(patches)
    playbook.shorten_socket_paths()
    sys.argv = [playbook.program_name(), *command[len(playbook.PROGRAM) :]]
    try:
        PlaybookCLI.cli_executor(sys.argv)
    except SystemExit as ended:
        return exit_status(ended.code)
    return 0


def _read_settings_of_this_run() -> None:
    for name in _SETTINGS_PER_RUN:
        value = constants.config.get_config_value(name, variables=vars(constants))
        constants.set_constant(name, value)
