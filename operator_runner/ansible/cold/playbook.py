"""Run ansible-playbook with the template types of 2.18; see `templating.compatibility`.

Errors in templates have file and line; see `templating.error_locations`.
"""

from __future__ import annotations

import os
import shutil
import sys

PROGRAM = (sys.executable, "-P", "-m", "operator_runner.ansible.cold.playbook")
"""The command, with -P: no modules from the working directory."""
_DATA_MAPS = "data-maps"
_MAX_SOCKET_BYTES = 107
_ADDED_BYTES = len("/pymp-12345678/listener-12345678")
"""What multiprocessing appends to TMPDIR."""


def program_name() -> str:
    """Return the program name for error messages, as a shell would pass it."""
    return shutil.which("ansible-playbook") or "ansible-playbook"


def main() -> None:
    """Run ansible-playbook and exit with its status."""
    from operator_runner.ansible.templating import compatibility

    compatibility.install()
    _apply_patches()
    shorten_socket_paths()
    sys.argv[0] = program_name()
    from ansible.cli.playbook import main as run

    sys.exit(run())


def _apply_patches() -> None:
    """Patch maps of data, errors in templates, and in a dry run the choice of tasks.

    A patch that is disabled or does not fit is left out, but data would be templates without the
    first one: the play ends with a message.
    """
    from operator_runner.ansible import dry_run_tasks
    from operator_runner.ansible.patches.registry import PATCHES
    from operator_runner.ansible.patches.selection import select
    from operator_runner.core.settings import DISABLED_PATCHES

    names = {_DATA_MAPS, "existing-projects", "task-prompts", "template-error-lines"}
    if os.environ.get(dry_run_tasks.VARIABLE):
        names.add("dry-run-tasks")
    disabled = os.environ.pop(DISABLED_PATCHES, "").replace(" ", "").split(",")
    patches, mismatches = select(disabled, [each for each in PATCHES if each.name in names])
    for mismatch in mismatches:
        if mismatch.patch == _DATA_MAPS:
            hint = "install a version that it fits"
            sys.exit(f"cannot keep data of resources from being templates: {mismatch}; {hint}")
        print(f"[WARNING]: {mismatch}", file=sys.stderr)  # noqa: T201 (as ansible-playbook warns)
    for name in names:
        patches.install(name)


def shorten_socket_paths() -> None:
    """Name TMPDIR by a descriptor for the sockets of this process and its forks, if it is too long.

    Since 2.21 ansible-core creates a socket of multiprocessing for each play, and its workers,
    which are forks of the play, connect to it. The kernel limits the path of a socket to 107 bytes;
    if it is longer the play fails with "Local RPC server did not start". Call it after TMPDIR is
    set. The descriptor stays open in forks, but not in other programs.
    """
    import tempfile
    from multiprocessing import util

    temp_dir = tempfile.gettempdir()
    if len(os.fsencode(temp_dir)) + _ADDED_BYTES <= _MAX_SOCKET_BYTES:
        return
    descriptor = os.open(temp_dir, os.O_PATH | os.O_DIRECTORY)
    tempfile.tempdir = f"/proc/self/fd/{descriptor}"
    try:
        util.get_temp_dir()  # multiprocessing keeps this directory
    finally:
        tempfile.tempdir = temp_dir


if __name__ == "__main__":
    main()
