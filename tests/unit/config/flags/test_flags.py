"""From the command line and the environment to settings."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from operator_runner.config.flags.options import RunCommand, run_options
from operator_runner.config.flags.types import cores
from operator_runner.config.flags.values import (
    LogSettings,
    log_settings_from,
    settings_from,
    warnings_from,
)
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, JobTemplate, Ownership, RunContent, Watch
from operator_runner.core.settings import (
    Address,
    AnsibleSettings,
    Concurrency,
    JobSettings,
    LeaderElection,
    Settings,
    ShardSettings,
    WebhookSettings,
)

WEB = GVK("shop.my-example.com", "v1", "Web")
WATCHES = (Watch(WEB, RunContent(role=Path("/roles/web"))),)


@click.command(cls=RunCommand)
@run_options
def run(**options: Any) -> dict[str, Any]:
    """Return the options to the test."""
    return options


def options(*args: str) -> dict[str, Any]:
    parsed = run.main(list(args), standalone_mode=False)
    assert isinstance(parsed, dict)
    return parsed


def settings(*args: str, **environ: str) -> Settings:
    return settings_from(options(*args), environ, WATCHES)


def test_without_flags_everything_has_its_documented_default() -> None:
    """The defaults are those of ansible-operator; only the global cap is new."""
    made = settings()

    assert made == Settings(
        watches_file=Path("watches.yaml"),
        namespaces=(),
        kubeconfig=None,
        concurrency=replace(made.concurrency, per_kind=cores(), kinds={}),
        ansible=AnsibleSettings(project=Path.cwd(), fork_server_idle_timeout=timedelta(minutes=10)),
        leader_election=LeaderElection(),
        metrics=Address("", 8443),
        probes=Address("", 6789),
        user_metrics=Address("localhost", 5050),
        proxy=Address("127.0.0.1", 8888),
        work_dir=Path("/tmp/ansible-operator/runner"),
        reconcile_period=timedelta(hours=10),
        inject_owner_ref=True,
        graceful_shutdown=timedelta(seconds=30),
        executor="warm",
        webhook=WebhookSettings(
            9443, Path("/tmp/k8s-webhook-server/serving-certs"), cert_dir_given=False
        ),
        reload=False,
    )
    assert made.concurrency.total >= 1
    assert made.concurrency.run_memory == 40 * 1024**2


def test_with_a_newer_core_each_run_needs_the_memory_of_a_cold_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plays run cold then, whatever the executor is."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.99.0rc1")
    assert settings().concurrency.run_memory == 100 * 1024**2


def test_every_flag_reaches_its_setting() -> None:
    """Every flag has an effect on the settings."""
    made = settings(
        "--watches-file=w.yaml",
        "--kubeconfig=/k",
        "--context=c",
        "--max-concurrent-reconciles=3",
        "--max-runs=4",
        "--executor=cold",
        "--ansible-verbosity=0",
        "--ansible-args=--vault-password-file /p",
        "--ansible-log-events=Everything",
        "--ansible-roles-path=/r",
        "--ansible-collections-path=/c",
        "--run-timeout=15m",
        "--fork-server-idle-timeout=5m",
        "--leader-elect",
        "--leader-election-id=web",
        "--leader-election-namespace=shop",
        "--leader-elect-lease-duration=30s",
        "--leader-elect-renew-deadline=20s",
        "--metrics-bind-address=127.0.0.1:1",
        "--metrics-secure",
        "--metrics-require-rbac",
        "--health-probe-bind-address=[::1]:2",
        "--user-metrics-bind-address=:4",
        "--proxy-port=3",
        "--proxy-allow-anonymous",
        "--work-dir=/w",
        "--reconcile-period=1m",
        "--inject-owner-ref=false",
        "--graceful-shutdown-timeout=5s",
        "--webhook-port=5",
        "--webhook-cert-dir=/certs",
        "--webhook-service=shop/webhook:8443",
        "--reload",
    )

    assert made == Settings(
        watches_file=Path("w.yaml"),
        namespaces=(),
        kubeconfig=Path("/k"),
        context="c",
        concurrency=Concurrency(4, per_kind=3, kinds={}, extra=0, run_memory=100 * 1024**2),
        ansible=AnsibleSettings(
            verbosity=0,
            args="--vault-password-file /p",
            fork_server_idle_timeout=timedelta(minutes=5),
            log_events="everything",
            roles_path="/r",
            collections_path="/c",
            project=Path.cwd(),
            metric_address="http://localhost:4/metrics",
            timeout=timedelta(minutes=15),
        ),
        leader_election=LeaderElection(
            True, "web", "shop", timedelta(seconds=30), timedelta(seconds=20)
        ),
        metrics=Address("127.0.0.1", 1),
        probes=Address("::1", 2),
        user_metrics=Address("", 4),
        proxy=Address("127.0.0.1", 3),
        work_dir=Path("/w"),
        reconcile_period=timedelta(minutes=1),
        inject_owner_ref=False,
        graceful_shutdown=timedelta(seconds=5),
        executor="cold",
        metrics_secure=True,
        metrics_require_rbac=True,
        proxy_allow_anonymous=True,
        webhook=WebhookSettings(
            5, Path("/certs"), cert_dir_given=True, service=("shop", "webhook", 8443)
        ),
        reload=True,
    )


def test_every_variable_reaches_its_setting(tmp_path: Path) -> None:
    """The names for single kinds are upper case, with dots replaced and dashes kept."""
    made = settings(
        **{
            "WATCH_NAMESPACE": " a, b,,a ",
            "MAX_CONCURRENT_RECONCILES_WEB_SHOP_MY-EXAMPLE_COM": "7",
            "ANSIBLE_VERBOSITY_WEB_SHOP_MY-EXAMPLE_COM": "0",
            "ANSIBLE_VERBOSITY": "1",
            "ANSIBLE_DEBUG_LOGS": "TRUE",
            "ANSIBLE_GATHERING": "explicit",
            "ANSIBLE_INVENTORY": str(tmp_path),
            "ANSIBLE_ROLES_PATH": "/r",
            "ANSIBLE_COLLECTIONS_PATH": "/c",
            "OPERATOR_NAME": "old-name",
        }
    )

    assert made.namespaces == ("a", "b")
    assert made.concurrency.limit(WEB) == 7
    assert made.ansible.verbosity_for(WEB) == 0
    assert made.ansible.raw_output
    assert made.ansible.debug_logs
    assert made.ansible.skip_facts
    assert made.ansible.inventory == tmp_path
    assert made.ansible.roles_path == "/r"
    assert made.ansible.collections_path == "/c"
    assert made.leader_election.lease_name == "old-name"


def test_a_flag_beats_the_environment() -> None:
    """Flags override the environment for paths and the name of the Lease."""
    made = settings(
        "--ansible-roles-path=/flag",
        "--ansible-collections-path=/flag",
        "--leader-election-id=flag",
        ANSIBLE_ROLES_PATH="/env",
        ANSIBLE_COLLECTIONS_PATH="/env",
        OPERATOR_NAME="env",
    )

    assert made.ansible.roles_path == "/flag"
    assert made.ansible.collections_path == "/flag"
    assert made.leader_election.lease_name == "flag"


@pytest.mark.parametrize(
    ("environ", "limit"),
    [
        ({}, 3),
        ({"MAX_CONCURRENT_RECONCILES": "9"}, 9),
        ({"WORKER": "8"}, 8),
        ({"MAX_CONCURRENT_RECONCILES": "9", "WORKER": "8"}, 9),
        ({"MAX_CONCURRENT_RECONCILES": "0"}, 3),
        ({"MAX_CONCURRENT_RECONCILES": "many", "WORKER": "8"}, 3),
        ({"WORKER": "-1"}, 3),
    ],
)
def test_the_environment_of_a_kind_beats_the_flag_for_all(
    environ: dict[str, str], limit: int
) -> None:
    """Invalid values are ignored in favour of the flag."""
    environ = {f"{name}_WEB_SHOP_MY-EXAMPLE_COM": value for name, value in environ.items()}

    assert settings("--max-concurrent-reconciles=3", **environ).concurrency.limit(WEB) == limit


@pytest.mark.parametrize(("text", "verbosity"), [("7", 7), ("8", 4), ("-1", 4), ("x", 4)])
def test_the_verbosity_of_a_kind_is_0_to_7(text: str, verbosity: int) -> None:
    """Other values leave the flag's."""
    environ = {"ANSIBLE_VERBOSITY_WEB_SHOP_MY-EXAMPLE_COM": text}

    assert settings("--ansible-verbosity=4", **environ).ansible.verbosity_for(WEB) == verbosity


