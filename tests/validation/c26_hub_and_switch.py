# SPDX-License-Identifier: Apache-2.0
"""C26: the same hosts on a hub and on a switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.validation.row import Confidence, Figure, Row, Scope, between, equal, near
from verbena.lan import BROADCAST, Lan, LearningSwitch, Station

RATE = 10.0  # Mb/s
PAYLOAD = 1500
LINE = PAYLOAD + 18 + 20  # bytes of a frame on the line, with preamble and gap
HOSTS = 8


def on_a_hub(seed: int) -> tuple[Lan, list[Station], Station]:
    """Stations by 10 m each to a hub, and one more that listens."""
    lan = Lan(seed)
    hub = lan.hub(rate_mbps=RATE)
    stations = [lan.station(f"h{i}", hub) for i in range(HOSTS)]
    listener = lan.station("listener", hub)
    listener.promiscuous = True
    return lan, stations, listener


def on_a_switch(hosts: int) -> tuple[Lan, list[Station], LearningSwitch]:
    """Stations by 10 m each to a switch that has learnt them all."""
    lan = Lan()
    switch = lan.switch("s", spanning_tree=False)
    stations = [lan.station(f"h{i}", switch, rate_mbps=RATE) for i in range(hosts)]
    for each in stations:
        each.send_to(BROADCAST, b"")
    lan.run(0.01)
    return lan, stations, switch


@dataclass
class Transfer:
    """Frames that arrived, and in Mb/s what that is of all flows and of each until its last frame;
    preamble and gap are counted."""

    arrived: int
    total: float
    each: dict[tuple[str, str], float]


def transfer(lan: Lan, flows: list[tuple[Station, Station]], frames: int) -> Transfer:
    """Sends so many full frames in each flow and waits for the last one."""
    names = {(one.mac, to.mac): (one.name, to.name) for one, to in flows}
    start, ends = lan.now, dict[tuple[str, str], int]()
    counts: Counter[tuple[str, str]] = Counter()

    def note(data: bytes) -> None:
        flow = names[data[6:12], data[:6]]
        counts[flow] += 1
        ends[flow] = lan.now

    for one, to in flows:
        to.on_frame = note
        for _ in range(frames):
            one.send_to(to.mac, bytes(PAYLOAD))
    lan.run(frames * len(flows) * LINE * 8 / RATE / 1e6 * 4)
    bits = LINE * 8 * 1e6
    each = {flow: counts[flow] * bits / (end - start) for flow, end in ends.items()}
    return Transfer(counts.total(), counts.total() * bits / (max(ends.values()) - start), each)


def copies(hosts: int) -> tuple[int, int, int]:
    """Frames that arrived where they were not meant to: the first one, one that is known, and one
    after 300 s of silence."""
    lan = Lan()
    switch = lan.switch("s", spanning_tree=False)
    stations = [lan.station(f"h{i}", switch, rate_mbps=RATE) for i in range(hosts)]

    def useless(sender: int, receiver: int) -> int:
        before = sum(each.counters.filtered for each in stations)
        stations[sender].send_to(stations[receiver].mac, b"")
        lan.run(0.001)
        return sum(each.counters.filtered for each in stations) - before

    first = useless(0, 1)
    useless(1, 0)
    known = useless(0, 1)
    lan.run(300)
    return first, known, useless(0, 1)


def measure(scope: Scope) -> Iterator[Figure]:
    frames = scope.pick(100, 400)
    lan, hosts, listener = on_a_hub(scope.seed)
    ring = [(hosts[i], hosts[(i + 1) % HOSTS]) for i in range(HOSTS)]
    got = transfer(lan, ring, frames)
    text = f"hub, {HOSTS} hosts to the next: all of them"
    yield between(text, got.total, 0.9 * RATE, RATE, "Mb/s")
    heard = listener.counters.received
    yield equal("of all frames, one who listens hears", heard / got.arrived, 1)
    lan, hosts, switch = on_a_switch(HOSTS)
    ring = [(hosts[i], hosts[(i + 1) % HOSTS]) for i in range(HOSTS)]
    total, off = transfer(lan, ring, frames).total, scope.pick(0.02, 0.005)
    yield near("switch: all of them", total, HOSTS * RATE, off, "Mb/s")
    yield equal("of these, by more than one port", switch.flooded - HOSTS, 0)
    lan, hosts, _ = on_a_switch(3)
    both = [(hosts[0], hosts[2]), (hosts[1], hosts[2])]
    for flow, rate in transfer(lan, both, frames).each.items():
        text = f"switch, two to one: {flow[0]} to {flow[1]}"
        yield near(text, rate, RATE / 2, off, "Mb/s")
    first, known, forgotten = copies(HOSTS)
    yield equal("useless copies of a first frame", first, HOSTS - 2)
    yield equal("of one to a known address", known, 0)
    yield equal("300 s after the address was last heard", forgotten, HOSTS - 2)


ROW = Row(
    number="C26",
    title="Hub and switch (IEEE 802.3 and 802.1D)",
    setup="Eight hosts at 10 Mb/s, each sends 400 full frames to the next one; rates count "
    "preamble and gap. Then two hosts send to a third by the switch.",
    expected="on a hub all of them share one rate C, and everybody hears every frame; a switch "
    "gives C to each host both ways, and C/2 to each of two that send to one. It floods the first "
    "frame to N - 2 hosts that do not want it, and forgets an address after 300 s.",
    fails="a hub lets two hosts send at once, or a switch lets hosts wait that have a port each.",
    meaning="A switch is N cables that do not disturb each other; it needs no configuration, only "
    "one frame of each host.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
)
