"""Plan what `create field` changes: CRD, sample and argument spec of a kind. Pure.

What the CRD has already must agree with the new fields. The other files get what they lack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from operator_runner.ansible.templating.hints import suggestion
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.core.object_names import pluralize
from operator_runner.tools.scaffold import project_file, yaml_edit
from operator_runner.tools.scaffold.fields import Field, check_variable, columns, with_presence
from operator_runner.tools.scaffold.plan import ApiPlan, tree, values_of
from operator_runner.tools.scaffold.project_file import ApiNames
from operator_runner.tools.yaml_io import dump_in_order, dump_variables


@dataclass(slots=True)
class FieldPlan:
    """The files to write by path, and a text for each file that has to be edited by hand."""

    files: dict[str, str] = field(default_factory=dict)
    by_hand: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of a kind that have its fields."""

    crd: str
    sample: str
    arguments: str
    tasks: str
    """A file of each role; without it the kind has none, and needs no argument spec."""


def find_kind(text: str, kind: str, group: str, version: str) -> ApiNames:
    """Return the kind of PROJECT. Raises ConfigError if it has none or several of that name."""
    kinds = project_file.kinds(text)
    found = [
        each
        for each in kinds
        if each.kind == kind and group in ("", each.group) and version in ("", each.version)
    ]
    if len(found) == 1:
        return replace(found[0], plural=found[0].plural or pluralize(kind.lower()))
    if found:
        which = ", ".join(f"--group={each.group} --version={each.version}" for each in found)
        raise ConfigError(f"{kind}: PROJECT has several of this kind; add one of {which}")
    names = {each.kind for each in kinds}
    hint = suggestion(kind, names - {kind}, "; create it with `operator-runner create api`")
    raise ConfigError(f"{kind}: PROJECT has no such kind, group and version{hint}")


def paths_of(text: str, api: ApiNames) -> Paths:
    """Return the paths of a kind's files."""
    values = _values(text, api, ())
    role = f"roles/{api.lower}"
    return Paths(
        f"config/crd/bases/{values['full_group']}_{api.plural}.yaml",
        f"config/samples/{values['sample']}",
        f"{role}/meta/argument_specs.yml",
        f"{role}/tasks/main.yml",
    )


def plan_fields(
    present: Mapping[str, str], paths: Paths, api: ApiNames, fields: Sequence[Field]
) -> FieldPlan:
    """Return the files that change. `present` has the texts of PROJECT and of the files in `paths`.

    Raises ConfigError if the CRD cannot be read or has a field otherwise.
    """
    if paths.crd not in present:
        raise ConfigError(f"{paths.crd}: no such file; create it with `operator-runner create api`")
    plan = FieldPlan()
    crd = yaml_edit.load_tagged(present[paths.crd], paths.crd)
    known = _spec_schema(crd, paths.crd, api.version).get("properties") or {}
    wanted = _with_fields(crd, paths.crd, api.version, fields)
    by_hand = {"properties": {each.name: each.schema for each in fields}}
    _change(plan, present, paths.crd, wanted, by_hand, where="the schema of spec")
    if paths.sample in present:
        sample = yaml_edit.load_tagged(present[paths.sample], paths.sample)
        if isinstance(sample, dict):
            spec = _sample(sample.get("spec") or {}, fields, known)
            added = {each.name: each.example for each in fields}
            _change(plan, present, paths.sample, sample | {"spec": spec}, added, where="spec")
    if paths.arguments in present:
        specs = yaml_edit.load_tagged(present[paths.arguments], paths.arguments)
        added = {each.variable: each.argument for each in fields}
        specs = _with_options(specs, fields)
        _change(plan, present, paths.arguments, specs, added, where="the options of `main`")
    elif paths.tasks in present:
        plan.files |= tree(
            "role_arguments", _values(present[project_file.PATH], api, tuple(fields))
        )
    return plan


def _values(text: str, api: ApiNames, fields: tuple[Field, ...]) -> dict[str, Any]:
    return values_of(project_file.read(text), (), ApiPlan(api, fields))


def _change(
    plan: FieldPlan, present: Mapping[str, str], path: str, wanted: Any, added: Json, *, where: str
) -> None:
    dump = dump_variables if path.startswith("roles/") else dump_in_order
    text = None if wanted is None else yaml_edit.edit(present[path], wanted, dump)
    if text is None:
        plan.by_hand.append(
            f"{path}: cannot be edited because of its form; add to {where}:\n{dump(added)}"
        )
    elif text != present[path]:
        plan.files[path] = text


def _spec_schema(crd: Any, path: str, version: str) -> Json:
    try:
        found = _version_of(crd, version)["schema"]["openAPIV3Schema"]["properties"]["spec"]
        if isinstance(found, dict):
            return found
    except (KeyError, TypeError):
        pass
    raise ConfigError(
        f"{path}: no schema of spec in version {version}; add it under versions, as"
        " schema.openAPIV3Schema.properties.spec, or name another --version"
    )


def _version_of(crd: Any, version: str) -> Json:
    return next((each for each in crd["spec"]["versions"] if each.get("name") == version), {})


