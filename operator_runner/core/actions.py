"""Which actions of tasks write to the cluster, and which to the host. Pure."""

from __future__ import annotations

COLLECTIONS = ("kubernetes.core.", "community.kubernetes.", "community.okd.", "redhat.openshift.")
_CLUSTER_MODULES = frozenset(
    {
        *("k8s", "k8s_info", "k8s_json_patch", "k8s_rollback", "k8s_scale", "k8s_service"),
        *("k8s_taint", "k8s_cluster_info", "k8s_log", "helm", "helm_info", "helm_template"),
        *("helm_repository", "helm_pull", "openshift_process", "openshift_route"),
    }
)
_STATUS_MODULES = frozenset({"k8s_event", "k8s_status"})
"""Modules of operator_sdk.util that write to the cluster."""
COMMAND_MODULES = frozenset({"command", "shell"})
FILE_MODULES = frozenset({"assemble", "blockinfile", "copy", "file", "lineinfile", "template"})
_PURE_BUILTINS = frozenset(
    {
        *("assert", "debug", "fail", "include_role", "include_tasks", "import_role"),
        *("import_tasks", "meta", "set_fact", "validate_argument_spec", "setup", "gather_facts"),
    }
)
"""Without those of `setup`, whose facts only matter if a template uses them."""
_FACT_MODULES = frozenset({"setup", "gather_facts"})
_PURE_CLUSTER_MODULES = frozenset({"k8s", "k8s_info"})
_BUILTIN = ("ansible.builtin.", "ansible.legacy.")


def acts_on_cluster(action: str) -> bool:
    """Return whether an action writes to the cluster through the proxy."""
    prefix, _, name = action.rpartition(".")
    if f"{prefix}." in COLLECTIONS or not prefix:
        return name in _CLUSTER_MODULES or name in _STATUS_MODULES
    return prefix == "operator_sdk.util" and name in _STATUS_MODULES


def is_pure(action: str) -> bool:
    """Return whether all that an action reads and writes goes through the proxy."""
    return is_pure_cluster_action(action) or builtin_name(action) in _PURE_BUILTINS


def gathers_facts(action: str) -> bool:
    """Return whether an action gathers facts of the host."""
    return builtin_name(action) in _FACT_MODULES


def is_pure_cluster_action(action: str) -> bool:
    """Return whether an action is a module for the cluster that only sends requests."""
    prefix, _, name = action.rpartition(".")
    if f"{prefix}." in COLLECTIONS or not prefix:
        return name in _PURE_CLUSTER_MODULES or action == "k8s_status"
    return action == "operator_sdk.util.k8s_status"


def builtin_name(action: str) -> str:
    """Return the name of a module of Ansible itself, empty for others."""
    for prefix in _BUILTIN:
        action = action.removeprefix(prefix)
    return "" if "." in action else action
