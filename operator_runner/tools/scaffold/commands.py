"""The commands `init`, `create api` and `create field`: parse flags, write files, print paths.

All planned files are written or none, and never over a file that is not in the plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

import click

from operator_runner.ansible.reserved_names import ReservedNamesLoader
from operator_runner.core.errors import ConfigError, RunError
from operator_runner.core.model import GVK, ReservedNames
from operator_runner.core.settings import AnsibleSettings
from operator_runner.tools.scaffold import project_file
from operator_runner.tools.scaffold.field_plan import find_kind, paths_of, plan_fields
from operator_runner.tools.scaffold.fields import Field, check_keywords, parse_fields
from operator_runner.tools.scaffold.plan import EDITED, ApiPlan, plan_api, plan_init
from operator_runner.tools.scaffold.project_file import ApiNames


def read(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return the texts of the files that exist."""
    return {path: _read(root / path) for path in paths if (root / path).exists()}


def write(root: Path, files: Mapping[str, str], replacing: Mapping[str, str]) -> list[str]:
    """Write files below a directory; return the paths that were created or changed.

    `replacing` has the texts that the changed files had when they were read. If files exist
    already, raises ConfigError that names all of them, and writes nothing.
    """
    new = [path for path in files if path not in replacing]
    # A dangling link counts as an existing file.
    existing = [path for path in new if (root / path).exists() or (root / path).is_symlink()]
    if existing:
        raise ConfigError(
            *(f"{path}: already exists" for path in existing),
            "Nothing was written. Move these files away, or choose other names",
        )
    changed = [path for path, text in files.items() if replacing.get(path) != text]
    for path in changed:
        _write(root / path, files[path])
    return changed


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _write(path: Path, text: str) -> None:
    """Write atomically: a full disk must not truncate a file that the user has edited."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".new")
        draft.write_text(text, encoding="utf-8")
        if path.exists():
            draft.chmod(path.stat().st_mode)
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


_KIND_FLAGS: tuple[Callable[..., Any], ...] = (
    click.option("--group", default="", help="Group before the domain, such as cache."),
    click.option("--version", default="", help="Version, such as v1alpha1."),
    click.option("--kind", default="", help="Kind in CamelCase, such as Memcached."),
    click.option("--plural", default="", help="Plural, if it is irregular, such as indices."),
    click.option(
        "--field",
        "fields",
        multiple=True,
        metavar="NAME:TYPE[!][=DEFAULT][,WORD=VALUE]...",
        help="Field of the spec, such as size:integer=3,minimum=1, owner:string! (required),"
        " tls.secretName:string or ports[].port:integer. Types: string, integer, number, boolean,"
        " object, array:TYPE. Words: enum, minimum, maximum, pattern, example. May be repeated.",
    ),
    click.option(
        "--generate-role",
        is_flag=True,
        help="Create roles/<kind>; the default without --generate-playbook.",
    ),
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
    root = Path.cwd()
    project = project_file.project(
        root.name.lower() if project_name is None else project_name, domain
    )
    files = plan_init(project)
    if any(kind[name] for name in ("group", "version", "kind", "fields")):
        files |= plan_api(files, _api_plan(kind))
    _print_paths(write(root, files, {}))
    if not kind["kind"]:
        click.echo(
            "\nNext, a kind: operator-runner create api --group=cache --version=v1alpha1 "
            "--kind=Memcached --field=size:integer=3"
        )


@click.group()
def create() -> None:
    """Add a kind, or fields of a kind, to an operator project."""


@create.command()
@_kind_options
def api(**kind: Any) -> None:
    """Add a kind: CRD, permissions, sample, test, and role or playbook."""
    root = Path.cwd()
    present = read(root, EDITED)
    api_plan = _api_plan(kind)
    _print_paths(write(root, plan_api(present, api_plan), present))
    click.echo("\nNext: make install run")


@create.command()
@click.argument("kind")
@click.argument("fields", nargs=-1, required=True, metavar="NAME:TYPE[!][=DEFAULT][,WORD=VALUE]...")
@click.option("--group", default="", help="Group before the domain, if two have the kind.")
@click.option("--version", default="", help="Version, if the project has several of the kind.")
def field(kind: str, fields: tuple[str, ...], group: str, version: str) -> None:
    """Add fields to the CRD, the sample and the argument spec of a kind.

    Comments and order of the files are kept. Fields are written as for `create api --field`.
    """
    root = Path.cwd()
    project = read(root, [project_file.PATH]).get(project_file.PATH)
    if project is None:
        raise ConfigError(f"{project_file.PATH}: no such file; change to the project")
    api = find_kind(project, kind, group, version)
    paths = paths_of(project, api)
    present = read(root, [project_file.PATH, *astuple(paths)])
    checked = _checked(fields, api, has_role=paths.tasks in present)
    plan = plan_fields(present, paths, api, checked)
    _print_paths(write(root, plan.files, present))
    if plan.by_hand:
        raise ConfigError(*plan.by_hand)
    click.echo("\nNext: make install" if plan.files else f"{kind} has these fields already")


def _api_plan(kind: dict[str, Any]) -> ApiPlan:
    api = project_file.api(kind["group"], kind["version"], kind["kind"], kind["plural"])
    has_role = kind["generate_role"] or not kind["generate_playbook"]
    return ApiPlan(
        api,
        _checked(kind["fields"], api, has_role=has_role),
        role=has_role,
        playbook=kind["generate_playbook"],
        crd_version=kind["crd_version"],
    )


def _checked(texts: Iterable[str], api: ApiNames, *, has_role: bool) -> tuple[Field, ...]:
    """Return the fields. Raises ConfigError for what is wrong, and for names that no role gets."""
    fields = parse_fields(texts)
    if fields:
        names = _reserved_names()
        check_keywords(fields, GVK(api.group, api.version, api.kind), names, declared=has_role)
    return fields


def _reserved_names() -> ReservedNames:
    try:
        return asyncio.run(ReservedNamesLoader(AnsibleSettings(), ()).get())
    except RunError as error:
        raise ConfigError(f"names of fields: {error}") from error


def _print_paths(paths: list[str]) -> None:
    for path in sorted(paths):
        click.echo(path)
