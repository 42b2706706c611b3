"""Types of what templates give, as ansible-core had them before 2.19, for which roles are written.

There a template gave text, unless it was nothing but the name of a number: `'{{ size + 1 }}'`
was "3", which is what the data of a ConfigMap or a label wants, and nothing was "". Text that
looks like a list, a map or a boolean became one. From 2.19 on each template gives the type of its
expression. `jinja2_native`, which chose that before and which ansible-core no longer looks at,
chooses it here: true in ansible.cfg or ANSIBLE_JINJA2_NATIVE leaves ansible-core as it is.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible import constants
from ansible.module_utils._internal._datatag import AnsibleTagHelper
from jinja2 import nodes

_SETTING = "DEFAULT_JINJA2_NATIVE"
_ONE_NAME = re.compile(r"\s*{{\s*\w+\s*}}\s*", re.ASCII)
_GIVE_TEXT = {"string", "to_json", "to_nice_json", "to_yaml", "to_nice_yaml", "ppretty", "json"}
"""Filters of which what they give stays text."""
_WORDS = {"true": True, "false": False, "null": None}
"""What JSON has and Python not."""

Compiled = Callable[[Mapping[str, Any]], Any]


def install() -> None:
    """Have templates of this process, and of its forks, give what they gave, if so wanted."""
    native, origin = constants.config.get_config_value_and_origin(_SETTING)
    # ansible-core says that it has no effect, as soon as it can say anything.
    told = constants.config.DEPRECATED
    told[:] = [entry for entry in told if entry[0] != _SETTING]
    if native and origin != "default":
        return
    from ansible._internal._templating._engine import TemplateEngine

    original = TemplateEngine._compile_template

    @functools.wraps(original)
    def compile_template(engine: Any, template: str, options: Any) -> Compiled:
        compiled: Compiled = original(engine, template, options)
        # Files that are templates are read with backslashes as they are, and are text.
        is_file = not options.escape_backslashes
        return lambda variables: _as_it_was(engine, template, is_file, compiled(variables))

    TemplateEngine._compile_template = compile_template


def _as_it_was(engine: Any, template: str, is_file: bool, result: Any) -> Any:
    if isinstance(result, str):
        return result if is_file else _container(engine, template, result)
    if isinstance(result, bool) or _ONE_NAME.fullmatch(template):
        return result
    if result is None:
        return ""
    if isinstance(result, int | float):
        return AnsibleTagHelper.tag_copy(result, str(result))
    return result


def _container(engine: Any, template: str, text: str) -> Any:
    """Return the list, map or boolean that a text is written like; else the text."""
    if not (text.startswith(("{", "[")) or text in {"True", "False"}):
        return text
    if _gives_text(engine, template):
        return text
    try:
        return ast.literal_eval(_Words().visit(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return text


def _gives_text(engine: Any, template: str) -> bool:
    """Whether the template is one expression that ends in a filter for text."""
    match engine.environment.parse(template).body:
        case [nodes.Output(nodes=[nodes.Filter(name=name)])]:
            return str(name).rpartition(".")[2] in _GIVE_TEXT
    return False


class _Words(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node
