"""Compile each template once: the same text gives the same code in all runs.

ansible-core compiles a template at each use, dozens of times in a small role, a sixth of a run's
CPU time. The code depends only on the text and the settings in its key, because ansible-core
disables constant folding in jinja2. So a play keeps compiled templates, and the fork server
compiles the templates in the files of roles that have runs, one at a time while it is idle.
Templates from a resource, a variable or a result are compiled in the run and discarded with its
process.

A run has one role or playbook; the roles that its files name are prepared as well, and where a name
has an expression, those that the last run had. Only the names of files and the texts in them are
read here, so that nothing of a run reaches the fork server.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from jinja2 import TemplateError
from jinja2.environment import TemplateExpression

from operator_runner.ansible.forkserver.preload import load_core_api_if_used
from operator_runner.ansible.patches.replacing import wrap
from operator_runner.core import ansible_yaml

_FOLDERS = ("tasks", "handlers", "defaults", "vars", "meta", "templates")
_TEMPLATES, _ROLES = "templates", "roles"
_YAML = {".yml", ".yaml", ".json", ""}
_NAME = re.compile(r"(?!/)[\w./-]{1,200}")
"""Name or relative path of a role. An absolute path may be where a run writes files."""
_EXPRESSION_IN_NAME = re.compile(r"\{\{.*?\}\}")
_MAX_FILES = 5_000
"""Files that are looked at in a role."""


class RoleFile(NamedTuple):
    """A file of a role or playbook."""

    path: Path
    text: str
    is_template: bool
    """Whether the whole text is a template."""
    documents: Sequence[Any] = ()
    """Its YAML as plain data, without Ansible's tags; a template has none."""


class RoleFiles:
    """The files of roles and playbooks that have runs, and of the roles that these name."""

    def __init__(
        self, preparations: Sequence[Callable[[RoleFile], None]], roles_path: Sequence[Path] = ()
    ) -> None:
        """Begin with no role. `preparations` are called with each file that is new or changed.

        `roles_path` is searched for roles besides the usual places.
        """
        self._preparations = preparations
        self._roles_path = roles_path
        self._contents: deque[Path] = deque()
        self._files: deque[tuple[Path, Path]] = deque()
        self._states: dict[Path, int] = {}
        self._named: dict[Path, set[Path]] = {}
        """The roles that the files of a role or playbook name."""
        self._computed: set[re.Pattern[str]] = set()
        """Names with expressions in the files, as `{{ version }}/web`."""

    def note(self, content: Path, used: Iterable[Path] = ()) -> None:
        """Schedule the files of a role or playbook that has a run, and of the roles it names.

        Of the roles that its last run has `used`, those are accepted whose place and name a file
        gives, with any value for an expression: a run cannot lead to a file of its own.
        """
        if self._preparations:
            if self._computed:
                folders = [folder.resolve() for folder in self._folders(content)]
                named = self._named.setdefault(content, set())
                named |= {role for role in used if self._is_computed(role, folders)}
            self._schedule(_reachable(content, self._named))

    def _folders(self, content: Path) -> Iterable[Path]:
        return (*_folders_of_roles(content), *self._roles_path)

    def _is_computed(self, role: Path, folders: Iterable[Path]) -> bool:
        """Return whether a name with expressions can be that of a role, given as a real path."""
        names = [str(role.relative_to(each)) for each in folders if role.is_relative_to(each)]
        return any(each.fullmatch(name) for each in self._computed for name in names)

    @property
    def is_pending(self) -> bool:
        """Whether files have to be prepared."""
        return bool(self._files or self._contents)

    def step(self) -> None:
        """Do one step: find the changed files of a role, or prepare one of them."""
        # The play that reads a broken file reports it.
        with contextlib.suppress(Exception):
            if self._files:
                self._prepare(*self._files.popleft())
            else:
                content = self._contents.popleft()
                self._files.extend((content, path) for path in self._changed(content))

    def _schedule(self, contents: Iterable[Path]) -> None:
        self._contents.extend(each for each in contents if each not in self._contents)

    def _changed(self, content: Path) -> Iterator[Path]:
        for path in _files_of(content):
            state = path.stat().st_mtime_ns
            if self._states.get(path) != state:
                self._states[path] = state
                yield path

    def _prepare(self, content: Path, path: Path) -> None:
        file = _read(path, _folder_of(content))
        known = self._named.setdefault(content, set())
        new = set(self._roles_named(content, file)) - known
        known |= new
        self._schedule(sorted(new))
        for prepare in self._preparations:
            prepare(file)

    def _roles_named(self, content: Path, file: RoleFile) -> Iterator[Path]:
        """Yield the roles whose name or path is a value in the file, whatever its key is."""
        values = {text for document in file.documents for text in ansible_yaml.texts(document)}
        names = [value for value in values if _NAME.fullmatch(value)]
        for value in values:
            literal = _EXPRESSION_IN_NAME.split(value)
            if len(literal) > 1 and _NAME.fullmatch("x".join(literal)):
                self._computed.add(re.compile(r"\w[\w.-]*".join(map(re.escape, literal))))
        for folder in self._folders(content):
            yield from (
                folder.joinpath(name).resolve() for name in names if _is_role(folder / name)
            )


def _reachable(content: Path, named: dict[Path, set[Path]]) -> Iterator[Path]:
    """Yield a role or playbook and the roles that it names, directly or not."""
    met = [content]
    for each in met:
        yield each
        met += sorted(named.get(each, set()).difference(met))


def _folders_of_roles(content: Path) -> tuple[Path, ...]:
    """Return where roles are looked for: beside a role, or in the usual folders of a playbook."""
    parent = content.parent
    return (parent / _ROLES, parent.parent / _ROLES, parent) if content.is_file() else (parent,)