@pytest.mark.parametrize(
    ("name", "value", "on"),
    [
        ("ANSIBLE_VERBOSITY", "4", True),
        ("ANSIBLE_VERBOSITY", "0", False),
        ("ANSIBLE_VERBOSITY", "-1", False),
        ("ANSIBLE_VERBOSITY", "much", False),
        ("ANSIBLE_DEBUG_LOGS", "true", True),
        ("ANSIBLE_DEBUG_LOGS", "T", True),
        ("ANSIBLE_DEBUG_LOGS", "1", True),
        ("ANSIBLE_DEBUG_LOGS", "false", False),
        ("ANSIBLE_DEBUG_LOGS", "yes", False),
        ("ANSIBLE_DEBUG_LOGS", "", False),
        ("ANSIBLE_GATHERING", "explicit", True),
        ("ANSIBLE_GATHERING", "implicit", False),
    ],
)
def test_variables_are_switched_on_by_valid_values_alone(name: str, value: str, on: bool) -> None:
    """A number above 0, a boolean of Go, and one word; all else leaves it off."""
    made = settings(**{name: value}).ansible

    assert {
        "ANSIBLE_VERBOSITY": made.raw_output,
        "ANSIBLE_DEBUG_LOGS": made.debug_logs,
        "ANSIBLE_GATHERING": made.skip_facts,
    }[name] is on


