"""The program ansible-playbook, with templates as existing roles know them; see `templates`."""

from __future__ import annotations

import shutil
import sys

PROGRAM = (sys.executable, "-P", "-m", "operator_runner.ansible.cold.playbook")
"""What starts it: without the working directory among the places of modules."""


def name() -> str:
    """Return what the program calls itself: what a shell would pass on."""
    return shutil.which("ansible-playbook") or "ansible-playbook"


def main() -> None:
    """Run ansible-playbook and exit with its status."""
    from operator_runner.ansible.templating import compatibility

    compatibility.install()
    sys.argv[0] = name()
    from ansible.cli.playbook import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
