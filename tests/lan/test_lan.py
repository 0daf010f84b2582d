# SPDX-License-Identifier: Apache-2.0
"""Frames from station to station: over a cable, a hub, a switch; and what a LAN refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from verbena.lan import BROADCAST, Csma, Frame, Lan, LanError, Station, mac_address

US = 10**6


def noted(lan: Lan, *stations: Station) -> list[tuple[str, int, bytes]]:
    """What arrives from now on: at which station, when, which payload without padding."""
    seen: list[tuple[str, int, bytes]] = []

    def note(station: Station) -> Callable[[bytes], None]:
        return lambda data: seen.append(
            (station.name, lan.now, Frame.parse(data).payload.rstrip(b"\0"))
        )

    for station in stations:
        station.on_frame = note(station)
    return seen


def test_a_frame_arrives_when_its_last_bit_has_come_along_the_cable() -> None:
    lan = Lan()
    cable = lan.cable(1000)
    a, b, c = (lan.station(name, cable, at_m=at) for name, at in (("a", 0), ("b", 400), ("c", 900)))
    seen = noted(lan, a, b, c)
    a.send_to(b.mac, b"to b")
    lan.run(0.001)
    a.send_to(BROADCAST, b"to all")
    lan.run(0.001)
    bits = (64 + 8 * 64) * 100_000
    assert seen == [
        ("b", bits + 2 * US, b"to b"),
        ("b", 1000 * US + bits + 2 * US, b"to all"),
        ("c", 1000 * US + bits + int(4.5 * US), b"to all"),
    ]


def test_two_that_begin_at_once_collide_and_both_arrive_later() -> None:
    lan = Lan(seed=5)
    cable = lan.cable(500)
    a, b = lan.station("a", cable, at_m=0), lan.station("b", cable, at_m=500)
    seen = noted(lan, a, b)
    a.send_to(b.mac, b"from a")
    b.send_to(a.mac, b"from b")
    lan.run(0.1)
    assert sorted(payload for _, _, payload in seen) == [b"from a", b"from b"]
    assert a.counters.collisions == b.counters.collisions == cable.collisions > 0
    assert a.counters.sent == b.counters.sent == 1


def test_a_station_that_hears_another_one_defers() -> None:
    """It begins the gap after it heard the end."""
    lan = Lan()
    cable = lan.cable(200)
    a, b = lan.station("a", cable, at_m=0), lan.station("b", cable, at_m=200)
    seen = noted(lan, a, b)
    a.send_to(b.mac, b"x" * 1500)
    lan.run(2e-6)  # a's signal takes 1 us
    b.send_to(a.mac, b"y")
    lan.run(0.01)
    first, second = (64 + 8 * 1518) * 100_000, (96 + 64 + 8 * 64) * 100_000
    assert [at for _, at, _ in seen] == [first + US, first + US + second + US]
    assert b.counters.deferred == 1
    assert cable.collisions == 0
    assert b.counters.waited_ps == first + US + 96 * 100_000 - 2 * US


def test_a_hub_repeats_to_all_others() -> None:
    lan = Lan()
    hub = lan.hub(delay_ps=300_000)
    a, b, c = (lan.station(name, hub, length_m=100) for name in "abc")
    c.promiscuous = True
    seen = noted(lan, a, b, c)
    a.send_to(b.mac, b"x")
    lan.run(0.001)
    at = (64 + 8 * 64) * 100_000 + US + 300_000
    assert seen == [("b", at, b"x"), ("c", at, b"x")]


def test_a_switch_floods_until_it_has_learnt() -> None:
    lan = Lan()
    switch = lan.switch("s", spanning_tree=False)
    a, b, c = (lan.station(name, switch) for name in "abc")
    seen = noted(lan, a, b, c)

    def sent(sender: Station, to: Station) -> tuple[int, int, int]:
        sender.send_to(to.mac, sender.name.encode())
        lan.run(0.001)
        return switch.flooded, switch.forwarded, c.counters.filtered

    assert sent(a, b) == (1, 0, 1)  # c's adapter gets a copy, and it is not for c
    assert sent(b, a) == (1, 1, 1)
    assert sent(a, b) == (1, 2, 1)
    lan.run(300)
    assert sent(a, b) == (2, 2, 2)  # forgotten after 300 s
    assert [(name, payload) for name, _, payload in seen] == [
        ("b", b"a"),
        ("a", b"b"),
        ("b", b"a"),
        ("b", b"a"),
    ]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"x" * 13, "a frame of 13 bytes is too short: it begins with 14 bytes"),
        (b"x" * 1515, "a frame of 1515 bytes is too long: Ethernet carries 1514"),
    ],
)
def test_a_frame_that_ethernet_does_not_carry(frame: bytes, says: str) -> None:
    lan = Lan()
    a = lan.station("a", lan.cable(10), at_m=0)
    with pytest.raises(LanError, match=says):
        a.send(frame)
    assert a.counters.queued == 0


def test_what_a_lan_refuses() -> None:
    lan = Lan()
    cable, hub, switch = lan.cable(100), lan.hub(), lan.switch("s")
    a = lan.station("a", cable, at_m=0)
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: lan.cable(5121), "a cable of 5121 m is too long at 10 Mb/s: .* 512 bit|512; at"),
        (lambda: lan.cable(-1), "cannot be -1 m long"),
        (lambda: lan.cable(10, rate_mbps=0), "a rate of 0 Mb/s is not between"),
        (lambda: lan.station("a", hub), "there is a a already"),
        (lambda: lan.station("s", hub), "there is a s already"),
        (lambda: lan.switch("a"), "there is a a already"),
        (lambda: lan.station("b", hub, mac=a.mac), "a has the MAC address .* already"),
        (lambda: lan.station("b", hub, mac="01:00:00:00:00:01"), "is the address of a group"),
        (lambda: lan.station("b", hub, mac="2:0:0:0:0:1"), "is no MAC address"),
        (lambda: lan.station("b", cable), "say where on the cable"),
        (lambda: lan.station("b", hub, at_m=1), "at_m is a place on a cable"),
        (lambda: lan.station("b", cable, at_m=101), "the cable ends at 100 m"),
        (lambda: lan.connect(switch, switch), "s cannot be connected to itself"),
        (lambda: lan.hub(delay_ps=-1), "a hub's delay cannot be"),
        (lambda: lan.station("b", hub, length_m=6000), "is too long at 10 Mb/s"),
        (lambda: Frame(a.mac, a.mac, 1 << 16, b"").pack(), "an EtherType has 16 bits"),
        (lambda: mac_address(b"12345"), "has 6 bytes, and not 5"),
        (lambda: Csma(jam=0, fragment=0), "a collision takes time"),
        (lambda: Csma(tries=0), "tries are 1 to 65535"),
        (lambda: switch.state(1), "s has ports 1 to 0"),
    ]
    for call, says in refused:
        with pytest.raises(LanError, match=says):
            call()
    assert set(lan.stations) == {"a"}
    a.send_to(BROADCAST, b"")
    lan.run(0)
    with pytest.raises(LanError, match="attach all ports before the first frame"):
        lan.station("b", cable, at_m=1)


def test_the_length_that_a_slot_permits() -> None:
    """512 bit times there and back at 2e8 m/s; 4096 for half-duplex gigabit."""
    assert [Csma(rate_mbps=rate).longest_m for rate in (10, 100, 1000)] == [5120, 512, 51.2]
    assert Csma(rate_mbps=1000, slot=4096).longest_m == 409.6
