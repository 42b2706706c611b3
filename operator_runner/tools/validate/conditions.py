"""Conditions that ansible-core 2.19 and later deprecate or refuse, decided by reading alone. Pure.

A condition must have a boolean result. Variables may have any type: they are never reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from operator_runner.tools.validate.values import has_marks, short_name

_TYPES = {
    "int": ("length", "count", "int", "wordcount"),
    "float": ("float",),
    "str": (
        *("string", "lower", "upper", "trim", "join", "capitalize", "title", "replace"),
        *("regex_replace", "regex_search", "b64encode", "b64decode", "to_json", "to_nice_json"),
        *("to_yaml", "to_nice_yaml", "quote", "basename", "dirname", "hash", "type_debug"),
    ),
    "list": (
        *("list", "unique", "union", "intersect", "difference", "symmetric_difference"),
        *("flatten", "select", "reject", "selectattr", "rejectattr", "map", "split"),
        *("dict2items", "regex_findall", "sort", "subelements"),
    ),
    "dict": ("combine", "items2dict"),
}
_FILTERS = {name: kind for kind, names in _TYPES.items() for name in names}
_METHODS = {
    **dict.fromkeys(("strip", "lower", "upper", "replace", "join"), "str"),
    **dict.fromkeys(("split", "splitlines"), "list"),
}
_EXPRESSIONS: dict[str, tuple[type[nodes.Node], ...]] = {
    "list": (nodes.List, nodes.Tuple),
    "dict": (nodes.Dict,),
    "str": (nodes.Concat,),
    "int": (nodes.Sub, nodes.Div, nodes.FloorDiv, nodes.Pow, nodes.Neg, nodes.Pos),
}
_QUERIES = {"query", "q"}
_BOOLEANS = (nodes.Compare, nodes.Not, nodes.Test)
_CURES = {
    "int": "compare it, such as `> 0`",
    "float": "compare it, such as `> 0`",
    "str": "compare it, such as `!= ''`, or use `is search(...)` or `| bool`",
    "list": "compare its length, such as `| length > 0`",
    "dict": "compare its length, such as `| length > 0`",
    "NoneType": "use `is none`, or a boolean",
}
_EMPTY = "the condition is empty, which ansible-core 2.23 refuses: remove it"
_DELIMITERS = "a condition has no delimiters {{ }}"


def deprecated(environment: Environment, condition: Any) -> Iterator[str]:
    """Yield a message with its cure if ansible-core 2.23 refuses the condition."""
    if isinstance(condition, bool) or condition is None:
        return
    if not isinstance(condition, str):
        yield _not_boolean(type(condition).__mro__[-2].__name__)
    elif not condition.strip():
        yield _EMPTY
    else:
        yield from _of_text(environment, str(condition).strip())


def _of_text(environment: Environment, text: str) -> Iterator[str]:
    if text.startswith("{%"):
        return
    is_template = text.startswith("{{") and text.endswith("}}")
    source = text if is_template else "{{ " + text + " }}"
    try:
        body = environment.parse(source).body
    except TemplateSyntaxError:
        if has_marks(text):  # other mistakes are reported with the expression
            yield f"{_DELIMITERS}: ansible-core 2.19 and later fail; remove them"
        return
    first = body[0]
    if len(body) > 1 or not isinstance(first, nodes.Output) or len(first.nodes) > 1:
        yield f"{_DELIMITERS}: ansible-core 2.19 and later fail; remove them"
    elif not is_template:
        yield from _of_expression(first.nodes[0])
    elif _is_boolean(first.nodes[0]):
        yield f"{_DELIMITERS}: ansible-core 2.23 refuses them; remove them"
    elif (kind := _type(first.nodes[0])) and kind != "str":  # text may be an expression
        yield _not_boolean(kind)


def _of_expression(node: nodes.Node) -> Iterator[str]:
    if kind := _type(node):
        yield _not_boolean(kind)
    texts = [each for each in (node, *node.find_all(nodes.Const)) if isinstance(each, nodes.Const)]
    if any(has_marks(each.value) for each in texts):
        yield embedded()


def embedded() -> str:
    """Return the message for a template within a text of an expression."""
    return (
        "a template within a text of an expression is not evaluated by ansible-core 2.23: "
        "use the variable without quotes and {{ }}"
    )


def _not_boolean(kind: str) -> str:
    cure = _CURES.get(kind, "compare it, or use `| bool`")
    return (
        f"the condition can return {kind} instead of a boolean, which ansible-core 2.23 refuses: "
        f"{cure}"
    )


def _is_boolean(node: nodes.Node) -> bool:
    match node:
        case nodes.And() | nodes.Or():
            return _is_boolean(node.left) and _is_boolean(node.right)
        case nodes.Const():
            return isinstance(node.value, bool)
        case nodes.Filter():
            return short_name(node.name) == "bool"
        case _:
            return isinstance(node, _BOOLEANS)


def _type(node: nodes.Node) -> str | None:
    """Return a type other than a boolean that the result has at times, None if none is certain."""
    for kind, expressions in _EXPRESSIONS.items():
        if isinstance(node, expressions):
            return kind
    if isinstance(node, nodes.Const):
        return None if isinstance(node.value, bool) else type(node.value).__name__
    if isinstance(node, nodes.Filter):
        return _type_of_filter(node)
    if isinstance(node, nodes.Call):
        return _type_of_call(node)
    return next(filter(None, map(_type, _results(node))), None)


def _results(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yield the parts of an expression that can become its result."""
    if isinstance(node, nodes.And | nodes.Or):
        # A literal on the left is never the result, or the right side never is.
        yield from () if isinstance(node.left, nodes.Literal) else (node.left,)
        yield node.right
    elif isinstance(node, nodes.CondExpr):
        yield node.expr1
        yield from () if node.expr2 is None else (node.expr2,)


def _type_of_call(node: nodes.Call) -> str | None:
    if isinstance(node.node, nodes.Name) and node.node.name in _QUERIES:
        return "list"
    return _METHODS.get(node.node.attr) if isinstance(node.node, nodes.Getattr) else None


def _type_of_filter(node: nodes.Filter) -> str | None:
    match short_name(node.name):
        case "default" | "d":
            default = _type(node.args[0]) if node.args else "str"
            return default or (_type(node.node) if node.node else None)
        case "ternary":
            return next(filter(None, map(_type, node.args)), None)
        case name:
            return _FILTERS.get(name)
