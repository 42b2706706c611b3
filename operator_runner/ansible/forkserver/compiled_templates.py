"""Compile each template once: the same text gives the same code in all runs.

ansible-core compiles a template at each use, dozens of times in a small role, a sixth of a run's
CPU time. The code depends only on the text and the settings in its key, because ansible-core
disables constant folding in jinja2. So a play keeps compiled templates, and the fork server
compiles the templates in the files of roles that have runs. Templates from a resource, a variable
or a result are compiled in the run and discarded with its process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import CodeType
from typing import Any

from jinja2 import TemplateError
from jinja2.environment import TemplateExpression

from operator_runner.ansible.forkserver.core_api import load_core_api_if_used
from operator_runner.ansible.forkserver.role_files import RoleFile
from operator_runner.ansible.patches.replacing import wrap
from operator_runner.core import ansible_yaml

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
