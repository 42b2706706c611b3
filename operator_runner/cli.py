"""The command line: one small function a command."""

from __future__ import annotations

import click

from operator_runner import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="operator-runner")
def main() -> None:
    """Kubernetes operators written as Ansible roles."""
