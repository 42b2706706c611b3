"""The commands `init` and `create api`: parse flags, write files, print their paths."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.core.errors import ConfigError, RunError
from operator_runner.core.model import GVK, ReservedNames
from operator_runner.core.settings import AnsibleSettings
from operator_runner.tools.scaffold import names, writer
from operator_runner.tools.scaffold.fields import mark_keywords, parse_fields
from operator_runner.tools.scaffold.plan import EDITED, ApiPlan, plan_api, plan_init

_KIND_FLAGS: tuple[Callable[..., Any], ...] = (
    click.option("--group", default="", help="Group before the domain, such as cache."),
    click.option("--version", default="", help="Version, such as v1alpha1."),
    click.option("--kind", default="", help="Kind in CamelCase, such as Memcached."),
    click.option("--plural", default="", help="Plural, if it is irregular, such as indices."),
    click.option(
        "--field",
        "fields",
        multiple=True,
        metavar="NAME:TYPE[!][=DEFAULT]",
        help="Field of the spec, such as size:integer=3, image:string or owner:string! (required)."
        " Types: string, integer, number, boolean, object, array:TYPE. May be repeated.",
    ),
    click.option("--generate-role", is_flag=True, help="Create roles/<kind>."),
    click.option("--generate-playbook", is_flag=True, help="Create playbooks/<kind>.yml."),
    click.option(
        "--crd-version",
        type=click.Choice(["v1"]),
        default="v1",
        show_default=True,
        help="Version of the CustomResourceDefinition.",
    ),
)


def _kind_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_KIND_FLAGS):
        command = option(command)
    return command


@click.command()
@click.option("--domain", default="my.domain", show_default=True, help="Suffix of all groups.")
@click.option("--project-name", help="Name of the project; else that of the directory.")
@click.option(
    "--plugins",
    type=click.Choice(["ansible", "ansible/v1", "ansible.sdk.operatorframework.io/v1"]),
    default="ansible",
    help="Accepted for compatibility with operator-sdk; without effect.",
)
@_kind_options
def init(domain: str, project_name: str | None, plugins: str, **kind: Any) -> None:  # noqa: ARG001
    """Create a new operator project in this directory."""
    with _errors():
        root = Path.cwd()
        project = names.project(root.name.lower() if project_name is None else project_name, domain)
        files = plan_init(project)
        if any(kind[name] for name in ("group", "version", "kind", "fields")):
            files |= plan_api(files, _api_plan(kind))
        _print_paths(writer.write(root, files, {}))
        if not kind["kind"]:
            click.echo(
                "\nNext, a kind: operator-runner create api --group=cache --version=v1alpha1 "
                "--kind=Memcached --generate-role --field=size:integer=3"
            )


@click.group()
def create() -> None:
    """Add a kind to an operator project."""


@create.command()
@_kind_options
def api(**kind: Any) -> None:
    """Add a kind: CRD, permissions, sample, test, and role or playbook."""
    with _errors():
        root = Path.cwd()
        present = writer.read(root, EDITED)
        api_plan = _api_plan(kind)
        _print_paths(writer.write(root, plan_api(present, api_plan), present))
        if api_plan.role or api_plan.playbook:
            click.echo("\nNext: make install run")
        else:
            click.echo("\nNext: name the role or playbook of the kind in watches.yaml, then:")
            click.echo("make install run")


def _api_plan(kind: dict[str, Any]) -> ApiPlan:
    api = names.api(kind["group"], kind["version"], kind["kind"], kind["plural"])
    fields = parse_fields(kind["fields"])
    if fields:
        gvk = GVK(api.group, api.version, api.kind)
        declared = kind["generate_role"]
        fields = mark_keywords(fields, gvk, _reserved_names(), declared=declared)
    return ApiPlan(
        api,
        fields,
        role=kind["generate_role"],
        playbook=kind["generate_playbook"],
        crd_version=kind["crd_version"],
    )


def _reserved_names() -> ReservedNames:
    try:
        return asyncio.run(ReservedNamesLoader(AnsibleSettings(), ()).get())
    except RunError as error:
        raise ConfigError(f"--field: {error}") from error


def _print_paths(paths: list[str]) -> None:
    for path in sorted(paths):
        click.echo(path)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"Error: {problem}", err=True)
        sys.exit(1)
