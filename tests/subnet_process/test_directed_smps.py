# SPDX-License-Identifier: Apache-2.0
"""The quick way to answer an SMP by a directed route does what a packet on that route does."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.manage.agents.small_subnets import managed
from verbena.manage.mad import DirectedSmp, PerformanceMad
from verbena.manage.pma_counters import PortCounters
from verbena.subnet_process._directed_smps import DirectedSmps

DRAWS = 3000
PATHS = ((), (1,), (1,), (1, 2), (1, 3), (1, 3), (1, 3, 1), (1, 3, 1), (1, 4), (1, 2, 1), (9,))
ATTRIBUTES = (0x10, 0x11, 0x12, 0x15, 0x15, 0x16, 0x17, 0x19, 0x20, 0x77)


def drawn(random: Random, number: int) -> bytes:
    """A request, most of which are sound."""
    path = random.choice(PATHS)
    made = bytearray(
        DirectedSmp(
            method=random.choice((1, 1, 1, 2, 2, 3)),
            attribute_id=random.choice(ATTRIBUTES),
            attribute_modifier=random.choice((0, 0, 1, 3, 200)),
            transaction_id=number,
            hop_count=len(path),
            initial_path=bytes(1 + len(path)),
        ).pack()
    )
    made[129 : 129 + len(path)] = bytes(path)
    if made[3] == 2 and random.random() < 0.3:
        made[64:128] = random.randbytes(64)
    if random.random() < 0.1:
        made[random.choice((0, 1, 2, 4, 6, 7, 32, 35))] ^= 1 << random.randrange(8)
    return bytes(made)


def test_it_does_what_a_packet_does() -> None:
    ways: Counter[str] = Counter()
    random = Random(7)
    for number in range(DRAWS):
        if number % 100 == 0:  # what was set until now may have cut every way
            (quick, lids, hears_quick), (slow, _, hears_slow) = managed(), managed()
            smps = DirectedSmps(quick, quick.nodes["h1"], 1)
        mad = drawn(random, number << 32 | 0xD1)
        found = smps.answer(mad)
        ways[type(found).__name__] += 1
        if found is None:
            quick.inject("h1", mad)
        slow.inject("h1", mad)
        heard = [packet.mad for packet in hears_quick.packets]
        heard += [] if found is None else [found]
        assert sorted(heard) == sorted(packet.mad for packet in hears_slow.packets), mad.hex()
        assert quick.drops == slow.drops
        hears_quick.packets.clear()
        hears_slow.packets.clear()
        if number % 10 == 0:
            asked = [
                subnet.ask(
                    "h1",
                    PerformanceMad(attribute_id=0x12).with_attribute(PortCounters(port_select=1)),
                    dlid=lids["s1"],
                )
                for subnet in (quick, slow)
            ]
            assert asked[0] == asked[1]
    assert ways["bytes"] > DRAWS / 3
    assert ways["NoneType"] > 0
