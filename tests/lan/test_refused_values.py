# SPDX-License-Identifier: Apache-2.0
"""What a LAN refuses, and what a station drops beyond its queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from verbena.lan import Lan, LanError
from verbena.lan.spanning_tree import SpanningTree, TreeTimes


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda lan, other: lan.connect(lan.switch("s"), other.switch("t")), "t is no switch of"),
        (lambda lan, other: lan.connect(other.switch("t"), lan.switch("s")), "t is no switch of"),
        (lambda lan, other: lan.connect(lan.hub(), lan.cable(9), at_m=1), "put a switch between"),
        (lambda lan, other: lan.connect(other.hub(), lan.switch("s")), "make it with lan.hub"),
        (lambda lan, other: lan.connect(lan.hub(), other.switch("t")), "t is no switch of"),
        (lambda lan, other: lan.station("x", other.hub()), "make it with lan.hub"),
        (lambda lan, other: lan.station("x", other.cable(9), at_m=0), "make it with lan.cable"),
        (lambda lan, other: lan.station("x", other.switch("t")), "t is no switch of"),
        (lambda lan, other: lan.station("x", lan.cable(9), at_m=0, length_m=5), "say at_m"),
        (lambda lan, other: lan.station("x", lan.hub(), rate_mbps=100), "a hub has one rate, 10"),
        (lambda lan, other: lan.connect(lan.switch("s"), lan.hub(), rate_mbps=1), "one rate, 10"),
        (lambda lan, other: lan.connect(lan.switch("s"), lan.switch("t"), at_m=1), "length_m"),
        (lambda lan, other: lan.station("x", lan.hub(), mac=bytes(6)), "the address of nobody"),
        (lambda lan, other: lan.station("x", lan.hub(), queue=0), "a queue of 0 frames"),
        (lambda lan, other: lan.connect(lan.switch("s"), lan.hub(), queue=-1), "of -1 frames"),
    ],
)
def test_what_cannot_be_connected_is_refused(call: Callable[[Lan, Lan], Any], says: str) -> None:
    lan, other = Lan(), Lan()
    with pytest.raises(LanError, match=says):
        call(lan, other)
    assert not lan.wires
    assert not lan.stations


@pytest.mark.parametrize("medium", ["cable", "hub", "switch"])
def test_a_station_drops_what_its_queue_has_no_room_for(medium: str) -> None:
    lan = Lan()
    made: dict[str, Callable[[], Any]] = {
        "cable": lambda: lan.cable(100),
        "hub": lan.hub,
        "switch": lambda: lan.switch("s", spanning_tree=False),
    }
    on, place = made[medium](), {"at_m": 1} if medium == "cable" else {}
    one, two = lan.station("one", on, queue=7, **place), lan.station("two", on, **place)
    for _ in range(10):
        one.send_to(two.mac, b"frame")
    lan.run(1)
    assert (two.counters.received, one.counters.dropped) == (7, 3)


@pytest.mark.parametrize("medium_first", [False, True])
def test_a_switch_and_a_medium_are_connected_in_either_order(medium_first: bool) -> None:
    lan = Lan()
    hub, cable, switch = lan.hub(), lan.cable(100), lan.switch("s", spanning_tree=False)
    for medium, place in ((hub, {"length_m": 5}), (cable, {"at_m": 50})):
        parts = (medium, switch) if medium_first else (switch, medium)
        assert lan.connect(*parts, **place) is None
    one, two = lan.station("one", hub), lan.station("two", cable, at_m=1)
    one.send_to(two.mac, b"frame")
    lan.run(1)
    assert two.counters.received == 1


@pytest.mark.parametrize("times", [(2.0, 20.0, 10.0), (10.0, 20.0, 15.0)])
def test_times_that_could_open_a_loop_are_refused(times: tuple[float, float, float]) -> None:
    """IEEE 802.1D-1998, 8.10.2. Another root's times are used as they come."""
    with pytest.raises(LanError, match=r"max_age is 20\.0 s"):
        SpanningTree(bytes(8), lambda port, message: None, TreeTimes(*times))


def test_a_run_beyond_the_end_of_time_is_refused() -> None:
    lan = Lan()
    with pytest.raises(LanError, match=r"time ends at 2\^63 ps, 9223372 s: 1e\+30 s more are too"):
        lan.run(1e30)
    lan.run(9e6)
    with pytest.raises(LanError, match=r"time ends at 2\^63 ps"):
        lan.run(9e6)
