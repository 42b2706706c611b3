"""The network of a cluster: subnets, links and routes between this machine and its nodes, ports."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Collection
from ipaddress import IPv4Network
from pathlib import Path

from operator_runner.devcluster import locations
from operator_runner.devcluster.errors import ClusterError, NoFreePort, NoFreeSubnet, PortTaken
from operator_runner.devcluster.process import run_program
from operator_runner.devcluster.supervision import Node, entering

SLOTS = 256
MAX_NODES = 4
# 10.184 for Pods, 10.185 for Services, 10.186 for links.
_ALL = IPv4Network("10.184.0.0/14")


class Subnets:
    """The addresses of the cluster in one slot."""

    def __init__(self, slot: int, nodes: int = 1) -> None:
        """`nodes` is the number of nodes that share the addresses of Pods: 1 to MAX_NODES."""
        self.slot, self.nodes = slot, nodes
        self.pods = IPv4Network(f"10.184.{slot}.0/24")
        """Addresses of Pods of all nodes, routed over the link."""
        self.services = IPv4Network(f"10.185.{slot}.0/24")
        """Addresses of Services, routed over the link; kube-proxy of each node answers there."""
        self.links = IPv4Network(f"10.186.{slot}.0/24")
        """The links of all nodes."""
        self.link = self.link_of(1)
        """The two ends of the link between this machine and the first node."""
        self.host = self.gateway_of(1)
        """This machine's end of the link, where the API server listens."""
        self.node = self.node_of(1)
        """The first node's end of the link, and its InternalIP."""
        self.dns = str(self.services[10])
        """The Service address of the DNS server, by convention the tenth."""

    def link_of(self, number: int) -> IPv4Network:
        """Return the link of a node: to this machine for the first, to the first for others."""
        return list(self.links.subnets(new_prefix=30))[number - 1]

    def gateway_of(self, number: int) -> str:
        """Return the far end of a node's link."""
        return str(self.link_of(number)[1])

    def node_of(self, number: int) -> str:
        """Return a node's end of its link, which is its InternalIP."""
        return str(self.link_of(number)[2])

    def pods_of(self, number: int) -> IPv4Network:
        """Return the addresses of a node's Pods: all, a half or a quarter of `pods`."""
        return list(self.pods.subnets(prefixlen_diff=(self.nodes - 1).bit_length()))[number - 1]


def free_slot(routed: Collection[IPv4Network]) -> int:
    """Return the first slot none of whose subnets overlaps with the networks `routed`."""
    for slot in range(SLOTS):
        subnets = Subnets(slot)
        if not any(
            own.overlaps(other)
            for own in (subnets.pods, subnets.services, subnets.links)
            for other in routed
        ):
            return slot
    blocking = sorted((network for network in routed if network.overlaps(_ALL)), key=_size)
    raise NoFreeSubnet(
        f"every subnet for a cluster in {_ALL} overlaps with a network that this machine routes",
        hint=f"The largest ones: {', '.join(str(network) for network in blocking[:5])}. "
        "Take down a cluster or that VPN.",
    )


def _size(network: IPv4Network) -> int:
    return network.prefixlen


_LOCK = Path("/run/lock/operator-runner-clusters")
_INSIDE = "eth0"


def link_name(token: str) -> str:
    """Return the name of this machine's end of the link; interface names have 15 letters."""
    return f"opr-{token}"


def routed_networks() -> set[IPv4Network]:
    """Return every network that this machine has an address in or a route to.

    Default routes are left out: they are what more specific routes are for.
    """
    routes = json.loads(run_program("ip", "-4", "-json", "route", "show", "table", "all"))
    destinations = {route["dst"] for route in routes} - {"default"}
    return {IPv4Network(destination) for destination in destinations}


