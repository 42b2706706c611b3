"""The Ansible modules of the image, and their properties. Pure.

Code that treats modules differently asks this table, and tests compare it with the modules that are
installed. A module that is not in it has no trait, which is always the careful answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto
from types import MappingProxyType


class Trait(Flag):
    """A property of a module that the operator treats differently."""

    # What it acts on: each module has exactly one of these.
    PLAY = auto()
    """Acts on the play alone, in its process; no process is started for it."""
    HOST = auto()
    """Acts on the host, which is the container of the operator or the Pod of the run."""
    CLUSTER = auto()
    """Only sends requests to the API server, through the proxy of the run."""
    CONTAINER = auto()
    """Runs a command in a container of the cluster, or copies files to or from it."""
    OPERATOR = auto()
    """Gives a value to the operator."""

    PREVIEWED = auto()
    """Runs in a dry run as in any other run, because the proxy turns its writes into dry runs."""
    WAITS = auto()
    """Waits for its objects unless its argument `wait` is false."""
    REPORTS = auto()
    """Its `changed` is about a report, not about objects that the role manages."""
    REQUEUES = auto()
    """Sets the time of the next reconcile."""
    ONLY_SENDS_REQUESTS = auto()
    """Only reads and writes objects, so that it may run in the process of the play."""
    RUNS_COMMAND = auto()
    """Runs the command in its arguments."""
    WRITES_FILE = auto()
    """Writes the file `dest` or `path` and nothing else."""
    MAKES_TEMPORARY_FILE = auto()
    """Makes a file below `path`, by default below the temporary directory."""
    INCLUDES_ROLE = auto()
    """Its argument is a role."""
    INCLUDES_PLAYBOOK = auto()
    """Its argument is a playbook."""
    QUIET = auto()
    """Its start is not logged, as in ansible-operator."""
    FREE_ARGUMENTS = auto()
    """Has arguments that its documentation does not list."""
    PRELOADED_ACTION = auto()
    """Used by most roles: its action plugin is loaded before runs."""
    PRELOADED_PROGRAM = auto()
    """Used by most roles: its program is loaded before runs."""


_NONE = Trait(0)
_INCLUDE = Trait.PLAY | Trait.FREE_ARGUMENTS
_FREE_HOST = Trait.HOST | Trait.FREE_ARGUMENTS
_FILE = Trait.HOST | Trait.WRITES_FILE
_COMMAND = _FREE_HOST | Trait.RUNS_COMMAND | Trait.PRELOADED_ACTION
_PRELOADED = Trait.PRELOADED_ACTION | Trait.PRELOADED_PROGRAM
_CLUSTER = Trait.CLUSTER | Trait.PREVIEWED
_SHARED = _CLUSTER | Trait.ONLY_SENDS_REQUESTS
_REPORT = Trait.OPERATOR | Trait.REPORTS

_BUILTIN = {
    "add_host": Trait.PLAY | Trait.FREE_ARGUMENTS,
    "assert": Trait.PLAY | Trait.PRELOADED_ACTION,
    "debug": Trait.PLAY | Trait.QUIET | Trait.PRELOADED_ACTION,
    "fail": Trait.PLAY | Trait.PRELOADED_ACTION,
    "group_by": Trait.PLAY,
    "import_playbook": Trait.PLAY | Trait.FREE_ARGUMENTS | Trait.INCLUDES_PLAYBOOK,
    "import_role": _INCLUDE | Trait.INCLUDES_ROLE,
    "import_tasks": _INCLUDE,
    "include_role": _INCLUDE | Trait.INCLUDES_ROLE,
    "include_tasks": _INCLUDE | Trait.PRELOADED_ACTION,
    "include_vars": Trait.PLAY | Trait.FREE_ARGUMENTS | Trait.PRELOADED_ACTION,
    "meta": _INCLUDE,
    "pause": Trait.PLAY,
    "set_fact": _INCLUDE | Trait.QUIET | Trait.PRELOADED_ACTION,
    "set_stats": Trait.PLAY,
    "validate_argument_spec": Trait.PLAY,
    "gather_facts": _FREE_HOST | Trait.PRELOADED_ACTION,
    "setup": Trait.HOST | Trait.PRELOADED_PROGRAM,
    "command": _COMMAND | Trait.PRELOADED_PROGRAM,
    "shell": _COMMAND,
    "assemble": _FILE,
    "blockinfile": _FILE,
    "copy": _FILE | _PRELOADED,
    "file": _FILE | _PRELOADED,
    "lineinfile": _FILE,
    "template": _FILE | Trait.PRELOADED_ACTION,
    "tempfile": Trait.HOST | Trait.MAKES_TEMPORARY_FILE,
    "stat": Trait.HOST | _PRELOADED,
    "uri": Trait.HOST | _PRELOADED,
    "package": _FREE_HOST,
    "raw": _FREE_HOST,
    "script": _FREE_HOST,
    "service": _FREE_HOST,
    **dict.fromkeys(
        (
            *("apt", "apt_key", "apt_repository", "async_status", "async_wrapper", "cron"),
            *("deb822_repository", "debconf", "dnf", "dnf5", "dpkg_selections", "expect", "fetch"),
            *("find", "get_url", "getent", "git", "group", "hostname", "iptables", "known_hosts"),
            *("mount_facts", "package_facts", "ping", "pip", "reboot", "replace", "rpm_key"),
            *("service_facts", "slurp", "subversion", "systemd", "systemd_service", "sysvinit"),
            *("unarchive", "user", "wait_for", "wait_for_connection", "yum_repository"),
        ),
        Trait.HOST,
    ),
}
_KUBERNETES = {
    "k8s": _SHARED | Trait.PRELOADED_ACTION,
    "k8s_info": _SHARED | Trait.PRELOADED_ACTION,
    "k8s_cluster_info": _SHARED,
    "k8s_json_patch": _SHARED,
    "k8s_scale": _SHARED | Trait.WAITS,
    "k8s_service": _SHARED,
    "k8s_log": _CLUSTER,
    "k8s_rollback": _CLUSTER,
    "k8s_taint": _CLUSTER,
    # In a dry run no Pod is evicted, so that it would wait for its whole timeout.
    "k8s_drain": Trait.CLUSTER,
    "k8s_cp": Trait.CONTAINER,
    "k8s_exec": Trait.CONTAINER,
    # Starts the program helm.
    "helm": _CLUSTER,
    "helm_info": _CLUSTER,
    "helm_template": _CLUSTER,
    # Charts and repositories are files of the run.
    "helm_pull": Trait.HOST | Trait.PREVIEWED,
    "helm_repository": Trait.HOST | Trait.PREVIEWED,
    # Plugins and credentials of registries outlive the run.
    "helm_plugin": Trait.HOST,
    "helm_plugin_info": Trait.HOST,
    "helm_registry_auth": Trait.HOST,
    # Merges `path` into `dest`; since kubernetes.core 6.5.
    "kubeconfig": _FILE,
}
_OPENSHIFT = {"openshift_process": _CLUSTER, "openshift_route": _CLUSTER}
_OPERATOR_SDK = {
    "k8s_event": _SHARED | Trait.REPORTS,
    "k8s_status": _SHARED | Trait.REPORTS,
    "osdk_metric": _REPORT,
    "requeue_after": _REPORT | Trait.REQUEUES,
}
MODULES: Mapping[str, Mapping[str, Trait]] = MappingProxyType(
    {
        "ansible.builtin": _BUILTIN,
        "kubernetes.core": _KUBERNETES,
        "operator_sdk.util": _OPERATOR_SDK,
    }
)
"""Traits by the name of the module, by collection."""
_BY_PREFIX = {
    # A short name; none of these collections has one that another has.
    "": _BUILTIN | _KUBERNETES | _OPENSHIFT | _OPERATOR_SDK,
    **MODULES,
    "ansible.legacy": _BUILTIN,
    "community.kubernetes": _KUBERNETES,
    "community.okd": _KUBERNETES | _OPENSHIFT,
    "redhat.openshift": _KUBERNETES | _OPENSHIFT,
}


def traits_of(action: str) -> Trait:
    """Return the traits of the module of a task, such as `k8s` or `kubernetes.core.k8s`."""
    prefix, _, name = action.rpartition(".")
    return _BY_PREFIX.get(prefix, {}).get(name, _NONE)


def has_trait(action: str, traits: Trait) -> bool:
    """Return whether the module of a task has one of these traits."""
    return bool(traits_of(action) & traits)


def modules_with(trait: Trait) -> frozenset[str]:
    """Return the modules with a trait, such as `kubernetes.core.k8s`."""
    return frozenset(
        f"{collection}.{name}"
        for collection, modules in MODULES.items()
        for name, traits in modules.items()
        if trait in traits
    )
