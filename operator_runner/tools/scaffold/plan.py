"""Plan the files of `init` and `create api`: from checked names to paths and texts. Pure.

The paths of the package's template trees are those of the project, their texts Jinja. A path has
`{kind}` where a name goes, a text `[[ kind ]]`: `{{ }}` is Ansible's. An item is added to a YAML
list of the user at kubebuilder's marker comment, as `operator-sdk` writes it too, or at its end.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import jinja2

from operator_runner.core.errors import ConfigError
from operator_runner.core.object_names import pluralize
from operator_runner.tools.scaffold import project_file
from operator_runner.tools.scaffold.fields import Field, arguments, columns, examples, spec_schema
from operator_runner.tools.scaffold.project_file import ApiNames, Project
from operator_runner.tools.yaml_io import dump_in_order, dump_variables

_ITEM = re.compile(r"( *)- ")


def insert(path: str, text: str, marker: str, key: str, item: str) -> str:
    """Return the text of a file with an item of its list added.

    `item` begins with a dash at the left margin. It goes before the marker comment
    `+kubebuilder:scaffold:<marker>`; without one to the end of the list under `key`, a key of the
    left margin, or to the end of the file if `key` is empty. An existing item is not added again.
    Raises ConfigError with `path` if the marker or key is missing.
    """
    lines = text.splitlines()
    begin, end = _block(lines, key)
    found = re.compile(rf"( *)# *\+kubebuilder:scaffold:{re.escape(marker)}\s*")
    marks = [(at, match) for at, line in enumerate(lines) if (match := found.fullmatch(line))]
    if marks:
        at, indent = marks[0][0], marks[0][1][1]
    elif begin is not None:
        at, indent = end, ""
    else:
        raise ConfigError(
            f"{path}: missing comment `# +kubebuilder:scaffold:{marker}` or list `{key}:` with one "
            f"line for each item; add one of them, or insert this by hand:\n{item}"
        )
    # Indent as the other items: the marker may be further left.
    items = [match for line in lines[begin or 0 : end] if (match := _ITEM.match(line))]
    if items:
        indent = items[0][1]
    new = textwrap.indent(item.rstrip("\n"), indent).splitlines()
    if _contains(lines, new):
        return text
    return "\n".join([*lines[:at], *new, *lines[at:]]) + "\n"


def _block(lines: list[str], key: str) -> tuple[int | None, int]:
    """Return the lines of a list: from the one after its key to the one after its last item."""
    begin = 0
    if key:
        heads = [at for at, line in enumerate(lines) if re.fullmatch(rf"{key}: *(#.*)?", line)]
        if not heads:
            return None, len(lines)
        begin = heads[0] + 1
    end = begin
    for at in range(begin, len(lines)):
        line = lines[at]
        if key and line and not line.startswith((" ", "-", "#")):
            break
        if line.strip() and not line.startswith("#"):
            end = at + 1
    return begin, end


def _contains(lines: list[str], part: list[str]) -> bool:
    inserted = [line.strip() for line in part]
    stripped = [line.strip() for line in lines]
    return any(
        stripped[at : at + len(inserted)] == inserted
        for at in range(len(lines) - len(inserted) + 1)
    )


_SUFFIX = ".j2"
_JINJA = jinja2.Environment(
    block_start_string="[%",
    block_end_string="%]",
    variable_start_string="[[",
    variable_end_string="]]",
    comment_start_string="[#",
    comment_end_string="#]",
    trim_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701 - YAML and Markdown of names that are checked, no HTML
)


def _yaml(dump: Callable[[Any], str], value: Any, indent: int = 0) -> str:
    """Return a value as YAML whose lines are all indented, without a line break at the end."""
    return textwrap.indent(dump(value).removesuffix("\n"), " " * indent)


_JINJA.filters |= {
    "yaml": partial(_yaml, dump_in_order),
    "variables": partial(_yaml, dump_variables),
}


def tree(name: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each file of a template tree, by its path in the project."""
    root = files(__package__) / "templates" / name
    return {
        path.removesuffix(_SUFFIX).format(**values): _JINJA.from_string(text).render(values)
        for path, text in _walk(root, "")
    }


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = prefix + entry.name
        if entry.is_dir():
            yield from _walk(entry, path + "/")
        elif path.endswith(_SUFFIX):
            yield path, entry.read_text(encoding="utf-8")


