"""Read one entry of watches.yaml as a `Watch`, and report all of its problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from operator_runner.config.watches import definitions, expressions
from operator_runner.config.watches.conversions import ConversionReader
from operator_runner.config.watches.document import Diagnostics, Location, YamlValue
from operator_runner.config.watches.execution import read_execution
from operator_runner.config.watches.keys import (
    ENTRY_KEYS,
    NAME_PATTERN,
    PROTECTED_KINDS,
    SERVER_SIDE,
    STANDARD_FIELDS,
)
from operator_runner.config.watches.lookup import Lookup, has_tasks
from operator_runner.config.watches.map_reader import MapReader, maps, read_gvk, required_gvk
from operator_runner.config.watches.schedules import read_schedule
from operator_runner.config.watches.selector import is_qualified_name, read_selector
from operator_runner.config.watches.status_keys import read_ready_when, read_status, read_wake_on
from operator_runner.core.ansible_core import path_problem, variable_problem
from operator_runner.core.model import (
    GVK,
    Deselection,
    Drift,
    Finalizer,
    LabelSelector,
    ObjectTrigger,
    Ownership,
    Profile,
    Prune,
    Reference,
    RunContent,
    Schedule,
    Watch,
)

_MAX_FIELD_MANAGER = 128
"""Characters of a field manager that the API server takes."""
_SKIP_UNCHANGED = (
    "ignored: no run is skipped; a longer reconcilePeriod, or none (0s), has fewer runs"
)


class EntryReader:
    """Reads the entries of one file in order, and reports duplicate kinds."""

    def __init__(
        self, report: Diagnostics, lookup: Lookup, *, mark_unsafe: bool, variables: Container[str]
    ) -> None:
        """Report problems to `report`; `mark_unsafe` is the default of the key.

        `variables` are the names of environment variables, which paths may have by accident.
        """
        self._report = report
        self._lookup = lookup
        self._mark_unsafe = mark_unsafe
        self._variables = variables
        self._seen: dict[GVK, Location] = {}
        self._conversions = ConversionReader()

    def read(self, items: Iterable[YamlValue]) -> tuple[Watch, ...]:
        """Return the watches; do not use them if a problem was reported."""
        return tuple(self._read(fields) for fields in maps(items, self._report, ENTRY_KEYS))

    def _read(self, fields: MapReader) -> Watch:
        gvk = self._gvk(fields)
        definitions.put_in(fields)
        is_strict = fields.choice("profile") == Profile.STRICT
        native_types = fields.optional_flag("nativeTypes")
        ownership = _ownership(fields, is_strict=is_strict)
        watch = Watch(
            gvk=gvk,
            content=self._content(fields, self._report.problem) or RunContent(),
            vars=fields.mapping("vars"),
            finalizer=self._finalizer(fields),
            deselection=self._deselection(fields),
            selector=_selector(fields),
            blacklist=_kinds(fields, "blacklist"),
            max_runner_artifacts=fields.integer("maxRunnerArtifacts"),
            reconcile_period=_period(fields),
            manage_status=_manage_status(fields, gvk),
            watch_dependent_resources=fields.flag("watchDependentResources"),
            watch_cluster_scoped_resources=fields.flag("watchClusterScopedResources"),
            watch_annotations_changes=fields.flag("watchAnnotationsChanges"),
            snake_case_parameters=fields.flag("snakeCaseParameters"),
            gather_facts=fields.flag("gatherFacts"),
            mark_unsafe=fields.flag("markUnsafe", self._mark_unsafe or is_strict),
            native_types=True if is_strict and native_types is None else native_types,
            allow_vars=_allow_vars(fields),
            top_level_fields=_top_level_fields(fields),
            when=_expression(fields, "when"),
            timeout=_timeout(fields),
            supersede=fields.flag("supersede"),
            kstatus=fields.flag("kstatus", is_strict),
            references=tuple(map(_reference, fields.each("references"))),
            schedule=_schedule(fields, gvk),
            triggers=tuple(map(_trigger, fields.each("triggers"))),
            conversions=self._conversions.read(fields),
            block_upgrade=_block_upgrade(fields),
            ownership=ownership,
            ownership_exceptions=_ownership_exceptions(fields, ownership),
            drift=Drift(fields.choice("drift")),
            field_manager=_field_manager(fields, gvk),
            job=read_execution(fields),
            prune=_prune(fields),
        )
        if fields.flag("skipUnchanged"):
            fields.warning("skipUnchanged", _SKIP_UNCHANGED)
        status, wake_on = read_status(fields, watch), read_wake_on(fields, watch)
        ready_when = read_ready_when(fields, watch, status)
        return replace(watch, status=status, wake_on=wake_on, ready_when=ready_when)

    def _gvk(self, fields: MapReader) -> GVK:
        gvk = read_gvk(fields)
        for name, value in (("version", gvk.version), ("kind", gvk.kind)):
            if not value:
                wrong = f"invalid GVK: {gvk}: {name} must not be empty"
                fields.problem(name, f"{wrong}; add `{name}:`")
                return gvk
        if gvk in self._seen:
            line = self._seen[gvk].line
            fields.problem(
                "kind",
                f"duplicate GVK: {gvk}; line {line} already has it, remove one of them",
            )
        self._seen.setdefault(gvk, fields.where("kind"))
        return gvk

    def _finalizer(self, fields: MapReader) -> Finalizer | None:
        inner = fields.fields("finalizer")
        if inner is None:
            return None
        name = _qualified_name(inner, "finalizer", "example.com/cleanup")
        finalizer_vars = inner.mapping("vars")
        if finalizer_vars and not (inner.text("role") or inner.text("playbook")):
            return Finalizer(name, None, finalizer_vars)
        # Beside vars a missing path stops nothing in ansible-operator until the finalizer runs.
        report = self._report.warning if finalizer_vars else self._report.problem
        return Finalizer(name, self._content(inner, report), finalizer_vars)

    def _deselection(self, fields: MapReader) -> Deselection | None:
        inner = fields.fields("deselection")
        if inner is None:
            return None
        if fields.item("selector") is None and fields.item("when") is None:
            fields.problem(
                "deselection",
                "no effect without `selector` or `when`; add one of them, or remove it",
            )
        annotation = _qualified_name(inner, "deselection", "example.com/reported")
        own_vars = inner.mapping("vars")
        if own_vars and not (inner.text("role") or inner.text("playbook")):
            return Deselection(annotation, None, own_vars)
        return Deselection(annotation, self._content(inner, self._report.problem), own_vars)

    def _content(
        self, fields: MapReader, report: Callable[[Location, str], None]
    ) -> RunContent | None:
        """Return the role or playbook to run; problems are passed to `report`."""
        if name := fields.text("playbook"):
            playbook = self._lookup.playbook(name)
            if message := _check_playbook(playbook, self._variables):
                report(fields.where("playbook"), message)
            return RunContent(playbook=playbook)
        if name := fields.text("role"):
            role = self._lookup.role(name)
            if not role.exists():
                searched = ", ".join(str(path) for path in self._lookup.candidates(name))
                hint = "create it there; for an image, copy it there in the Dockerfile"
                text = f"role: {name} was not found; searched {searched}; {hint}"
                report(fields.where("role"), text)
            elif not role.is_dir():
                text = f"role: {role} is not a directory; name a playbook's file as `playbook:`"
                report(fields.where("role"), text)
            elif message := path_problem(role, self._variables):
                report(fields.where("role"), f"role: {message}")
            elif not has_tasks(role):
                fields.warning("role", f"the role has no tasks; {role}/tasks/main.yml is missing")
            return RunContent(role=role)
        report(
            fields.location, "must specify Role or Playbook; add `role: NAME` or `playbook: FILE`"
        )
        return None


def _qualified_name(fields: MapReader, key: str, example: str) -> str:
    """Return the `name` of a finalizer or an annotation."""
    name = fields.text("name")
    if not name:
        fields.problem("name", f"{key} must have name; add one such as `name: {example}`")
    elif not is_qualified_name(name):
        fields.problem("name", f'invalid {key} name "{name}"; write it as {example}')
    return name


def _kinds(fields: MapReader, name: str) -> frozenset[GVK]:
    entries = list(fields.each(name))
    for entry in entries:
        for part in ("version", "kind"):
            if not entry.text(part):
                entry.warning(part, "must not be empty; the entry is ignored")
    return frozenset(read_gvk(entry) for entry in entries)


def _ownership(fields: MapReader, *, is_strict: bool) -> Ownership:
    if is_strict and fields.item("ownership") is None:
        return Ownership.REFUSE
    return Ownership(fields.choice("ownership"))


def _ownership_exceptions(fields: MapReader, ownership: Ownership) -> frozenset[GVK]:
    kinds = _kinds(fields, "ownershipExceptions")
    if kinds and ownership is Ownership.IGNORE:
        fields.warning(
            "ownershipExceptions",
            "no effect without `ownership`; add `ownership: refuse` or `ownership: adopt`, or"
            " remove it",
        )
    return kinds


def _prune(fields: MapReader) -> Prune | None:
    inner = fields.flag_or_fields("prune")
    if isinstance(inner, bool):
        return Prune() if inner else None
    kinds = inner.names("kinds")
    for kind in kinds:
        if kind not in PROTECTED_KINDS:
            inner.problem(
                "kinds",
                f'"{kind}" is not one of {", ".join(PROTECTED_KINDS)}; other kinds are deleted'
                " without being named",
            )
    return Prune(frozenset(kinds), inner.choice("propagation"))


def _field_manager(fields: MapReader, gvk: GVK) -> str:
    """Return the name with which runs apply, empty unless `apply` is server-side."""
    if fields.choice("apply") != SERVER_SIDE:
        return ""
    if fields.text("playbook"):
        fields.problem(
            "apply",
            "no effect on plays of a playbook; name its role as `role:`, or write"
            " `module_defaults` for kubernetes.core.k8s into the playbook",
        )
    return gvk.kind_and_group.lower()[:_MAX_FIELD_MANAGER]


def _allow_vars(fields: MapReader) -> frozenset[str]:
    names = fields.names("allowVars")
    for name in names:
        # Accept names of fields, and of variables in any version of Ansible.
        if not re.fullmatch(NAME_PATTERN, name):
            fields.problem(
                "allowVars",
                f'"{name}" is not a name; write a field of the spec or a variable,'
                " such as ansible_host",
            )
    return frozenset(names)


def _top_level_fields(fields: MapReader) -> tuple[str, ...]:
    names = fields.names("topLevelFields")
    for name in names:
        if name in STANDARD_FIELDS or not re.fullmatch(NAME_PATTERN, name):
            fields.problem(
                "topLevelFields",
                f'"{name}" is not a field beside metadata, spec and status;'
                " write a field such as data",
            )
    return names


def _manage_status(fields: MapReader, gvk: GVK) -> bool:
    """Return whether to write conditions; by default not into the status of a built-in kind."""
    managed = fields.flag("manageStatus", not gvk.is_built_in)
    if fields.item("manageStatus") is None and not managed and fields.flag("kstatus"):
        fields.warning(
            "kstatus",
            f"no effect: {gvk.kind} is a built-in kind, whose status is not written;"
            " remove it, or add `manageStatus: true`",
        )
    return managed


def _schedule(fields: MapReader, gvk: GVK) -> Schedule | None:
    inner = fields.fields("schedule")
    if inner is None:
        return None
    if not fields.flag("manageStatus", not gvk.is_built_in):
        fields.problem(
            "schedule",
            "needs manageStatus: the last tick is kept in the status; "
            + (
                f"the status of {gvk.kind}, a built-in kind, has no field for it; remove it"
                if gvk.is_built_in
                else "remove `manageStatus: false`"
            ),
        )
    return read_schedule(inner)


def _check_playbook(playbook: Path, variables: Container[str]) -> str:
    if not playbook.exists():
        return (
            f"playbook: {playbook} was not found; create it, or write its path from the directory"
            " in which the operator starts"
        )
    if playbook.is_dir():
        return f"playbook: {playbook} is a directory; name a role as `role:`"
    problem = variable_problem(playbook, variables)
    return f"playbook: {problem}" if problem else ""


def _period(fields: MapReader) -> timedelta | None:
    period = fields.duration("reconcilePeriod")
    # 0s is the same as no value; a negative period is read as 0s.
    return max(period, timedelta(0)) if period else None


def _timeout(fields: MapReader) -> timedelta | None:
    timeout = fields.duration("timeout")
    if timeout is not None and timeout <= timedelta(0):
        fields.problem("timeout", "a timeout must be longer than 0s; omit it for no timeout")
    return timeout


def _expression(fields: MapReader, name: str) -> str | None:
    if fields.item(name) is None:
        return None
    expression = fields.text(name)
    if message := expressions.problem(expression):
        fields.problem(name, message)
    return expression


def _block_upgrade(fields: MapReader) -> str | None:
    literal = {"true": "`true`", "false": None, "": None}
    text = fields.text("blockUpgrade")
    return literal[text] if text in literal else _expression(fields, "blockUpgrade")


def _selector(fields: MapReader) -> LabelSelector:
    selector = fields.fields("selector")
    return LabelSelector() if selector is None else read_selector(selector)


def _trigger(fields: MapReader) -> ObjectTrigger:
    gvk = required_gvk(fields)
    name, matching = _filled_expression(fields, "name"), _filled_expression(fields, "matching")
    if name is not None and matching is not None:
        fields.problem(
            "matching", "name and matching exclude each other; write a second trigger for matching"
        )
    return ObjectTrigger(
        gvk,
        _selector(fields),
        _filled_expression(fields, "when"),
        name,
        _filled_expression(fields, "namespace"),
        matching,
    )


def _reference(fields: MapReader) -> Reference:
    gvk = required_gvk(fields)
    name, selector = _filled_expression(fields, "name"), _filled_expression(fields, "selector")
    if name is None and selector is None:
        fields.problem("name", "name must not be empty; add `name:` or `selector:`")
    elif name is not None and selector is not None:
        fields.problem(
            "selector",
            "name and selector exclude each other; write a second reference for selector",
        )
    return Reference(gvk, name, _expression(fields, "namespace"), selector)


def _filled_expression(fields: MapReader, name: str) -> str | None:
    return _expression(fields, name) if fields.text(name) else None
