"""Make `Settings` from flags and environment: precedence, and values that contradict each other.

A flag beats the environment, the environment a default. The variables for single kinds beat the
flags for all kinds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from operator_runner.config.flags import types
from operator_runner.config.flags.options import METRICS_ADDRESS
from operator_runner.config.flags.types import capacity, cores
from operator_runner.config.watches.loader import Loaded, load
from operator_runner.core.ansible_core import is_newer_core, path_problem
from operator_runner.core.errors import ConfigError
from operator_runner.core.host_resources import HostResources
from operator_runner.core.model import GVK, Ownership, Watch
from operator_runner.core.object_names import MAX_SUBDOMAIN, SUBDOMAIN_PATTERN
from operator_runner.core.settings import (
    Address,
    AnsibleSettings,
    Concurrency,
    JobSettings,
    LeaderElection,
    Settings,
    WebhookSettings,
)

_LOG_EVENTS = ("nothing", "tasks", "everything", "lines")
_FOREVER = timedelta(days=365)
_NONE = timedelta(0)
_LEASE_NAME = re.compile(rf"(?=.{{1,{MAX_SUBDOMAIN}}}$){SUBDOMAIN_PATTERN}")
_MAX_LABEL = 63
"""Length of the value of a label."""

Options = Mapping[str, Any]
Environ = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Format of log lines; the values are those of the --zap flags."""

    encoder: Literal["json", "console"] | None = None
    """None: console on a terminal, else JSON."""
    level: str = "info"
    stacktrace_level: str = "error"
    time_encoding: str = "iso8601"


def load_watches(options: Options, environ: Environ) -> Loaded:
    """Read the watches file of these flags. Raises ConfigError."""
    return load(
        options["watches_file"],
        environ,
        roles_path=options["ansible_roles_path"],
        collections_path=options["ansible_collections_path"],
        mark_unsafe=options.get("mark_unsafe", False),
    )


def log_settings_from(options: Options) -> LogSettings:
    """Take the --zap flags; --zap-devel changes the defaults of the other flags."""
    devel = options["zap_devel"]
    return LogSettings(
        encoder=options["zap_encoder"] or ("console" if devel else None),
        level=options["zap_log_level"] or ("debug" if devel else "info"),
        stacktrace_level=options["zap_stacktrace_level"] or ("warn" if devel else "error"),
        time_encoding=options["zap_time_encoding"],
    )


def settings_from(
    options: Options, environ: Environ, watches: Sequence[Watch], *, terminal: bool = False
) -> Settings:
    """Return all settings; raises ConfigError for values that contradict each other.

    `options` are the keyword arguments that `run_options` gives. The environment may have
    variables for each kind of `watches`. `terminal` is whether the log goes to a terminal.
    """
    problems = [*_exclusions(options), *_leader_problems(options, environ)]
    problems += [*_ownership_problems(options, watches), *_once_problems(options)]
    problems += _job_problems(options, watches)
    problems += [*_argument_problems(options), *types.namespace_problems(environ)]
    if problem := path_problem(options["work_dir"].absolute(), environ):
        problems.append(f"--work-dir: {problem}")
    inventory = environ.get("ANSIBLE_INVENTORY") or None
    if inventory is not None and not Path(inventory).exists():
        problems.append(f"ANSIBLE_INVENTORY: {inventory} was not found; name a file or directory")
    if problems:
        raise ConfigError(*problems)
    kinds = [watch.gvk for watch in watches]
    given = (options["metrics_bind_address"], options["metrics_addr"])
    metrics = next((text for text in given if text is not None), METRICS_ADDRESS)
    grace = options["graceful_shutdown_timeout"]
    settings = Settings(
        watches_file=options["watches_file"],
        namespaces=types.namespaces(environ),
        kubeconfig=options["kubeconfig"],
        context=options["context"],
        concurrency=_concurrency(options, environ, kinds),
        ansible=_ansible(options, environ, kinds, terminal=terminal),
        leader_election=_leader_election(options, environ),
        metrics=Address.parse(metrics),
        probes=Address.parse(options["health_probe_bind_address"]),
        user_metrics=Address.parse(options["user_metrics_bind_address"]),
        proxy=Address("127.0.0.1", options["proxy_port"]),
        work_dir=options["work_dir"],
        hide_credentials=options["hide_credentials"],
        reconcile_period=max(options["reconcile_period"], _NONE),
        inject_owner_ref=options["inject_owner_ref"],
        readiness_wait=options["readiness_wait"],
        # Below zero controller-runtime waits without end; a year is as good.
        graceful_shutdown=grace if grace >= _NONE else _FOREVER,
        executor=options["executor"],
        metrics_secure=options["metrics_secure"],
        metrics_require_rbac=options["metrics_require_rbac"],
        proxy_allow_anonymous=options["proxy_allow_anonymous"],
        # It has one value, and replicas with shards run different resources.
        operator_condition=_operator_condition(environ) if options["shards"] is None else "",
        record_requests=options["record_requests"],
        webhook=_webhook(options),
        jobs=JobSettings(
            port=options["jobs_port"], service=options["jobs_service"], host=options["jobs_host"]
        ),
        shards=options["shards"],
        reload=options["reload"],
    )
    return settings if options["once"] is None else _once(settings, options)


