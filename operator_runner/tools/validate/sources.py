"""Read the roles and playbooks that watches run, and all files that these name."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible import constants
from ansible._internal._templating._engine import TemplateEngine
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import get_file_vault_secret

from operator_runner.ansible.templating.hints import suggestion
from operator_runner.core.errors import ConfigError
from operator_runner.tools.validate import project, spec_fields
from operator_runner.tools.validate.findings import (
    Finding,
    PlacedMessage,
    line_of,
    place_of_error,
)
from operator_runner.tools.validate.plugins import Plugins, add_directory
from operator_runner.tools.validate.spec_fields import SpecFields
from operator_runner.tools.validate.task_reader import Content, ContentReference, TaskReader
from operator_runner.tools.validate.values import has_marks, listed, mapping, texts

_SPECS = ("argument_specs.yml", "argument_specs.yaml")
_PROMPTS = ("prompt", "prompt_ask_vault_pass")
_NOT_DECRYPTED = (
    "the file is not checked, nor whether variables are defined, because it cannot be decrypted:"
    " set ANSIBLE_VAULT_PASSWORD_FILE"
)
_COMPUTED = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\[")


def collection_of(role: Path) -> list[str]:
    """Return the collection that a role is in, if any."""
    *_, namespace, name, roles = ("", "", "", *role.parts[:-1])
    is_in_collection = roles == "roles" and "ansible_collections" in role.parts
    return [f"{namespace}.{name}"] if is_in_collection else []


class _UnreadableError(Exception):
    """A file cannot be read; `found` has the reason."""


def _loader() -> DataLoader:
    """Return a loader with the vault passwords that Ansible's settings name, except prompts.

    Raises ConfigError if a password cannot be read.
    """
    loader = DataLoader()
    secrets = []
    ids = [*constants.DEFAULT_VAULT_IDENTITY_LIST, constants.DEFAULT_VAULT_PASSWORD_FILE]
    for each in filter(None, ids):
        label, _, file = each.rpartition("@")
        if file in _PROMPTS:
            continue
        try:
            secret = get_file_vault_secret(filename=file, vault_id=label or None, loader=loader)
            secret.load()
        except AnsibleError as error:
            raise ConfigError(f"vault password {each}: {error.message}") from None
        secrets.append((label or constants.DEFAULT_VAULT_IDENTITY, secret))
    loader.set_vault_secrets(secrets)
    return loader


class Sources:
    """The files that are reached; `found` are mistakes that reading them shows."""

    def __init__(self, folder: Path, roles_path: tuple[Path, ...], image: Any) -> None:
        self.layout = project.Layout(folder, roles_path)
        self.plugins = Plugins(image)
        self._loader = _loader()
        self.environment = TemplateEngine(self._loader).environment
        self._fields: dict[Path, SpecFields] = {}
        """Content by role or playbook."""
        self.contents: dict[Path, Content] = {}
        self.owners: dict[Path, Path] = {}
        """The role or playbook of each file that is read."""
        self.defaults: dict[Path, dict[Any, Any]] = {}
        self.templates: dict[Path, str] = {}
        self.other_syntax: set[str] = set()
        self.found: list[Finding] = []
        self._pending: deque[tuple[Path, Path, str]] = deque()
        self.specs: dict[Path, Any] = {}

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
            for file in [file for file, each in self.owners.items() if each == owner]:
                for role in self._named_roles(file):
                    if role not in found:
                        found.add(role)
                        rest.append(role)
        return found

    def _reach(self, path: Path, is_role: bool, reached: set[Path]) -> None:
        known = self.layout.roles if is_role else self.layout.playbooks
        if path in reached or path in known:
            return
        reached.add(path)
        known.append(path)
        add_directory(path if is_role else path.parent)
        if not is_role:
            self._pending.append((path, path, "playbook"))
            for file in project.group_variables([path.parent, self.layout.folder]):
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
        for reference in self.contents.get(file, Content()).references:
            if reference.kind == "role" and not has_marks(reference.name):
                role = self.layout.role(reference.name, file)
                if role is not None:
                    yield role

    def _read(self, path: Path, owner: Path, kind: str) -> None:
        if path in self.owners:
            return
        self.owners[path] = owner
        if kind == "template":
            self._read_template(path)
            return
        with suppress(_UnreadableError):
            self._read_yaml(path, owner, kind)

    def _read_yaml(self, path: Path, owner: Path, kind: str) -> None:
        """Read a file. Raises _UnreadableError after it has added why it cannot be read."""
        data = self._load(path)
        reader = TaskReader(self.environment, self._collections_of(owner))
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
            self.defaults[path] = data
        self.contents[path] = reader.content
        self._follow(path, owner, reader.content)

    def _load(self, path: Path) -> Any:
        try:
            data = self._loader.load_from_file(str(path), trusted_as_template=True)
            deque(texts(data), maxlen=0)
        except RecursionError:
            self.report(path, 1, "a value contains itself, or is nested too deeply")
        except AnsibleError as error:
            if path.read_bytes().startswith(b"$ANSIBLE_VAULT;"):
                self.report(path, 1, _NOT_DECRYPTED, is_error=False)
                self.contents[path] = Content(is_open=True)
                raise _UnreadableError from None
            file, line = place_of_error(error, path)
            help_text = " ".join((getattr(error, "_help_text", None) or "").split())
            message = str(error.message).rstrip(".")
            self.report(file, line, f"{message}. {help_text}".strip())
        except UnicodeDecodeError as error:
            self.report(path, 1, f"the file is not UTF-8: {error}")
        except ValueError as error:  # such as an impossible date
            self.report(path, 1, f"invalid value: {error}")
        else:
            return data
        raise _UnreadableError

    def _collections_of(self, owner: Path) -> tuple[str, ...]:
        """Return the collections of short names: the one that a role is in, and those it lists."""
        content: Any = None
        with suppress(AnsibleError, ValueError):  # reported with the file itself
            for meta in project.yaml_files(owner / "meta"):
                if meta.stem == "main":
                    content = self._loader.load_from_file(str(meta))
        found = mapping(content).get("collections")
        return (*collection_of(owner), *map(str, listed(found)))

    def _read_meta(self, path: Path, data: Any, reader: TaskReader) -> None:
        if path.name not in _SPECS:
            if not isinstance(data, dict):
                return
            for each in listed(data.get("dependencies")):
                name = each.get("role") or each.get("name") if isinstance(each, dict) else each
                if isinstance(name, str):
                    reader.content.references.append(ContentReference("role", name))
            if "argument_specs" not in data:
                return
        problems = list(spec_fields.invalid(data))
        self.report_all(path, problems)
        if not any(is_error for _, _, is_error in problems):
            self.specs[path] = data
            for spec in data["argument_specs"].values():
                reader.content.declares |= set(map(str, spec.get("options") or {}))

    def _read_template(self, path: Path) -> None:
        with suppress(UnicodeDecodeError):  # an image or an archive
            self.templates[path] = path.read_text(encoding="utf-8")

    def _follow(self, path: Path, owner: Path, content: Content) -> None:
        for reference in content.references:
            name = reference.name
            if reference.other_syntax:
                self.other_syntax.add(Path(name).name)
            if has_marks(name):
                continue
            if reference.kind == "role":
                self._check_role(path, name)
            elif (found := self.layout.file(reference.kind, name, path)) is None:
                if Path(name).is_absolute():
                    continue  # the image may have it
                kind = "" if reference.kind == "file" else f"{reference.kind} "
                places = {"template": " in templates/", "file": " in files/"}
                message = f"there is no {kind}file {name}{places.get(reference.kind, '')}"
                self.report(path, name, message + self.similar(name))
            elif reference.kind != "file" and found.is_file():
                self._pending.append((found, owner, reference.kind))

    def similar(self, name: str) -> str:
        """Return what follows a file that is missing: empty, or a file with a similar name."""
        files = (file for role in self.layout.roles for file in project.files(role))
        return suggestion(Path(name).name, {file.name for file in files})

    def _check_role(self, path: Path, name: str) -> None:
        if Path(name).is_absolute() or self.layout.role(name, path) is not None:
            return
        if name.count(".") > 1:
            if problem := self.plugins.collection(name.rpartition(".")[0]):
                self.report(path, name, *problem)
            return
        known = {each.name for role in self.layout.roles for each in role.parent.iterdir()}
        hint = suggestion(name, known, "; add it to roles/")
        self.report(path, name, f"there is no role {name}{hint}")

    def is_used(self, path: Path) -> bool:
        """Return whether a file can be reached: by its place, or because another one names it."""
        if path.stem == "main" or not {*path.parts} & {*project.TASKS, "templates"}:
            return True
        others = (each for each in (*self.contents, *self.templates) if each != path)
        word = re.compile(rf"(?<![\w-]){re.escape(path.stem)}(?![\w-])")
        if any(word.search(each.read_text(errors="replace")) for each in others):
            return True
        names = (each.name for found in self.contents.values() for each in found.references)
        patterns = (_COMPUTED.sub("*", Path(name).name) for name in names if has_marks(name))
        return any(path.match(each) for each in patterns)

    def report(self, path: Path, place: Any, message: str, is_error: bool = True) -> None:
        """Add a mistake; `place` is a line of the file, or a value that was read from it."""
        # Numbers that Ansible has read are of a type of its own.
        line = place if type(place) is int else line_of(place)
        self.found.append(Finding(path, line, message, is_error))

    def report_all(self, path: Path, found: Iterable[PlacedMessage]) -> None:
        """Add mistakes of a file."""
        for each in found:
            self.report(path, *each)

    def fields_of(self, path: Path) -> SpecFields:
        """Return the fields of all kinds whose watches reach a file."""
        return self._fields.get(self.owners[path], SpecFields(is_open=True))
