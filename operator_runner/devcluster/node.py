"""Start the nodes of a cluster: namespaces and link first, then the programs in them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from operator_runner.devcluster import (
    cgroups,
    files,
    images,
    links,
    namespaces,
    node_config,
    supervision,
)
from operator_runner.devcluster.control_plane import node_name
from operator_runner.devcluster.health import Prober
from operator_runner.devcluster.locations import Home, name_on_node
from operator_runner.devcluster.network import Subnets
from operator_runner.devcluster.node_config import NodeConfig
from operator_runner.devcluster.state import ClusterState, save

NAME = "node"


def create(
    home: Home, state: ClusterState, subnets: Subnets, pause_image: str
) -> tuple[ClusterState, NodeConfig]:
    """Make the namespaces, cgroups and configuration of the next node, and start containerd."""
    number = len(state.nodes) + 1
    folder, name = files.private_folder(home.node_folder(number)), name_on_node(NAME, number)
    (folder / "cni").mkdir()
    cgroups.create(home.token, number)
    arguments = (str(folder), node_name(number))
    holder = namespaces.create(*arguments, mark=home.path, log=home.log_of(name))
    # The first process counts as running, so that callers that wait notice its end.
    processes = {**state.processes, name: holder.init}
    nodes = (*state.nodes, holder)
    state = save(home, dataclasses.replace(state, nodes=nodes, processes=processes))
    if number == 1:
        links.connect(home.token, holder, subnets)
    else:
        links.connect_to_first(nodes[0], holder, subnets, number)
    prepared = folder / "init.json"
    supervision.wait_until(home, state, prepared.exists, "the mounts of the node", seconds=30)
    snapshotter = json.loads(prepared.read_text())["snapshotter"]
    config = NodeConfig(home, subnets, snapshotter, pause_image, number)
    for path, content in config.files().items():
        files.write(path, content)
    containerd = node_config.containerd(config, holder.init.pid)
    return supervision.start(home, state, containerd), config


def load_pause(home: Home, state: ClusterState, archive: Path) -> None:
    """Give the nodes the image of which every Pod needs one container."""
    for number, node in enumerate(state.nodes, start=1):
        supervision.wait_until_healthy(home, state, name_on_node("containerd", number))
        images.load(node, archive)


def join(home: Home, state: ClusterState, config: NodeConfig, programs: Path) -> ClusterState:
    """Start kubelet and kube-proxy; the API server must be ready."""
    state = supervision.start(home, state, node_config.kubelet(config, programs))
    return supervision.start(home, state, node_config.kube_proxy(config, programs))


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
