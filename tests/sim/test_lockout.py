# SPDX-License-Identifier: Apache-2.0
"""A result notes where senders in phase may have kept others out of a queue that dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verbena.sim import Scenario
from verbena.sim.result import ScenarioResult

FABRIC = {"topology": "one_switch", "hosts": 5, "rate": "100GbE", "delay": "1 us"}
INCAST = {"pattern": "incast", "senders": 4, "size": "64 MiB", "within": "20 us"}
SETTINGS: dict[str, Any] = {
    "duration": "1 ms", "seed": 1, "fabric": FABRIC, "switch": {"buffer": "256 KiB"},
    "traffic": [INCAST],
}  # fmt: skip
MARK = {"low": "5 KiB", "high": "200 KiB", "most": 0.01}


def run(changes: dict[str, Any]) -> ScenarioResult:
    return Scenario.make(SETTINGS).changed(changes).run()


def notes(result: ScenarioResult) -> list[str]:
    return [note for note in result.notes if "keep others out" in note]


def test_a_buffer_without_room_for_a_packet_is_noted() -> None:
    result = run({"switch.buffer": "4 KiB", "duration": "10 us"})
    assert notes(result) == []
    (note,) = [note for note in result.notes if "switch.buffer" in note]
    assert "is 4 KiB, and no packet of 4 KiB fits" in note
    fits = run({"switch.buffer": "5 KiB", "duration": "10 us"})
    assert not [note for note in fits.notes if "switch.buffer" in note]


def shares(result: ScenarioResult) -> Any:
    done = result.flows["done"].astype(float)
    return np.sort(done / done.sum())


@pytest.mark.parametrize("transport", ["rc", "uc", "ud"])
def test_a_queue_that_one_sender_keeps_is_named(transport: str) -> None:
    result = run({"traffic.0.transport": transport})
    assert shares(result)[-1] > 0.9
    (note,) = notes(result)
    count = result.dropped["full"]
    assert note.startswith(
        f"s0-h4 dropped {count} packets of a full queue, and 4 flows of queue pairs came there by "
        "links of one rate: "
    )
    assert "congestion control that marks before the queue is full, pauses, credits" in note
    assert f"note: {note}" in result.summary()


@pytest.mark.parametrize(
    "changes",
    [
        {"switch": {"flow": "credits", "room": "128 KiB"}},
        {"switch": {"flow": "pauses", "buffer": "1 MiB", "stop": "64 KiB", "go": "48 KiB",
                    "spare": "96 KiB"}},
        {"switch": {"buffer": "4 MiB", "mark": MARK}, "congestion": {"kind": "dcqcn"}},
    ],
)  # fmt: skip
def test_what_the_note_advises_shares_the_link(changes: dict[str, Any]) -> None:
    result = run({**changes, "duration": "5 ms"})
    assert not result.dropped
    assert not notes(result)
    assert shares(result) == pytest.approx(0.25, abs=0.01)


def test_tcp_has_a_jitter_and_no_note() -> None:
    result = run({"traffic.0.transport": "tcp"})
    assert result.dropped
    assert not notes(result)


def test_links_of_different_rates_are_not_in_phase() -> None:
    slower = [{"between": f"h{n}-s0", "rate": f"{90 - 10 * n} Gb/s"} for n in range(3)]
    result = run({"link": slower})
    assert result.dropped
    assert not notes(result)


def test_the_flows_counted_are_those_of_one_rate() -> None:
    (note,) = notes(run({"link": [{"between": "h0-s0", "rate": "90 Gb/s"}]}))
    assert "and 3 flows of queue pairs" in note


def test_flows_of_one_host_take_turns_and_have_no_note() -> None:
    flows = {"pattern": "flows", "from": ["h0", "h0"], "to": "h4", "size": "64 MiB"}
    result = run({"traffic": [flows], "link": [{"between": "s0-h4", "rate": "50 Gb/s"}]})
    assert result.dropped
    assert not notes(result)


def test_flows_that_were_not_there_together_have_no_note() -> None:
    """Each of the two meets TCP alone."""
    flow = {"pattern": "flows", "to": "h4", "size": "1 MiB", "transport": "uc"}
    second = {"from": "h1", "name": "second", "start": "2 ms"}
    tcp = {"pattern": "flows", "from": ["h2", "h3"], "to": "h4", "size": "64 MiB"}
    traffic = [flow | {"from": "h0"}, flow | second, tcp | {"transport": "tcp"}]
    changes: dict[str, Any] = {"traffic": traffic, "duration": "4 ms", "tcp.least_rto": "10 us"}
    result = run(changes)
    assert (result.flows["lost"][:2] > 0).all()
    assert not notes(result)
    assert notes(run({**changes, "traffic.second.start": "0 ps"}))


def test_a_class_that_loses_nothing_has_no_note() -> None:
    """TCP fills the lossy class of the same link."""
    pauses = {"name": "lossless", "flow": "pauses", "stop": "64 KiB", "go": "48 KiB",
              "spare": "96 KiB"}  # fmt: skip
    switch = {"buffer": "1 MiB", "class": [pauses, {"name": "lossy", "flow": "lossy"}]}
    tcp = {"pattern": "flows", "from": ["h2", "h3"], "to": "h4", "size": "64 MiB", "class": "lossy"}
    incast = INCAST | {"senders": 2, "receiver": "h4"}
    settings = {"switch": switch, "traffic": [incast, tcp | {"transport": "tcp"}]}
    result = run(settings)
    assert result.dropped
    assert not notes(result)
    assert notes(run({**settings, "traffic.incast.class": "lossy"}))


def test_of_several_ways_the_last_link_is_known() -> None:
    fabric = {"topology": "fat_tree", "k": 4, "rate": "100GbE", "delay": "1 us"}
    flows = {
        "pattern": "flows",
        "from": [f"h{n}" for n in range(2, 16)],
        "to": "h0",
        "size": "64 MiB",
    }
    result = run({"fabric": fabric, "routing": {"engine": "ecmp"}, "traffic": [flows]})
    (note,) = notes(result)
    assert note.startswith("e0-h0 dropped ")