def _argument_problems(options: Options) -> list[str]:
    try:
        shlex.split(_ansible_args(options))
    except ValueError as error:
        where = f"--ansible-args={options['ansible_args']}"
        problem = f"invalid quoting ({str(error).lower()}); quote arguments as for a shell"
        return [f"{where}: {problem}"]
    return []


def _once(settings: Settings, options: Options) -> Settings:
    """Return the settings for one resource: beside an operator, whose ports and Lease it leaves."""
    kind, _, name = options["once"].partition("/")
    return replace(
        settings,
        once=(kind, name),
        once_namespace=options["namespace"] or "",
        metrics=None,
        probes=None,
        user_metrics=settings.user_metrics and Address("127.0.0.1", 0),
        ansible=replace(settings.ansible, metric_address="" if settings.user_metrics else "0"),
        proxy=replace(settings.proxy, port=0),
        jobs=replace(settings.jobs, port=0),
        leader_election=replace(settings.leader_election, enabled=False),
        shards=None,
        operator_condition="",
    )


def _once_problems(options: Options) -> list[str]:
    resource = options["once"]
    if resource is None:
        if not options["namespace"]:
            return []
        reason = "an operator watches the namespaces of WATCH_NAMESPACE; set it instead"
        return [f"--namespace needs --once KIND/NAME, because {reason}"]
    kind, _, name = resource.partition("/")
    if not kind or not name or "/" in name:
        return [f"--once={resource}: invalid resource: write KIND/NAME, such as pages/home"]
    return ["--once and --reload exclude each other; omit one"] if options["reload"] else []


def _job_problems(options: Options, watches: Sequence[Watch]) -> list[str]:
    kinds = ", ".join(watch.gvk.kind for watch in watches if watch.job is not None)
    if not kinds:
        return []
    problems = []
    if bool(options["jobs_service"]) == bool(options["jobs_host"]):
        problems.append(
            f"{kinds}: `execution.job` needs --jobs-service, or --jobs-host for an operator outside"
            " the cluster; set one of them"
        )
    if options["jobs_service"] and options["once"] is not None:
        problems.append(
            f"--once: {kinds} has `execution.job`, and Pods would connect to the operator behind"
            " --jobs-service; set --jobs-host instead"
        )
    if options["jobs_host"] and options["shards"] is not None:
        problems.append(
            f"{kinds}: `execution.job` with --shards needs --jobs-service instead of --jobs-host,"
            " because Pods connect to the replica that has the resource at that time"
        )
    return problems


def _operator_condition(environ: Environ) -> str:
    return environ.get("OPERATOR_CONDITION_NAME", "").strip()


