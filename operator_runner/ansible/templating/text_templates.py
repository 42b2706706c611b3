"""Patch ansible-core to give template results the types of 2.18; see `compatibility`.

Parts of a rendered template are converted as ansible-core 2.18 did without native types. Source:
`ansible_eval_concat` and `ansible_concat` in its `template/native_helpers.py`, `_ansible_finalize`
in its `template/__init__.py`.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from math import isfinite
from numbers import Number
from typing import Any

from ansible._internal._templating import _jinja_bits as bits
from ansible._internal._templating._engine import TemplateEngine
from ansible._internal._templating._jinja_common import Marker, MarkerError, UndefinedMarker
from ansible._internal._templating._jinja_plugins import JinjaPluginIntercept
from ansible._internal._templating._marker_behaviors import RoutingMarkerBehavior
from ansible._internal._templating._utils import Omit, TemplateContext
from ansible.module_utils._internal import _datatag
from ansible.module_utils._internal._datatag import (
    AnsibleSingletonTagBase,
    AnsibleTagHelper,
    _tag_dataclass_kwargs,
)
from ansible.module_utils.common.text.converters import to_text
from jinja2 import Undefined

from operator_runner.ansible.patches.replacing import replace, wrap

_ONE_NAME = re.compile(r"{{\s*(\w*)\s*}}$")
_DEFAULTS = {"default", "d"}
TESTS_OF_UNDEFINED = {
    **dict.fromkeys(("number", "integer", "float", "boolean", "true", "false", "none"), False),
    **dict.fromkeys(("string", "mapping", "sequence", "sameas"), False),
    **dict.fromkeys(("callable", "escaped"), True),
}
"""Tests of Jinja, and their results for what is undefined: they look at its type alone."""
_WORDS_OF_FACTS = {"true": True, "yes": True, "false": False, "no": False}


@dataclasses.dataclass(**_tag_dataclass_kwargs)
class StaysText(AnsibleSingletonTagBase):  # type: ignore[misc]
    """Tag of text from a filter for text: it is never converted to a list or a map."""


_converts_files: ContextVar[bool] = ContextVar("_converts_files", default=True)
"""Whether the current lookup `template` converts text that looks like a list or a map."""


def install(text_filters: Iterable[str]) -> None:
    """Change ansible-core in this process and its forks.

    Results of the named filters are not converted to other types.
    """
    replace(f"{bits.__name__}:AnsibleEnvironment.concat", staticmethod(_concat))
    engine = f"{TemplateEngine.__module__}:TemplateEngine"
    wrap(f"{engine}._post_render_mutation", _post_render_mutation)
    wrap(f"{engine}.evaluate_expression", _evaluate_expression)
    plugins = f"{JinjaPluginIntercept.__module__}:JinjaPluginIntercept"
    wrap(f"{plugins}.__getitem__", functools.partial(_plugin, set(text_filters)))
    wrap("ansible.plugins.lookup.template:LookupModule.run", _look_up_template)
    wrap("ansible.plugins.action.set_fact:ActionModule.run", _set_fact)


def _concat(nodes: Iterable[Any]) -> Any:
    """Return the result of a template, a macro or a block; see `AnsibleEnvironment.concat`."""
    found = list(bits._flatten_nodes(map(unrolled, nodes)))
    context = TemplateContext.current()
    if (name := _ONE_NAME.match(context.template_value)) is not None:
        value = context.templar.available_variables.get(name[1], "")
        if value is None or isinstance(value, Number):
            return value
    is_file = not context.options.escape_backslashes
    stays_text = is_file and (context.is_top_level or not _converts_files.get())
    if len(found) == 1 and not stays_text and _keeps_type(found[0]):
        return found[0]
    try:
        text = "".join([text_of(_checked(node)) for node in found])
    except MarkerError as undefined:
        return undefined.source
    value = text if stays_text else literal(text)
    if value is text:
        # Keep its tags, such as its origin.
        return found[0] if len(found) == 1 and isinstance(found[0], str) else text
    return storable(value, text) if context.is_top_level else value


def _keeps_type(value: Any) -> bool:
    return StaysText.is_tagged_on(value) or keeps_type(value)


def _checked(node: Any) -> Any:
    """Return a value. Raises MarkerError if it contains something undefined."""
    bits._finalize_template_result(node, bits.FinalizeMode.CONCAT)
    return node


def _post_render_mutation(
    original: Callable[..., Any], engine: Any, template: str, result: Any, options: Any
) -> Any:
    if type(result) is Undefined:
        result = ""  # a condition such as `'a' if b`, where b is false
    mutated = original(engine, template, result, options)
    # The trailing newline of the template makes it another text.
    return mutated if mutated == result else StaysText.untag(mutated)


def _evaluate_expression(
    original: Callable[..., Any], engine: Any, expression: Any, **options: Any
) -> Any:
    """Evaluate variables of `debug` as templates; conditions use expressions unchanged."""
    is_debug = isinstance(engine.marker_behavior, RoutingMarkerBehavior)
    if not is_debug or not bits.TrustedAsTemplate.is_tagged_on(expression):
        return original(engine, expression, **options)
    return engine.template(AnsibleTagHelper.tag_copy(expression, f"{{{{{expression}}}}}"))


def _plugin(
    text_filters: set[str], original: Callable[..., Any], plugins: Any, name: str
) -> Callable[..., Any]:
    found: Callable[..., Any] = original(plugins, name)
    if plugins._plugin_loader.type == "test":
        result = TESTS_OF_UNDEFINED.get(name)
        return found if result is None else _with_result(found, result)
    if name in text_filters:
        return _staying_text(found)
    return _with_implicit_else(found) if name in _DEFAULTS else found


def _staying_text(found: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(found)
    def stays_text(*args: Any, **kwargs: Any) -> Any:
        result = found(*args, **kwargs)
        return result if isinstance(result, Marker) else StaysText().tag(text_of(result))

    return stays_text


def _with_result(found: Callable[..., Any], of_undefined: bool) -> Callable[..., Any]:
    """Return a test that has this result for what is undefined, instead of an error."""

    @functools.wraps(found)
    def test(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, UndefinedMarker):
            return of_undefined
        return found(value, *args, **kwargs)

    return test


def _with_implicit_else(found: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that takes `a if b` without `else` as undefined where b is false."""

    @functools.wraps(found)
    def default(value: Any, *args: Any, **kwargs: Any) -> Any:
        if type(value) is Undefined:
            value = UndefinedMarker(value._undefined_hint)
        return found(value, *args, **kwargs)

    return default


