# SPDX-License-Identifier: Apache-2.0
"""LANs with loops: the spanning tree leaves one way to each station, and heals after a cut."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from verbena.lan import BROADCAST, Frame, Lan, PortCounters, PortState, Wire

CONVERGED_S = 60
"""More than the age of a message and two forward delays of IEEE 802.1D: 20 + 2 * 15 s."""


class Looped:
    """Switches joined at random so that all are connected, with loops; a station on each."""

    def __init__(self, switches: int, loops: int, seed: int) -> None:
        random = Random(seed)
        self.lan = lan = Lan(seed)
        made = [lan.switch(f"s{i}", priority=random.randrange(4) * 4096) for i in range(switches)]
        pairs = [(i, random.randrange(i)) for i in range(1, switches)]
        pairs += [tuple(random.sample(range(switches), 2)) for _ in range(loops)]  # type: ignore[misc]
        self.wires: list[Wire] = []
        for one, other in pairs:
            wire = lan.connect(made[one], made[other], rate_mbps=random.choice((10, 100)))
            assert wire is not None
            self.wires.append(wire)
        self.trees = made
        self.stations = [lan.station(f"h{i}", each) for i, each in enumerate(made)]
        self.seen: Counter[tuple[str, bytes]] = Counter()
        for station in self.stations:
            station.on_frame = lambda data, name=station.name: self.note(name, data)  # type: ignore[misc]

    def note(self, name: str, data: bytes) -> None:
        self.seen[name, Frame.parse(data).payload.rstrip(b"\0")] += 1

    def check_each_frame_once(self) -> None:
        self.seen.clear()
        expected: Counter[tuple[str, bytes]] = Counter()
        for sender in self.stations:
            sender.send_to(BROADCAST, b"all " + sender.name.encode())
            for other in self.stations:
                if other is not sender:
                    sender.send_to(other.mac, f"{sender.name} {other.name}".encode())
                    expected[other.name, f"{sender.name} {other.name}".encode()] += 1
                    expected[other.name, b"all " + sender.name.encode()] += 1
        self.lan.run(1)
        assert self.seen == expected

    def blocked(self) -> int:
        states = [
            tree.state(number + 1) for tree in self.trees for number in range(len(tree.ports))
        ]
        return states.count(PortState.BLOCKING)


@pytest.mark.parametrize(("switches", "loops", "seed"), [(2, 1, 1), (5, 4, 2), (7, 3, 3)])
def test_with_loops_every_frame_arrives_once(switches: int, loops: int, seed: int) -> None:
    looped = Looped(switches, loops, seed)
    looped.lan.run(CONVERGED_S)
    looped.check_each_frame_once()
    assert looped.blocked() == loops


def test_a_ring_of_three_heals_after_a_cut() -> None:
    lan = Lan()
    a, b, c = (lan.switch(name) for name in "abc")
    wires = [lan.connect(*pair) for pair in ((a, b), (b, c), (c, a))]
    x, y = lan.station("x", b), lan.station("y", c)
    seen: list[bytes] = []
    y.on_frame = seen.append
    lan.run(CONVERGED_S)
    x.send_to(BROADCAST, b"1")
    x.send_to(y.mac, b"2")
    lan.run(1)
    assert len(seen) == 2
    for cut in wires:
        assert cut is not None
        cut.cut()
        lan.run(CONVERGED_S)
        x.send_to(BROADCAST, b"3")
        x.send_to(y.mac, b"4")
        lan.run(1)
        assert len(seen) == 4
        cut.mend()
        lan.run(CONVERGED_S)
        seen.clear()
        x.send_to(y.mac, b"5")
        y.send_to(x.mac, b"6")
        x.send_to(BROADCAST, b"7")
        lan.run(1)
        assert len(seen) == 2


def test_without_the_tree_a_ring_storms() -> None:
    """The reason of the tree: one broadcast goes round for ever."""
    lan = Lan()
    a, b, c = (lan.switch(name, spanning_tree=False) for name in "abc")
    for pair in ((a, b), (b, c), (c, a)):
        lan.connect(*pair)
    x, y = lan.station("x", a), lan.station("y", b)
    seen: list[bytes] = []
    y.on_frame = seen.append
    x.send_to(BROADCAST, b"")
    lan.run(0.001)
    assert len(seen) > 50


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("rate_mbps", [10, 1000])
def test_frames_on_a_cable_are_sent_given_up_or_wait(seed: int, rate_mbps: float) -> None:
    """At 1 Gb/s 2000 m are too long: there are late collisions and frames that cross."""
    random = Random(seed)
    lan = Lan(seed)
    cable = lan.cable(2000, rate_mbps=rate_mbps, too_long=True)
    stations = [lan.station(f"h{i}", cable, at_m=100 * i) for i in range(20)]
    for station in stations:
        for _ in range(20):
            station.send_to(random.choice(stations).mac, bytes(random.randrange(1500)))
    for _ in range(40):
        lan.run(0.2 / rate_mbps)
        total = sum((each.counters for each in stations), PortCounters())
        waiting = sum(len(each.port.queue) for each in stations)
        lost = total.excessive + total.late + total.crossed + total.dropped
        assert total.queued == total.sent + lost + waiting == 400
        assert total.received <= total.sent
    lan.run(20)
    total = sum((each.counters for each in stations), PortCounters())
    assert not any(each.port.queue for each in stations)
    assert total.sent + total.excessive + total.late + total.crossed == 400
    assert (total.late > 0) == (rate_mbps == 1000)