@pytest.mark.parametrize(
    ("args", "terminal", "framed"),
    [
        ((), False, True),
        ((), True, False),
        (("--zap-encoder=json",), True, True),
        (("--zap-encoder=console",), False, False),
        (("--zap-devel",), False, False),
    ],
)
def test_json_logs_contain_the_output_of_tasks(
    args: tuple[str, ...], terminal: bool, framed: bool
) -> None:
    """Where people read along, a line for each task is all."""
    made = settings_from(options(*args), {}, WATCHES, terminal=terminal)

    assert made.ansible.framed is framed


@pytest.mark.parametrize(
    ("args", "enabled"),
    [
        ((), False),
        (("--leader-elect",), True),
        (("--leader-elect=true",), True),
        (("--leader-elect=T",), True),
        (("--leader-elect=false",), False),
        (("--leader-elect=0",), False),
        (("--leader-elect", "--reload"), True),
        (("--enable-leader-election",), True),
        (("--enable-leader-election=false",), False),
    ],
)
def test_booleans_are_written_as_in_go(args: tuple[str, ...], enabled: bool) -> None:
    """The flag alone means true; a value follows an equals sign."""
    assert settings("--leader-election-id=x", *args).leader_election.enabled is enabled


@pytest.mark.parametrize(
    ("flag", "address"),
    [
        ("--metrics-bind-address=0", None),
        ("--metrics-bind-address=:0", Address("", 0)),
        ("--metrics-bind-address=", None),
        ("--metrics-addr=:9", Address("", 9)),
    ],
)
def test_servers_can_be_moved_and_turned_off(flag: str, address: Address | None) -> None:
    """0 or nothing means: not at all; the old name still works."""
    assert settings(flag).metrics == address


