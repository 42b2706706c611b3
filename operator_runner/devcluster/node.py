"""Start the nodes of a cluster and the programs in them, and load images."""

from __future__ import annotations

import dataclasses
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operator_runner.devcluster import host, locations, network, process, supervision
from operator_runner.devcluster.control_plane import node_name
from operator_runner.devcluster.errors import ClusterError, ImageError
from operator_runner.devcluster.locations import Home, name_on_node
from operator_runner.devcluster.network import Subnets
from operator_runner.devcluster.supervision import (
    ClusterState,
    Node,
    Part,
    Prober,
    entering,
    save_state,
)


def load_image(node: Node, archive: Path) -> tuple[str, ...]:
    """Import a docker or OCI archive into the node; return the names of its images."""
    names = names_in(archive)
    # By standard input: the node needs no access to the file.
    command = ("ctr", "--namespace=k8s.io", "images", "import", "-")
    try:
        process.run_program(*entering(node), *command, stdin=archive)
    except ClusterError as error:
        raise ImageError(f"{archive} could not be loaded: {error.problem}") from error
    return names


def names_in(archive: Path) -> tuple[str, ...]:
    """Return the names of the images in a docker or OCI archive."""
    hint = "`docker save`, `podman save` and `operator-runner cluster pack` write such archives."
    try:
        with tarfile.open(archive) as tar:
            names = _docker_names(tar) or _oci_names(tar)
    except (OSError, tarfile.TarError, ValueError) as error:
        raise ImageError(f"{archive}: invalid image archive: {error}", hint=hint) from error
    if not names:
        raise ImageError(f"{archive}: no named image in the archive", hint=hint)
    return names


def _docker_names(tar: tarfile.TarFile) -> tuple[str, ...]:
    manifest = _json(tar, "manifest.json") or []
    return tuple(name for image in manifest for name in image.get("RepoTags") or ())


def _oci_names(tar: tarfile.TarFile) -> tuple[str, ...]:
    index = _json(tar, "index.json") or {}
    annotations = [entry.get("annotations", {}) for entry in index.get("manifests", ())]
    found = (entry.get("io.containerd.image.name") for entry in annotations)
    return tuple(name for name in found if name)


def _json(tar: tarfile.TarFile, name: str) -> Any:
    """Return the parsed member `name`, or None if it does not exist."""
    if name not in tar.getnames():
        return None
    stream = tar.extractfile(name)
    return None if stream is None else json.load(stream)


CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CNI_PROGRAMS = Path("/usr/lib/cni")
# The default of the kubelet.
_MAX_PODS = 110
_HEALTH = {"kubelet": 10248, "kube-proxy": 10256}


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The files that the node's programs read: path and content."""

    home: Home
    subnets: Subnets
    snapshotter: str
    """`overlayfs`, or `native` where the file system below cannot carry overlays."""
    pause_image: str
    number: int = 1

    @property
    def folder(self) -> Path:
        """Everything that the node writes."""
        return self.home.node_folder(self.number)

    @property
    def address(self) -> str:
        """The InternalIP of the node."""
        return self.subnets.node_of(self.number)

    @property
    def name(self) -> str:
        """The name of the node in the API."""
        return node_name(self.number)

    def files(self) -> dict[Path, str]:
        """Return the content of every file by its path."""
        return {
            self.folder / "containerd.toml": self._containerd(),
            self.folder / "cni" / "10-pods.conflist": json.dumps(self._cni(), indent=1),
            self.folder / "kubelet.json": json.dumps(self._kubelet(), indent=1),
        }

    def _containerd(self) -> str:
        return f"""version = 2
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{self.pause_image}"
  # Without CAP_SYS_RESOURCE no process may get a lower oom_score_adj than containerd's own.
  restrict_oom_score_adj = true
  # As the newer releases have it: port 80 needs no privilege inside of a Pod.
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{self.snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = {json.dumps(str(self.folder / "cni"))}
"""

    def _cni(self) -> dict[str, object]:
        # ptp routes each Pod by a link of its own. On a bridge, traffic from Pod to Pod through a
        # Service passes the firewall rules of the node only with the module br_netfilter, which
        # would have to be loaded into this machine's kernel.
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": str(self.subnets.pods_of(self.number))}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        plugins = [
            {"type": "ptp", "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ]
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}

    def _kubelet(self) -> dict[str, object]:
        pki = self.home.pki
        serving = pki / f"{name_on_node('kubelet', self.number)}-serving"
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzBindAddress": self.address,
            "healthzPort": _HEALTH["kubelet"],
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": str(pki / "ca.crt")},
            },
            "tlsCertFile": f"{serving}.crt",
            "tlsPrivateKeyFile": f"{serving}.key",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{host.cgroup_name(self.home.token, self.number)}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            # A disk that is nearly full is this machine's matter: no Pod is evicted for it.
            "evictionHard": {"memory.available": "100Mi"},
            # Loaded images could not be pulled again, so they are never collected.
            "imageGCHighThresholdPercent": 100,
            "resolvConf": "",
            # Of the node's addresses two name the network itself.
            "maxPods": min(_MAX_PODS, self.subnets.pods_of(self.number).num_addresses - 3),
            "clusterDNS": [self.subnets.dns],
            "clusterDomain": "cluster.local",
            # Files of ConfigMaps and Secrets in Pods follow within seconds instead of a minute.
            "syncFrequency": "5s",
        }


