"""Check the roles and playbooks of watches: all findings at once, without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ansible import constants
from ansible._internal._datatag._tags import TrustedAsTemplate
from ansible.parsing.dataloader import DataLoader
from jinja2 import TemplateSyntaxError

from operator_runner.config.watches.lookup import Lookup
from operator_runner.core.errors import ConfigError
from operator_runner.core.image_paths import project_modules
from operator_runner.core.model import Watch
from operator_runner.reconcile.variables import to_snake
from operator_runner.tools import yaml_io
from operator_runner.tools.validate import conditions, expressions, project
from operator_runner.tools.validate.expressions import Uses
from operator_runner.tools.validate.findings import Finding, line_in, line_of, ordered
from operator_runner.tools.validate.kinds import incomplete, known_groups, misspelt_groups, unserved
from operator_runner.tools.validate.plugins import Problem, location, start
from operator_runner.tools.validate.plugins import unknown_parameters as unknown
from operator_runner.tools.validate.requirements import (
    foreign_packages,
    image_collections,
    outdated,
)
from operator_runner.tools.validate.sources import Sources, collection_of
from operator_runner.tools.validate.spec_fields import (
    Definitions,
    SpecFields,
    disagreements,
    spec_fields,
    undefined,
)
from operator_runner.tools.validate.task_reader import Content, Expression
from operator_runner.tools.validate.values import short_name

_HEADER = "#jinja2:"
_GATHERING = {"setup", "gather_facts"}


def check(watches: Sequence[Watch], file: Path, lookup: Lookup) -> list[Finding]:
    """Return what is wrong in all that the watches run, by file and line.

    `file` has the watches; requirements.yml and the CRDs are in its directory. Raises ConfigError
    if one of these cannot be read.
    """
    folder = file.parent
    contents = {each for watch in watches for each in watch.contents}
    roles = {each.path for each in contents if each.role is not None}
    playbooks = {each.path for each in contents} - roles
    start(
        [
            *(path.parent / "collections" for path in playbooks),
            folder / "collections",
            *lookup.collections,
        ],
        roles,
        project_modules(folder),
    )
    image = image_collections(folder, location)
    image = replace(image, names=image.names.union(*map(collection_of, roles)))
    # Of runs of roles, `run_spec` sets the search path.
    configured = map(Path, constants.DEFAULT_ROLES_PATH) if playbooks else ()
    sources = Sources(folder, (*lookup.roles, *configured), image)
    objects = _objects(folder)
    for watch in watches:
        fields = spec_fields(watch, objects)
        for each in watch.contents:
            sources.add(each.path, fields, is_role=each.role is not None)
    of_project = [*_of_kinds(watches, file, objects), *foreign_packages(folder), *outdated(folder)]
    are_native = all(watch.native_types for watch in watches)
    groups = known_groups(watches, objects)
    return ordered([*of_project, *_Checker(sources, are_native, groups).findings()])


def _of_kinds(watches: Sequence[Watch], file: Path, objects: list[Any]) -> Iterator[Finding]:
    """Yield a warning for each kind that no CRD of the project serves, or serves completely."""
    if not (missing := [*unserved(watches, objects), *incomplete(watches, objects)]):
        return
    entries = DataLoader().load_from_file(str(file), trusted_as_template=False)
    for gvk, message in missing:
        same = (entry for entry in _maps(entries) if gvk.kind in entry.values())
        line = next((line_of(value) for value in next(same, {}).values() if value == gvk.kind), 1)
        yield Finding(file, line, message, is_error=False)


def _maps(entries: Any) -> Iterator[Any]:
    """Yield the entries of watches.yaml, and the maps of their lists, such as triggers."""
    for entry in entries:
        yield entry
        for value in entry.values():
            if isinstance(value, list):
                yield from (each for each in value if isinstance(each, dict))


def _objects(folder: Path) -> list[Any]:
    found: list[Any] = []
    for path in project.manifests(folder):
        with suppress(ConfigError):  # kustomize's and other files need not be objects
            found += yaml_io.select_objects(yaml_io.read_text(path), str(path))
    return found


class _Checker:
    """Compares what files use with what all of them define, and with what is installed."""

    def __init__(self, sources: Sources, are_native: bool, groups: frozenset[str]) -> None:
        """`are_native`: all watches have `nativeTypes`; `groups` are those that are known."""
        self._sources = sources
        self._groups = groups
        self._are_native = are_native

    def findings(self) -> list[Finding]:
        """Return what is wrong, after the last `add`."""
        used: dict[Path, list[tuple[Any, Uses]]] = {}
        for path, content in self._sources.contents.items():
            self._sources.report_all(path, content.problems)
            self._check_actions(path, content)
            self._check_conditions(path, content)
            used[path] = list(self._uses_of(path, content))
        for path, text in self._sources.templates.items():
            if path.name not in self._sources.other_syntax:
                used[path] = list(self._uses_of_template(path, text))
        definitions = self._definitions([each for found in used.values() for _, each in found])
        for path, found in used.items():
            fields = self._sources.fields_of(path)
            for text, each in found:
                self._check_uses(path, text, each, definitions, fields)
        for path, defaults in self._sources.defaults.items():
            self._check_defaults(path, defaults)
        for path in (*self._sources.contents, *self._sources.templates):
            text = path.read_text(encoding="utf-8", errors="replace")
            self._sources.report_all(path, misspelt_groups(text, self._groups))
        for path, data in self._sources.specs.items():
            fields = self._sources.fields_of(path)
            self._sources.report_all(path, disagreements(data, fields, definitions))
        return [self._by_use(each) for each in self._sources.found]

    def _by_use(self, finding: Finding) -> Finding:
        """Return an error in a file that nothing runs as a warning."""
        if not finding.is_error or self._sources.is_used(finding.path):
            return finding
        message = f"{finding.message} (no other file names this one)"
        return replace(finding, message=message, is_error=False)

    def _definitions(self, used: list[Uses]) -> Definitions:
        contents = self._sources.contents.values()
        variables = {path: set(content.defines) for path, content in self._sources.contents.items()}
        defaults = {name for path in self._sources.defaults for name in variables[path]}
        others = (names for path, names in variables.items() if path not in self._sources.defaults)
        return Definitions(
            frozenset(defaults),
            frozenset().union(*others),
            frozenset(name for content in contents for name in content.declares),
            frozenset().union(
                *(each.guarded if self._are_native else each.guarded | each.typed for each in used)
            ),
            any(content.is_open for content in contents)
            or any((role / "library").is_dir() for role in self._sources.layout.roles),
        )

    def _check_actions(self, path: Path, content: Content) -> None:
        for action in content.actions:
            found = self._sources.plugins.module(str(action.name), action.collections)
            if isinstance(found, Problem):
                self._sources.report(path, action.name, *found)
                continue
            for argument, message in unknown(found, action.arguments):
                self._sources.report(path, argument, message)
        for name in content.lookups:
            if name != "items" and (problem := self._sources.plugins.lookup(name)):
                self._sources.report(path, name, *problem)

    def _check_conditions(self, path: Path, content: Content) -> None:
        for condition in content.conditions:
            if isinstance(condition, str) and not TrustedAsTemplate.is_tagged_on(condition):
                continue  # !unsafe
            for message in conditions.deprecated(self._sources.environment, condition):
                self._sources.report(path, condition, message, is_error=False)

    def _uses_of(self, path: Path, content: Content) -> Iterator[tuple[Any, Uses]]:
        for expression in content.expressions:
            if not TrustedAsTemplate.is_tagged_on(expression.text):
                continue  # !unsafe
            try:
                yield expression.text, self._parse(expression)
            except TemplateSyntaxError as error:
                line = line_in(path, expression.text, error.lineno)
                self._sources.report(path, line, f"Jinja syntax: {error.message}")

    def _parse(self, expression: Expression) -> Uses:
        text = str(expression.text)
        if expression.is_bare:
            text = "{{ " + text + " }}"
        return expressions.uses(self._sources.environment, text, expression.aliases)

    def _uses_of_template(self, path: Path, text: str) -> Iterator[tuple[Any, Uses]]:
        offset = 0
        if text.startswith(_HEADER):
            header, _, text = text.partition("\n")
            offset = 1
            if "_string" in header:
                return
        try:
            yield offset, expressions.uses(self._sources.environment, text)
        except TemplateSyntaxError as error:
            self._sources.report(path, error.lineno + offset, f"Jinja syntax: {error.message}")

    def _check_uses(
        self, path: Path, text: Any, used: Uses, definitions: Definitions, fields: SpecFields
    ) -> None:
        def line(number: int, word: str) -> int:
            is_template = isinstance(text, int)
            return number + text if is_template else line_in(path, text, number, word)

        for kind in ("filter", "test", "lookup"):
            for use in getattr(used, f"{kind}s"):
                if problem := getattr(self._sources.plugins, kind)(use.name):
                    self._sources.report(path, line(use.line, use.name), *problem)
        for use in used.files:
            if Path(use.name).is_absolute():
                continue  # the image may have it
            if not self._sources.layout.file("template", use.name, path):
                message = f"there is no template file {use.name} in templates/"
                message += self._sources.similar(use.name)
                self._sources.report(path, line(use.line, use.name), message)
        warnings = (
            *self._deprecated_names(used, definitions, fields),
            *(() if fields.has_facts else self._missing_facts(used, definitions)),
        )
        named = (*undefined(used, definitions, fields), *((*each, False) for each in warnings))
        for number, name, message, is_error in named:
            self._sources.report(path, line(number, name), message, is_error)

    def _missing_facts(
        self, used: Uses, definitions: Definitions
    ) -> Iterator[tuple[int, str, str]]:
        if self._modules & _GATHERING:
            return
        for use in used.variables:
            is_known = use.name in definitions.others | definitions.guarded
            fact = use.name.removeprefix("ansible_")
            if not is_known and fact != use.name and (fact == "facts" or fact in conditions.FACTS):
                message = (
                    f"'{use.name}' is undefined: the watch has `gatherFacts: false`; remove that "
                    "key, or gather facts with ansible.builtin.setup"
                )
                yield use.line, use.name, message

    def _deprecated_names(
        self, used: Uses, definitions: Definitions, fields: SpecFields
    ) -> Iterator[tuple[int, str, str]]:
        defined = definitions.known(fields)
        contents = self._sources.contents.values()
        registered = {name for content in contents for name in content.registered}
        return conditions.of_names(used, defined, self._modules, registered)

    @cached_property
    def _modules(self) -> set[str]:
        """The short names of the modules of all tasks."""
        contents = self._sources.contents.values()
        return {short_name(each.name) for content in contents for each in content.actions}

    def _check_defaults(self, path: Path, defaults: Mapping[Any, Any]) -> None:
        fields = self._sources.fields_of(path)
        for name in defaults:
            snake = to_snake(str(name))
            if fields.is_snake_case and name in fields.fields and snake != name:
                message = f"{name} is not the default of the field: spec fields are in snake case"
                self._sources.report(path, name, f"{message} here: {snake}", is_error=False)
