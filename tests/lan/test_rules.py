# SPDX-License-Identifier: Apache-2.0
"""Rules of bridges that show only after a change of the topology, and in what order LANs grow."""

from __future__ import annotations

import pytest

from verbena.lan import Lan, LanError, TreeTimes
from verbena.lan.mac_table import MacTable

S = 10**12


def test_addresses_that_were_too_old_during_a_change_are_not_known_after_it() -> None:
    """802.1D-1998, 7.9.2: they are removed while the topology changes, not only looked over."""
    table = MacTable()
    table.learn(b"old", 1, 0)
    table.learn(b"new", 1, 25 * S)
    table.hurry(15 * S, 20 * S)
    table.hurry(15 * S, 30 * S)
    table.hurry(None, 35 * S)
    assert table.find(b"old", 40 * S) is None
    assert table.find(b"new", 40 * S) == 1


def test_a_station_that_moved_during_a_change_is_found_after_it() -> None:
    """Its old place is behind a switch that lost its link; nobody spoke to it meanwhile."""
    lan = Lan()
    names = ["left", "top", "right"]
    left, top, right = (lan.switch(name) for name in names)
    lan.connect(left, top)
    lan.connect(top, right)
    direct = lan.connect(left, right)
    assert direct is not None
    here, there = lan.station("here", left), lan.station("there", right)
    got: list[bytes] = []
    there.on_frame = got.append
    lan.run(60)
    there.send_to(here.mac, b"hello")
    lan.run(1)
    direct.cut()
    lan.run(100)
    here.send_to(there.mac, b"still there?")
    lan.run(1)
    assert len(got) == 1


@pytest.mark.parametrize("order", ["switch first", "station first"])
def test_a_switch_may_be_connected_to_a_hub_before_its_stations(order: str) -> None:
    lan = Lan()
    switch, hub = lan.switch("switch"), lan.hub()
    if order == "switch first":
        lan.connect(switch, hub)
        one = lan.station("one", hub)
    else:
        one = lan.station("one", hub)
        lan.connect(switch, hub)
    two = lan.station("two", switch)
    got: list[bytes] = []
    two.on_frame = got.append
    lan.run(60)
    one.send_to(two.mac, b"hello")
    lan.run(1)
    assert len(got) == 1
    with pytest.raises(LanError, match="before the first frame"):
        lan.station("late", hub)


@pytest.mark.parametrize("times", [(0.0, 20.0, 15.0), (2.0, 300.0, 15.0), (2.0, 20.0, -1.0)])
def test_times_that_no_bridge_can_say_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(LanError, match="255"):
        TreeTimes(*times)