# The name under which `make image` of operator-runner tags its image.
BASE_IMAGE = "localhost/operator-runner:latest"

_WATCHES = "watches.yaml"
_RULES = "config/rbac/role.yaml"
_ROLES = "config/rbac/kustomization.yaml"
_CRDS = "config/crd/kustomization.yaml"
_SAMPLES = "config/samples/kustomization.yaml"

# Files that `create api` adds to. The last two are made with the first kind.
EDITED = (project_file.PATH, _WATCHES, _RULES, _ROLES, _CRDS, _SAMPLES)
_MADE_ONCE = (_CRDS, _SAMPLES)

_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class ApiPlan:
    """A kind to add, the fields of its spec, and whether it has a role or a playbook."""

    api: ApiNames
    fields: tuple[Field, ...] = ()
    role: bool = False
    playbook: bool = False
    crd_version: str = "v1"


def plan_init(project: Project) -> dict[str, str]:
    """Return the files of a new project by path."""
    values = {"project": project.name, "domain": project.domain, "base_image": BASE_IMAGE}
    return {project_file.PATH: project_file.new(project), **tree("project", values)}


def plan_api(present: Mapping[str, str], api_plan: ApiPlan) -> dict[str, str]:
    """Return the files that a new kind creates or changes, by path.

    `present` has the existing files of EDITED. Raises ConfigError if the project already has the
    kind, or if one of these files has no place for it.
    """
    for path in EDITED:
        if path not in present and path not in _MADE_ONCE:
            raise ConfigError(f"{path}: no such file; create it with `operator-runner init`")
    api = api_plan.api
    text = present[project_file.PATH]
    project = project_file.read(text)
    _refuse_what_is_there(project, project_file.kinds(text), api)
    if not api.full_group(project.domain):
        raise ConfigError("--group: PROJECT has no domain, so the kind needs one: --group=cache")
    values = values_of(project, project_file.kinds(text), api_plan)
    files = tree("api", values)
    if api_plan.role:
        files |= tree("role", values)
        if api_plan.fields:
            files |= tree("role_arguments", values)
    if api_plan.playbook:
        files |= tree("playbook", values)
    files |= tree("tests", values)
    regular = api.plural == pluralize(api.lower)
    files[project_file.PATH] = project_file.add(
        text, api, api_plan.crd_version, regular_plural=regular
    )
    for path, marker, key, item in _items(project, values, api_plan):
        before = files[path] if path in files and path not in present else present[path]
        files[path] = insert(path, before, marker, key, item)
    return files


def _refuse_what_is_there(project: Project, kinds: tuple[ApiNames, ...], api: ApiNames) -> None:
    group = api.full_group(project.domain)
    for known in kinds:
        if (known.group, known.kind) != (api.group, api.kind):
            continue
        if known.version == api.version:
            raise ConfigError(
                f"--kind {api.kind}: PROJECT has {group}/{api.version} {api.kind} already; "
                "choose another --kind or --group"
            )
        raise ConfigError(
            f"--version {api.version}: PROJECT has {api.kind} in {known.version}. Add the version "
            f"to the CRD config/crd/bases/{group}_{known.plural or api.plural}.yaml, under "
            f"`versions`, and an entry for it to {_WATCHES}"
        )