@pytest.mark.parametrize(
    ("flag", "name", "value"),
    [
        ("--reconcile-period=0s", "reconcile_period", timedelta(0)),
        ("--reconcile-period=-1s", "reconcile_period", timedelta(0)),
        ("--graceful-shutdown-timeout=-1s", "graceful_shutdown", timedelta(days=365)),
    ],
)
def test_durations_below_zero_have_a_meaning(flag: str, name: str, value: timedelta) -> None:
    """No period, and no end of waiting, as in controller-runtime."""
    assert getattr(settings(flag), name) == value


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--reconcile-period=1d", '--reconcile-period\': time: unknown unit "d" in duration "1d";'),
        ("--leader-elect=maybe", "write the flag alone, or with =true or =false"),
        ("--metrics-bind-address=8443", "expected host:port, :port, or 0 to disable it"),
        ("--proxy-port=70000", "--proxy-port"),
        ("--webhook-service=a/b/c", "expected [namespace/]name[:port]"),
        ("--webhook-service=a:65536", "expected [namespace/]name[:port]"),
        ("--max-runs=0", "--max-runs"),
        ("--shards=0", "invalid number of shards '0': write auto, or 1 or more"),
        ("--zap-encoder=xml", "--zap-encoder"),
        ("--watch-file=x", "Did you mean '--watches-file'?"),
    ],
)
def test_a_bad_value_names_the_flag_and_a_hint(flag: str, message: str) -> None:
    """The command line is refused before anything starts."""
    result = CliRunner().invoke(run, [flag])

    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("args", "environ", "message"),
    [
        (
            ("--metrics-addr=:1", "--metrics-bind-address=:2"),
            {},
            "only one of --metrics-bind-address and --metrics-addr may be set",
        ),
        (
            ("--leader-elect", "--enable-leader-election", "--leader-election-id=x"),
            {},
            "only one of --leader-elect and --enable-leader-election may be set",
        ),
        (
            ("--metrics-require-rbac",),
            {},
            "^--metrics-secure flag is required when --metrics-require-rbac is present$",
        ),
        (("--leader-elect",), {}, "requires --leader-election-id"),
        (
            ("--leader-elect", "--leader-election-id=Web_1"),
            {},
            "^--leader-election-id=Web_1: invalid name of a Lease; write lower-case letters",
        ),
        (("--shards=auto",), {}, "--shards requires --leader-elect"),
        (
            ("--shards=auto", "--leader-elect", f"--leader-election-id={'x' * 64}"),
            {},
            "may have at most 63 characters",
        ),
        (
            ("--webhook-service=a/b", "--webhook-host=10.0.0.1"),
            {},
            "only one of --webhook-service and --webhook-host may be set",
        ),
        (
            ("--leader-elect", "--leader-election-id=x", "--leader-elect-renew-deadline=15s"),
            {},
            "must be above 0s and below --leader-elect-lease-duration",
        ),
        (("--work-dir=/a:b",), {}, "^--work-dir: /a:b: Ansible splits search paths at ':'; move"),
        (("--work-dir=/a$HOME",), {"HOME": "/h"}, r"^--work-dir: /a\$HOME: .* place of \$HOME"),
        ((), {"ANSIBLE_INVENTORY": "/no/such"}, "ANSIBLE_INVENTORY: /no/such was not found"),
        (
            (),
            {"WATCH_NAMESPACE": "a,Bad_NS"},
            '^WATCH_NAMESPACE: invalid namespace "Bad_NS"; write names of lower-case letters',
        ),
        (
            ("--ansible-args=--tags 'a",),
            {},
            r"^--ansible-args=--tags 'a: invalid quoting \(no closing quotation\); quote arguments",
        ),
    ],
)
def test_values_that_cannot_be_used_are_an_error(
    args: tuple[str, ...], environ: dict[str, str], message: str
) -> None:
    """The message names the flags and what to do."""
    with pytest.raises(ConfigError, match=message) as caught:
        settings(*args, **environ)

    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("quoted", ["""'-e "a=it's"'""", """-e "a=it's\""""])
def test_outer_single_quotes_of_ansible_args_are_removed(quoted: str) -> None:
    """Images pass them on; what they enclose may contain quotes."""
    assert settings(f"--ansible-args={quoted}").ansible.args == """-e "a=it's\""""


def test_a_policy_of_ownership_needs_owner_references() -> None:
    """Without them the operator would refuse to write what its own roles made."""
    watches = [replace(WATCHES[0], ownership=Ownership.REFUSE)]
    with pytest.raises(ConfigError, match=r"--inject-owner-ref=false: .* `ownership: refuse`"):
        settings_from(options("--inject-owner-ref=false"), {}, watches)
    assert not settings("--inject-owner-ref=false").inject_owner_ref


def test_shards_are_all_replicas_or_a_number_of_them() -> None:
    """Without the flag the leader alone works."""
    election = ("--leader-elect", "--leader-election-id=x")
    assert settings(*election).shards is None
    assert settings(*election, "--shards=auto").shards == ShardSettings(None)
    assert settings(*election, "--shards=3").shards == ShardSettings(3)


