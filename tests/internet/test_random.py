# SPDX-License-Identifier: Apache-2.0
"""Random internets: what becomes of every packet, what captures hold, and longest prefixes."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from random import Random

import pytest

from tests.native.test_tshark import FLAWS, run_tshark
from verbena.internet import Internet, MessageTooLongError, UdpArrival
from verbena.internet.distance_vector import DistanceVector
from verbena.internet.link_state import LinkState
from verbena.internet.prefixes import PrefixMap

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
    random = Random(7)
    table: PrefixMap[int] = PrefixMap()
    kept: dict[tuple[int, int], int] = {}
    for number in range(10_000):
        length = random.randrange(33)
        key = random.getrandbits(32) >> (32 - length) << (32 - length)
        table[IPv4Network((key, length))] = kept[key, length] = number
    for key, length in random.sample(list(kept), 3000):
        del table[IPv4Network((key, length))], kept[key, length]
    assert len(table) == len(kept)
    assert {(int(one.network_address), one.prefixlen) for one in table} == set(kept)
    bases = [key for key, _ in kept]
    for number in range(10_000):
        address = random.getrandbits(32)
        if number % 2:
            address = random.choice(bases) ^ random.getrandbits(6)
        masked = (
            (address >> (32 - length) << (32 - length), length) for length in range(32, -1, -1)
        )
        best = next((one for one in masked if one in kept), None)
        found = table.longest(IPv4Address(address))
        assert found == (None if best is None else (IPv4Network(best), kept[best]))
