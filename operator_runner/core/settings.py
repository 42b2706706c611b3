"""The settings of the operator as frozen values; `config.flags` makes them of flags and environ."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeAlias

from operator_runner.core.model import GVK

DEFAULT_WORK_DIR = Path("/tmp/ansible-operator/runner")  # noqa: S108 (made 0700, see rundir)
"""The work directory of ansible-operator, where users look for it."""
ExecutorName: TypeAlias = Literal["warm", "cold"]
"""Start of runs: `warm` forks a process that has Ansible loaded, `cold` calls ansible-runner."""
ServerStart: TypeAlias = Literal["start", "idle", "changed", "exited"]
"""Why a fork server starts: first, after Ansible was unloaded, or in place of another one."""
DISABLED_PATCHES = "OPERATOR_RUNNER_DISABLE_PATCHES"
"""Environment variable with the patches of ansible-core to skip, a comma list of their names."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address that a server listens on; an empty host is every interface."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """Read `host:port` or `:port`; `0` and the empty text give None: the server is off.

        Raises ValueError for anything else.
        """
        if text in {"", "0"}:
            return None
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004
            raise ValueError(
                f"invalid address {text!r}: expected host:port, :port, or 0 to disable it"
            )
        return cls(host.strip("[]"), int(port))


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """Leader election among replicas, with client-go's terms and defaults."""

    enabled: bool = False
    lease_name: str = ""
    """Name of the Lease object."""
    namespace: str = ""
    """Namespace of the Lease; empty: the operator's own."""
    lease_duration: timedelta = timedelta(seconds=15)
    """Validity of the Lease without renewal."""
    renew_deadline: timedelta = timedelta(seconds=10)
    """The leader stops after this time without a successful renewal."""


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """Number of replicas that share the resources; all of them take part in leader election."""

    limit: int | None = None
    """Maximum replicas that work; None: all."""


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Limits of the number of concurrent runs."""

    total: int
    """Over all kinds: each run needs memory and a core, however many kinds there are."""
    per_kind: int
    """Default share of one kind (--max-concurrent-reconciles)."""
    kinds: Mapping[GVK, int] = field(default_factory=dict)
    """Values of MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>."""
    extra: int = 0
    """Runs beyond the total for kinds without a run: slow runs of one kind do not block others."""
    annotated_share: float = 0.5
    """Part of the total that periods of annotations in one namespace may take."""
    run_memory: int = 0
    """Bytes that must be free for a run to start beside others; 0: memory is not checked."""

    def limit(self, gvk: GVK) -> int:
        """Return how many resources of this kind may be reconciled at once."""
        return self.kinds.get(gvk, self.per_kind)


@dataclass(frozen=True, slots=True)
class BackoffSettings:
    """Delays of retries, as controller-runtime has them: 5 ms doubling up to 1000 s."""

    first: timedelta = timedelta(milliseconds=5)
    limit: timedelta = timedelta(seconds=1000)


@dataclass(frozen=True, slots=True)
class AnsibleSettings:
    """Settings of ansible-playbook and of the runs."""

    verbosity: int = 2
    """Number of v in -vv."""
    verbosity_of_kind: Mapping[GVK, int] = field(default_factory=dict)
    """Values of ANSIBLE_VERBOSITY_<KIND>_<GROUP>."""
    args: str = ""
    """Further arguments for ansible-playbook (--ansible-args)."""
    log_events: str = "tasks"
    """Logged events of a play: nothing, tasks, everything or lines: tasks without any output."""
    framed: bool = True
    """Whether the output of tasks is written to stdout between log lines, as for existing projects.
    Not on a terminal, and not with `lines`."""
    raw_output: bool = False
    """Whether the raw output of runs replaces the events (ANSIBLE_VERBOSITY above 0)."""
    debug_logs: bool = False
    """Whether the whole output of a run is printed after it (ANSIBLE_DEBUG_LOGS)."""
    skip_facts: bool = False
    """Whether role runs gather no facts (ANSIBLE_GATHERING=explicit)."""
    inventory: Path | None = None
    """ANSIBLE_INVENTORY; None: localhost alone."""
    roles_path: str = ""
    """--ansible-roles-path, beats ANSIBLE_ROLES_PATH."""
    collections_path: str = ""
    """--ansible-collections-path, beats ANSIBLE_COLLECTIONS_PATH."""
    project: Path | None = None
    """Directory of watches.yaml, for roles that only the image has where plays name them."""
    metric_address: str = ""
    """URL that osdk_metric sends to; empty: its own default."""
    timeout: timedelta | None = None
    """Deadline of a run whose watch does not set `timeout`; None: no deadline."""
    isolate_runs: bool = True
    """Whether runs are isolated from files and processes of each other and of the operator."""
    fork_server_idle_timeout: timedelta | None = None
    """Time without a run after which the fork server exits; None: it stays."""
    disabled_patches: tuple[str, ...] = ()
    """Patches of ansible-core to skip (DISABLED_PATCHES)."""

    def verbosity_for(self, gvk: GVK) -> int:
        """Return the number of v for this kind."""
        return self.verbosity_of_kind.get(gvk, self.verbosity)


def config_file(environ: Mapping[str, str]) -> Path | None:
    """Return the file of settings that runs read, or None.

    It is chosen as by ansible-playbook, but for ./ansible.cfg: runs have other working directories.
    """
    named = environ.get("ANSIBLE_CONFIG", "")
    for name in filter(None, (named, "~/.ansible.cfg", "/etc/ansible/ansible.cfg")):
        path = Path(os.path.expandvars(name)).expanduser().absolute()
        path = path / "ansible.cfg" if path.is_dir() else path
        if path.is_file() and os.access(path, os.R_OK):
            return path
    return None


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The port, certificates and address of the conversion webhook."""

    port: int = 9443
    """0: any free one."""
    cert_dir: Path = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108 as controller-runtime
    """Directory of tls.crt and tls.key; without them the operator creates its own."""
    cert_dir_given: bool = False
    """Whether the directory was given by flag: then the operator waits for its files."""
    service: tuple[str, str, int] | None = None
    """Namespace (empty: the operator's own), name and port of the Service before the replicas."""
    host: str = ""
    """Name or address under which the API server reaches an operator outside the cluster."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The port for runs that are Kubernetes Jobs, and the address under which Pods reach it."""

    port: int = 8444
    """0: any free one."""
    service: tuple[str, str, int] | None = None
    """Namespace (empty: the operator's own), name and port of the Service of the port."""
    host: str = ""
    """Name or address of an operator outside the cluster."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is decided before the operator starts."""

    watches_file: Path
    namespaces: tuple[str, ...]
    """WATCH_NAMESPACE; empty: all namespaces."""
    kubeconfig: Path | None
    """--kubeconfig; None: KUBECONFIG, in-cluster credentials, then ~/.kube/config."""
    concurrency: Concurrency
    ansible: AnsibleSettings
    leader_election: LeaderElection
    metrics: Address | None
    probes: Address | None
    user_metrics: Address | None
    """Address to which roles send their own metrics (osdk_metric)."""
    proxy: Address
    work_dir: Path
    """Parent of private data dirs and artifacts; its mode is 0700."""
    context: str = ""
    """--context; empty: the current one of the kubeconfig."""
    hide_credentials: bool = True
    """Whether the operator's kubeconfig, tokens and keys are hidden from isolated runs."""
    reconcile_period: timedelta = timedelta(hours=10)
    """Time between two periodic runs unless the watch sets it; zero: no periodic runs."""
    inject_owner_ref: bool = True
    readiness_wait: timedelta = timedelta(seconds=10)
    graceful_shutdown: timedelta = timedelta(seconds=30)
    """Time for running plays to end after SIGTERM."""
    backoff: BackoffSettings = BackoffSettings()
    executor: ExecutorName = "warm"
    metrics_secure: bool = False
    """Whether metrics are served over TLS."""
    metrics_require_rbac: bool = False
    """Whether the API server authorizes readers of metrics; only with TLS."""
    proxy_allow_anonymous: bool = False
    """Whether programs without a run's token may use the proxy, by plain HTTP."""
    operator_condition: str = ""
    """OPERATOR_CONDITION_NAME, the OperatorCondition of OLM; empty: none."""
    record_requests: Path | None = None
    """File for the permissions that the requests of roles need; None: not recorded."""
    webhook: WebhookSettings = WebhookSettings()
    jobs: JobSettings = JobSettings()
    shards: ShardSettings | None = None
    """None: the leader alone works."""
    once: tuple[str, str] | None = None
    """Kind, spelled as for kubectl, and name of the only resource to reconcile."""
    once_namespace: str = ""
    """Its namespace; empty: the only one of `namespaces`, else that of the kubeconfig."""
    reload: bool = False
    """Whether an edited role or playbook is run at once for every resource of its kind."""
