# SPDX-License-Identifier: Apache-2.0
"""Random and damaged MADs never raise, neither in the subnet manager nor in the SA."""

from __future__ import annotations

from random import Random

import pytest

from tests.manage.sm.asking import SaClient
from tests.manage.sm.managed import ManagedSubnet, problems_of
from verbena import fabrics
from verbena.manage.agents import MadPacket
from verbena.manage.attribute_ids import Method
from verbena.manage.mad import SaMad
from verbena.manage.sa_records import SA_RECORDS

METHODS = [int(method) for method in Method]


def random_packet(random: Random, slids: list[int]) -> MadPacket:
    """A packet with a header that is right in part, and random data behind it."""
    size = random.choice([256, 256, 256, 256, random.randrange(300)])
    mad = bytearray(random.randbytes(size))
    if size >= 24 and random.random() < 0.9:
        mad[0] = 1
        mad[1] = random.choice([0x01, 0x81, 0x03, 0x04, 0x07, 0x32])
        mad[2] = random.choice([1, 2, 2])
        mad[3] = random.choice(METHODS)
        mad[8:16] = random.randrange(200).to_bytes(8, "big")
        mad[16:18] = random.choice([*SA_RECORDS, 1, 2, 0x20, 0x15]).to_bytes(2, "big")
    slid = random.choice([*slids, random.randrange(0x10000)])
    return MadPacket(bytes(mad), 1, 1, slid, random.choice([0, 1]), random.choice([0, 1, 77]))


@pytest.mark.parametrize("seed", range(8))
def test_nothing_raises(seed: int) -> None:
    random = Random(seed)
    managed = ManagedSubnet(fabrics.clos2(4))
    managed.add("h0")
    managed.run()
    manager, administration = managed.masters[0], managed.administrations["h0"]
    slids = [port.lid for port in manager.subnet.end_ports]
    for number in range(1500):
        packet = random_packet(random, slids)
        now = managed.now + number * 1e-3
        manager.receive(packet, now)
        administration.receive(packet, now)
        administration.answer(packet.mad, packet, now)
        if not number % 50:
            manager.tick(now)
            administration.tick(now)


@pytest.mark.parametrize("seed", range(6))
def test_queries_with_random_records_and_masks(seed: int) -> None:
    random = Random(seed)
    managed = ManagedSubnet(fabrics.clos2(4))
    managed.add("h0")
    managed.run()
    administration = managed.administrations["h0"]
    client = SaClient(managed, "h2")
    for _ in range(600):
        attribute = random.choice([*SA_RECORDS])
        data = bytearray(200)
        if random.random() < 0.5:
            data[:] = random.randbytes(200)
        else:
            data[24:40] = client.gid
        mask = random.getrandbits(random.choice([5, 20, 64]))
        if random.random() < 0.3:
            mask = 0
        mad = SaMad(
            method=Method(random.choice([1, 2, 0x12, 0x13, 0x14, 0x15])),
            attribute_id=attribute,
            component_mask=mask,
            data=bytes(data),
        )
        packet = MadPacket(mad.pack(), 1, 1, client.port.lid, 1, 1)
        answer = administration.answer(mad.pack(), packet, managed.now)
        assert answer is not None
        assert answer[3] & 0x80
        managed.run()


@pytest.mark.parametrize("seed", range(6))
def test_damaged_responses_do_not_stop_a_sweep(seed: int) -> None:
    random = Random(seed)
    managed = ManagedSubnet(fabrics.clos2(8))
    receive = managed._arrived
    damaged = [0]

    def arrived(host: str, packet: MadPacket) -> None:
        if managed.now < 3 and random.random() < 0.02:
            mad = bytearray(packet.mad)
            for _ in range(random.randint(1, 30)):
                place = random.randrange(256)
                # A manager that takes another M_Key for the port's own would lock itself out.
                if not 64 <= place < 72 and place != 98:
                    mad[place] = random.randrange(256)
            damaged[0] += 1
            packet = packet._replace(mad=bytes(mad))
        receive(host, packet)

    managed._arrived = arrived  # type: ignore[method-assign]
    managed.add("h0")
    managed.run(40)
    assert damaged[0]
    managed.masters[0].request_sweep(forget=True)
    managed.run(40)
    assert problems_of(managed) == []
