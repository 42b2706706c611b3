"""Run ansible-playbook with the template types of 2.18; see `templating.compatibility`."""

from __future__ import annotations

import shutil
import sys

PROGRAM = (sys.executable, "-P", "-m", "operator_runner.ansible.cold.playbook")
"""The command, with -P: no modules from the working directory."""


def program_name() -> str:
    """Return the program name for error messages, as a shell would pass it."""
    return shutil.which("ansible-playbook") or "ansible-playbook"


def main() -> None:
    """Run ansible-playbook and exit with its status."""
    from operator_runner.ansible.templating import compatibility

    compatibility.install()
    sys.argv[0] = program_name()
    from ansible.cli.playbook import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
