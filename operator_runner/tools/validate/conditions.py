"""What roles use that ansible-core 2.19 and later deprecate or refuse, by reading alone. Pure.

A condition must have a boolean result. Variables may have any type: they are never reported. The
names and forms of tasks are those of ansible-core 2.20 and 2.21.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from operator_runner.tools.validate.expressions import Uses
from operator_runner.tools.validate.values import CORE_MODULES, has_marks, short_name

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


FACTS = frozenset(
    (
        *("all_ipv4_addresses", "all_ipv6_addresses", "apparmor", "architecture", "bios_date"),
        *("bios_vendor", "bios_version", "board_asset_tag", "board_name", "board_serial"),
        *("board_vendor", "board_version", "chassis_asset_tag", "chassis_serial"),
        *("chassis_vendor", "chassis_version", "cmdline", "date_time", "default_ipv4"),
        *("default_ipv6", "device_links", "devices", "distribution", "distribution_file_parsed"),
        *("distribution_file_path", "distribution_file_variety", "distribution_major_version"),
        *("distribution_minor_version", "distribution_release", "distribution_version", "dns"),
        *("domain", "effective_group_id"),
        *("effective_user_id", "env", "fibre_channel_wwn", "fips", "form_factor", "fqdn"),
        *("hostname", "hostnqn", "interfaces", "is_chroot", "iscsi_iqn", "kernel"),
        *("kernel_version", "loadavg", "locally_reachable_ips", "lsb", "lvm", "machine"),
        *("machine_id", "memfree_mb", "memory_mb", "memtotal_mb", "mounts", "nodename"),
        *("os_family", "pkg_mgr", "proc_cmdline", "processor", "processor_cores"),
        *("processor_count", "processor_nproc", "processor_threads_per_core", "processor_vcpus"),
        *("product_name", "product_serial", "product_uuid", "product_version", "python"),
        *("python_version", "real_group_id", "real_user_id", "selinux"),
        *("selinux_python_present", "service_mgr", "swapfree_mb", "swaptotal_mb", "system"),
        *("system_capabilities", "system_capabilities_enforced", "system_vendor"),
        *("uptime_seconds", "user_dir", "user_gecos", "user_gid", "user_id", "user_shell"),
        *("user_uid", "userspace_architecture", "userspace_bits", "virtualization_role"),
        *("virtualization_tech_guest", "virtualization_tech_host", "virtualization_type"),
    )
)
"""Facts of the module `setup` on Linux; not `local`, which ansible-core continues to inject."""
_GATHERERS = {"service_facts": "services", "package_facts": "packages"}


def of_names(
    used: Uses, defined: Collection[str], modules: Collection[str], registered: Collection[str]
) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and message for each name that a later ansible-core does not define.

    `modules` are those that the project uses, `registered` the variables with results of tasks.
    """
    gathered = {name for module, name in _GATHERERS.items() if module in modules}
    for use in used.variables:
        fact = use.name.removeprefix("ansible_")
        is_fact = (fact != use.name and fact in FACTS) or use.name in gathered
        if use.name in defined:
            continue
        if is_fact:
            cure = f"use ansible_facts['{fact}']"
            yield use.line, use.name, f"ansible-core 2.24 does not define {use.name}: {cure}"
        elif use.name == "vars":
            cure = "use lookup('vars', 'name')"
            yield use.line, use.name, f"ansible-core 2.24 does not define vars: {cure}"
        elif use.name == "play_hosts":
            cure = "use ansible_play_batch"
            yield use.line, use.name, f"ansible-core 2.23 does not define play_hosts: {cure}"
    for access in used.accesses:
        if access.path[0] in registered and access.path[-1] == "invocation":
            cure = "use the arguments of the task, or set ANSIBLE_INJECT_INVOCATION=true"
            message = f"since ansible-core 2.21, results have no invocation: {cure}"
            yield access.line, "invocation", message
    for use in used.embedded:
        yield use.line, use.name, embedded()


def of_task(task: dict[Any, Any], action: Any, arguments: Any) -> Iterator[tuple[Any, str]]:
    """Yield the value and the message for each form that ansible-core 2.23 refuses.

    `arguments` are those of the module's key, without those of the keyword `args`.
    """
    if isinstance(old := task.get("action"), dict):
        yield (
            old,
            "ansible-core 2.23 refuses a map as `action`: write the module as key of the task",
        )
    if "args" in task and task["args"] is None:
        yield task, "ansible-core 2.23 refuses an empty `args`: remove it"
    elif "args" in task and action in CORE_MODULES and isinstance(arguments, dict):
        text = task.get(action, task.get(f"ansible.builtin.{action}"))
        if isinstance(text, str) and (names := sorted({*map(str, arguments)} - {"_raw_params"})):
            message = f"ansible-core 2.23 ignores {', '.join(names)}: move it to `args`"
            yield text, message
    if action == "include_vars" and isinstance(arguments, dict):
        ignored = arguments.get("ignore_files")
        if isinstance(ignored, str):
            yield ignored, "ansible-core 2.24 refuses a text as ignore_files: write a list"
