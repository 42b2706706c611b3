"""Start a cluster, step by step, and its addons: CoreDNS, and the provisioner of volumes.

The addons are parts of the cluster like the others, in the namespaces of the node, so that they
take no image, and their ports cannot collide with other programs of this machine.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from rich.console import Console

from operator_runner.devcluster import (
    binaries,
    control_plane,
    host,
    image_packing,
    locations,
    network,
    node,
    process,
    supervision,
)
from operator_runner.devcluster.control_plane import (
    LOOPBACK,
    ApiServerOptions,
    ControlPlane,
    Endpoint,
)
from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.locations import Home
from operator_runner.devcluster.network import Subnets
from operator_runner.devcluster.supervision import ClusterState, Part, Prober, save_state

DNS, PROVISIONER = "coredns", "local-provisioner"
_OBJECTS = Path(__file__).with_name("addon-objects.yaml")
_PROVISIONER_NAME = "operator-runner.dev/local"
_READY_PORT, _METRICS_PORT = 8181, 8182


def start_addons(home: Home, state: ClusterState, subnets: Subnets, programs: Path) -> ClusterState:
    """Create the objects of the addons and start their programs; the API server must be ready."""
    objects = Template(_OBJECTS.read_text()).substitute(
        dns_service=subnets.dns, dns_server=subnets.node, provisioner=_PROVISIONER_NAME
    )
    manifest = locations.write_file(home.node / "addons.yaml", objects)
    # Before the programs: they would wait longer after an answer `forbidden`.
    kubectl = str(home.bin / "kubectl")
    process.run_program(kubectl, "create", "--validate=false", f"--filename={manifest}")
    locations.private_folder(home.volumes)
    for part in (_coredns(home, subnets, programs), _provisioner(home, subnets, programs)):
        state = supervision.start(home, state, part)
    return state


def corefile(home: Home, subnets: Subnets) -> str:
    """Return the configuration of CoreDNS, whose answers are those of clusters of kubeadm.

    Other names do not exist: Pods cannot reach what is outside of the cluster, and after REFUSED,
    the answer of a server without such a zone, resolvers would try again.
    """
    kubeconfig = home.pki / f"{DNS}.kubeconfig"
    return f"""\