def _ownership_problems(options: Options, watches: Sequence[Watch]) -> list[str]:
    if options["inject_owner_ref"]:
        return []
    return [
        f"--inject-owner-ref=false: {watch.gvk.kind} has `ownership: {watch.ownership.value}`, and"
        " objects without owner references would not belong to it; remove one of the two"
        for watch in watches
        if watch.ownership is not Ownership.IGNORE
    ]


_REPLACED = {
    "metrics_addr": "--metrics-addr is deprecated; use --metrics-bind-address",
    "enable_leader_election": "--enable-leader-election is deprecated; use --leader-elect",
    "leader_elect_resource_lock": "--leader-elect-resource-lock is ignored; the lock is a Lease",
    "fork_server_compress_after": "--fork-server-compress-after is ignored; Ansible is unloaded"
    " after --fork-server-idle-timeout",
    "keep_runs": "--keep-runs is ignored; runs are kept in memory and in Events",
    "enable_http2": "--enable-http2 is ignored; the servers use HTTP/1.1",
}
"""Warnings about flags that are ignored or have another name, by option."""


def warnings_from(options: Options, environ: Environ, watches: Sequence[Watch]) -> tuple[str, ...]:
    """Return warnings about ignored and deprecated flags and variables."""
    kinds = [watch.gvk for watch in watches]
    warnings = [
        *types.concurrency(environ, kinds).warnings,
        *types.verbosity(environ, kinds).warnings,
        *types.unwatched_kinds(environ, kinds),
        *types.log_warnings(environ),
        *types.turbo_warnings(environ),
        *(text for name, text in _REPLACED.items() if options[name] not in {None, False}),
    ]
    if "OPERATOR_NAME" in environ:
        used = "ignored because" if options["leader_election_id"] else "deprecated; use"
        tail = " is set" if options["leader_election_id"] else ""
        warnings.append(f"OPERATOR_NAME is {used} --leader-election-id{tail}")
    if options["shards"] is not None and _operator_condition(environ):
        warnings.append(
            "OPERATOR_CONDITION_NAME and `blockUpgrade` are ignored with --shards; OLM may"
            " replace the operator during a run"
        )
    if options["ansible_log_events"].lower() not in _LOG_EVENTS:
        warnings.append(
            f"--ansible-log-events={options['ansible_log_events']} is ignored;"
            f" write one of {', '.join(_LOG_EVENTS)}"
        )
    limit = options["max_concurrent_reconciles"]
    if limit is not None and limit < 1:
        warnings.append(f"--max-concurrent-reconciles={limit} is ignored; write 1 or more")
    return tuple(warnings)


def _concurrency(options: Options, environ: Environ, kinds: Sequence[GVK]) -> Concurrency:
    own = types.concurrency(environ, kinds).values
    limit = max(options["max_concurrent_reconciles"] or 0, 0)
    largest = max(limit, *own.values(), 0)
    # With a newer ansible-core, plays run cold in any case.
    fits = capacity(HostResources(), "cold" if is_newer_core() else options["executor"], largest)
    most = options["max_runs"]
    return Concurrency(
        total=most or fits.runs,
        per_kind=limit or cores(),
        kinds=own,
        # A number that the user has set is not exceeded.
        extra=0 if most else fits.extra,
        annotated_share=options["annotated_period_share"],
        run_memory=fits.run_memory,
    )


def _ansible(
    options: Options, environ: Environ, kinds: Sequence[GVK], *, terminal: bool
) -> AnsibleSettings:
    encoder = log_settings_from(options).encoder or ("console" if terminal else "json")
    events = options["ansible_log_events"].lower()
    inventory = environ.get("ANSIBLE_INVENTORY")
    timeout, idle = options["run_timeout"], options["fork_server_idle_timeout"]
    return AnsibleSettings(
        verbosity=options["ansible_verbosity"],
        verbosity_of_kind=types.verbosity(environ, kinds).values,
        args=_ansible_args(options),
        log_events=events if events in _LOG_EVENTS else "tasks",
        # A person at a terminal has a line for each task instead.
        framed=encoder == "json" and events != "lines",
        raw_output=types.raw_output(environ),
        debug_logs=types.debug_logs(environ),
        skip_facts=environ.get("ANSIBLE_GATHERING") == "explicit",
        inventory=Path(inventory) if inventory else None,
        roles_path=options["ansible_roles_path"] or environ.get("ANSIBLE_ROLES_PATH", ""),
        collections_path=(
            options["ansible_collections_path"] or environ.get("ANSIBLE_COLLECTIONS_PATH", "")
        ),
        project=options["watches_file"].absolute().parent,
        metric_address=_metric_address(options["user_metrics_bind_address"]),
        timeout=timeout if timeout > _NONE else None,
        isolate_runs=options["isolate_runs"],
        fork_server_idle_timeout=idle if idle > _NONE else None,
        disabled_patches=types.disabled_patches(environ),
    )


