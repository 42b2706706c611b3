"""Command `operator-runner rbac`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from operator_runner.config.flags import lookup_options
from operator_runner.config.watches import load
from operator_runner.core.errors import ConfigError
from operator_runner.proxy.permission_log import read
from operator_runner.tools.rbac.access_rules import Requirement
from operator_runner.tools.rbac.check import differences, missing_rules
from operator_runner.tools.rbac.grants import grants_in
from operator_runner.tools.rbac.kinds import KindTable
from operator_runner.tools.rbac.manager import (
    PLACEHOLDER,
    Manager,
    features_of,
    find_manager,
)
from operator_runner.tools.rbac.operator_requirements import LEADER
from operator_runner.tools.rbac.render import component, manifest
from operator_runner.tools.rbac.requirements import RequirementSources, requirements_of, warnings_of
from operator_runner.tools.yaml_io import read_objects

_RECORDED = Path("config/rbac/requests.yaml")
_CRDS = (Path("crds"), Path("config/crd"))
_MANAGER = Path("config/manager")
_FILES = {"manager-role": "role.yaml", LEADER: "leader_election_role.yaml"}
_PATH = click.Path(path_type=Path, allow_dash=True)


@click.command()
@click.option(
    "--watches-file",
    default="./watches.yaml",
    show_default=True,
    type=_PATH,
    help="Watches of the operator.",
)
@click.option(
    "--recorded",
    type=_PATH,
    help=f"Requests recorded by `run --record-requests`.  [default: {_RECORDED}, if it exists]",
)
@click.option(
    "--crds",
    type=_PATH,
    multiple=True,
    help="Files or directories with the CRDs.  [default: crds and config/crd]",
)
@click.option(
    "--manager",
    type=_PATH,
    help="File or directory of the operator's Deployment, for its arguments.  [default: that of"
    f" --check, else {_MANAGER}]",
)
@click.option("--names", is_flag=True, help="Restrict rules to the names of recorded requests.")
@click.option(
    "--check",
    type=_PATH,
    multiple=True,
    help="Check the roles in these files and directories (-: standard input) instead.",
)
@click.option(
    "--write",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Write role.yaml and leader_election_role.yaml into this directory.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["manifest", "patch"]),
    default="manifest",
    show_default=True,
    help="patch: a kustomize component that replaces the rules of existing roles.",
)
@lookup_options
def rbac(**options: Any) -> None:
    """Derive the RBAC rules of the operator from watches.yaml and recorded requests of roles."""
    try:
        sys.exit(_rbac(options))
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"Error: {problem}", err=True)
        sys.exit(2)


def _rbac(options: dict[str, Any]) -> int:
    checked = read_objects(options["check"])
    manager = _manager(options["manager"], checked)
    project = _project(options, manager)
    requirements = requirements_of(project, names=options["names"])
    for warning in warnings_of(project):
        click.echo(f"Warning: {warning}", err=True)
    if options["check"]:
        granted = grants_in(checked, manager if manager.account else None)
        if project.recorded is None:
            # Any other rule may be one that a role needs.
            lines = missing_rules(requirements, granted)
            passed = (
                "The granted rules include those of the runner. Those of roles are not checked."
            )
        else:
            lines = differences(requirements, granted)
            passed = "The granted rules are the required ones."
        click.echo("\n".join(lines) or passed)
        return 1 if lines else 0
    if options["write"]:
        _write(options["write"], requirements, manager.namespace)
    elif options["form"] == "patch":
        click.echo(component(requirements), nl=False)
    else:
        click.echo(manifest(requirements, manager.namespace), nl=False)
    return 0


def _manager(named: Path | None, checked: Sequence[dict[str, Any]]) -> Manager:
    """Return the operator's Deployment, or one with default flags if it is not found."""
    if named is not None:
        found = find_manager(read_objects([named]))
        if found is None:
            raise ConfigError(f"--manager {named}: no Deployment has a container named manager")
        return found
    default = read_objects([_MANAGER]) if _MANAGER.is_dir() else []
    return find_manager(checked) or _default_manager(default, checked) or Manager()


def _default_manager(
    default: Sequence[dict[str, Any]], checked: Sequence[dict[str, Any]]
) -> Manager | None:
    """Return a Deployment without its ServiceAccount and, when checking, its namespace.

    Those of checked manifests may differ, because kustomize has set them.
    """
    found = find_manager(default)
    if found is None:
        return None
    namespace = PLACEHOLDER if checked else found.namespace
    return Manager(namespace, args=found.args, environ=found.environ)


def _project(options: dict[str, Any], manager: Manager) -> RequirementSources:
    loaded = load(
        options["watches_file"],
        os.environ,
        roles_path=options["ansible_roles_path"],
        collections_path=options["ansible_collections_path"],
    )
    recorded = options["recorded"] or (_RECORDED if _RECORDED.exists() else None)
    crds = options["crds"] or [path for path in _CRDS if path.exists()]
    return RequirementSources(
        watches=loaded.watches,
        recorded=tuple(read(recorded)) if recorded else None,
        kinds=KindTable(read_objects(crds)),
        features=features_of(manager, loaded.watches),
    )


def _write(folder: Path, requirements: Sequence[Requirement], own: str) -> None:
    for role, name in _FILES.items():
        required = [requirement for requirement in requirements if requirement.role == role]
        if required:
            (folder / name).write_text(manifest(required, own))
            click.echo(folder / name)
    for role in sorted({requirement.role for requirement in requirements} - {*_FILES}):
        click.echo(f"{role}: not written; `operator-runner rbac` prints it")
