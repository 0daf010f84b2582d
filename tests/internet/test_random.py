# SPDX-License-Identifier: Apache-2.0
"""Random internets: what becomes of every packet, what captures hold, and longest prefixes."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from random import Random

import pytest

from tests.internet.brute_force import longest_prefixes
from tests.internet.mixed import (
    ANSWERS,
    KINDS,
    Fate,
    Mixed,
    broken_policies,
    fates,
    mixed_systems,
    unexplained,
)
from tests.native.test_tshark import FLAWS, run_tshark
from verbena.internet import Internet, MessageTooLongError, UdpArrival
from verbena.internet.bgp_policy import Leak
from verbena.internet.distance_vector import DistanceVector
from verbena.internet.link_state import LinkState

PORT = 7000
NOWHERE = IPv4Address("203.0.113.7")


def build(seed: int, routers: int, protocol: type[DistanceVector | LinkState]) -> Internet:
    """A random tree of routers with some links more, a host at each, and different MTUs."""
    net, random = Internet(seed), Random(seed)
    for number in range(routers):
        net.router(f"r{number}")
        net.host(f"h{number}")
        net.network(f"10.{number}.0.0/24", f"r{number}", f"h{number}")
    pairs = {(random.randrange(number), number) for number in range(1, routers)}
    pairs |= {tuple(sorted(random.sample(range(routers), 2))) for _ in range(routers // 2)}  # type: ignore[misc]
    for left, right in sorted(pairs):
        net.link(f"r{left}", f"r{right}", mtu=random.choice((296, 576, 1500)))
    for number in range(routers):
        node = net.node(f"r{number}")
        running = (
            DistanceVector(node, net.random)
            if protocol is DistanceVector
            else LinkState(node, node.address)
        )
        for interface in node.interfaces:
            running.add_interface(interface)
    net.converge()
    return net


@pytest.mark.parametrize("protocol", [DistanceVector, LinkState])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_packet_arrives_or_is_answered(
    seed: int, protocol: type[DistanceVector | LinkState]
) -> None:
    net, random = build(seed, 8, protocol), Random(seed)
    hosts = [node for node in net.nodes.values() if not node.forwards]
    fates: dict[bytes, list[str]] = {}

    def arrive(arrival: UdpArrival) -> None:
        fates[arrival.payload[:4]].append("arrived")

    for host in hosts:
        host.udp.open(arrive, PORT)
    for number in range(150):
        key = number.to_bytes(4, "big")
        sender = random.choice(hosts)
        to = random.choice([host.address for host in hosts] + [NOWHERE, IPv4Address("10.0.0.200")])
        fates[key] = []
        socket = sender.udp.open(lambda _: None)
        socket.on_error = lambda message, _, __, key=key: fates[key].append(message.text)  # type: ignore[misc]
        port = random.choice((PORT, PORT + 1))
        size = random.choice((4, 200, 1400, 4000))
        try:
            socket.send(
                key.ljust(size, b"."),
                to,
                port,
                ttl=random.choice((1, 2, 3, 64)),
                dont_fragment=size == 1400 and number % 2 == 0,
            )
        except MessageTooLongError:
            fates[key].append("fragmentation needed, as is known")
        net.run(4)  # longer than ARP tries; a reassembly that fails is not waited for
    assert {len(fate) for fate in fates.values()} == {1}
    kinds = {fate[0].split(",")[0] for fate in fates.values()}
    assert kinds >= {"arrived", "time to live exceeded", "port unreachable", "network unreachable"}
    assert kinds <= {
        "arrived",
        "time to live exceeded",
        "port unreachable",
        "network unreachable",
        "host unreachable",
        "fragmentation needed",
    }


@pytest.fixture(scope="module")
def mixed() -> list[tuple[Mixed, list[Fate]]]:
    """Internets of networks of different kinds and of two to five systems, and their packets."""
    made = [mixed_systems(seed, 2 + seed % 4) for seed in range(6)]
    return [(one, fates(one, Random(seed), 80)) for seed, one in enumerate(made)]


def test_packets_cross_networks_of_all_kinds_and_no_policy_is_broken(
    mixed: list[tuple[Mixed, list[Fate]]],
) -> None:
    for made, packets in mixed:
        assert unexplained(made, packets) == []
        assert broken_policies(made, packets) == []


def test_the_mixed_internets_have_all_kinds_of_networks_ways_and_fates(
    mixed: list[tuple[Mixed, list[Fate]]],
) -> None:
    packets = [fate for _, some in mixed for fate in some]
    assert {kind for made, _ in mixed for kind in made.kinds.values()} == set(KINDS)
    assert ANSWERS | {"arrived", "an answer without a way back"} == {one.kind for one in packets}
    assert max(len(fate.walk) for fate in packets) >= 3
    assert max(len(fate.back) for fate in packets) >= 3


def test_leaks_are_seen_as_broken_policies() -> None:
    made = mixed_systems(6, 4, lambda _: Leak())
    packets = fates(made, Random(6), 100)
    assert any("has a valley" in wrong for wrong in broken_policies(made, packets))


def test_a_packet_of_which_nothing_is_heard_is_seen_as_lost() -> None:
    made = mixed_systems(2, 4)
    for name in ("1-2-0", "1-2-1", "1-3-0", "1-4-0"):
        if name in made.net.links:
            made.net.links[name].cut(silent=True)
    assert "lost" in unexplained(made, fates(made, Random(2), 10))


@pytest.mark.debian
@pytest.mark.parametrize("protocol", [DistanceVector, LinkState])
def test_tshark_finds_no_flaw_in_what_links_carry(
    protocol: type[DistanceVector | LinkState],
    tmp_path: Path,
    debian_program: Callable[[str], str],
) -> None:
    program = debian_program("tshark")
    net = build(4, 4, protocol)
    file = tmp_path / "all.pcapng"
    with net.capture(file) as capture:
        for size in (56, 3000):
            assert net.ping("h0", "h3", size=size)[0].ok
        net.traceroute("h0", "h3")
        net.path_mtu("h0", "h3")
        net.run(70)
    rows = run_tshark(program, file, "-T", "fields", "-e", "_ws.col.Protocol")
    assert len(rows) == capture.frames
    expected = {"ARP", "ICMP", "UDP", "RIPv2" if protocol is DistanceVector else "OSPF"}
    assert expected <= set(rows)
    assert run_tshark(program, file, "-Y", f"({FLAWS}) && !icmp.type == 3") == []


def test_the_longest_of_ten_thousand_prefixes_is_that_of_brute_force() -> None:
    assert longest_prefixes(10_000, 10_000, Random(7)) == []