def create_link(token: str, nodes: int) -> Subnets:
    """Make the link with this machine's address and routes; return the subnets it serves.

    The other end stays here, down, until `connect`. Of several users of this machine one at a
    time chooses a slot; its routes show the others that it is taken.
    """
    outside, peer = link_name(token), _peer_of(token)
    _LOCK.parent.mkdir(exist_ok=True)
    with locations.locked(_LOCK):
        subnets = Subnets(free_slot(routed_networks()), nodes)
        run_program("ip", "link", "add", outside, "type", "veth", "peer", "name", peer)
        address = f"{subnets.host}/{subnets.link.prefixlen}"
        run_program("ip", "address", "add", address, "dev", outside)
        run_program("ip", "link", "set", outside, "up")
        for network in (subnets.pods, subnets.services, subnets.links):
            # onlink: the route can be added before the other end is up.
            via = ("via", subnets.node, "dev", outside, "onlink")
            run_program("ip", "route", "add", str(network), *via)
    return subnets


def connect_first(token: str, node: Node, subnets: Subnets) -> None:
    """Move the other end into the first node, and give it its address and default route."""
    run_program("ip", "link", "set", _peer_of(token), "netns", str(node.init.pid), "name", _INSIDE)
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
    run_program(*inside, "link", "add", name, "type", "veth", *peer)
    address = f"{gateway}/{subnets.link_of(number).prefixlen}"
    run_program(*inside, "address", "add", address, "dev", name)
    run_program(*inside, "link", "set", name, "up")
    _configure(node, subnets, number)
    run_program(*inside, "route", "add", str(pods), "via", subnets.node_of(number))


def _configure(node: Node, subnets: Subnets, number: int) -> None:
    inside = (*entering(node), "ip")
    address = f"{subnets.node_of(number)}/{subnets.link_of(number).prefixlen}"
    run_program(*inside, "link", "set", "lo", "up")
    run_program(*inside, "address", "add", address, "dev", _INSIDE)
    run_program(*inside, "link", "set", _INSIDE, "up")
    run_program(*inside, "route", "add", "default", "via", subnets.gateway_of(number))


def remove_link(token: str) -> None:
    """Remove the link, and with it its routes."""
    for name in (link_name(token), _peer_of(token)):
        if not _exists(name):
            continue
        try:
            run_program("ip", "link", "delete", name)
        except ClusterError:
            # The kernel removes it by itself a moment after the node has ended.
            if _exists(name):
                raise


def _exists(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def _peer_of(token: str) -> str:
    return f"opn-{token}"


# Below the range from which the kernel serves outgoing connections, so that none of them can
# take a port between choosing and listening.
_RANGE = range(12_000, 32_000)


def free_ports(address: str, count: int) -> list[int]:
    """Return `count` free ports on `address`; no other process gets them by this function.

    Raises NoFreePort. Programs that listen with SO_REUSEADDR, as those in Go do, can use them.
    """
    first = random.randrange(len(_RANGE))  # noqa: S311 - no secret
    found: list[int] = []
    for step in range(len(_RANGE)):
        port = _RANGE[(first + step) % len(_RANGE)]
        if _reserve(address, port):
            found.append(port)
        if len(found) == count:
            return found
    raise NoFreePort(f"{address} has no {count} free ports in {_RANGE.start}-{_RANGE.stop - 1}")


def _reserve(address: str, port: int) -> bool:
    """Bind the port without listening; return whether that was possible."""
    reservation = socket.socket()
    try:
        reservation.bind((address, port))
    except OSError:
        reservation.close()
        return False
    # Only from now on, so that the program may bind it too and a second reservation may not.
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Kept until this process ends, because the program listens at an unknown time.
    reservation.detach()
    return True


def require_port(address: str, port: int) -> int:
    """Return `port` if it is free, else raise PortTaken."""
    if not _is_free(address, port):
        raise PortTaken(
            f"port {port} of {address} is taken by another program",
            hint="Give another one with --port, or leave --port out to get a free one.",
        )
    return port


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        # As the Go programs listen: a closing connection of an earlier server does not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
