"""Start the node of a cluster: namespaces and link first, then the programs in them."""

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
from operator_runner.devcluster.control_plane import NODE_NAME
from operator_runner.devcluster.health import Prober
from operator_runner.devcluster.locations import Home
from operator_runner.devcluster.network import Subnets
from operator_runner.devcluster.node_config import NodeConfig
from operator_runner.devcluster.state import State, save

NAME = "node"


def create(
    home: Home, state: State, subnets: Subnets, pause_image: str
) -> tuple[State, NodeConfig]:
    """Make the node's namespaces, cgroups and configuration, and start containerd there."""
    files.private_folder(home.node)
    (home.node / "cni").mkdir()
    cgroups.create(home.token)
    holder = namespaces.create(str(home.node), mark=home.path, log=home.log_of(NAME))
    # The first process counts as running, so that callers that wait notice its end.
    state = save(home, dataclasses.replace(state, node=holder, processes={NAME: holder.init}))
    links.connect(home.token, holder, subnets)
    prepared = home.node / "init.json"
    supervision.wait_until(home, state, prepared.exists, "the mounts of the node", seconds=30)
    snapshotter = json.loads(prepared.read_text())["snapshotter"]
    config = NodeConfig(home, subnets, snapshotter, pause_image)
    for path, content in config.files().items():
        files.write(path, content)
    containerd = node_config.containerd(config, holder.init.pid)
    return supervision.start(home, state, containerd), config


def load_pause(home: Home, state: State, archive: Path) -> None:
    """Give the node the image of which every Pod needs one container."""
    assert state.node is not None
    supervision.wait_until_healthy(home, state, "containerd")
    images.load(state.node, archive)


def join(home: Home, state: State, config: NodeConfig, programs: Path) -> State:
    """Start kubelet and kube-proxy; the API server must be ready."""
    state = supervision.start(home, state, node_config.kubelet(config, programs))
    return supervision.start(home, state, node_config.kube_proxy(config, programs))


def wait_until_schedulable(home: Home, state: State) -> None:
    """Return when the node is ready and takes Pods."""
    prober = Prober(home)
    url = f"{state.server}/api/v1/nodes/{NODE_NAME}"

    def schedulable() -> bool:
        found = prober.object_at(url)
        return found is not None and is_schedulable(found)

    supervision.wait_until(home, state, schedulable, "the node to become ready")


def is_schedulable(node: dict[str, object]) -> bool:
    """Tell whether an API Node is ready and has no taint that keeps Pods away."""
    spec, status = node.get("spec"), node.get("status")
    assert isinstance(spec, dict)
    assert isinstance(status, dict)
    conditions = {entry["type"]: entry["status"] for entry in status.get("conditions", ())}
    return conditions.get("Ready") == "True" and not spec.get("taints")
