"""The flags of `operator-runner run`: names and defaults of ansible-operator, and a few more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from operator_runner.config.flags.types import (
    bind_address,
    cores,
    go_bool,
    go_duration,
    service,
    shards,
)
from operator_runner.core.settings import DEFAULT_WORK_DIR, WebhookSettings

METRICS_ADDRESS = ":8443"
"""Default of --metrics-bind-address, which is None where neither it nor --metrics-addr is set."""

WEBHOOK_FLAGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "--webhook-port",
        "Port of the conversion webhook, if watches.yaml has conversions; 0: any free port.",
        {"default": 9443, "type": click.IntRange(0, 65535), "metavar": "PORT"},
    ),
    (
        "--webhook-cert-dir",
        "Directory of tls.crt and tls.key of the webhook; else the operator creates its own.",
        {
            "default": None,
            "type": click.Path(path_type=Path, file_okay=False),
            "show_default": str(WebhookSettings().cert_dir),
        },
    ),
    (
        "--webhook-service",
        "Service of the webhook; the operator writes it and the CA into the CRD.",
        {"default": None, "type": service, "metavar": "[NAMESPACE/]NAME[:PORT]"},
    ),
    (
        "--webhook-host",
        "Address of an operator outside the cluster, as seen by the API server.",
        {"default": ""},
    ),
)


JOB_FLAGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "--jobs-port",
        "Port for runs that are Kubernetes Jobs, if watches.yaml has any; 0: any free port.",
        {"default": 8444, "type": click.IntRange(0, 65535), "metavar": "PORT"},
    ),
    (
        "--jobs-service",
        "Service through which the Pods of Jobs connect to that port.",
        {"default": None, "type": service, "metavar": "[NAMESPACE/]NAME[:PORT]"},
    ),
    (
        "--jobs-host",
        "Address of an operator outside the cluster, as seen by the Pods of Jobs.",
        {"default": ""},
    ),
)


_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Option(click.Option):
    """An option that belongs to a section of the help."""

    def __init__(self, param_decls: Sequence[str], *, section: str, **settings: Any) -> None:
        super().__init__(param_decls, **settings)
        self.section = section


class RunCommand(click.Command):
    """A command whose help shows its flags by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section under its name."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                name = param.section if isinstance(param, _Option) else "Other"
                sections.setdefault(name, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


def run_options(command: _Command) -> _Command:
    """Add all flags to a command, which gets them as keyword arguments; see `settings_from`."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def lookup_options(command: _Command) -> _Command:
    """Give a command the flags that say where roles and collections are found."""
    for add in reversed(_LOOKUP):
        command = add(command)
    return command


def _option(
    section: str, name: str, text: str, *, short: Sequence[str] = (), **settings: Any
) -> Callable[..., Any]:
    settings.setdefault("show_default", bool(settings["default"]))
    return click.option(name, *short, cls=_Option, section=section, help=text, **settings)


def _bool(section: str, name: str, text: str, **settings: Any) -> Callable[..., Any]:
    # The flag alone means true, as in Go; click can do that for options that take a value.
    settings = {"is_flag": False, "flag_value": "true", "type": go_bool, **settings}
    return _option(section, name, text, metavar="[=true|false]", **settings)


def _duration(section: str, name: str, default: str, text: str) -> Callable[..., Any]:
    return _option(section, name, text, default=default, type=go_duration, metavar="DURATION")


def _deprecated(name: str, **settings: Any) -> Callable[..., Any]:
    return _option("Deprecated", name, "", default=None, hidden=True, **settings)


_PROJECT, _RUNS, _LEADER = "Project", "Runs", "Leader election"
_SERVE, _LOGS = "Servers", "Logs"

_LOOKUP: tuple[Callable[..., Any], ...] = (
    _option(
        _PROJECT,
        "--ansible-roles-path",
        "Directories of roles, before ./roles; overrides ANSIBLE_ROLES_PATH.",
        default="",
    ),
    _option(
        _PROJECT,
        "--ansible-collections-path",
        "Directories of collections; overrides ANSIBLE_COLLECTIONS_PATH.",
        default="",
    ),
)

_OPTIONS: tuple[Callable[..., Any], ...] = (
    _option(
        _PROJECT,
        "--watches-file",
        "File that maps kinds to roles and playbooks.",
        default="./watches.yaml",
        type=click.Path(path_type=Path),
    ),
    *_LOOKUP,
    _bool(
        _PROJECT,
        "--mark-unsafe",
        "Never evaluate resource text as a template, unless a watch has markUnsafe: false.",
        default="false",
    ),
    _bool(
        _PROJECT,
        "--reload",
        "Apply edits: reconcile the kind of an edited role or playbook, restart for watches.yaml.",
        default="false",
    ),
    _option(
        _PROJECT,
        "--once",
        "Reconcile one resource, and exit with the status of its run.",
        default=None,
        metavar="KIND/NAME",
    ),
    _option(
        _PROJECT,
        "--namespace",
        "With --once: namespace of the resource; else WATCH_NAMESPACE, or that of the kubeconfig.",
        short=["-n"],
        default=None,
    ),
    _option(
        _PROJECT,
        "--kubeconfig",
        "Kubeconfig file; else KUBECONFIG, the ServiceAccount of the Pod, or ~/.kube/config.",
        default=None,
        type=click.Path(path_type=Path),
    ),
    _option(
        _PROJECT,
        "--context",
        "Context of the kubeconfig; else its current one.",
        default="",
    ),
    _duration(
        _RUNS, "--reconcile-period", "10h", "Interval of periodic reconciles; 0s: on events only."
    ),
    _option(
        _RUNS,
        "--max-concurrent-reconciles",
        "Maximum runs of one kind; MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> overrides it.",
        default=None,
        type=int,
        show_default=f"{cores()}, one per core",
    ),
    _option(
        _RUNS,
        "--max-runs",
        "Maximum runs of all kinds; each needs a core and 40 MB (100 MB with --executor=cold).",
        default=None,
        type=click.IntRange(min=1),
        show_default="by cores and memory",
    ),
    _option(
        _RUNS,
        "--annotated-period-share",
        "Share of --max-runs for periodic runs that annotations of one namespace request.",
        default=0.5,
        type=click.FloatRange(min=0.01, max=1),
    ),
    _option(
        _RUNS,
        "--executor",
        "warm: fork runs from a process with Ansible loaded; cold: start ansible-runner.",
        default="warm",
        type=click.Choice(["warm", "cold"]),
    ),
    _duration(
        _RUNS,
        "--fork-server-idle-timeout",
        "10m",
        "Time without a run after which Ansible is unloaded until the next run; 0s: never.",
    ),
    _duration(
        _RUNS,
        "--readiness-wait",
        "10s",
        "Maximum time that a dependent which becomes ready waits for others; 0s: it does not.",
    ),
    _duration(_RUNS, "--run-timeout", "0s", "Maximum duration of a run; 0s: unlimited."),
    _duration(
        _RUNS,
        "--graceful-shutdown-timeout",
        "30s",
        "Time for running plays to finish after SIGTERM; negative: unlimited.",
    ),
    _option(
        _RUNS,
        "--ansible-verbosity",
        "Number of v in -vv; ANSIBLE_VERBOSITY_<KIND>_<GROUP> overrides it.",
        default=2,
        type=click.IntRange(0, 7, clamp=True),
        metavar="0..7",
    ),
    _option(_RUNS, "--ansible-args", "Additional arguments for ansible-playbook.", default=""),
    _bool(
        _RUNS,
        "--inject-owner-ref",
        "Add owner references to objects that runs create, and watch these objects.",
        default="true",
    ),
    _option(
        _RUNS,
        "--work-dir",
        "Directory for private data dirs and artifacts of runs.",
        default=DEFAULT_WORK_DIR,
        type=click.Path(path_type=Path, file_okay=False),
    ),
    _bool(
        _RUNS,
        "--isolate-runs",
        "Isolate runs from files and processes of other runs and the operator; disables mounts.",
        default="true",
    ),
    _bool(
        _RUNS,
        "--hide-credentials",
        "Hide the operator's kubeconfig, tokens and keys from isolated runs.",
        default="true",
    ),
    _bool(_LEADER, "--leader-elect", "Enable leader election.", default=None),
    _option(_LEADER, "--leader-election-id", "Name of the Lease.", default=""),
    _option(
        _LEADER,
        "--leader-election-namespace",
        "Namespace of the Lease; else that of the operator.",
        default="",
    ),
    _duration(_LEADER, "--leader-elect-lease-duration", "15s", "Lease validity without renewal."),
    _duration(
        _LEADER,
        "--leader-elect-renew-deadline",
        "10s",
        "Time after which a leader that cannot renew the Lease stops.",
    ),
    _option(
        _LEADER,
        "--shards",
        "Let replicas share the resources: auto for all of them, or the maximum number.",
        default=None,
        type=shards,
        metavar="N|auto",
    ),
    _option(
        _SERVE,
        "--metrics-bind-address",
        "Address of /metrics; 0 disables it.",
        default=None,
        type=bind_address,
        metavar="ADDRESS",
        show_default=METRICS_ADDRESS,
    ),
    _bool(_SERVE, "--metrics-secure", "Serve metrics over TLS.", default="false"),
    _bool(
        _SERVE,
        "--metrics-require-rbac",
        "Authorize readers of metrics by the API server; needs --metrics-secure.",
        default="false",
    ),
    _option(
        _SERVE,
        "--user-metrics-bind-address",
        "Address that receives metrics of roles (osdk_metric); 0 disables it.",
        default="localhost:5050",
        type=bind_address,
        metavar="ADDRESS",
    ),
    _option(
        _SERVE,
        "--health-probe-bind-address",
        "Address of /healthz and /readyz; 0 disables them.",
        default=":6789",
        type=bind_address,
        metavar="ADDRESS",
    ),
    _option(
        _SERVE,
        "--proxy-port",
        "Port of the API proxy for runs, on localhost; 0: any free port.",
        default=8888,
        type=click.IntRange(0, 65535),
        metavar="PORT",
    ),
    _bool(
        _SERVE,
        "--proxy-allow-anonymous",
        "Accept requests without the token of a run at the proxy, by plain HTTP.",
        default="false",
    ),
    _option(
        _SERVE,
        "--record-requests",
        "File for the permissions that roles need, for `operator-runner rbac`.",
        default=None,
        type=click.Path(path_type=Path, dir_okay=False),
    ),
    _bool(_SERVE, "--keep-runs", "Accepted without effect.", default="false", hidden=True),
    *(_option(_SERVE, name, text, **more) for name, text, more in WEBHOOK_FLAGS),
    *(_option(_SERVE, name, text, **more) for name, text, more in JOB_FLAGS),
    _bool(_SERVE, "--enable-http2", "Accepted without effect.", default="false", hidden=True),
    _option(
        _LOGS,
        "--ansible-log-events",
        "Events of a play to log: nothing, tasks, everything, or lines: tasks as log lines alone.",
        default="tasks",
    ),
    _bool(
        _LOGS,
        "--zap-devel",
        "Same as --zap-encoder=console --zap-log-level=debug --zap-stacktrace-level=warn.",
        default="false",
    ),
    _option(
        _LOGS,
        "--zap-encoder",
        "Log format: json or console.",
        default=None,
        type=click.Choice(["json", "console"], case_sensitive=False),
        show_default="console on a terminal, else json",
    ),
    _option(
        _LOGS,
        "--zap-log-level",
        "Log level: debug, info, warn, error, panic, or a number above 0 for debug.",
        default=None,
        show_default="info",
    ),
    _option(
        _LOGS,
        "--zap-stacktrace-level",
        "Lowest level of errors that are logged with a traceback.",
        default=None,
        show_default="error",
    ),
    _option(
        _LOGS,
        "--zap-time-encoding",
        "Time format: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano.",
        default="iso8601",
    ),
    _deprecated("--metrics-addr", type=bind_address, metavar="ADDRESS"),
    _bool("Deprecated", "--enable-leader-election", "", default=None, hidden=True),
    _deprecated("--leader-elect-resource-lock"),
    _deprecated("--fork-server-compress-after", type=go_duration, metavar="DURATION"),
)
