"""The links between this machine and its nodes, and the routes over them."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from pathlib import Path

from operator_runner.devcluster import files
from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.namespaces import entering
from operator_runner.devcluster.network import Subnets, free_slot
from operator_runner.devcluster.state import Node
from operator_runner.devcluster.system_programs import run

_LOCK = Path("/run/lock/operator-runner-clusters")
_INSIDE = "eth0"


def name_of(token: str) -> str:
    """Return the name of this machine's end of the link; interface names have 15 letters."""
    return f"opr-{token}"


def routed_networks() -> set[IPv4Network]:
    """Return every network that this machine has an address in or a route to.

    Default routes are left out: they are what more specific routes are for.
    """
    routes = json.loads(run("ip", "-4", "-json", "route", "show", "table", "all"))
    destinations = {route["dst"] for route in routes} - {"default"}
    return {IPv4Network(destination) for destination in destinations}


def create(token: str, nodes: int) -> Subnets:
    """Make the link with this machine's address and routes; return the subnets it serves.

    The other end stays here, down, until `connect`. Of several users of this machine one at a
    time chooses a slot; its routes show the others that it is taken.
    """
    outside, peer = name_of(token), _peer_of(token)
    _LOCK.parent.mkdir(exist_ok=True)
    with files.locked(_LOCK):
        subnets = Subnets(free_slot(routed_networks()), nodes)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", peer)
        address = f"{subnets.host}/{subnets.link.prefixlen}"
        run("ip", "address", "add", address, "dev", outside)
        run("ip", "link", "set", outside, "up")
        for network in (subnets.pods, subnets.services, subnets.links):
            # onlink: the route can be added before the other end is up.
            via = ("via", subnets.node, "dev", outside, "onlink")
            run("ip", "route", "add", str(network), *via)
    return subnets


def connect(token: str, node: Node, subnets: Subnets) -> None:
    """Move the other end into the first node, and give it its address and default route."""
    run("ip", "link", "set", _peer_of(token), "netns", str(node.init.pid), "name", _INSIDE)
    _configure(node, subnets, 1)


def connect_to_first(first: Node, node: Node, subnets: Subnets, number: int) -> None:
    """Link another node with the first one, which forwards between it and everything else.

    So this machine need not forward, which is a setting of the whole machine.
    """
    name = f"node-{number}"
    gateway, pods = subnets.gateway_of(number), subnets.pods_of(number)
    # Only in the network of the first node: the kernel looks up the process of the other one here.
    inside = ("nsenter", f"--target={first.init.pid}", "--net", "--", "ip")
    peer = ("peer", "name", _INSIDE, "netns", str(node.init.pid))
    run(*inside, "link", "add", name, "type", "veth", *peer)
    address = f"{gateway}/{subnets.link_of(number).prefixlen}"
    run(*inside, "address", "add", address, "dev", name)
    run(*inside, "link", "set", name, "up")
    _configure(node, subnets, number)
    run(*inside, "route", "add", str(pods), "via", subnets.node_of(number))


def _configure(node: Node, subnets: Subnets, number: int) -> None:
    inside = (*entering(node), "ip")
    address = f"{subnets.node_of(number)}/{subnets.link_of(number).prefixlen}"
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "address", "add", address, "dev", _INSIDE)
    run(*inside, "link", "set", _INSIDE, "up")
    run(*inside, "route", "add", "default", "via", subnets.gateway_of(number))


def remove(token: str) -> None:
    """Remove the link, and with it its routes."""
    for name in (name_of(token), _peer_of(token)):
        if not _exists(name):
            continue
        try:
            run("ip", "link", "delete", name)
        except ClusterError:
            # The kernel removes it by itself a moment after the node has ended.
            if _exists(name):
                raise


def _exists(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def _peer_of(token: str) -> str:
    return f"opn-{token}"
