"""The flags of `operator-runner run`: names and defaults of ansible-operator, and a few more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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


_Flag = Callable[..., Callable[[Any], Any]]
"""An option of click without its section."""


def _option(name: str, default: Any, text: str, short: Sequence[str] = (), **more: Any) -> _Flag:
    settings = {"show_default": bool(default), **more}
    return partial(click.option, name, *short, cls=_Option, default=default, help=text, **settings)


def _bool(name: str, default: str | None, text: str, **settings: Any) -> _Flag:
    # The flag alone means true, as in Go; click can do that for options that take a value.
    settings |= {"is_flag": False, "flag_value": "true", "type": go_bool}
    return _option(name, default, text, metavar="[=true|false]", **settings)


_duration = partial(_option, type=go_duration, metavar="DURATION")
_address = partial(_option, type=bind_address, metavar="ADDRESS")
_port = partial(_option, type=click.IntRange(0, 65535), metavar="PORT")
_service = partial(_option, type=service, metavar="[NAMESPACE/]NAME[:PORT]")


def _section(name: str, *flags: _Flag) -> tuple[Callable[[Any], Any], ...]:
    return tuple(flag(section=name) for flag in flags)


_LOOKUP = _section(
    "Project",
    _option(
        "--ansible-roles-path",
        "",
        "Directories of roles, before ./roles; overrides ANSIBLE_ROLES_PATH.",
    ),
    _option(
        "--ansible-collections-path",
        "",
        "Directories of collections; overrides ANSIBLE_COLLECTIONS_PATH.",
    ),
)
_PROJECT = _section(
    "Project",
    _bool(
        "--mark-unsafe",
        "false",
        "Never evaluate resource text as a template, unless a watch has markUnsafe: false.",
    ),
    _bool(
        "--reload",
        "false",
        "Apply edits: reconcile the kind of an edited role or playbook, restart for watches.yaml.",
    ),
    _option(
        "--once",
        None,
        "Reconcile one resource, and exit with the status of its run.",
        metavar="KIND/NAME",
    ),
    _option(
        "--namespace",
        None,
        "With --once: namespace of the resource; else WATCH_NAMESPACE, or that of the kubeconfig.",
        short=["-n"],
    ),
    _option(
        "--kubeconfig",
        None,
        "Kubeconfig file; else KUBECONFIG, the ServiceAccount of the Pod, or ~/.kube/config.",
        type=click.Path(path_type=Path),
    ),
    _option("--context", "", "Context of the kubeconfig; else its current one."),
)
_RUNS = _section(
    "Runs",
    _duration("--reconcile-period", "10h", "Interval of periodic reconciles; 0s: on events only."),
    _option(
        "--max-concurrent-reconciles",
        None,
        "Maximum runs of one kind; MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> overrides it.",
        type=int,
        show_default=f"{cores()}, one per core",
    ),
    _option(
        "--max-runs",
        None,
        "Maximum runs of all kinds; each needs a core and 40 MB (100 MB with --executor=cold).",
        type=click.IntRange(min=1),
        show_default="by cores and memory",
    ),
    _option(
        "--annotated-period-share",
        0.5,
        "Share of --max-runs for periodic runs that annotations of one namespace request.",
        type=click.FloatRange(min=0.01, max=1),
    ),
    _option(
        "--executor",
        "warm",
        "warm: fork runs from a process with Ansible loaded; cold: start ansible-runner.",
        type=click.Choice(["warm", "cold"]),
    ),
    _duration(
        "--fork-server-idle-timeout",
        "10m",
        "Time without a run after which Ansible is unloaded until the next run; 0s: never.",
    ),
    _duration(
        "--readiness-wait",
        "10s",
        "Maximum time that a dependent which becomes ready waits for others; 0s: it does not.",
    ),
    _duration("--run-timeout", "0s", "Maximum duration of a run; 0s: unlimited."),
    _duration(
        "--graceful-shutdown-timeout",
        "30s",
        "Time for running plays to finish after SIGTERM; negative: unlimited.",
    ),
    _option(
        "--ansible-verbosity",
        2,
        "Number of v in -vv; ANSIBLE_VERBOSITY_<KIND>_<GROUP> overrides it.",
        type=click.IntRange(0, 7, clamp=True),
        metavar="0..7",
    ),
    _option("--ansible-args", "", "Additional arguments for ansible-playbook."),
    _bool(
        "--inject-owner-ref",
        "true",
        "Add owner references to objects that runs create, and watch these objects.",
    ),
    _option(
        "--work-dir",
        DEFAULT_WORK_DIR,
        "Directory for private data dirs and artifacts of runs.",
        type=click.Path(path_type=Path, file_okay=False),
    ),
    _bool(
        "--isolate-runs",
        "true",
        "Isolate runs from files and processes of other runs and the operator; disables mounts.",
    ),
    _bool(
        "--hide-credentials",
        "true",
        "Hide the operator's kubeconfig, tokens and keys from isolated runs.",
    ),
)
_LEADER_ELECTION = _section(
    "Leader election",
    _bool("--leader-elect", None, "Enable leader election."),
    _option("--leader-election-id", "", "Name of the Lease."),
    _option(
        "--leader-election-namespace", "", "Namespace of the Lease; else that of the operator."
    ),
    _duration("--leader-elect-lease-duration", "15s", "Lease validity without renewal."),
    _duration(
        "--leader-elect-renew-deadline",
        "10s",
        "Time after which a leader that cannot renew the Lease stops.",
    ),
    _option(
        "--shards",
        None,
        "Let replicas share the resources: auto for all of them, or the maximum number.",
        type=shards,
        metavar="N|auto",
    ),
)
_SERVERS = _section(
    "Servers",
    _address(
        "--metrics-bind-address",
        None,
        "Address of /metrics; 0 disables it.",
        show_default=METRICS_ADDRESS,
    ),
    _bool("--metrics-secure", "false", "Serve metrics over TLS."),
    _bool(
        "--metrics-require-rbac",
        "false",
        "Authorize readers of metrics by the API server; needs --metrics-secure.",
    ),
    _address(
        "--user-metrics-bind-address",
        "localhost:5050",
        "Address that receives metrics of roles (osdk_metric); 0 disables it.",
    ),
    _address(
        "--health-probe-bind-address", ":6789", "Address of /healthz and /readyz; 0 disables them."
    ),
    _port("--proxy-port", 8888, "Port of the API proxy for runs, on localhost; 0: any free port."),
    _bool(
        "--proxy-allow-anonymous",
        "false",
        "Accept requests without the token of a run at the proxy, by plain HTTP.",
    ),
    _option(
        "--record-requests",
        None,
        "File for the permissions that roles need, for `operator-runner rbac`.",
        type=click.Path(path_type=Path, dir_okay=False),
    ),
    _bool("--keep-runs", "false", "Accepted without effect.", hidden=True),
    _port(
        "--webhook-port",
        9443,
        "Port of the conversion webhook, if watches.yaml has conversions; 0: any free port.",
    ),
    _option(
        "--webhook-cert-dir",
        None,
        "Directory of tls.crt and tls.key of the webhook; else the operator creates its own.",
        type=click.Path(path_type=Path, file_okay=False),
        show_default=str(WebhookSettings().cert_dir),
    ),
    _service(
        "--webhook-service",
        None,
        "Service of the webhook; the operator writes it and the CA into the CRD.",
    ),
    _option(
        "--webhook-host",
        "",
        "Address of an operator outside the cluster, as seen by the API server.",
    ),
    _port(
        "--jobs-port",
        8444,
        "Port for runs that are Kubernetes Jobs, if watches.yaml has any; 0: any free port.",
    ),
    _service(
        "--jobs-service", None, "Service through which the Pods of Jobs connect to that port."
    ),
    _option(
        "--jobs-host",
        "",
        "Address of an operator outside the cluster, as seen by the Pods of Jobs.",
    ),
    _bool("--enable-http2", "false", "Accepted without effect.", hidden=True),
)
_LOGS = _section(
    "Logs",
    _option(
        "--ansible-log-events",
        "tasks",
        "Events of a play to log: nothing, tasks, everything, or lines: tasks as log lines alone.",
    ),
    _bool(
        "--zap-devel",
        "false",
        "Same as --zap-encoder=console --zap-log-level=debug --zap-stacktrace-level=warn.",
    ),
    _option(
        "--zap-encoder",
        None,
        "Log format: json or console.",
        type=click.Choice(["json", "console"], case_sensitive=False),
        show_default="console on a terminal, else json",
    ),
    _option(
        "--zap-log-level",
        None,
        "Log level: debug, info, warn, error, panic, or a number above 0 for debug.",
        show_default="info",
    ),
    _option(
        "--zap-stacktrace-level",
        None,
        "Lowest level of errors that are logged with a traceback.",
        show_default="error",
    ),
    _option(
        "--zap-time-encoding",
        "iso8601",
        "Time format: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano.",
    ),
)
_DEPRECATED = _section(
    "Deprecated",
    _address("--metrics-addr", None, "", hidden=True),
    _bool("--enable-leader-election", None, "", hidden=True),
    _option("--leader-elect-resource-lock", None, "", hidden=True),
    _duration("--fork-server-compress-after", None, "", hidden=True),
)
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    *_section(
        "Project",
        _option(
            "--watches-file",
            "./watches.yaml",
            "File that maps kinds to roles and playbooks.",
            type=click.Path(path_type=Path),
        ),
    ),
    *_LOOKUP,
    *_PROJECT,
    *_RUNS,
    *_LEADER_ELECTION,
    *_SERVERS,
    *_LOGS,
    *_DEPRECATED,
)
