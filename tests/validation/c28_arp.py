# SPDX-License-Identifier: Apache-2.0
"""C28: what ARP costs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.internet.test_arp import PORT, SILENT, ethernet, lan, received
from tests.validation.row import Confidence, Figure, Row, Scope, between, equal

BITS = 84 * 8  # of the smallest frame on the line, with preamble and gap


def requests(hosts: int) -> tuple[int, set[int]]:
    """All hosts send to each other, one after the other: how many requests there were, and the
    sizes of their frames without check sequence."""
    net = lan(hosts)
    seen: list[bytes] = []
    net.links["10.0.0.0/24"].taps.append(seen.append)
    for one in range(hosts):
        for two in range(hosts):
            assert one == two or net.ping(f"h{one}", f"h{two}")[0].ok
    asked = [frame for frame in seen if frame[:6] == b"\xff" * 6]
    return len(asked), {len(frame) for frame in asked}


def at_once(hosts: int) -> int:
    """The requests when all hosts send to all others in the same instant."""
    net = lan(hosts)
    for one in range(hosts):
        socket = net.node(f"h{one}").udp.open(lambda _: None)
        for two in range(hosts):
            if one != two:
                socket.send(b"", net.node(f"h{two}").address, PORT)
    net.run(3)
    return sum(ethernet(net, f"h{number}").arp.requests for number in range(hosts))


def measure(scope: Scope) -> Iterator[Figure]:
    for delay_us in scope.pick((100.0,), (1.0, 100.0, 10_000.0)):
        net = lan(delay_us=delay_us, mbps=100.0)
        first, second = net.ping("h0", "h1", count=2, size=18)
        # a frame crosses two lines: to the switch of the network, and from it
        law = 4 * (delay_us + BITS / 100)
        text = f"{delay_us:g} us for a line: a round trip"
        yield equal(text, second.rtt_ps / 1e6, law, "us")
        yield equal(
            "the first packet takes more by", (first.rtt_ps - second.rtt_ps) / 1e6, law, "us"
        )
    for hosts in scope.pick((5,), (2, 5, 20)):
        asked, sizes = requests(hosts)
        pairs = hosts * (hosts - 1)
        yield equal(f"{hosts} hosts in turn to each other: requests", asked, pairs / 2)
        yield between("at once", at_once(hosts), pairs / 2, pairs)
        yield equal("a request's frame, padded, without check sequence", max(sizes), 60, "B")
    net = lan()
    arrivals = received(net, "h1")
    socket = net.node("h0").udp.open(lambda _: None)
    for payload in (b"one", b"two", b"three"):
        socket.send(payload, net.node("h1").address, PORT)
    net.run(1)
    yield equal("of three datagrams to an unknown address, arrive", len(arrivals), 1)
    errors: list[float] = []
    socket.on_error = lambda message, _, __: errors.append(net.now_s)
    start = net.now_s
    socket.send(b"lost", SILENT, PORT)
    net.run(10)
    yield equal("to a silent one: errors", len(errors), 1)
    yield between("after", errors[0] - start, 2.9, 3.1, "s")


ROW = Row(
    number="C28",
    title="ARP (RFC 826, RFC 1122 section 2.3.2)",
    setup="Hosts on one Ethernet of 100 Mb/s; an echo of 18 bytes has the size of the smallest "
    "frame, as a request and its answer have.",
    expected="the first packet waits one round trip; N hosts send N (N - 1) / 2 requests if they "
    "learn from requests to them, and up to N (N - 1) if all ask at once; a request of 42 bytes "
    "takes the smallest frame, 84 bytes of the line. The newest of several datagrams to an unknown "
    "address is kept, and after three requests a second apart the sender hears that nobody "
    "answers.",
    fails="a host asks twice, does not learn from a request, or keeps nothing.",
    meaning="Each request interrupts every host of the network, which is what limits the size of "
    "one: 1,000 hosts that talk to each other ask half a million times.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
    tested="`tests/internet/test_arp.py`",
)