def containerd(config: NodeConfig, init_pid: int) -> Part:
    """Return containerd; its socket is reached through the node's root directory."""
    command = ("containerd", f"--config={config.folder / 'containerd.toml'}")
    socket = f"unix:/proc/{init_pid}/root{CONTAINERD_SOCKET}"
    return Part(name_on_node("containerd", config.number), command, socket, node=config.number)


def kubelet(config: NodeConfig, programs: Path) -> Part:
    """Return the kubelet."""
    command = (
        str(programs / "kubelet"),
        f"--config={config.folder / 'kubelet.json'}",
        f"--kubeconfig={config.home.pki / name_on_node('kubelet', config.number)}.kubeconfig",
        f"--hostname-override={config.name}",
        f"--node-ip={config.address}",
    )
    return Part(
        name_on_node("kubelet", config.number),
        command,
        _health_url(config, "kubelet"),
        node=config.number,
    )


def kube_proxy(config: NodeConfig, programs: Path) -> Part:
    """Return kube-proxy, which leaves the machine-wide limits of connection tracking alone."""
    address = f"{config.address}:{_HEALTH['kube-proxy']}"
    command = (
        str(programs / "kube-proxy"),
        f"--kubeconfig={config.home.pki / 'kube-proxy.kubeconfig'}",
        f"--hostname-override={config.name}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={config.subnets.pods}",
        f"--healthz-bind-address={address}",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    )
    return Part(
        name_on_node("kube-proxy", config.number),
        command,
        _health_url(config, "kube-proxy"),
        node=config.number,
    )


def _health_url(config: NodeConfig, part: str) -> str:
    return f"http://{config.address}:{_HEALTH[part]}/healthz"


NAME = "node"


def create(
    home: Home, state: ClusterState, subnets: Subnets, pause_image: str
) -> tuple[ClusterState, NodeConfig]:
    """Make the namespaces, cgroups and configuration of the next node, and start containerd."""
    number = len(state.nodes) + 1
    folder, name = locations.private_folder(home.node_folder(number)), name_on_node(NAME, number)
    (folder / "cni").mkdir()
    host.create_cgroup(home.token, number)
    arguments = (str(folder), node_name(number))
    holder = supervision.create_node(*arguments, mark=home.path, log=home.log_of(name))
    # The first process counts as running, so that callers that wait notice its end.
    processes = {**state.processes, name: holder.init}
    nodes = (*state.nodes, holder)
    state = save_state(home, dataclasses.replace(state, nodes=nodes, processes=processes))
    if number == 1:
        network.connect_first(home.token, holder, subnets)
    else:
        network.connect_to_first(nodes[0], holder, subnets, number)
    prepared = folder / "init.json"
    supervision.wait_until(home, state, prepared.exists, "the mounts of the node", seconds=30)
    snapshotter = json.loads(prepared.read_text())["snapshotter"]
    config = NodeConfig(home, subnets, snapshotter, pause_image, number)
    for path, content in config.files().items():
        locations.write_file(path, content)
    started = supervision.start(home, state, containerd(config, holder.init.pid))
    return started, config


def load_pause(home: Home, state: ClusterState, archive: Path) -> None:
    """Give the nodes the image of which every Pod needs one container."""
    for number, node in enumerate(state.nodes, start=1):
        supervision.wait_until_healthy(home, state, name_on_node("containerd", number))
        load_image(node, archive)


def join(home: Home, state: ClusterState, config: NodeConfig, programs: Path) -> ClusterState:
    """Start kubelet and kube-proxy; the API server must be ready."""
    state = supervision.start(home, state, kubelet(config, programs))
    return supervision.start(home, state, kube_proxy(config, programs))


def wait_until_schedulable(home: Home, state: ClusterState) -> None:
    """Return when the nodes are ready and take Pods."""
    prober = Prober(home)
    for name in (node_name(number + 1) for number in range(len(state.nodes))):

        def schedulable(name: str = name) -> bool:
            found = prober.object_at(f"{state.server}/api/v1/nodes/{name}")
            return found is not None and is_schedulable(found)

        supervision.wait_until(home, state, schedulable, f"{name} to become ready")


def is_schedulable(node: dict[str, object]) -> bool:
    """Return whether an API Node is ready and has no taint that keeps Pods away."""
    spec, status = node.get("spec"), node.get("status")
    assert isinstance(spec, dict)
    assert isinstance(status, dict)
    conditions = {entry["type"]: entry["status"] for entry in status.get("conditions", ())}
    return conditions.get("Ready") == "True" and not spec.get("taints")
