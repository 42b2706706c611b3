"""Patch ansible-core: errors in templates name the line, and the nearest name.

ansible-core names the file of a template without the line, and only on the terminal; the message
of the failed task, which reaches conditions and Events, has neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, TypeAlias

from ansible._internal._datatag._tags import Origin
from ansible._internal._task import TaskContext
from ansible._internal._templating._jinja_common import (
    CapturedExceptionMarker,
    Marker,
    UndefinedMarker,
)
from ansible._internal._templating._utils import TemplateContext
from ansible.errors import AnsibleTemplateError
from jinja2 import TemplateSyntaxError
from jinja2.utils import missing

from operator_runner.ansible.patches.replacing import replace, wrap
from operator_runner.ansible.templating.hints import key_hint, variable_hint

_TEMPLATE_GLOBAL = "__jinja_template__"
_TEXT_NAME = "<template>"
"""Name of the code of a template that jinja2 has not read from a file."""
_HEADER = "#jinja2:"
"""Start of the line of settings that ansible-core removes before it compiles a file."""

_plain_message: Callable[[Any], str] = UndefinedMarker._undefined_message.fget

_Line: TypeAlias = tuple[str, int]
"""Name of the code of a template, and number of the line in the template."""


def install() -> None:
    """Change messages of this process and its forks."""
    wrap(f"{Marker.__module__}:Marker.__init__", _init_marker)
    replace(f"{Marker.__module__}:UndefinedMarker._undefined_message", property(_undefined_message))
    wrap("ansible._internal._templating._jinja_bits:create_template_error", _create_template_error)


def _init_marker(original: Callable[..., None], marker: Any, *args: Any, **kwargs: Any) -> None:
    """Record the line of something undefined, or of a failed filter, test or lookup.

    It is reported later, when the code of the template is no longer running.
    """
    original(marker, *args, **kwargs)
    template = marker._marker_template_source
    if isinstance(marker, UndefinedMarker):
        origin = _origin(template, _running_line())
        if origin is not None:
            marker._marker_template_source = origin.tag(template)
    elif isinstance(marker, CapturedExceptionMarker):
        error = sys.exception()  # the marker does not have it yet
        if isinstance(error, AnsibleTemplateError) and error.obj is None:
            error.obj = template
            _locate(error, template, _running_line())


def _undefined_message(marker: Any) -> str:
    message = _plain_message(marker) + _hint(marker)
    origin = Origin.get_tag(marker._marker_template_source)
    return f"{message} ({origin.path}:{origin.line_num})" if _is_elsewhere(origin) else message


def _hint(marker: Any) -> str:
    name, owner = marker._undefined_name, marker._undefined_obj
    if not isinstance(name, str):
        return ""
    if owner is not missing:
        is_map = isinstance(owner, Mapping)
        return key_hint(name, [key for key in owner if isinstance(key, str)]) if is_map else ""
    context = TemplateContext.current(optional=True)
    return variable_hint(name, list(context.templar.available_variables)) if context else ""


def _create_template_error(
    original: Callable[..., AnsibleTemplateError],
    error: Exception,
    variable: Any,
    *args: Any,
    **kw: Any,
) -> AnsibleTemplateError:
    """Add the line to an error, unless an inner template has done so."""
    is_located = isinstance(error, AnsibleTemplateError) and error.obj is not None
    created = original(error, variable, *args, **kw)
    if not is_located:
        # Since 2.21 ansible-core adds the line of a syntax error itself, but not to the message.
        _locate(created, variable, _failed_line(error))
    return created


def _locate(error: AnsibleTemplateError, template: Any, line: _Line | None) -> None:
    origin = _origin(template, line)
    if origin is None:
        return
    error.obj = origin.tag(error.obj)
    if _is_elsewhere(origin):
        error._message = f"{error._message.rstrip('.')} at {origin.path}:{origin.line_num}."


def _origin(template: Any, line: _Line | None) -> Origin | None:
    """Return file and line, None where the template is not a file: YAML has its line already."""
    if line is None or not isinstance(template, str):
        return None
    name, number = line
    origin = Origin.get_tag(template)
    if origin is not None and origin.line_num is not None:
        return None
    if name != _TEXT_NAME:
        return Origin(path=str(Path(name).absolute()), line_num=number)
    origin = origin or _origin_by_task(template)
    if origin is None or origin.path is None:
        return None
    return origin.replace(line_num=number + template.startswith(_HEADER))


def _origin_by_task(template: str) -> Origin | None:
    """Return the file of the argument `template` of kubernetes.core, which has no origin."""
    context = TaskContext.current(optional=True)
    if context is None:
        return None
    for name in _template_arguments(context.task.args.get("template")):
        for folder in context.task.get_search_path():
            for path in (Path(folder, "templates", name), Path(folder, name)):
                if path.is_file() and path.read_text(errors="replace") == template:
                    return Origin(path=str(path.absolute()))
    return None


def _template_arguments(value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list) else [value]:
        name = each.get("path") if isinstance(each, dict) else each
        if isinstance(name, str):
            yield name


def _is_elsewhere(origin: Origin | None) -> bool:
    """Return whether an error is in another file than its task, whose path is reported anyway."""
    if origin is None or origin.path is None or origin.line_num is None:
        return False
    context = TaskContext.current(optional=True)
    task = Origin.get_tag(context.task.get_ds()) if context is not None else None
    return task is None or task.path != origin.path


def _running_line() -> _Line | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if found := _line_of(frame, frame.f_lineno):
            return found
        frame = frame.f_back
    return None


def _failed_line(error: BaseException) -> _Line | None:
    if isinstance(error, TemplateSyntaxError):
        return error.filename or _TEXT_NAME, error.lineno
    lines = [_line_of(frame, number) for frame, number in walk_tb(error.__traceback__)]
    return next((line for line in reversed(lines) if line), None)


def _line_of(frame: FrameType, number: int) -> _Line | None:
    template = frame.f_globals.get(_TEMPLATE_GLOBAL)
    if template is None:
        return None
    return frame.f_code.co_filename, template.get_corresponding_lineno(number)
