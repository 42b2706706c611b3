"""The flags of `operator-runner run`: names and defaults of ansible-operator, and a few more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from operator_runner.config.flags.capacity import cores
from operator_runner.config.flags.types import bind_address, go_bool, go_duration
from operator_runner.config.flags.webhook import WEBHOOK_FLAGS
from operator_runner.core.settings import DEFAULT_WORK_DIR

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
    """Give a command all flags; it takes them as keyword arguments, see `settings_from`."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def lookup_options(command: _Command) -> _Command:
    """Give a command the flags that say where roles and collections are found."""
    for add in reversed(_LOOKUP):
        command = add(command)
    return command


def _option(section: str, name: str, text: str, **settings: Any) -> Callable[..., Any]:
    settings.setdefault("show_default", bool(settings["default"]))
    return click.option(name, cls=_Option, section=section, help=text, **settings)


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
        "Where to look for roles, before ./roles; beats ANSIBLE_ROLES_PATH.",
        default="",
    ),
    _option(
        _PROJECT,
        "--ansible-collections-path",
        "Where to look for collections; beats ANSIBLE_COLLECTIONS_PATH.",
        default="",
    ),
)

_OPTIONS: tuple[Callable[..., Any], ...] = (
    _option(
        _PROJECT,
        "--watches-file",
        "Which role or playbook serves which kind.",
        default="./watches.yaml",
        type=click.Path(path_type=Path),
    ),
    *_LOOKUP,
    _bool(
        _PROJECT,
        "--mark-unsafe",
        "Text of resources is no template, unless a watch has markUnsafe: false.",
        default="false",
    ),
    _bool(
        _PROJECT,
        "--reload",
        "Run an edited role or playbook at once for every resource of its kind.",
        default="false",
    ),
    _option(
        _PROJECT,
        "--kubeconfig",
        "The cluster to work on; without it KUBECONFIG, the Pod's own, ~/.kube/config.",
        default=None,
        type=click.Path(path_type=Path),
    ),
    _duration(
        _RUNS, "--reconcile-period", "10h", "Run each resource this often; 0s: on events only."
    ),
    _option(
        _RUNS,
        "--max-concurrent-reconciles",
        "Resources of one kind at once; MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> beats it.",
        default=None,
        type=int,
        show_default=f"{cores()}, the cores",
    ),
    _option(
        _RUNS,
        "--max-runs",
        "Runs of all kinds at once; each needs a core and 40 MB (100 MB with --executor=cold).",
        default=None,
        type=click.IntRange(min=1),
        show_default="by cores and memory",
    ),
    _option(
        _RUNS,
        "--executor",
        "warm: runs are forked from a process that has everything loaded; cold: ansible-runner.",
        default="warm",
        type=click.Choice(["warm", "cold"]),
    ),
    _duration(_RUNS, "--run-timeout", "0s", "End a run after this time; 0s: never."),
    _duration(
        _RUNS,
        "--graceful-shutdown-timeout",
        "30s",
        "Time for running plays to end after SIGTERM; below 0s: as long as they need.",
    ),
    _option(
        _RUNS,
        "--ansible-verbosity",
        "Number of v in -vv; ANSIBLE_VERBOSITY_<KIND>_<GROUP> beats it.",
        default=2,
        type=click.IntRange(0, 7, clamp=True),
        metavar="0..7",
    ),
    _option(_RUNS, "--ansible-args", "More arguments for ansible-playbook.", default=""),
    _bool(
        _RUNS,
        "--inject-owner-ref",
        "Let resources own what their runs create, and watch it.",
        default="true",
    ),
    _option(
        _RUNS,
        "--work-dir",
        "Where private data dirs and artifacts of runs lie.",
        default=DEFAULT_WORK_DIR,
        type=click.Path(path_type=Path, file_okay=False),
    ),
    _bool(
        _RUNS,
        "--isolate-runs",
        "Keep runs from files and processes of others and of the operator; they cannot mount then.",
        default="true",
    ),
    _bool(
        _RUNS,
        "--hide-credentials",
        "Keep isolated runs from the operator's kubeconfig, tokens and keys.",
        default="true",
    ),
    _bool(_LEADER, "--leader-elect", "Of several replicas, let one work.", default=None),
    _option(_LEADER, "--leader-election-id", "Name of the Lease.", default=""),
    _option(
        _LEADER,
        "--leader-election-namespace",
        "Namespace of the Lease; without it the operator's own.",
        default="",
    ),
    _duration(
        _LEADER, "--leader-elect-lease-duration", "15s", "Others take over after this silence."
    ),
    _duration(
        _LEADER,
        "--leader-elect-renew-deadline",
        "10s",
        "The leader gives up after this time without renewal.",
    ),
    _option(
        _SERVE,
        "--metrics-bind-address",
        "Where /metrics is served; 0: nowhere.",
        default=None,
        type=bind_address,
        metavar="ADDRESS",
        show_default=":8443",
    ),
    _bool(_SERVE, "--metrics-secure", "Serve metrics over TLS.", default="false"),
    _bool(
        _SERVE,
        "--metrics-require-rbac",
        "Ask the API who may read metrics; needs --metrics-secure.",
        default="false",
    ),
    _option(
        _SERVE,
        "--user-metrics-bind-address",
        "Where roles send metrics of their own (osdk_metric); 0: nowhere.",
        default="localhost:5050",
        type=bind_address,
        metavar="ADDRESS",
    ),
    _option(
        _SERVE,
        "--health-probe-bind-address",
        "Where /healthz and /readyz are served; 0: nowhere.",
        default=":6789",
        type=bind_address,
        metavar="ADDRESS",
    ),
    _option(
        _SERVE,
        "--proxy-port",
        "Port on localhost of the API proxy for runs; 0: any free one.",
        default=8888,
        type=click.IntRange(0, 65535),
        metavar="PORT",
    ),
    _bool(
        _SERVE,
        "--proxy-allow-anonymous",
        "Let programs without a run's token use the proxy, by plain HTTP.",
        default="false",
    ),
    _option(
        _SERVE,
        "--record-requests",
        "Write which rights the requests of roles need to this file, for `operator-runner rbac`.",
        default=None,
        type=click.Path(path_type=Path, dir_okay=False),
    ),
    *(_option(_SERVE, name, text, **more) for name, text, more in WEBHOOK_FLAGS),
    _bool(_SERVE, "--enable-http2", "Accepted and without effect.", default="false", hidden=True),
    _option(
        _LOGS,
        "--ansible-log-events",
        "What of a play is logged: nothing, tasks or everything.",
        default="tasks",
    ),
    _bool(
        _LOGS,
        "--zap-devel",
        "For people: --zap-encoder=console --zap-log-level=debug --zap-stacktrace-level=warn.",
        default="false",
    ),
    _option(
        _LOGS,
        "--zap-encoder",
        "json or console.",
        default=None,
        type=click.Choice(["json", "console"], case_sensitive=False),
        show_default="console on a terminal, else json",
    ),
    _option(
        _LOGS,
        "--zap-log-level",
        "debug, info, error, panic, or a whole number above 0 for debug.",
        default=None,
        show_default="info",
    ),
    _option(
        _LOGS,
        "--zap-stacktrace-level",
        "Level from which on errors come with their traceback.",
        default=None,
        show_default="error",
    ),
    _option(
        _LOGS,
        "--zap-time-encoding",
        "epoch, millis, nano, iso8601, rfc3339 or rfc3339nano.",
        default="iso8601",
    ),
    _deprecated("--metrics-addr", type=bind_address, metavar="ADDRESS"),
    _bool("Deprecated", "--enable-leader-election", "", default=None, hidden=True),
    _deprecated("--leader-elect-resource-lock"),
)
