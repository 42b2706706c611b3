"""What roles use that ansible-core 2.20 and 2.21 deprecate: names, and forms of tasks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from operator_runner.tools.validate.conditions import embedded
from operator_runner.tools.validate.expressions import Uses
from operator_runner.tools.validate.values import CORE_MODULES

FACTS = frozenset(
    (
        *("all_ipv4_addresses", "all_ipv6_addresses", "apparmor", "architecture", "bios_date"),
        *("bios_vendor", "bios_version", "board_asset_tag", "board_name", "board_serial"),
        *("board_vendor", "board_version", "chassis_asset_tag", "chassis_serial"),
        *("chassis_vendor", "chassis_version", "cmdline", "date_time", "default_ipv4"),
        *("default_ipv6", "device_links", "devices", "distribution", "distribution_file_parsed"),
        *(
            "distribution_file_path",
            "distribution_file_variety",
            "distribution_major_version",
            "distribution_minor_version",
        ),
        *("distribution_release", "distribution_version", "dns", "domain", "effective_group_id"),
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
