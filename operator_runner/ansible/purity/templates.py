"""Whether the value of a template depends on its variables alone. Pure.

Only what is known is accepted: a filter, a test or a function that is not listed is an impurity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, TemplateError, nodes
from jinja2.filters import FILTERS
from jinja2.tests import TESTS

_FILTERS = (frozenset(FILTERS) - {"random"}) | {
    *("b64decode", "b64encode", "basename", "bool", "checksum", "combinations", "combine"),
    *("comment", "dict2items", "difference", "dirname", "extract", "flatten", "from_json"),
    *("from_yaml", "from_yaml_all", "hash", "human_readable", "human_to_bytes", "intersect"),
    *("items2dict", "mandatory", "md5", "path_join", "permutations", "pow", "product", "quote"),
    *("regex_escape", "regex_findall", "regex_replace", "regex_search", "rekey_on_member"),
    *("root", "sha1", "split", "splitext", "subelements", "symmetric_difference", "ternary"),
    *("to_json", "to_nice_json", "to_nice_yaml", "to_uuid", "to_yaml", "type_debug", "union"),
    *("unique", "urldecode", "urlsplit", "zip", "zip_longest", "log", "commonpath"),
    *("label_selectors", "owned_by", "k8s_config_resource_name"),
}
_TESTS = frozenset(TESTS) | {
    *("all", "any", "changed", "contains", "failed", "failure", "falsy", "match", "nan"),
    *("regex", "search", "skip", "skipped", "subset", "succeeded", "success", "successful"),
    *("superset", "truthy", "uri", "url", "urn", "version", "version_compare"),
}
_COLLECTIONS = ("ansible.builtin.", "kubernetes.core.", "operator_sdk.util.")
_IMPURE_NAMES = frozenset(
    {
        *("lookup", "query", "q", "now", "undef", "lipsum", "vars", "hostvars", "groups"),
        *("environment", "self", "play_hosts", "ansible_facts"),
    }
)
_IMPURE_PREFIXES = ("ansible_", "template_", "facter_", "ohai_")
_PURE_NAMES = frozenset(
    {
        *("ansible_operator_meta", "ansible_loop", "ansible_loop_var", "ansible_index_var"),
        *("ansible_failed_result", "ansible_check_mode"),
    }
)
_FUNCTIONS = frozenset({"range", "dict", "namespace", "cycler", "joiner", "caller"})
_APPLYING = frozenset({"map", "select", "reject", "selectattr", "rejectattr"})
_IMPURE_ATTRIBUTES = frozenset({"now", "today", "utcnow"})
_BRACES = ("{{", "{%", "{#")
_ENVIRONMENT = Environment(  # noqa: S701 (nothing is rendered)
    extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]
)


def is_template(text: str) -> bool:
    """Return whether Ansible evaluates a text."""
    return any(brace in text for brace in _BRACES)


def expression_impurities(text: str) -> Iterator[str]:
    """Yield why the value of an expression without braces is not known to be pure."""
    yield from template_impurities(text if is_template(text) else f"{{{{ ({text}) }}}}")


def template_impurities(text: str) -> Iterator[str]:
    """Yield why the value of a template is not known to depend on its variables alone."""
    try:
        tree = _ENVIRONMENT.parse(text)
    except TemplateError as error:
        yield f"template cannot be parsed: {error.message}"
        return
    macros = {macro.name for macro in tree.find_all(nodes.Macro)}
    for node in tree.find_all(nodes.Node):
        if impurity := _impurity(node, macros):
            yield impurity


def _impurity(node: nodes.Node, macros: set[str]) -> str:
    match node:
        case nodes.Filter() | nodes.Test():
            return _applied_impurity(node)
        case nodes.Name(name=name, ctx="load") if _is_impure(name):
            return f"variable {name}"
        case nodes.Getattr(attr=name) if name in _IMPURE_ATTRIBUTES:
            return f"attribute {name}"
        case nodes.Call(node=nodes.Name(name=name)) if name not in _FUNCTIONS | macros:
            return f"function {name}"
        case nodes.Include() | nodes.Import() | nodes.FromImport() | nodes.Extends():
            return "" if _is_local(node.template) else "included template"
    return ""


def _applied_impurity(node: nodes.Filter | nodes.Test) -> str:
    if isinstance(node, nodes.Test):
        return "" if _is_known(node.name, _TESTS) else f"test {node.name}"
    if not _is_known(node.name, _FILTERS):
        return f"filter {node.name}"
    return _argument_impurity(node) if node.name in _APPLYING else ""


def _argument_impurity(node: nodes.Filter) -> str:
    """Return the impurity of the filter or test that another filter applies by its name."""
    names = node.args[1:2] if node.name.endswith("attr") else node.args[:1]
    known = _FILTERS if node.name == "map" else _TESTS
    for each in names:
        if not isinstance(each, nodes.Const) or not _is_known(str(each.value), known):
            return f"{node.name} with an argument that is not known"
    return ""


def _is_known(name: str, known: frozenset[str]) -> bool:
    for prefix in _COLLECTIONS:
        name = name.removeprefix(prefix)
    return name in known


def _is_impure(name: str) -> bool:
    return name not in _PURE_NAMES and (name in _IMPURE_NAMES or name.startswith(_IMPURE_PREFIXES))


def _is_local(template: Any) -> bool:
    if not isinstance(template, nodes.Const) or not isinstance(template.value, str):
        return False
    return is_local_path(template.value)


def is_local_path(path: str) -> bool:
    """Return whether a path is a literal one below the directory of its role."""
    return (
        not is_template(path)
        and "://" not in path
        and not (path.startswith(("/", "~")) or ".." in path.split("/"))
    )
