"""Compile each template once: the same text gives the same code in all runs.

ansible-core compiles a template at each use, dozens of times in a small role, a sixth of a run's
CPU time. The code depends only on the text and the settings in its key, because ansible-core
disables constant folding in jinja2. So a play keeps compiled templates, and the fork server
compiles the templates in the files of roles that have runs. Templates from a resource, a variable
or a result are compiled in the run and discarded with its process.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from jinja2 import TemplateError

from operator_runner.ansible.forkserver.core_api import load_core_api_if_used
from operator_runner.ansible.patches.replacing import wrap
from operator_runner.core import ansible_yaml

_MAX_TEMPLATES = 5_000
"""Templates that are kept; roles that change all the time do not fill the memory."""
_FOLDERS = ("tasks", "handlers", "defaults", "vars", "templates")
_YAML = {".yml", ".yaml", ".json", ""}
_MARKS = ("{{", "{%", "{#")

_compiled: dict[tuple[Any, ...], CodeType] = {}


def install() -> None:
    """Make ansible-core look here before it compiles, in this process and its forks."""
    from ansible._internal._templating import _jinja_bits as bits

    def compile_once(
        original: Callable[..., Any], environment: Any, source: Any, *args: Any, **options: Any
    ) -> Any:
        if not isinstance(source, str) or environment._debuggable_template_source:
            return original(environment, source, *args, **options)
        context = bits._TemplateCompileContext.current(optional=True)
        settings = [getattr(environment, name) for name in bits._TEMPLATE_OVERRIDE_FIELD_NAMES]
        escaped = context is not None and context.escape_backslashes
        key = (str(source), escaped, *settings, *args, *sorted(options.items()))
        code = _compiled.get(key)
        if code is None:
            code = original(environment, source, *args, **options)
            if len(_compiled) < _MAX_TEMPLATES:
                _compiled[key] = code
        return code

    wrap(f"{bits.__name__}:AnsibleEnvironment.compile", compile_once)


class RoleTemplates:
    """Compile the templates of roles, a file at a time, while the server is idle."""

    def __init__(self) -> None:
        """Begin with no role."""
        self._roles: deque[Path] = deque()
        self._files: deque[Path] = deque()
        self._states: dict[Path, int] = {}

    def note(self, content: Path) -> None:
        """Have the files of a role, or a playbook, be looked at: there is a run of it."""
        if content not in self._roles:
            self._roles.append(content)

    @property
    def is_pending(self) -> bool:
        """Whether there is something to do."""
        return bool(self._files or self._roles)

    def step(self) -> None:
        """Do one step: find the changed files of a role, or compile one of them."""
        # The play that reads a broken file reports it.
        with contextlib.suppress(Exception):
            if self._files:
                _compile_file(self._files.popleft())
            else:
                self._files.extend(self._changed(self._roles.popleft()))

    def _changed(self, content: Path) -> list[Path]:
        changed = []
        for path in _files_of(content):
            state = path.stat().st_mtime_ns
            if self._states.get(path) != state:
                self._states[path] = state
                changed.append(path)
        return changed


def _files_of(content: Path) -> Iterator[Path]:
    if content.is_file():
        yield content
    for folder in _FOLDERS:
        yield from (path for path in sorted((content / folder).rglob("*")) if path.is_file())


def _compile_file(path: Path) -> None:
    if "templates" in path.parts:
        text = path.read_text()
        _compile(text, is_file=True)
        _compile_for_import(text, path)
    elif path.suffix in _YAML:
        tasks = path.read_text()
        load_core_api_if_used(tasks)
        for document in ansible_yaml.load_all(tasks):
            for text in _texts(document, set()):
                _compile(text, is_file=False)


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


def _compile_for_import(text: str, path: Path) -> None:
    """Compile as jinja2 does what another template imports or includes."""
    from ansible._internal._templating._engine import TemplateEngine

    with contextlib.suppress(TemplateError):
        TemplateEngine().environment.compile(text, path.name, str(path))


def _texts(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield all texts in a document; `seen` has the containers that were met, by id."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and id(value) not in seen:
        seen.add(id(value))
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item, seen)