def _ansible_args(options: Options) -> str:
    """Return the arguments without one pair of outer single quotes, as ansible-operator does."""
    args: str = options["ansible_args"]
    if len(args) >= 2 and args[0] == args[-1] == "'":  # noqa: PLR2004
        return args[1:-1]
    return args


def _metric_address(bind: str) -> str:
    """Return the URL for runs; empty for the default address, which osdk_metric has built in.

    It is `0` if the operator takes no metrics: tasks of roles that send some have no effect.
    """
    address = Address.parse(bind)
    if address is None:
        return "0"
    if not address.port or bind == "localhost:5050":
        return ""
    host = "localhost" if address.host in {"", "0.0.0.0", "::"} else address.host  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{address.port}/metrics"


def _webhook(options: Options) -> WebhookSettings:
    folder = options["webhook_cert_dir"]
    return WebhookSettings(
        port=options["webhook_port"],
        cert_dir=folder or WebhookSettings().cert_dir,
        cert_dir_given=folder is not None,
        service=options["webhook_service"],
        host=options["webhook_host"],
    )


def _leader_election(options: Options, environ: Environ) -> LeaderElection:
    return LeaderElection(
        enabled=bool(options["leader_elect"] or options["enable_leader_election"]),
        lease_name=options["leader_election_id"] or environ.get("OPERATOR_NAME", ""),
        namespace=options["leader_election_namespace"],
        lease_duration=options["leader_elect_lease_duration"],
        renew_deadline=options["leader_elect_renew_deadline"],
    )


def _exclusions(options: Options) -> list[str]:
    problems = [
        f"only one of --{new} and --{old} may be set; keep --{new}"
        for new, old in (
            ("leader-elect", "enable-leader-election"),
            ("metrics-bind-address", "metrics-addr"),
        )
        if options[new.replace("-", "_")] is not None and options[old.replace("-", "_")] is not None
    ]
    if options["webhook_service"] and options["webhook_host"]:
        problems.append(
            "only one of --webhook-service and --webhook-host may be set;"
            " in a cluster keep --webhook-service"
        )
    if options["metrics_require_rbac"] and not options["metrics_secure"]:
        problems.append("--metrics-secure flag is required when --metrics-require-rbac is present")
    return problems


def _leader_problems(options: Options, environ: Environ) -> list[str]:
    election = _leader_election(options, environ)
    if not election.enabled:
        reason = "whose leader assigns the resources to replicas"
        return [] if options["shards"] is None else [f"--shards requires --leader-elect, {reason}"]
    problems = []
    if options["shards"] is not None and len(election.lease_name) > _MAX_LABEL:
        problems.append(
            f"--shards: --leader-election-id is the value of a label, so it may have at most"
            f" {_MAX_LABEL} characters"
        )
    if not election.lease_name:
        problems.append("--leader-elect requires --leader-election-id, the name of the Lease")
    elif not _LEASE_NAME.fullmatch(election.lease_name):
        problems.append(
            f"--leader-election-id={election.lease_name}: invalid name of a Lease; write lower-case"
            " letters, digits, - and ."
        )
    if not _NONE < election.renew_deadline < election.lease_duration:
        problems.append(
            "--leader-elect-renew-deadline must be above 0s and below"
            " --leader-elect-lease-duration; leave both out for 10s and 15s"
        )
    return problems