def _with_fields(crd: Json, path: str, version: str, fields: Sequence[Field]) -> Json:
    """Return the CRD with the fields in the schema and the columns of a version."""
    found = _version_of(crd, version)
    schema = found["schema"]["openAPIV3Schema"]
    problems: list[str] = []
    spec = _extended(schema["properties"]["spec"], fields, "", problems)
    if problems:
        raise ConfigError(*(f"field {each}, or edit {path}" for each in problems))
    new_schema = schema | {"properties": schema["properties"] | {"spec": spec}}
    if spec.get("required") and "spec" not in schema.get("required", ()):
        new_schema = _before(
            new_schema, "properties", {"required": [*schema.get("required", ()), "spec"]}
        )
    new = found | {"schema": found["schema"] | {"openAPIV3Schema": new_schema}}
    shown = found.get("additionalPrinterColumns") or []
    used = {each.get("jsonPath") for each in shown}
    added = [
        each
        for each in columns(fields)
        if each["jsonPath"] not in used
        and each["jsonPath"].removeprefix(".spec.")
        not in (schema["properties"]["spec"].get("properties") or {})
    ]
    if added:
        at = next(
            (at for at, each in enumerate(shown) if ".status." in str(each.get("jsonPath"))),
            len(shown),
        )
        new["additionalPrinterColumns"] = [*shown[:at], *added, *shown[at:]]
    versions = [new if each is found else each for each in crd["spec"]["versions"]]
    return crd | {"spec": crd["spec"] | {"versions": versions}}


def _extended(
    schema: Json, fields: Sequence[Field], place: str, problems: list[str], *, is_item: bool = False
) -> Json:
    """Return the schema of an object with more fields; `problems` get what contradicts it."""
    properties = dict(schema.get("properties") or {})
    for each in fields:
        name = f"{place}{each.name}"
        try:
            check_variable(each.name, properties)
        except ConfigError as error:
            problems.append(f"{name}: {error}")
        if each.name not in properties:
            properties[each.name] = each.schema
            continue
        if each.required and each.name not in schema.get("required", ()):
            problems.append(f"{name}: exists and is not required; leave out the !")
        properties[each.name] = _agreed(properties[each.name], each, name, problems)
    result = with_presence(schema, fields, is_item=is_item)
    presence: Json = {
        key: result[key] for key in ("required", "default") if key in result and key not in schema
    }
    kept = {key: value for key, value in result.items() if key not in presence}
    return _before(kept | {"properties": properties}, "properties", presence)


def _agreed(schema: Any, new: Field, name: str, problems: list[str]) -> Json:
    """Return the schema of a field that exists, with the new fields of an object."""
    known: Json = schema if isinstance(schema, dict) else {}
    wanted = new.schema
    item: Json = known["items"] if isinstance(known.get("items"), dict) else {}
    pairs = [(known, wanted), *([(item, wanted["items"])] if new.items else [])]
    compared = [
        (key, found)
        for found, expected in pairs
        for key in (("type",) if new.fields else expected)
        if key not in {"items", "properties"} and found.get(key) != expected[key]
    ]
    if compared:
        key, found = compared[0]
        have = f"with {key} {found[key]}" if key in found else f"without {key}"
        problems.append(f"{name}: exists {have}; choose another name")
        return known
    if not new.fields:
        return known
    if new.items:
        items = _extended(item, new.fields, f"{name}[].", problems, is_item=True)
        return known | {"items": items}
    return _extended(known, new.fields, f"{name}.", problems)


def _before(schema: Json, key: str, entries: Json) -> Json:
    """Return a map with entries before one of its keys."""
    result: Json = {}
    for name, value in schema.items():
        if name == key:
            result |= entries
        if name not in entries or name == key:
            result[name] = value
    return result


def _sample(spec: Any, fields: Sequence[Field], known: Mapping[str, Any]) -> Any:
    """Return the spec of a sample with the examples of fields that it lacks.

    An object that the CRD has and the sample does not is left out: it may have required fields.
    """
    if not isinstance(spec, dict):
        return spec
    result = dict(spec)
    for each in fields:
        inner = known.get(each.name) or {}
        if each.name not in result:
            if not (each.fields and inner):
                result[each.name] = each.example
        elif each.fields:
            value = result[each.name]
            inner = (inner.get("items") or {}) if each.items else inner
            properties = inner.get("properties") or {}
            result[each.name] = (
                [_sample(item, each.fields, properties) for item in value]
                if isinstance(value, list)
                else _sample(value, each.fields, properties)
            )
    return result


def _with_options(specs: Any, fields: Sequence[Field]) -> Any:
    """Return an argument spec with options for the fields; None if it has an unknown form."""
    try:
        main = specs["argument_specs"]["main"]
        options = _options(main.get("options") or {}, fields)
        entries = specs["argument_specs"] | {"main": main | {"options": options}}
        return specs | {"argument_specs": entries}
    except (AttributeError, KeyError, TypeError):
        return None


def _options(options: Mapping[str, Any], fields: Sequence[Field]) -> Json:
    """Return the options of an argument spec with those of fields that it lacks."""
    result = dict(options)
    for each in fields:
        if each.variable not in result:
            result[each.variable] = each.argument
        elif each.fields:
            known = result[each.variable]
            inner = _options(known.get("options") or {}, each.fields)
            result[each.variable] = known | {"options": inner}
    return result
