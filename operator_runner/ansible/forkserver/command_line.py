"""Define the options of ansible-playbook once: 3 % of the time of a run of one task.

The definitions depend on nothing but settings that are the same for all runs.
"""

from __future__ import annotations

from ansible.cli.playbook import PlaybookCLI

from operator_runner.ansible.patches.replacing import replace


def install() -> None:
    """Make each ansible-playbook in this process and its forks use the same parser."""
    prepared = PlaybookCLI([PlaybookCLI.name])
    prepared.init_parser()

    def init_parser(cli: PlaybookCLI) -> None:
        cli.parser = prepared.parser

    replace("ansible.cli.playbook:PlaybookCLI.init_parser", init_parser)
