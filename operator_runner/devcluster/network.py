"""Subnets of a cluster. Pure: `links.py` reads and changes the machine's network."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Network

from operator_runner.devcluster.errors import NoFreeSubnet

SLOTS = 256
# 10.184 for Pods, 10.185 for Services, 10.186 for links.
_ALL = IPv4Network("10.184.0.0/14")


@dataclass(frozen=True, slots=True)
class Subnets:
    """The addresses of the cluster in one slot."""

    slot: int

    @property
    def pods(self) -> IPv4Network:
        """Addresses of Pods, routed over the link."""
        return IPv4Network(f"10.184.{self.slot}.0/24")

    @property
    def services(self) -> IPv4Network:
        """Addresses of Services, routed over the link; kube-proxy of the node answers there."""
        return IPv4Network(f"10.185.{self.slot}.0/24")

    @property
    def link(self) -> IPv4Network:
        """The two ends of the link between this machine and the node."""
        return IPv4Network(f"10.186.{self.slot}.0/30")

    @property
    def host(self) -> str:
        """This machine's end of the link, where the API server listens."""
        return str(self.link[1])

    @property
    def node(self) -> str:
        """The node's end of the link, and its InternalIP."""
        return str(self.link[2])

    @property
    def dns(self) -> str:
        """The Service address of the DNS server, by convention the tenth."""
        return str(self.services[10])


def free_slot(routed: Collection[IPv4Network]) -> int:
    """Return the first slot none of whose subnets overlaps with the networks `routed`."""
    for slot in range(SLOTS):
        mine = Subnets(slot)
        if not any(
            own.overlaps(other) for own in (mine.pods, mine.services, mine.link) for other in routed
        ):
            return slot
    blocking = sorted((network for network in routed if network.overlaps(_ALL)), key=_size)
    raise NoFreeSubnet(
        f"every subnet for a cluster in {_ALL} overlaps with a network that this machine routes",
        cure=f"The largest ones: {', '.join(str(network) for network in blocking[:5])}. "
        "Take down a cluster or that VPN.",
    )


def _size(network: IPv4Network) -> int:
    return network.prefixlen
