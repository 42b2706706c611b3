"""Subnets of simultaneous clusters."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from itertools import combinations, pairwise

import pytest

from operator_runner.devcluster.errors import NoFreeSubnet
from operator_runner.devcluster.network import MAX_NODES, SLOTS, Subnets, free_slot


def _networks(slot: int) -> list[IPv4Network]:
    subnets = Subnets(slot)
    return [subnets.pods, subnets.services, subnets.links]


def test_no_two_slots_share_an_address() -> None:
    """Any two of all subnets of all slots are disjoint."""
    networks = [network for slot in range(SLOTS) for network in _networks(slot)]
    ordered = sorted(networks)
    assert not any(one.overlaps(other) for one, other in pairwise(ordered))
    assert len(set(networks)) == 3 * SLOTS


def test_the_addresses_are_in_their_subnets() -> None:
    """Both ends of the link and the DNS address belong to the networks they are named for."""
    subnets = Subnets(7)
    assert IPv4Address(subnets.host) in subnets.link
    assert IPv4Address(subnets.node) in subnets.link
    assert subnets.host != subnets.node
    assert IPv4Address(subnets.dns) in subnets.services


@pytest.mark.parametrize("nodes", range(1, MAX_NODES + 1))
def test_nodes_share_the_addresses_of_their_cluster(nodes: int) -> None:
    """Links and Pods of the nodes are disjoint parts; one node alone has all Pods."""
    subnets = Subnets(7, nodes)
    numbers = range(1, nodes + 1)
    links = [subnets.link_of(number) for number in numbers]
    pods = [subnets.pods_of(number) for number in numbers]
    assert all(link.subnet_of(subnets.links) for link in links)
    assert all(part.subnet_of(subnets.pods) for part in pods)
    assert not any(one.overlaps(other) for one, other in combinations([*links, *pods], 2))
    assert nodes > 1 or pods == [subnets.pods]
    assert all(IPv4Address(subnets.node_of(number)) in links[number - 1] for number in numbers)


@pytest.mark.parametrize(
    ("routed", "slot"),
    [
        ([], 0),
        (["192.168.0.0/16"], 0),
        (["10.184.0.0/24"], 1),
        (["10.186.0.1/32"], 1),
        (["10.184.0.0/24", "10.185.1.0/24", "10.186.2.0/30"], 3),
        (["10.185.0.0/17"], 128),
    ],
)
def test_a_slot_is_free_if_nothing_it_uses_is_routed(routed: list[str], slot: int) -> None:
    """One address in one of the three subnets is enough to pass over a slot."""
    assert free_slot([IPv4Network(network) for network in routed]) == slot


def test_a_route_over_all_subnets_is_named() -> None:
    """Where a VPN routes everything the error names its network first."""
    routed = [IPv4Network("10.186.3.0/30"), IPv4Network("10.0.0.0/8"), IPv4Network("127.0.0.0/8")]
    with pytest.raises(NoFreeSubnet, match=r"The largest ones: 10\.0\.0\.0/8, 10\.186\.3\.0/30\."):
        free_slot(routed)


def test_the_slots_of_running_clusters_are_all_different() -> None:
    """Clusters that start one after the other get disjoint subnets."""
    routed: list[IPv4Network] = []
    slots = []
    for _ in range(5):
        slots.append(free_slot(routed))
        routed += _networks(slots[-1])
    assert all(one != other for one, other in combinations(slots, 2))
