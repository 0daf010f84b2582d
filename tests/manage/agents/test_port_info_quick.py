# SPDX-License-Identifier: Apache-2.0
"""The quick way to carry out a Set of PortInfo does what the rules of every Set do."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from verbena.manage.agents import SWITCH, NodePort, PortEvent, Subnet
from verbena.manage.agents.port_info_quick import quick_port_set
from verbena.manage.agents.port_info_rules import write_port_info
from verbena.manage.codes import PortState
from verbena.manage.mad import DirectedSmp
from verbena.manage.smp_attributes import PortInfo

STATES = (PortState.DOWN, PortState.INIT, PortState.ARMED, PortState.ACTIVE)
DRAWS = 4000
# Bytes that a draw changes; others hold what is read only, or reserved.
SETTABLE = (
    *(*range(20), *range(26, 28), 29, 32, 33, 34, 35, 36, 38, 41, 42, 43, *range(44, 50)),
    *(51, 53, 56, 63),
)
USUAL = (*range(20), 26, 27, 32, 34, 36, 38, 42, 43, 51, 53)


def pair(kind: str) -> tuple[Subnet, NodePort]:
    """A subnet with a link, and the end of it that is set."""
    subnet = Subnet()
    subnet.add_switch("s", ports=2, profile=replace(SWITCH, enhanced_port_0=True))
    subnet.add_adapter("h")
    subnet.connect("s", 1, "h", 1)
    return subnet, subnet.node(kind).ports[1]


def told_by(subnet: Subnet) -> list[str]:
    """What the node tells its surroundings from now on."""
    told: list[str] = []
    subnet.on_routes_changed = lambda: told.append("routes")

    def event(port: NodePort, what: PortEvent) -> None:
        told.append(what.name)

    subnet.on_port_event = event
    return told


def drawn(random: Random, info: bytearray) -> bytes:
    """A Set: what is there, with some bytes changed; few of them in most draws."""
    made = bytearray(info)
    made[32] &= 0xF0
    made[33] &= 0x0F
    for at in random.sample(USUAL if random.random() < 0.7 else SETTABLE, random.randrange(1, 5)):
        made[at] = random.choice((random.randrange(256), info[at] ^ 1 << random.randrange(8)))
    if random.random() < 0.5:
        made[32] = made[32] & 0xF0 | random.choice((0, 2, 3, 4))
    if random.random() < 0.8:
        made[16:18] = random.choice((0, 7, 0xBFFE, 0xBFFF, random.randrange(0x10000))).to_bytes(
            2, "big"
        )
        made[18:20] = random.choice((0, 1, 1, 9, 0xC000)).to_bytes(2, "big")
    return bytes(made)


@pytest.mark.parametrize("kind", ["s", "h"])
def test_random_sets_have_the_same_effect(kind: str) -> None:
    random, done = Random(kind), 0
    one, other = pair(kind), pair(kind)
    fresh = bytes(one[1].info)
    for _ in range(DRAWS):
        before = bytearray(fresh)
        before[32] = before[32] & 0xF0 | random.choice(STATES)
        before[16:20] = random.choice((bytes(4), b"\0\7\0\1"))
        before[44:50] = random.choice((bytes(6), b"\0\1\0\2\0\3"))
        new = drawn(random, before)
        ends = []
        for subnet, port in (one, other):
            port.info[:] = before
            told = told_by(subnet)
            if port is one[1]:
                is_usual = quick_port_set(port, DirectedSmp(data=new).pack())
                if not is_usual:
                    assert (port.info, told) == (before, [])
                    break
                done += 1
            else:
                assert write_port_info(port, PortInfo.unpack(new)) == 0
            ends.append((bytes(port.info), port.m_key, told))
        assert len(ends) != 2 or ends[0] == ends[1], (before.hex(), new.hex())
    assert done > DRAWS / 20