cluster.local in-addr.arpa ip6.arpa {{
    bind {subnets.node}
    errors
    ready {subnets.node}:{_READY_PORT}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig "{kubeconfig}"
        pods insecure
    }}
}}
. {{
    bind {subnets.node}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def _coredns(home: Home, subnets: Subnets, programs: Path) -> Part:
    config = locations.write_file(home.node / "Corefile", corefile(home, subnets))
    command = (str(programs / DNS), f"-conf={config}")
    # It is ready as soon as it has all Services.
    health = f"http://{subnets.node}:{_READY_PORT}/ready"
    return Part(DNS, command, health, node=1)


def _provisioner(home: Home, subnets: Subnets, programs: Path) -> Part:
    command = (
        str(programs / PROVISIONER),
        f"--kubeconfig={home.pki / PROVISIONER}.kubeconfig",
        f"--folder={home.volumes}",
        f"--provisioner={_PROVISIONER_NAME}",
        f"--metrics-address={subnets.node}",
        f"--metrics-port={_METRICS_PORT}",
    )
    health = f"http://{subnets.node}:{_METRICS_PORT}/metrics"
    return Part(PROVISIONER, command, health, node=1)


# The link's address is the cluster's own, so the usual port is free there.
_PORT = 6443
# Services get addresses even where no node routes them.
_UNROUTED_SERVICES = ipaddress.IPv4Network("10.185.0.0/24")


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Options of `cluster up`."""

    name: str
    home: Home
    environment: Mapping[str, str]
    console: Console
    full: bool
    port: int | None
    install_packages: bool
    api_server: ApiServerOptions
    nodes: int | None = None
    """Number of nodes; None: one, or as many as the running cluster has."""

    def report(self, text: str) -> None:
        """Print a step for the user."""
        self.console.print(text)


def start(options: StartOptions) -> None:
    """Start a new cluster; return when it is ready. Raises ClusterError."""
    begin = time.monotonic()
    state = _start_full(options) if options.full else _start_control_plane(options)
    _finish(options, state)
    options.report(f"The cluster {options.name!r} is up after {time.monotonic() - begin:.1f} s")


def _start_control_plane(options: StartOptions) -> ClusterState:
    home = options.home
    programs = binaries.find(binaries.CONTROL_PLANE, options.environment, options.console)
    _make_folders(home)
    port = (
        network.require_port(LOOPBACK, options.port)
        if options.port
        else network.free_ports(LOOPBACK, 1)[0]
    )
    options.report("Starting etcd, kube-apiserver and kube-controller-manager")
    endpoint = Endpoint(LOOPBACK, port, _UNROUTED_SERVICES, nodes=())
    control = control_plane.prepare(programs, home, endpoint, options.name, options.api_server)
    state = save_state(home, ClusterState(process.boot(), endpoint.url, slot=None))
    state = _start_api(state, control)
    supervision.wait_until_healthy(home, state, "kube-apiserver")
    return supervision.start(home, state, control.controller_manager())


def _start_full(options: StartOptions) -> ClusterState:
    home = options.home
    host.require_root()
    if installed := host.require_packages(install=options.install_packages):
        options.report(f"Installed {', '.join(installed)}")
    wanted = (*binaries.CONTROL_PLANE, *binaries.NODE)
    programs = binaries.find(wanted, options.environment, options.console)
    addon_programs = binaries.find_addons(options.environment, options.console)
    host.require_visible(home.path, programs, addon_programs)
    pause, pause_archive = image_packing.packed(image_packing.PAUSE_SPEC, options.environment)
    _make_folders(home)
    nodes = options.nodes or 1
    what = "the node" if nodes == 1 else f"{nodes} nodes"
    options.report(f"Starting {what} and the control plane")
    subnets = network.create_link(home.token, nodes)
    port = network.require_port(subnets.host, options.port or _PORT)
    addresses = tuple(subnets.node_of(number + 1) for number in range(nodes))
    endpoint = Endpoint(subnets.host, port, subnets.services, addresses)
    control = control_plane.prepare(programs, home, endpoint, options.name, options.api_server)
    state = ClusterState(process.boot(), endpoint.url, subnets.slot)
    # The slow steps start first and run while the next step is prepared.
    configs = []
    for _ in range(nodes):
        state, config = node.create(home, state, subnets, pause.tag)
        configs.append(config)
    state = _start_api(state, control)
    node.load_pause(home, state, pause_archive)
    supervision.wait_until_healthy(home, state, "kube-apiserver")
    for part in (control.controller_manager(), control.scheduler()):
        state = supervision.start(home, state, part)
    for config in configs:
        state = node.join(home, state, config, programs)
    # While the kubelet starts.
    state = start_addons(home, state, subnets, addon_programs)
    node.wait_until_schedulable(home, state)
    return state


def resume(options: StartOptions, state: ClusterState) -> None:
    """Check a running cluster, and start those of its parts that have stopped."""
    if options.full != (state.slot is not None):
        kind = "with a node" if state.slot is not None else "without a node"
        raise ClusterError(
            f"the cluster {options.name!r} is up already, but {kind}",
            hint=f"Take it down first: `operator-runner cluster down --name {options.name}`.",
        )
    if options.nodes not in (None, len(state.nodes)):
        raise ClusterError(
            f"the cluster {options.name!r} is up already; its number of nodes: {len(state.nodes)}",
            hint=f"Take it down first: `operator-runner cluster down --name {options.name}`.",
        )
    for part in state.parts:
        if not state.runs(part.name):
            options.report(f"Starting {part.name}, which was not running")
            state = supervision.start(options.home, state, part)
    supervision.wait_until_healthy(options.home, state)
    options.report(f"The cluster {options.name!r} is up")


def _start_api(state: ClusterState, control: ControlPlane) -> ClusterState:
    state = supervision.start(control.home, state, control.etcd())
    supervision.wait_until_healthy(control.home, state, "etcd")
    _write_kubectl(control.home, control.programs)
    return supervision.start(control.home, state, control.api_server())


def _finish(options: StartOptions, state: ClusterState) -> None:
    prober = Prober(options.home)
    account = f"{state.server}/api/v1/namespaces/default/serviceaccounts/default"

    def has_account() -> bool:
        return prober.object_at(account) is not None

    # The controller manager makes it; Pods are refused before.
    supervision.wait_until(options.home, state, has_account, "the default service account")
    supervision.wait_until_healthy(options.home, state)
    save_state(options.home, dataclasses.replace(state, ready=True))


def _make_folders(home: Home) -> None:
    for folder in (home.path, home.pki, home.logs, home.bin, home.tools, home.etcd):
        locations.private_folder(folder)
    for log in home.logs.iterdir():
        log.unlink()


def _write_kubectl(home: Home, programs: Path) -> None:
    """Write a `kubectl` that needs neither PATH nor KUBECONFIG to be set, and link the plain one.

    The plain one is for PATH: a role that calls kubectl there has a KUBECONFIG of its own.
    """
    plain = home.tools / "kubectl"
    plain.unlink(missing_ok=True)
    plain.symlink_to(programs / "kubectl")
    script = (
        "#!/bin/sh\n"
        f"KUBECONFIG={shlex.quote(str(home.kubeconfig))}\n"
        f"KUBECACHEDIR={shlex.quote(str(home.kubectl_cache))}\n"
        "export KUBECONFIG KUBECACHEDIR\n"
        f'exec {shlex.quote(str(programs / "kubectl"))} "$@"\n'
    )
    locations.write_file(home.bin / "kubectl", script, mode=0o700)