def test_replicas_with_shards_do_not_report_to_olm() -> None:
    """One condition cannot be about the runs of several processes."""
    args = ("--leader-elect", "--leader-election-id=x", "--shards=3")
    environ = {"OPERATOR_CONDITION_NAME": "web.v1"}
    assert settings(*args, **environ).operator_condition == ""
    assert settings(**environ).operator_condition == "web.v1"
    (warning,) = warnings_from(options(*args), environ, WATCHES)
    assert "ignored with --shards" in warning


def test_all_problems_are_reported_together() -> None:
    """All errors are reported at once."""
    with pytest.raises(ConfigError) as caught:
        settings("--leader-elect", "--metrics-require-rbac", ANSIBLE_INVENTORY="/no/such")

    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("args", "environ", "warning"),
    [
        (("--metrics-addr=:1",), {}, "use --metrics-bind-address"),
        (("--enable-leader-election",), {}, "use --leader-elect"),
        (("--leader-elect-resource-lock=leases",), {}, "the lock is a Lease"),
        (("--enable-http2",), {}, "--enable-http2 is ignored"),
        (("--fork-server-compress-after=5m",), {}, "--fork-server-compress-after is ignored"),
        (("--keep-runs",), {}, "--keep-runs is ignored"),
        (("--ansible-log-events=all",), {}, "--ansible-log-events=all is ignored; write one of"),
        (("--max-concurrent-reconciles=0",), {}, "--max-concurrent-reconciles=0 is ignored"),
        ((), {"OPERATOR_NAME": "x"}, "OPERATOR_NAME is deprecated; use --leader-election-id"),
        (("--leader-election-id=y",), {"OPERATOR_NAME": "x"}, "OPERATOR_NAME is ignored because"),
        ((), {"WORKER_WEB_SHOP_MY-EXAMPLE_COM": "1"}, "use MAX_CONCURRENT_RECONCILES_WEB_SHOP_MY"),
        ((), {"ANSIBLE_VERBOSITY_WEB_SHOP_MY-EXAMPLE_COM": "8"}, "a whole number from 0 to 7"),
        (
            (),
            {"MAX_CONCURRENT_RECONCILES_WBE_SHOP_MY-EXAMPLE_COM": "2"},
            "of a watched kind; the nearest is MAX_CONCURRENT_RECONCILES_WEB_SHOP_MY-EXAMPLE_COM",
        ),
        (
            (),
            {"ANSIBLE_VERBOSITY_WEB": "2"},
            "the nearest is ANSIBLE_VERBOSITY_WEB_SHOP_MY-EXAMPLE_COM",
        ),
        (
            (),
            {"WORKER_WEB_SHOP_MY_EXAMPLE_COM": "2"},
            "the nearest is WORKER_WEB_SHOP_MY-EXAMPLE_COM",
        ),
        ((), {"ANSIBLE_DEBUG_LOGS": "yes"}, "ANSIBLE_DEBUG_LOGS=yes is ignored; write true or"),
    ],
)
def test_deprecated_and_ignored_settings_are_logged(
    args: tuple[str, ...], environ: dict[str, str], warning: str
) -> None:
    """Such flags and variables cause warnings, not errors."""
    (text,) = warnings_from(options(*args), environ, WATCHES)

    assert warning in text


def test_variables_of_other_programs_give_no_warning() -> None:
    """A Service named `worker` sets such variables in all Pods of its namespace."""
    environ = {"WORKER_PORT_80_TCP_ADDR": "10.0.0.1", "WORKER_SERVICE_HOST": "10.0.0.1"}
    assert warnings_from(options(), environ, WATCHES) == ()