def _is_role(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_dir() for name in _FOLDERS)


def _files_of(content: Path) -> Iterator[Path]:
    """Yield the files of a role, or a playbook and the files beside it."""
    if content.is_file():
        yield content
    folder = _folder_of(content)
    found = (path for name in _FOLDERS for path in sorted((folder / name).rglob("*")))
    yield from islice(filter(Path.is_file, found), _MAX_FILES)


def _folder_of(content: Path) -> Path:
    """Return the folder of a role, without links as ansible-core names it, or of a playbook."""
    return content.parent if content.is_file() else content.resolve()


def _read(path: Path, folder: Path) -> RoleFile:
    """Read a file as ansible-core does: UTF-8, with the ends of lines that it has."""
    is_template = path.is_relative_to(folder / _TEMPLATES)
    file = RoleFile(path, path.read_bytes().decode(), is_template)
    if is_template or path.suffix not in _YAML:
        return file
    return file._replace(documents=list(ansible_yaml.load_all(file.text)))


_MAX_TEMPLATES = 5_000
"""Templates that are kept; roles that change all the time do not fill the memory."""
_MARKS = ("{{", "{%", "{#")
_EXPRESSION = "expression"
_CONDITIONS = {"when", "that", "until", "failed_when", "changed_when", "break_when"}
"""Keys of tasks whose texts are expressions."""

_compiled: dict[tuple[Any, ...], CodeType] = {}


def install() -> None:
    """Make ansible-core look here before it compiles, in this process and its forks."""
    environment = "ansible._internal._templating._jinja_bits:AnsibleEnvironment"
    wrap(f"{environment}.compile", _compile_once)
    wrap(f"{environment}.compile_expression", _compile_expression_once)


def _compile_once(
    original: Callable[..., Any], environment: Any, source: Any, *args: Any, **options: Any
) -> Any:
    if isinstance(source, _Compiled):
        return source.code
    if not isinstance(source, str) or environment._debuggable_template_source:
        code = original(environment, source, *args, **options)
        if (expression := _expression.get()) is not None:
            expression.code = code
        return code
    key = (*_settings(environment), str(source), *args, *sorted(options.items()))
    code = _compiled.get(key)
    if code is None:
        code = original(environment, source, *args, **options)
        _keep(key, code)
    return code


def _settings(environment: Any) -> Iterator[Any]:
    """Yield the settings that the code depends on besides the text."""
    from ansible._internal._templating import _jinja_bits as bits

    context = bits._TemplateCompileContext.current(optional=True)
    yield context is not None and context.escape_backslashes
    yield from (getattr(environment, name) for name in bits._TEMPLATE_OVERRIDE_FIELD_NAMES)


def _keep(key: tuple[Any, ...], code: CodeType) -> None:
    if len(_compiled) < _MAX_TEMPLATES:
        _compiled[key] = code


class _Compiled:
    """The code of an expression, in the place of its syntax tree."""

    code: CodeType | None = None


_expression: ContextVar[_Compiled | None] = ContextVar("expression", default=None)
"""The expression that is being compiled."""


def _compile_expression_once(
    original: Callable[..., Any], environment: Any, source: Any, undefined_to_none: bool = True
) -> Any:
    """Compile an expression as jinja2 does, or use its code if it has been compiled before."""
    if not isinstance(source, str) or environment._debuggable_template_source:
        return original(environment, source, undefined_to_none)
    key = (_EXPRESSION, *_settings(environment), str(source))
    compiled = _Compiled()
    compiled.code = _compiled.get(key)
    if compiled.code is not None:
        return TemplateExpression(environment.from_string(compiled), undefined_to_none)
    token = _expression.set(compiled)
    try:
        expression = original(environment, source, undefined_to_none)
    finally:
        _expression.reset(token)
    if compiled.code is not None:
        _keep(key, compiled.code)
    return expression


def compile_file(file: RoleFile) -> None:
    """Compile the templates in a file of a role."""
    if file.is_template:
        _compile(file.text, is_file=True)
        _compile_for_import(file.text, file.path)
        return
    load_core_api_if_used(file.text)
    for document in file.documents:
        for text in ansible_yaml.texts(document):
            _compile(text, is_file=False)
        for condition in _conditions(document, set()):
            _compile_condition(condition)


def _compile(text: str, *, is_file: bool) -> None:
    """Compile as ansible-core does, without its error handling, which needs a run."""
    from ansible._internal._templating import _engine, _jinja_bits

    if any(mark in text for mark in _MARKS):
        overrides = _engine.TemplateOptions.DEFAULT.overrides
        stripped, environment = _engine.TemplateEngine()._create_overlay(text, overrides)
        with (
            contextlib.suppress(TemplateError),
            _jinja_bits._TemplateCompileContext(escape_backslashes=not is_file),
        ):
            environment.from_string(stripped)


def _compile_condition(text: str) -> None:
    from ansible._internal._templating import _engine, _jinja_bits

    environment = _engine.TemplateEngine().environment
    with (
        contextlib.suppress(TemplateError),
        _jinja_bits._TemplateCompileContext(escape_backslashes=False),
    ):
        environment.compile_expression(text, False)


def _compile_for_import(text: str, path: Path) -> None:
    """Compile as jinja2 does what another template imports or includes."""
    from ansible._internal._templating._engine import TemplateEngine

    with contextlib.suppress(TemplateError):
        TemplateEngine().environment.compile(text, path.name, str(path))


def _conditions(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield the texts of conditions in a document."""
    if isinstance(value, dict | list) and id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, dict):
            for key in _CONDITIONS & value.keys():
                yield from ansible_yaml.texts(value[key])
        for item in value.values() if isinstance(value, dict) else value:
            yield from _conditions(item, seen)
