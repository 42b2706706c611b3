"""`operator-runner rbac`: the rights that a project needs, as manifests or as a check."""

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
from operator_runner.tools.rbac.check import differences
from operator_runner.tools.rbac.grants import grants_in
from operator_runner.tools.rbac.kinds import KindTable
from operator_runner.tools.rbac.manager import Manager, duties_of, find_manager
from operator_runner.tools.rbac.needs import Project, needs_of, warnings_of
from operator_runner.tools.rbac.render import component, manifest
from operator_runner.tools.rbac.right import Need
from operator_runner.tools.rbac.runner import LEADER
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
    help="What is watched.",
)
@click.option(
    "--recorded",
    type=_PATH,
    help=f"What `run --record-requests` has written.  [default: {_RECORDED}, if it is there]",
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
    help="Where the operator's Deployment is, for its arguments.  [default: what is checked, else"
    f" {_MANAGER}]",
)
@click.option("--names", is_flag=True, help="Restrict rights to the names that roles asked for.")
@click.option(
    "--check",
    type=_PATH,
    multiple=True,
    help="Compare with the roles of these files and directories (-: standard input) instead.",
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
    help="patch: a component for kustomize that replaces the rules of the roles that are there.",
)
@lookup_options
def rbac(**options: Any) -> None:
    """Derive the rights that the operator needs, from watches.yaml and its roles' requests."""
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
    needs = needs_of(project, names=options["names"])
    for warning in warnings_of(project):
        click.echo(f"Warning: {warning}", err=True)
    if options["check"]:
        lines = differences(needs, grants_in(checked, manager if manager.account else None))
        click.echo("\n".join(lines) or "The rights granted are those needed.")
        return 1 if lines else 0
    if options["write"]:
        _write(options["write"], needs)
    else:
        click.echo(component(needs) if options["form"] == "patch" else manifest(needs), nl=False)
    return 0


def _manager(named: Path | None, checked: Sequence[dict[str, Any]]) -> Manager:
    """Return the operator's Deployment; one with the defaults of all flags where there is none."""
    if named is not None:
        found = find_manager(read_objects([named]))
        if found is None:
            raise ConfigError(f"--manager {named}: there is no Deployment with a container manager")
        return found
    default = read_objects([_MANAGER]) if _MANAGER.is_dir() else []
    return find_manager(checked) or _without_account(find_manager(default)) or Manager()


def _without_account(manager: Manager | None) -> Manager | None:
    """Return a Deployment whose names may differ from those that are checked."""
    return Manager(args=manager.args, environ=manager.environ) if manager else None


def _project(options: dict[str, Any], manager: Manager) -> Project:
    loaded = load(
        options["watches_file"],
        os.environ,
        roles_path=options["ansible_roles_path"],
        collections_path=options["ansible_collections_path"],
    )
    recorded = options["recorded"] or (_RECORDED if _RECORDED.exists() else None)
    crds = options["crds"] or [path for path in _CRDS if path.exists()]
    return Project(
        watches=loaded.watches,
        recorded=tuple(read(recorded)) if recorded else (),
        kinds=KindTable(read_objects(crds)),
        duties=duties_of(manager, loaded.watches),
    )


def _write(folder: Path, needs: Sequence[Need]) -> None:
    for role, name in _FILES.items():
        own = [need for need in needs if need.role == role]
        if own:
            (folder / name).write_text(manifest(own))
            click.echo(folder / name)
    for role in sorted({need.role for need in needs} - {*_FILES}):
        click.echo(f"{role} is not written: `operator-runner rbac` shows it, --check checks it")
