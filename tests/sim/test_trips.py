# SPDX-License-Identifier: Apache-2.0
"""Round trips of routes, and the note of a timeout that is shorter."""

from __future__ import annotations

import numpy as np
import pytest

from verbena import fabrics
from verbena.sim import Scenario
from verbena.sim.trips import round_trips

TEXT = """\
[fabric]
topology = "one_switch"
hosts = 3
rate = "100GbE"
delay = "5 ms"

[adapter]
timeout = 8

[[traffic]]
pattern = "incast"
size = "64 KiB"
"""


def test_a_round_trip_is_delays_and_packets_sent_again_at_each_switch() -> None:
    routes = fabrics.route(fabrics.chain(3, rate="100GbE", delay_ns=1000))
    trips = round_trips(routes, [0, 0], [1, 2], 4096)
    packet = 4096 * 80
    assert trips.tolist() == [6e6 + 3 * packet, 8e6 + 4 * packet]
    assert round_trips(routes, [0], [2], 4096, cut_through=True).tolist() == [8e6 + packet]


def test_the_first_answer_comes_after_the_round_trip_and_soon() -> None:
    scenario = Scenario.parse(
        TEXT.replace("timeout = 8", "timeout = 14").replace("64 KiB", "1 KiB")
    )
    trips = round_trips(scenario.routes, [0, 1], [2, 2], 1024)
    times = scenario.run().durations()
    assert (times >= trips).all()
    assert (times < trips * 1.01).all()


@pytest.mark.parametrize("timeout", range(6, 16))
def test_the_note_says_what_the_run_does(timeout: int) -> None:
    scenario = Scenario.parse(TEXT).changed({"adapter.timeout": timeout})
    result = scenario.run()
    note = " ".join(scenario.notes)
    assert (set(result.flows["state"]) == {3}) == ("so its flows fail" in note)
    again = int(result.flows["retransmissions"].sum()) > 0
    assert again == ("so packets are sent again" in note or "so its flows fail" in note)
    if again:
        assert "the round trip of h0 and h2 is 20 ms or more" in note
        assert note.endswith("adapter.timeout = 13 is longer")
        assert f"note: {note}" in result.summary()


def test_only_rc_is_asked() -> None:
    for line in ('transport = "uc"', 'transport = "tcp"'):
        assert Scenario.parse(TEXT + line + "\n").notes == ()


def test_the_longest_way_is_named() -> None:
    far = TEXT.replace('delay = "5 ms"\n', 'delay = "1 us"\n[[link]]\nbetween = "h1-s0"\n'
                       'length_m = 500000\n')  # fmt: skip
    (note,) = Scenario.parse(far).notes
    assert "the round trip of h1 and h2 is 5 ms or more" in note
    assert np.isfinite(Scenario.parse(far).run().goodput())
