# SPDX-License-Identifier: Apache-2.0
"""A scenario notes, before it runs, that RC and UC take overtaken packets for lost ones."""

from __future__ import annotations

import pytest

from verbena.sim import Scenario

FAT_TREE = {"topology": "fat_tree", "k": 4, "rate": "100GbE", "delay": "1 us"}
FLOW = {"pattern": "flows", "from": "h0", "to": "h8", "size": "1 MiB"}


def scenario(routing: dict[str, object], **flow: object) -> Scenario:
    return Scenario.make({"fabric": FAT_TREE, "routing": routing, "traffic": [FLOW | flow]})


def notes(routing: dict[str, object], **flow: object) -> list[str]:
    return [note for note in scenario(routing, **flow).notes if "overtake" in note]


SPRAYED: dict[str, object] = {"engine": "ecmp", "balance": "packet"}


@pytest.mark.parametrize("operation", ["write", "read"])
def test_packets_of_rc_that_take_all_ways_are_noted(operation: str) -> None:
    (note,) = notes(SPRAYED, operation=operation)
    assert note == (
        'with balance = "packet" packets of one flow overtake each other: RC takes an overtaken '
        "packet for a lost one and sends all from it on again (go-back-N); "
        '"flow" in place of "packet" keeps the order, and UD needs none'
    )


def test_what_the_note_says_is_so() -> None:
    """Nothing is dropped, and yet RC sends packets again, and UC loses some."""
    uneven = [{"between": "s0-m1", "delay": "4 us"}]
    fabric = {"topology": "diamond", "hosts": 1, "paths": 2, "rate": "100GbE", "delay": "1 us"}
    traffic = [{"pattern": "flows", "from": "h0", "to": "h1", "size": "256 KiB"}]
    settings = {"fabric": fabric, "link": uneven, "routing": SPRAYED, "traffic": traffic}
    for transport, column in (("rc", "retransmissions"), ("uc", "lost")):
        made = Scenario.make(settings).changed({"traffic.0.transport": transport})
        assert any("overtake" in note for note in made.notes)
        result = made.run()
        assert not result.dropped
        assert result.flows[column][0] > 0
    by_flow = Scenario.make(settings).changed({"routing.balance": "flow"})
    assert not by_flow.notes
    assert by_flow.run().flows["retransmissions"][0] == 0


def test_uc_loses_the_message() -> None:
    (note,) = notes(SPRAYED, transport="uc")
    assert "UC takes an overtaken packet for a lost one, and its message is lost" in note
    assert "RC" not in note


@pytest.mark.parametrize(
    ("routing", "flow"),
    [
        ({"engine": "ecmp", "balance": "flow"}, {}),
        (SPRAYED, {"transport": "ud"}),
        (SPRAYED, {"transport": "tcp"}),
        (SPRAYED, {"to": "h1"}),  # behind one switch: there is one way
        (SPRAYED, {"size": 4096}),  # a packet
        (SPRAYED, {"message": 4096}),  # one packet after the other
    ],
)
def test_what_keeps_its_order_is_not(routing: dict[str, object], flow: dict[str, object]) -> None:
    assert not notes(routing, **flow)


def test_a_switch_that_alone_balances_by_packet_counts() -> None:
    """Its own packets are spread; those of another switch are not."""
    for source, noted in (("h0", True), ("h4", False)):
        made = scenario({"engine": "ecmp"}, **{"from": source}).changed(
            {"switch": {"own": [{"of": "e0", "balance": "packet"}]}}
        )
        assert any("overtake" in note for note in made.notes) == noted


@pytest.mark.parametrize("per", ["packet", "flow"])
def test_detours_of_packets_count(per: str) -> None:
    fabric = {"topology": "dragonfly", "a": 4, "h": 2, "p": 2, "rate": "100GbE"}
    traffic = [{"pattern": "shift", "by": 8, "size": "64 KiB"}]
    routing = {"engine": "valiant", "per": per}
    made = Scenario.make({"fabric": fabric, "routing": routing, "traffic": traffic})
    found = [note for note in made.notes if note.startswith('with per = "packet" packets')]
    assert bool(found) == (per == "packet")
