"""The node's configuration, and when it takes Pods."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from operator_runner.devcluster import node
from operator_runner.devcluster.locations import Home
from operator_runner.devcluster.network import Subnets
from operator_runner.devcluster.node import NodeConfig, is_schedulable

_READY = {"type": "Ready", "status": "True"}


def _config(home: Home, slot: int = 3) -> NodeConfig:
    return NodeConfig(home, Subnets(slot), "overlayfs", "operator-runner.local/pause:1")


def _file(config: NodeConfig, name: str) -> str:
    return next(text for path, text in config.files().items() if path.name == name)


def test_containerd_reads_its_configuration(tmp_path: Path) -> None:
    """The TOML is valid and names the image of the Pods' first container."""
    loaded = tomllib.loads(_file(_config(Home(tmp_path / 'a "b"')), "containerd.toml"))
    cri = loaded["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "operator-runner.local/pause:1"
    assert cri["cni"]["conf_dir"] == str(tmp_path / 'a "b"' / "node" / "cni")
    assert cri["containerd"]["snapshotter"] == "overlayfs"


def test_pods_get_addresses_that_this_machine_routes(tmp_path: Path) -> None:
    """The network plugin hands out just the subnet of the cluster's slot."""
    loaded = json.loads(_file(_config(Home(tmp_path)), "10-pods.conflist"))
    assert loaded["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.184.3.0/24"}]]


def test_each_cluster_has_a_cgroup_of_its_own(tmp_path: Path) -> None:
    """Two kubelets on one machine do not clean up each other's Pods."""
    roots = {
        json.loads(_file(_config(Home(tmp_path / name)), "kubelet.json"))["cgroupRoot"]
        for name in ("one", "two")
    }
    assert len(roots) == 2


def test_health_is_probed_at_the_address_of_the_node(tmp_path: Path) -> None:
    """The kubelet and kube-proxy answer on the link, where this machine reaches them."""
    config = _config(Home(tmp_path))
    for part in (node.kubelet(config, tmp_path), node.kube_proxy(config, tmp_path)):
        assert part.health.startswith("http://10.186.3.2:")
        assert part.node == 1


def test_a_second_node_has_names_and_addresses_of_its_own(tmp_path: Path) -> None:
    """Two nodes of one cluster share neither Pod addresses, certificates, cgroups nor parts."""
    subnets, home = Subnets(3, nodes=2), Home(tmp_path)
    config = NodeConfig(home, subnets, "overlayfs", "operator-runner.local/pause:1", number=2)
    network = json.loads(_file(config, "10-pods.conflist"))
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.184.3.128/25"}]]
    settings = json.loads(_file(config, "kubelet.json"))
    assert settings["tlsCertFile"].endswith("/kubelet-2-serving.crt")
    assert settings["cgroupRoot"].endswith("-2")
    part = node.kubelet(config, tmp_path)
    assert (part.name, part.node) == ("kubelet-2", 2)
    assert part.health == "http://10.186.3.6:10248/healthz"
    assert "--hostname-override=node-2" in part.command
    assert all(path.is_relative_to(tmp_path / "node-2") for path in config.files())


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"spec": {}, "status": {"conditions": [_READY]}}, True),
        ({"spec": {}, "status": {}}, False),
        ({"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}, False),
        ({"spec": {"taints": [{"key": "x"}]}, "status": {"conditions": [_READY]}}, False),
    ],
)
def test_a_node_takes_pods_when_ready_and_untainted(node: dict[str, Any], expected: bool) -> None:
    """Ready alone is not enough: the taint of a new node goes a moment later."""
    assert is_schedulable(node) is expected
