"""Subnets of a cluster. Pure: `links.py` reads and changes the machine's network."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Network

from operator_runner.devcluster.errors import NoFreeSubnet

SLOTS = 256
MAX_NODES = 4
# 10.184 for Pods, 10.185 for Services, 10.186 for links.
_ALL = IPv4Network("10.184.0.0/14")


@dataclass(frozen=True, slots=True)
class Subnets:
    """The addresses of the cluster in one slot."""

    slot: int
    nodes: int = 1
    """Number of nodes that share the addresses of Pods: 1 to MAX_NODES."""

    @property
    def pods(self) -> IPv4Network:
        """Addresses of Pods of all nodes, routed over the link."""
        return IPv4Network(f"10.184.{self.slot}.0/24")

    @property
    def services(self) -> IPv4Network:
        """Addresses of Services, routed over the link; kube-proxy of each node answers there."""
        return IPv4Network(f"10.185.{self.slot}.0/24")

    @property
    def links(self) -> IPv4Network:
        """The links of all nodes."""
        return IPv4Network(f"10.186.{self.slot}.0/24")

    @property
    def link(self) -> IPv4Network:
        """The two ends of the link between this machine and the first node."""
        return self.link_of(1)

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

    @property
    def host(self) -> str:
        """This machine's end of the link, where the API server listens."""
        return self.gateway_of(1)

    @property
    def node(self) -> str:
        """The first node's end of the link, and its InternalIP."""
        return self.node_of(1)

    @property
    def dns(self) -> str:
        """The Service address of the DNS server, by convention the tenth."""
        return str(self.services[10])


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