def test_ordinary_flags_give_no_warning() -> None:
    """A scaffolded project starts in silence."""
    parsed = options(
        "--leader-elect",
        "--leader-election-id=web",
        "--health-probe-bind-address=:6789",
        "--metrics-require-rbac",
        "--metrics-secure",
        "--metrics-bind-address=:8443",
        "--watches-file=./watches.yaml",
    )
    environ = {"WATCH_NAMESPACE": "", "ANSIBLE_GATHERING": "explicit", "ANSIBLE_DEBUG_LOGS": "TRUE"}

    made = settings_from(parsed, environ, WATCHES)

    assert warnings_from(parsed, environ, WATCHES) == ()
    assert (made.metrics_secure, made.metrics_require_rbac) == (True, True)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), LogSettings(None, "info", "error", "iso8601")),
        (("--zap-devel",), LogSettings("console", "debug", "warn", "iso8601")),
        (
            ("--zap-devel", "--zap-encoder=json", "--zap-log-level=info"),
            LogSettings("json", "info", "warn", "iso8601"),
        ),
        (
            ("--zap-log-level=5", "--zap-stacktrace-level=panic", "--zap-time-encoding=epoch"),
            LogSettings(None, "5", "panic", "epoch"),
        ),
    ],
)
def test_zap_flags_configure_logging(args: tuple[str, ...], expected: LogSettings) -> None:
    """--zap-devel changes defaults only."""
    assert log_settings_from(options(*args)) == expected


def test_run_once_uses_neither_ports_nor_the_lease() -> None:
    """The resource is named as for kubectl."""
    made = settings("--once=pages/home", "-n", "web", "--leader-elect", "--leader-election-id=x")
    assert (made.once, made.once_namespace) == (("pages", "home"), "web")
    assert (made.metrics, made.probes, made.proxy.port) == (None, None, 0)
    assert (made.user_metrics, made.ansible.metric_address) == (Address("127.0.0.1", 0), "")
    assert not made.leader_election.enabled


@pytest.mark.parametrize("more", [(), ("--once=pages/home",)])
def test_without_user_metrics_runs_send_none(more: tuple[str, ...]) -> None:
    """Roles that export metrics work without them."""
    made = settings("--user-metrics-bind-address=0", *more)
    assert (made.user_metrics, made.ansible.metric_address) == (None, "0")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--once=home",), "--once=home: invalid resource: write KIND/NAME"),
        (("--once=a/b/c",), "--once=a/b/c: invalid resource"),
        (("--once=pages/home", "--reload"), "--once and --reload exclude each other"),
        (("--namespace=web",), "--namespace needs --once KIND/NAME, because an operator watches"),
    ],
)
def test_once_names_one_resource(args: tuple[str, ...], message: str) -> None:
    """Without a name, with a namespace, and with --reload it is an error."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        settings(*args)


def test_the_help_shows_every_flag_in_its_section() -> None:
    """Old names and those without effect are left out."""
    text = CliRunner().invoke(run, ["--help"], terminal_width=100).output
    sections = [line[:-1] for line in text.splitlines() if re.fullmatch(r"\w.*:", line)]

    assert sections == ["Project", "Runs", "Leader election", "Servers", "Logs", "Other"]
    for param in run.params:
        assert isinstance(param, click.Option)
        assert (param.opts[0] in text.split()) is not param.hidden, param.name


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "Web: `execution.job` needs --jobs-service, or --jobs-host"),
        (("--jobs-host=a", "--jobs-service=b"), "Web: `execution.job` needs --jobs-service"),
        (
            ("--jobs-host=a", "--leader-elect", "--leader-election-id=x", "--shards=auto"),
            "Web: `execution.job` with --shards needs --jobs-service",
        ),
        (("--jobs-service=b", "--once=webs/a"), "--once: Web has `execution.job`"),
    ],
)
def test_jobs_need_an_address_of_the_operator(args: tuple[str, ...], message: str) -> None:
    """Pods of Jobs have to reach the replica that has started them."""
    watches = [replace(WATCHES[0], job=JobTemplate("ee"))]
    with pytest.raises(ConfigError, match=re.escape(message)):
        settings_from(options(*args), {}, watches)
    made = settings_from(options("--jobs-service=shop/web:8444"), {}, watches)
    assert made.jobs == JobSettings(8444, ("shop", "web", 8444))


@pytest.mark.parametrize(("value", "warned"), [("true", True), ("1", True), ("false", False)])
def test_turbo_mode_is_ignored_with_a_warning(value: str, warned: bool) -> None:
    """Its processes cannot start."""
    found = warnings_from(options(), {"ENABLE_TURBO_MODE": value}, [])
    assert any("ENABLE_TURBO_MODE is ignored" in each for each in found) is warned
