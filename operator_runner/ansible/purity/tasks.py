"""Whether tasks, variables and plays have inputs that the proxy does not see. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from operator_runner.ansible.purity import templates
from operator_runner.core.ansible_modules import Trait, traits_of

_PURE_REQUESTS = Trait.PURE | Trait.CLUSTER
_CONDITIONS = frozenset({"when", "changed_when", "failed_when", "until", "that", "var"})
_LOOPS = frozenset(
    f"with_{name}"
    for name in (
        *("items", "dict", "list", "together", "nested", "cartesian", "sequence", "subelements"),
        *("indexed_items", "flattened"),
    )
)
_IMPURE_KEYWORDS = frozenset(
    {
        *("action", "local_action", "delegate_to", "delegate_facts", "environment", "connection"),
        *("become", "become_user", "remote_user", "port", "async", "module_defaults"),
        *("vars_files", "vars_prompt", "fact_path"),
    }
)
_MODULE_PARAMETERS = frozenset(
    {
        *("state", "name", "namespace", "api", "api_version", "version", "kind", "definition"),
        *("resource_definition", "inline", "apply", "server_side_apply", "force", "merge_type"),
        *("wait", "wait_timeout", "wait_sleep", "wait_condition", "label_selectors"),
        *("field_selectors", "append_hash", "continue_on_error", "template", "src"),
        *("hidden_fields", "delete_options", "delete_all", "status", "conditions"),
        *("replace_lists",),
    }
)
_FILE_PARAMETERS = ("src", "template")
_UNTEMPLATED = ("files/", "meta/", "molecule/", "tests/")


def task_impurities(tasks: Any) -> Iterator[str]:
    """Yield why tasks, as read from YAML, may have other inputs."""
    for task in tasks if isinstance(tasks, list) else ():
        if not isinstance(task, dict):
            continue
        yield from (f"keyword {key}" for key in task if key in _IMPURE_KEYWORDS)
        yield from (
            f"loop {key}" for key in task if str(key).startswith("with_") and key not in _LOOPS
        )
        for block in ("block", "rescue", "always"):
            yield from task_impurities(task.get(block))
        for key, arguments in task.items():
            if _PURE_REQUESTS in traits_of(str(key)):
                yield from _argument_impurities(arguments)
                yield from _argument_impurities(task.get("args", {}))
    yield from value_impurities(tasks)


def play_impurities(plays: Any) -> Iterator[str]:
    """Yield why plays, as read from YAML, may have other inputs."""
    for play in plays if isinstance(plays, list) else ():
        if not isinstance(play, dict):
            continue
        yield from (f"keyword {key}" for key in play if key in _IMPURE_KEYWORDS - {"connection"})
        if any(str(key).endswith("import_playbook") for key in play):
            yield "import_playbook"
        for section in ("pre_tasks", "tasks", "post_tasks", "handlers"):
            yield from task_impurities(play.get(section))
    yield from value_impurities(plays)


def value_impurities(value: Any, key: str = "") -> Iterator[str]:
    """Yield why templates in a value, as read from YAML, may not be pure."""
    match value:
        case str() if key in _CONDITIONS:
            yield from templates.expression_impurities(value)
        case str() if templates.is_template(value):
            yield from templates.template_impurities(value)
        case dict():
            for name, each in value.items():
                yield from value_impurities(name)
                yield from value_impurities(each, str(name))
        case list():
            for each in value:
                yield from value_impurities(each, key)


def _argument_impurities(arguments: Any) -> Iterator[str]:
    """Yield the impurities of the parameters of a module for the cluster."""
    if not isinstance(arguments, dict):
        yield "parameters of a module that are not a mapping"
        return
    for name, value in arguments.items():
        if name not in _MODULE_PARAMETERS:
            yield f"parameter {name}"
        elif name in _FILE_PARAMETERS:
            yield from (
                f"parameter {name}" for path in _paths(value) if not templates.is_local_path(path)
            )


def _paths(value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list) else [value]:
        path = each.get("path") if isinstance(each, dict) else each
        is_plain = not isinstance(each, dict) or set(each) == {"path"}
        # A template with delimiters of its own is not the one that was read.
        # These directories are not searched for templates, but a path may name them.
        is_plain = is_plain and not str(path).startswith(_UNTEMPLATED)
        yield path if isinstance(path, str) and is_plain else "/"
