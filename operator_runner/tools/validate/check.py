"""Check the roles and playbooks of watches: all findings at once, without running anything."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import TrustedAsTemplate
from ansible._internal._templating._engine import TemplateEngine
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from jinja2 import TemplateSyntaxError

from operator_runner.ansible.templating.name_hints import nearest
from operator_runner.config.watches.lookup import Lookup
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Watch
from operator_runner.reconcile.snake_case import to_snake
from operator_runner.tools import yaml_io
from operator_runner.tools.validate import argument_specs, expressions, names, project
from operator_runner.tools.validate.expressions import Uses
from operator_runner.tools.validate.findings import Finding, ordered
from operator_runner.tools.validate.places import line_in, line_of, place_of_error
from operator_runner.tools.validate.plugins import Plugins, Problem, location, start
from operator_runner.tools.validate.plugins import unknown_parameters as unknown
from operator_runner.tools.validate.reader import MARKS, Content, Expression, Reader, Reference
from operator_runner.tools.validate.requirements import image_collections
from operator_runner.tools.validate.spec_fields import SpecFields, spec_fields

_HEADER = "#jinja2:"
_SPECS = ("argument_specs.yml", "argument_specs.yaml")


def check(watches: Sequence[Watch], folder: Path, lookup: Lookup) -> list[Finding]:
    """Return what is wrong in all that the watches run, by file and line.

    `folder` is the directory of the project: of requirements.yml and the CRDs. Raises ConfigError
    if one of these cannot be read.
    """
    contents = {each for watch in watches for each in _contents(watch)}
    playbooks = [path for path, is_role in contents if not is_role]
    start(
        [
            *(path.parent / "collections" for path in playbooks),
            folder / "collections",
            *lookup.collections,
        ],
        [path for path, is_role in contents if is_role],
    )
    checker = _Checker(folder, lookup.roles, image_collections(folder, location))
    objects = _objects(folder)
    for watch in watches:
        fields = spec_fields(watch, objects)
        for path, is_role in _contents(watch):
            checker.add(path, fields, is_role=is_role)
    return ordered(checker.findings())


def _contents(watch: Watch) -> Iterator[tuple[Path, bool]]:
    """Yield path, and whether it is a role, of what runs for a watch."""
    finalizer = watch.finalizer.content if watch.finalizer is not None else None
    for content in filter(None, (watch.content, finalizer)):
        yield content.path, content.role is not None


def _objects(folder: Path) -> list[Any]:
    found: list[Any] = []
    for path in project.manifests(folder):
        with suppress(ConfigError):  # kustomize's and other files need not be objects
            found += yaml_io.select_objects(yaml_io.read_text(path), str(path))
    return found


class _Checker:
    """Reads the files that are reached, then compares what they use with what all define."""

    def __init__(self, folder: Path, roles_path: tuple[Path, ...], image: Any) -> None:
        self._layout = project.Layout(folder, roles_path)
        self._plugins = Plugins(image)
        self._loader = DataLoader()
        self._environment = TemplateEngine(self._loader).environment
        self._fields: dict[Path, SpecFields] = {}
        """By role or playbook."""
        self._contents: dict[Path, Content] = {}
        self._owners: dict[Path, Path] = {}
        """The role or playbook of each file that is read."""
        self._defaults: dict[Path, dict[Any, Any]] = {}
        self._templates: dict[Path, str] = {}
        self._other_syntax: set[str] = set()
        self._found: list[Finding] = []
        self._pending: deque[tuple[Path, Path, str]] = deque()
        self._specs: dict[Path, Any] = {}

    def add(self, path: Path, fields: SpecFields, *, is_role: bool) -> None:
        """Add what a watch runs, and all that this names."""
        reached: set[Path] = set()
        self._reach(path, is_role, reached)
        while self._pending:
            file, owner, kind = self._pending.popleft()
            self._read(file, owner, kind)
            for role in self._named_roles(file):
                self._reach(role, True, reached)
        for owner in self._closure(path):
            known = self._fields.get(owner)
            self._fields[owner] = fields if known is None else known | fields

    def _closure(self, path: Path) -> set[Path]:
        """Return a role or playbook and the roles that it names, at any depth."""
        found, rest = {path}, [path]
        while rest:
            owner = rest.pop()
            for file in [file for file, each in self._owners.items() if each == owner]:
                for role in self._named_roles(file):
                    if role not in found:
                        found.add(role)
                        rest.append(role)
        return found

    def _reach(self, path: Path, is_role: bool, reached: set[Path]) -> None:
        known = self._layout.roles if is_role else self._layout.playbooks
        if path in reached or path in known:
            return
        reached.add(path)
        known.append(path)
        if not is_role:
            self._pending.append((path, path, "playbook"))
            for file in project.group_variables([path.parent, self._layout.folder]):
                self._pending.append((file, path, "vars"))
            return
        for kind in project.TASKS:
            for file in project.yaml_files(path / kind):
                self._pending.append((file, path, "tasks"))
        for kind in project.VARIABLES:
            for file in project.files(path / kind):
                self._pending.append((file, path, kind))
        for file in project.files(path / "templates"):
            self._pending.append((file, path, "template"))
        for file in project.yaml_files(path / "meta"):
            self._pending.append((file, path, "meta"))

    def _named_roles(self, file: Path) -> Iterator[Path]:
        for reference in self._contents.get(file, Content()).references:
            if reference.kind == "role" and not _has_marks(reference.name):
                role = self._layout.role(reference.name, file)
                if role is not None:
                    yield role

    def _read(self, path: Path, owner: Path, kind: str) -> None:
        if path in self._owners:
            return
        self._owners[path] = owner
        if kind == "template":
            self._read_template(path)
            return
        try:
            data = self._loader.load_from_file(str(path), trusted_as_template=True)
        except AnsibleError as error:
            file, line = place_of_error(error, path)
            help_text = " ".join((getattr(error, "_help_text", None) or "").split())
            message = str(error.message).rstrip(".")
            self._found.append(Finding(file, line, f"{message}. {help_text}".strip()))
            return
        except UnicodeDecodeError as error:
            self._found.append(Finding(path, 1, f"the file is not UTF-8: {error}"))
            return
        reader = Reader(self._environment, self._collections_of(owner))
        match kind:
            case "playbook":
                reader.playbook(data)
            case "tasks":
                reader.tasks(data)
            case "defaults" | "vars":
                reader.variables(data)
            case "meta":
                self._read_meta(path, data, reader)
        if kind == "defaults" and isinstance(data, dict):
            self._defaults[path] = data
        self._contents[path] = reader.content
        self._follow(path, owner, reader.content)

    def _collections_of(self, owner: Path) -> tuple[str, ...]:
        """Return the collections of short names: the one that a role is in, and those it lists."""
        *_, namespace, name, roles = ("", "", "", *owner.parts[:-1])
        is_in_collection = roles == "roles" and "ansible_collections" in owner.parts
        listed: Any = None
        with suppress(AnsibleError):  # reported with the file itself
            for meta in project.yaml_files(owner / "meta"):
                if meta.stem == "main":
                    listed = self._loader.load_from_file(str(meta))
        found = listed.get("collections") if isinstance(listed, dict) else None
        own = [f"{namespace}.{name}"] if is_in_collection else []
        return (*own, *map(str, found or ()))

    def _read_meta(self, path: Path, data: Any, reader: Reader) -> None:
        specs = data
        if path.name not in _SPECS:
            if not isinstance(data, dict):
                return
            for each in data.get("dependencies") or ():
                name = each.get("role") or each.get("name") if isinstance(each, dict) else each
                if isinstance(name, str):
                    reader.content.references.append(Reference("role", name))
            if "argument_specs" not in data:
                return
        problems = list(argument_specs.invalid(specs))
        self._add_problems(path, problems)
        if not problems:
            self._specs[path] = specs
            for spec in specs["argument_specs"].values():
                reader.content.defines |= set(spec.get("options") or {})

    def _read_template(self, path: Path) -> None:
        with suppress(UnicodeDecodeError):  # an image or an archive
            self._templates[path] = path.read_text(encoding="utf-8")

    def _follow(self, path: Path, owner: Path, content: Content) -> None:
        for reference in content.references:
            name = reference.name
            if reference.other_syntax:
                self._other_syntax.add(Path(name).name)
            if _has_marks(name) or Path(name).is_absolute():
                continue
            if reference.kind == "role":
                self._check_role(path, name)
            elif (found := self._layout.file(reference.kind, name, path)) is None:
                cure = {"template": "templates/", "file": "files/"}.get(reference.kind, "")
                where = f" in {cure}" if cure else ""
                message = f"there is no {reference.kind} file {name}{where}"
                if reference.kind == "file":
                    message = f"there is no file {name}{where}"
                self._found.append(Finding(path, line_of(name), message + self._similar(name)))
            elif reference.kind != "file" and found.is_file():
                self._pending.append((found, owner, reference.kind))

    def _similar(self, name: str) -> str:
        files = (file for role in self._layout.roles for file in project.files(role))
        found = nearest(Path(name).name, {file.name for file in files})
        return f": did you mean {found}?" if found else ""

    def _check_role(self, path: Path, name: str) -> None:
        if self._layout.role(name, path) is not None:
            return
        if name.count(".") > 1:
            problem = self._plugins.collection(name.rpartition(".")[0])
            if problem is not None:
                self._add(path, line_of(name), problem)
            return
        known = {each.name for role in self._layout.roles for each in role.parent.iterdir()}
        found = nearest(name, known)
        hint = f": did you mean {found}?" if found else "; add it to roles/"
        self._found.append(Finding(path, line_of(name), f"there is no role {name}{hint}"))

    def _add(self, path: Path, line: int, problem: Problem) -> None:
        self._found.append(Finding(path, line, problem.message, problem.is_error))

    def _add_problems(self, path: Path, problems: Iterator[Any] | list[Any]) -> None:
        for value, message, is_error in problems:
            self._found.append(Finding(path, line_of(value), message, is_error))

    def findings(self) -> list[Finding]:
        """Return what is wrong, after the last `add`."""
        used: dict[Path, list[tuple[Any, Uses]]] = {}
        for path, content in self._contents.items():
            for value, message in content.problems:
                self._found.append(Finding(path, line_of(value), message))
            self._check_actions(path, content)
            used[path] = list(self._uses_of(path, content))
        for path, text in self._templates.items():
            if path.name not in self._other_syntax:
                used[path] = list(self._uses_of_template(path, text))
        definitions = self._definitions([each for found in used.values() for _, each in found])
        for path, found in used.items():
            fields = self._fields.get(self._owners[path], SpecFields(is_open=True))
            for text, each in found:
                self._check_uses(path, text, each, definitions, fields)
        for path, defaults in self._defaults.items():
            self._check_defaults(path, defaults)
        for path, data in self._specs.items():
            fields = self._fields.get(self._owners[path], SpecFields(is_open=True))
            defined = definitions.defaults
            self._add_problems(path, argument_specs.disagreements(data, fields, defined))
        return self._found

    def _definitions(self, used: list[Uses]) -> names.Definitions:
        variables = {path: set(content.defines) for path, content in self._contents.items()}
        defaults = {name for path in self._defaults for name in variables[path]}
        others = {
            name
            for path, found in variables.items()
            if path not in self._defaults
            for name in found
        }
        return names.Definitions(
            frozenset(defaults),
            frozenset(others),
            frozenset(name for each in used for name in each.guarded),
            any(content.is_open for content in self._contents.values())
            or any((role / "library").is_dir() for role in self._layout.roles),
        )

    def _check_actions(self, path: Path, content: Content) -> None:
        for action in content.actions:
            found = self._plugins.module(str(action.name), action.collections)
            if isinstance(found, Problem):
                self._add(path, line_of(action.name), found)
                continue
            for name, message in unknown(found, action.arguments):
                self._found.append(Finding(path, line_of(name), message))
        for name in content.lookups:
            if name != "items" and (problem := self._plugins.lookup(name)):
                self._add(path, line_of(name), problem)

    def _uses_of(self, path: Path, content: Content) -> Iterator[tuple[Any, Uses]]:
        for expression in content.expressions:
            if not TrustedAsTemplate.is_tagged_on(expression.text):
                continue  # !unsafe
            try:
                yield expression.text, self._parse(expression)
            except TemplateSyntaxError as error:
                line = line_in(path, expression.text, error.lineno)
                self._found.append(Finding(path, line, f"Jinja syntax: {error.message}"))

    def _parse(self, expression: Expression) -> Uses:
        text = str(expression.text)
        if expression.is_bare:
            text = "{% if " + text + " %}{% endif %}"
        return expressions.uses(self._environment, text, expression.aliases)

    def _uses_of_template(self, path: Path, text: str) -> Iterator[tuple[Any, Uses]]:
        offset = 0
        if text.startswith(_HEADER):
            header, _, text = text.partition("\n")
            offset = 1
            if "_string" in header:
                return
        try:
            yield offset, expressions.uses(self._environment, text)
        except TemplateSyntaxError as error:
            message = f"Jinja syntax: {error.message}"
            self._found.append(Finding(path, error.lineno + offset, message))

    def _check_uses(
        self, path: Path, text: Any, used: Uses, definitions: names.Definitions, fields: SpecFields
    ) -> None:
        def line(number: int, word: str) -> int:
            is_template = isinstance(text, int)
            return number + text if is_template else line_in(path, text, number, word)

        for kind in ("filter", "test", "lookup"):
            for use in getattr(used, f"{kind}s"):
                if problem := getattr(self._plugins, kind)(use.name):
                    self._add(path, line(use.line, use.name), problem)
        for use in used.files:
            if not self._layout.file("template", use.name, path):
                message = f"there is no template file {use.name} in templates/"
                place = line(use.line, use.name)
                self._found.append(Finding(path, place, message + self._similar(use.name)))
        for number, name, message in names.undefined(used, definitions, fields):
            self._found.append(Finding(path, line(number, name), message))

    def _check_defaults(self, path: Path, defaults: Mapping[Any, Any]) -> None:
        fields = self._fields.get(self._owners[path], SpecFields(is_open=True))
        for name in defaults:
            snake = to_snake(str(name))
            if fields.is_snake_case and name in fields.fields and snake != name:
                message = f"{name} is not the default of the field: spec fields are in snake case"
                self._found.append(Finding(path, line_of(name), f"{message} here: {snake}"))


def _has_marks(text: str) -> bool:
    return any(mark in text for mark in MARKS)