class _SharedVariables(dict[str, Any]):
    """Variables that the lookup `template` copies, for what it adds, without their values.

    Templates change no value: each reads lists and maps as copies of its own, also those of tasks
    and of the action `template`, which copies the variables like this.
    """

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return dict(self)


def _look_up_template(original: Callable[..., Any], lookup: Any, *args: Any, **kwargs: Any) -> Any:
    if type(kwargs.get("variables")) is dict:
        kwargs["variables"] = _SharedVariables(kwargs["variables"])
    with _converting_files(bool(kwargs.get("convert_data", True))):
        found = original(lookup, *args, **kwargs)
    if kwargs.get("convert_data", True):
        return found
    return [StaysText().tag(each) if isinstance(each, str) else each for each in found]


@contextmanager
def _converting_files(converts: bool) -> Iterator[None]:
    token = _converts_files.set(converts)
    try:
        yield
    finally:
        _converts_files.reset(token)


def _set_fact(original: Callable[..., Any], action: Any, *args: Any, **kwargs: Any) -> Any:
    """Convert words such as yes to booleans, as `set_fact` did."""
    facts = action._task.args
    for name, value in facts.items():
        if isinstance(value, str) and value.lower() in _WORDS_OF_FACTS:
            facts[name] = _WORDS_OF_FACTS[value.lower()]
    return original(action, *args, **kwargs)


_WORDS = {"true": True, "false": False, "null": None}
"""Literals of JSON that Python does not have."""
_TEXTS = {str, _datatag._AnsibleTaggedStr}
_SCALARS = {*_TEXTS, int, _datatag._AnsibleTaggedInt, bool, type(None)}
_FLOATS = {float, _datatag._AnsibleTaggedFloat}
_UNROLLED = (Iterator, ItemsView, KeysView, ValuesView, range)
_OPAQUE = Mapping | Marker | type(Omit)
"""Mappings such as `hostvars`, which ansible-core copies, and values that it handles itself."""


class _NotStorableError(Exception):
    """A literal has a part of a type that variables cannot have."""


def unrolled(value: Any) -> Any:
    """Return a list for a generator, a view or a range, and an empty string for None."""
    if value is None:
        return ""
    return list(value) if isinstance(value, _UNROLLED) else value


def keeps_type(value: Any) -> bool:
    """Return whether a template with a single expression returns this value unchanged."""
    if isinstance(value, list | dict):
        return _is_literal(value) or _has_marker(value)
    return isinstance(value, bool | _OPAQUE)


def text_of(value: Any) -> str:
    """Return the text of a value within a longer text, as Python's `str` formats it."""
    return str(to_text(_native(value)))


def literal(text: str) -> Any:
    """Return the list, map or boolean that a text is a literal of; else the text."""
    if not (text.startswith(("{", "[")) or text in {"True", "False"}):
        return text
    try:
        return ast.literal_eval(_Words().visit(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return text


def storable(value: Any, text: str) -> Any:
    """Return a literal with types that variables can have, sets as lists; else its text.

    ansible-core 2.18 kept sets, and then failed to display the result of the task.
    """
    try:
        return _storable(value)
    except _NotStorableError:
        return text


def _is_literal(value: Any) -> bool:
    """Return whether a list or a map is equal after formatting and parsing it."""
    rest = [value]
    while rest:
        each = rest.pop()
        kind = type(each)
        if kind in _SCALARS or each is Omit:
            continue
        if isinstance(each, dict):
            rest.extend(each.keys())
            rest.extend(each.values())
        elif isinstance(each, list | tuple):
            rest.extend(each)
        elif kind not in _FLOATS or not isfinite(each):
            return False
    return True


def _has_marker(value: Any) -> bool:
    """Return whether a value contains something that ansible-core reports as undefined."""
    if isinstance(value, dict):
        return any(_has_marker(each) for each in value.values())
    if isinstance(value, list | tuple):
        return any(_has_marker(each) for each in value)
    return isinstance(value, Marker)


def _native(value: Any) -> Any:
    """Return a copy with Python's own types, whose text is that of the value."""
    if isinstance(value, dict):
        return {_native(key): _native(each) for key, each in value.items() if each is not Omit}
    if isinstance(value, list):
        return [_native(each) for each in value if each is not Omit]
    if isinstance(value, tuple):
        return tuple(_native(each) for each in value if each is not Omit)
    if isinstance(value, _datatag.AnsibleTaggedObject):
        return value._native_copy()
    return value


def _storable(value: Any) -> Any:
    """Return a literal with lists instead of sets. Raises _NotStorableError."""
    if isinstance(value, dict):
        return {_storable(key): _storable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, tuple):
        return tuple(_storable(each) for each in value)
    if isinstance(value, set):
        return sorted(map(_storable, value), key=repr)
    if isinstance(value, bytes):
        return to_text(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise _NotStorableError


class _Words(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node
