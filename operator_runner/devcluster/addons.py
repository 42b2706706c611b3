"""The addons of a cluster with a node: CoreDNS, and the provisioner of PersistentVolumes.

They are parts of the cluster like the others, in the namespaces of the node, so that they take no
image, and their ports cannot collide with other programs of this machine.
"""

from __future__ import annotations

from pathlib import Path
from string import Template

from operator_runner.devcluster import files, supervision, system_programs
from operator_runner.devcluster.locations import Home
from operator_runner.devcluster.network import Subnets
from operator_runner.devcluster.state import ClusterState, Part

DNS, PROVISIONER = "coredns", "local-provisioner"
_OBJECTS = Path(__file__).with_name("addon-objects.yaml")
_PROVISIONER_NAME = "operator-runner.dev/local"
_READY_PORT, _METRICS_PORT = 8181, 8182


def start(home: Home, state: ClusterState, subnets: Subnets, programs: Path) -> ClusterState:
    """Create the objects of the addons and start their programs; the API server must be ready."""
    objects = Template(_OBJECTS.read_text()).substitute(
        dns_service=subnets.dns, dns_server=subnets.node, provisioner=_PROVISIONER_NAME
    )
    manifest = files.write(home.node / "addons.yaml", objects)
    # Before the programs: they would wait longer after an answer `forbidden`.
    kubectl = str(home.bin / "kubectl")
    system_programs.run(kubectl, "create", "--validate=false", f"--filename={manifest}")
    files.private_folder(home.volumes)
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
    config = files.write(home.node / "Corefile", corefile(home, subnets))
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