def values_of(project: Project, kinds: tuple[ApiNames, ...], api_plan: ApiPlan) -> dict[str, Any]:
    """Return the variables of the templates of a kind."""
    api = api_plan.api
    namesake = any(known.kind == api.kind for known in kinds)
    grouped = bool(api.group) and (project.multigroup or namesake)
    full_group = api.full_group(project.domain)
    # Two groups may have a kind of the same name; their files need different names.
    file_name = f"{api.group}_{api.lower}" if grouped else api.lower
    return {
        "project": project.name,
        "full_group": full_group,
        "var_group": full_group.replace(".", "_").replace("-", "_"),
        "version": api.version,
        "Kind": api.kind,
        "kind": api.lower,
        "plural": api.plural,
        "crd_version": api_plan.crd_version,
        "sample": "_".join(part for part in (api.group, api.version, api.lower) if part) + ".yaml",
        "rbac_file": file_name,
        "test_name": re.sub(r"[.-]", "_", file_name),
        "rbac_name": f"{api.group}-{api.lower}".replace(".", "-") if grouped else api.lower,
        "with_role": api_plan.role,
        "with_playbook": api_plan.playbook,
        **_values_of_fields(api, api_plan.fields),
    }


def _values_of_fields(api: ApiNames, fields: tuple[Field, ...]) -> dict[str, Any]:
    """Return the variables of the templates of a kind that describe its fields."""
    return {
        "fields": fields,
        "columns": columns(fields),
        "spec_schema": spec_schema(fields, f"Desired state of the {api.kind}"),
        "spec_required": any(field.required for field in fields),
        "sample_spec": examples(fields),
        "options": arguments(fields),
    }


def _items(
    project: Project, values: Mapping[str, Any], api_plan: ApiPlan
) -> list[tuple[str, str, str, str]]:
    """Return path, marker, key and text of each item to insert."""
    api, group = api_plan.api, values["full_group"]
    crd = f"- bases/{group}_{api.plural}.yaml"
    roles = "\n".join(
        f"- {values['rbac_file']}_{who}_role.yaml" for who in ("admin", "editor", "viewer")
    )
    return [
        (_WATCHES, "watch", "", _watch(project, api_plan)),
        (_RULES, "rules", "rules", _rules(project, api)),
        (_ROLES, "roles", "resources", roles),
        (_CRDS, "crdkustomizeresource", "resources", crd),
        (_SAMPLES, "manifestskustomizesamples", "resources", f"- {values['sample']}"),
    ]


_ROLE_KEYS = """\
  # Tasks of kubernetes.core.k8s write what they say and nothing else: by server-side apply.
  apply: server-side
  # Facts of the host take half a second of each run.
  gatherFacts: false
"""
"""They have no effect on a playbook, which is a play of its own."""


def _watch(project: Project, api_plan: ApiPlan) -> str:
    api = api_plan.api
    is_playbook = api_plan.playbook
    content = f"playbook: playbooks/{api.lower}.yml" if is_playbook else f"role: {api.lower}"
    return (
        f"- version: {api.version}\n"
        f"  group: {api.full_group(project.domain)}\n"
        f"  kind: {api.kind}\n"
        f"  {content}\n"
        "  # markUnsafe, nativeTypes, kstatus, and `ownership: refuse`.\n"
        "  profile: strict\n"
        f"{'' if is_playbook else _ROLE_KEYS}"
        "  # A run that hangs is ended, and repeated.\n"
        "  timeout: 10m\n"
        "  # Objects that a run no longer writes are deleted.\n"
        "  prune: true\n"
    )


def _rules(project: Project, api: ApiNames) -> str:
    group = api.full_group(project.domain)
    names = (api.plural, f"{api.plural}/status", f"{api.plural}/finalizers")
    rule = (
        f"- apiGroups:\n    - {group}\n"
        "  resources:\n" + "".join(f"    - {name}\n" for name in names) + "  verbs:\n"
        "" + "".join(f"    - {verb}\n" for verb in _VERBS)
    )
    title = f"##\n## {api.kind} of {group}/{api.version}\n##\n"
    return textwrap.dedent(title) + rule
