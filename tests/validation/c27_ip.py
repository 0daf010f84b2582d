# SPDX-License-Identifier: Apache-2.0
"""C27: forwarding, fragments and the MTU of a path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from random import Random

from tests.internet.brute_force import longest_prefixes
from tests.validation.row import Confidence, Figure, Row, Scope, equal, holds
from verbena.internet import Datagram, Internet, MessageTooLongError
from verbena.internet.fragments import fragments
from verbena.internet.icmp import Kind
from verbena.internet.node import Node

PORT = 7000
MTUS = (1500, 1400, 1400, 1006, 1200, 576)
"""Of the links between routers, from the sender on."""


def chain(mtus: tuple[int, ...]) -> Internet:
    """A host, routers in a chain with a link of each MTU between two of them, and a host."""
    net, last = Internet(), len(mtus)
    for number in range(last + 1):
        net.router(f"r{number}")
    net.host("left")
    net.host("right")
    net.network("10.1.0.0/24", "r0", "left")
    net.network("10.2.0.0/24", f"r{last}", "right")
    for number, mtu in enumerate(mtus):
        here, there = f"r{number}", f"r{number + 1}"
        net.link(here, there, f"100.64.{number}.0/31", mtu=mtu)
        net.node(here).add_static_route("10.2.0.0/24", f"100.64.{number}.1")
        net.node(there).add_static_route("10.1.0.0/24", f"100.64.{number}.0")
        for other in range(last):
            if other != number:
                near = here if other > number else there
                hop = f"100.64.{number}.{int(other > number)}"
                net.node(near).add_static_route(f"100.64.{other}.0/31", hop)
    return net


def forget_mtus(net: Internet, routers: int) -> None:
    """Let routers be as they were before RFC 1191: their errors 3/4 name no MTU."""

    def complains(node: Node) -> Callable[..., None]:
        new = node.complain

        def old(about: Datagram, to_several: bool, kind: Kind, code: int, mtu: int = 0) -> None:
            new(about, to_several, kind, code)

        return old

    for number in range(routers):
        node = net.node(f"r{number}")
        vars(node)["complain"] = complains(node)


def discover(net: Internet) -> tuple[int, list[int], bool]:
    """Datagrams that must not be cut, each as long as what is known of the path: how many were
    sent, the MTUs that errors reported, and whether one arrived."""
    arrived: list[int] = []
    net.node("right").udp.open(lambda one: arrived.append(len(one.payload)), PORT)
    socket, to = net.node("left").udp.open(lambda _: None), net.node("right").address
    known, reported, sent = 1500, [], 0
    while not arrived and sent < 10:
        try:
            socket.send(bytes(known - 28), to, PORT, dont_fragment=True)
            sent += 1
            net.run(2)
        except MessageTooLongError as error:
            known = error.mtu
            reported.append(known)
    return sent, reported, bool(arrived)


def fragment_sizes(size: int, mtu: int) -> Iterator[Figure]:
    one, two = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
    parts = fragments(Datagram(17, one, two, bytes(size - 20)), mtu)
    laws = ((1480, 0), (1480, 185), (1020, 370))
    for part, (length, offset) in zip(parts, laws, strict=True):
        yield equal(f"fragment of {size} B at {part.offset // 8}", len(part.payload), length, "B")
        yield equal("its offset", part.offset / 8, offset, "units of 8 B")


def measure(scope: Scope) -> Iterator[Figure]:
    counts = scope.pick((2_000, 5_000), (20_000, 100_000))
    wrong = longest_prefixes(*counts, Random(scope.seed))
    yield equal(f"of {counts[1]} longest prefixes, wrong", len(wrong), 0)
    net = chain(MTUS)
    routers = len(MTUS) + 1
    (reply,) = net.ping("left", "right")
    yield equal(f"TTL of 64 behind {routers} routers", reply.ttl, 64 - routers)
    names = [hop.name for hop in net.traceroute("left", "right")]
    way = [*(f"r{number}" for number in range(routers)), "right"]
    yield holds("a TTL of k ends at router k, which says so by ICMP 11", names == way)
    yield from fragment_sizes(4000, 1500)
    smaller = [mtu for at, mtu in enumerate(MTUS) if mtu < min((1500, *MTUS[:at]))]
    sent, reported, arrived = discover(net)
    yield equal("errors 3/4 until a datagram passes", len(reported), len(smaller))
    yield holds("each has the next smaller MTU of the path", reported == smaller)
    yield holds(f"the datagram of {smaller[-1]} B arrives", arrived and sent == len(smaller) + 1)
    old = chain(MTUS)
    forget_mtus(old, routers)
    _, reported, arrived = discover(old)
    law = [1492, 1006, 508]  # of the table in section 7.1 of RFC 1191
    text = f"errors that name no MTU: {law} are tried, and {law[-1]} B arrive"
    yield holds(text, arrived and reported == law)
    dark = chain(MTUS)
    for number in range(routers):
        dark.node(f"r{number}").errors_filtered = True
    sent, reported, arrived = discover(dark)
    yield holds("without errors nothing arrives: a black hole", not arrived and not reported)
    found = dark.path_mtu("left", "right")
    yield equal("which a search by probes finds", found.mtu, min(MTUS), "B")
    yield holds("and names", found.black_hole)


ROW = Row(
    number="C27",
    title="IP: forwarding, fragments, the MTU of a path (RFC 791, 792, 1191)",
    setup="Two hosts with seven routers between them, whose links carry 1500, 1400, 1400, 1006, "
    "1200 and 576 bytes; and 20,000 random prefixes with 100,000 addresses.",
    expected="each router takes 1 from the TTL and drops at 0 with ICMP 11; the route with the "
    "longest prefix, found by trying all lengths; 4,000 bytes over an MTU of 1,500 as 1,480, "
    "1,480 and 1,020 bytes at offsets 0, 185 and 370; one error 3/4 for each link that is smaller "
    "than all before it, and none where errors are filtered. Where they name no MTU, as of "
    "routers before RFC 1191, the sender tries the next plateau of its table.",
    fails="a router forwards by another route, cuts at another place, or does not say its MTU.",
    meaning="A sender that never cuts learns the path's MTU from errors. Where a firewall drops "
    "them its long datagrams vanish, and only probes find out.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
    tested="`tests/internet/test_random.py`, `tests/internet/test_internet.py`",
)
