"""JMESPath expressions over a resource. The only module that imports jmespath."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import jmespath
from jmespath import exceptions, functions, lexer

from operator_runner.core.errors import ExpressionError
from operator_runner.core.model import Json
from operator_runner.core.texts import truncated


class _Functions(functions.Functions):
    """The functions of JMESPath, and subtract(), for which JMESPath has no operator."""

    @functions.signature({"types": ["number"]}, {"types": ["number"]})
    def _func_subtract(self, minuend: float, subtrahend: float) -> float:
        return minuend - subtrahend


_FUNCTIONS = _Functions.FUNCTION_TABLE
_OPTIONS = jmespath.Options(custom_functions=_Functions())
_NAME = "unquoted_identifier"
_ENDS_EARLY = "the expression ends too early"
_MAX_ERROR_BYTES = 1024


def check(expression: str) -> None:
    """Raise ValueError, with the position, if the expression is invalid JMESPath.

    Functions are looked up too: jmespath itself would notice them only in use.
    """
    try:
        parsed = jmespath.compile(expression).parsed
    except exceptions.EmptyExpressionError:
        raise ValueError("the expression is empty") from None
    except exceptions.IncompleteExpressionError:
        raise ValueError(f"position {len(expression)}: {_ENDS_EARLY}") from None
    except exceptions.LexerError as error:
        raise ValueError(f"position {error.lex_position}: {error.message}") from None
    except exceptions.ParseError as error:
        has_token = str(error.token_value) != ""
        token = f"unexpected {error.token_value!r}" if has_token else _ENDS_EARLY
        raise ValueError(f"position {error.lex_position}: {token}") from None
    for node in _nodes(parsed):
        if node["type"] == "function_expression":
            _check_call(node["value"], len(node["children"]))
        elif node["type"] == "subexpression" and node["children"][0]["type"] == "not_expression":
            raise ValueError("`!a.b` is `(!a).b`, which is always null; write `!(a.b)`")


def problem(expression: str, written: str = "") -> str:
    """Return what is wrong with an expression, empty for nothing; the file has it as `written`."""
    try:
        check(expression)
    except ValueError as error:
        return f"invalid JMESPath {written or expression!r}: {error}"
    return ""


def evaluate(expression: str, value: Json) -> Any:
    """Return what the expression gives for a resource; raises ValueError if it cannot.

    Its writer selects the types of the values: jmespath checks those of most functions, and
    leaves the rest to Python, such as a comparison of text with a number.
    """
    try:
        return jmespath.compile(expression).search(value, _OPTIONS)
    except (exceptions.JMESPathError, ArithmeticError, TypeError, ValueError) as error:
        # The text of an error has the value, which may be as long as the resource.
        raise ValueError(truncated(str(error), _MAX_ERROR_BYTES)) from error


def value_of(key: str, expression: str, value: Json) -> Any:
    """Return what the expression of a key gives for an object. Raises ExpressionError."""
    try:
        return evaluate(expression, value)
    except ValueError as error:
        raise ExpressionError(key, expression, str(error)) from error


def texts_of(key: str, expression: str, value: Json) -> frozenset[str]:
    """Return the texts that an expression gives: one, those of a list, or none for nothing.

    Raises ExpressionError, also for other values.
    """
    found = value_of(key, expression, value)
    values = found if isinstance(found, list) else [found]
    wrong = [each for each in values if not isinstance(each, str | None)]
    if wrong:
        raise ExpressionError(
            key, expression, f"expected text or a list of text, got {_kind(wrong[0])}"
        )
    return frozenset(filter(None, values))


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "a map"


def path(text: str) -> tuple[str, ...]:
    """Split `spec.tls."ca.crt"` into names; raises ValueError unless it is a plain field path."""
    check(text)
    names = tuple(_names(jmespath.compile(text).parsed))
    if not all(names):
        raise ValueError('write names with dots between, such as spec.port or spec."ca.crt"')
    return names


def top_level_fields(expression: str) -> frozenset[str] | None:
    """Return the top-level fields of an object that an expression reads; None: it may read any."""
    found = set(_roots(jmespath.compile(expression).parsed))
    return None if "" in found else frozenset(found)


def fields_of(root: str, expression: str) -> list[tuple[int, int, str]]:
    """Return start, end and name of each `root.NAME` in the text of an expression.

    An expression with an invalid token has none; `check` reports it.
    """
    try:
        tokens = list(lexer.Lexer().tokenize(expression)) if root in expression else []
    except (exceptions.EmptyExpressionError, exceptions.LexerError):
        return []
    found = []
    for number, token in enumerate(tokens[:-2]):
        dot, name = tokens[number + 1 : number + 3]
        types = (token["type"], dot["type"], name["type"])
        is_first = not number or tokens[number - 1]["type"] != "dot"
        if token["value"] == root and is_first and types == (_NAME, "dot", _NAME):
            found.append((token["start"], name["end"], str(name["value"])))
    return found


def is_true(value: Any) -> bool:
    """Return the truth value in JMESPath: null, false and empty values are false, 0 is true."""
    return not (value is None or value is False or value in ("", [], {}))


def _names(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a path in order, and an empty name for any other expression."""
    match node["type"]:
        case "field":
            yield node["value"]
        case "subexpression":
            for child in node["children"]:
                yield from _names(child)
        case _:
            yield ""


_OF_OBJECT = (
    "and_expression",
    "comparator",
    "function_expression",
    "key_val_pair",
    "multi_select_dict",
    "multi_select_list",
    "not_expression",
    "or_expression",
)
"""Nodes whose children are all evaluated for the object that they are evaluated for."""
_CONSTANT = ("literal", "expref", "index", "slice")


def _roots(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that a node reads of the object; an empty name where it may read any."""
    match node["type"]:
        case "field":
            yield node["value"]
        case kind if kind in _OF_OBJECT:
            for child in node["children"]:
                yield from _roots(child)
        case kind if kind in _CONSTANT:
            return
        case _ if node["children"]:
            # Paths, pipes and projections: the rest is evaluated for what the first one gives.
            yield from _roots(node["children"][0])
        case _:
            yield ""


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node["children"]:
        if isinstance(child, dict):
            yield from _nodes(child)


def _check_call(name: str, count: int) -> None:
    if name not in _FUNCTIONS:
        near = difflib.get_close_matches(name, _FUNCTIONS, n=1)
        hint = f"; did you mean {near[0]}()?" if near else ""
        raise ValueError(f"unknown function {name}(){hint}")
    signature = _FUNCTIONS[name]["signature"]
    required = len(signature)
    variadic = bool(signature) and signature[-1].get("variadic", False)
    if count < required or (count > required and not variadic):
        plural = "" if required == 1 else "s"
        raise ValueError(f"{name}() takes {required} argument{plural}, {count} given")
