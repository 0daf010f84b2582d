# SPDX-License-Identifier: Apache-2.0
"""Hostile datagrams: random bytes, and messages of real connections with bytes changed.

None raises, none leads to more than one answer, and each that is refused is counted.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies

from tests.manage.cm.dialogue import ARRIVAL, Server, connected, listening, request, sent_as
from tests.manage.cm.world import World
from tests.manage.packets import CAPTURES, mads_of_capture
from verbena.manage.cm import CmRefusal, MadArrival
from verbena.manage.cm_messages import CmMra, CmRtu
from verbena.manage.ip_cm import PortSpace

REAL = [mad for capture in CAPTURES for mad in mads_of_capture(capture)]


@settings(max_examples=300, deadline=None)
@given(data=strategies.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    server = Server()
    refusal = server.rdma.receive(data, ARRIVAL, 0.0)
    assert refusal is not None
    assert server.rdma.counters.refused == {refusal: 1}
    assert server.rdma.take_datagrams() == []


@settings(max_examples=300, deadline=None)
@given(
    attribute=strategies.integers(0x0F, 0x1C),
    data=strategies.binary(min_size=232, max_size=232),
    arrival=strategies.builds(
        MadArrival,
        port=strategies.integers(0, 2),
        has_grh=strategies.booleans(),
        sgid=strategies.binary(min_size=16, max_size=16),
        slid=strategies.integers(0, 0xFFFF),
    ),
)
def test_random_messages(attribute: int, data: bytes, arrival: MadArrival) -> None:
    server = Server()
    mad = sent_as(CmRtu())[:16] + attribute.to_bytes(2, "big") + bytes(6) + data
    server.rdma.receive(mad, arrival, 0.0)
    assert len(server.rdma.take_datagrams()) <= 1
    assert server.kinds() == []


@pytest.mark.parametrize(
    ("at", "value", "refusal"),
    [
        (0, 2, CmRefusal.NOT_A_MAD),
        (1, 3, CmRefusal.OTHER_CLASS),
        (2, 1, CmRefusal.OTHER_VERSION),
        (3, 1, CmRefusal.OTHER_METHOD),
        (3, 0x83, CmRefusal.OTHER_METHOD),
        (17, 0x30, CmRefusal.UNKNOWN_MESSAGE),
        (17, 0x01, CmRefusal.UNKNOWN_MESSAGE),
    ],
)
def test_headers(at: int, value: int, refusal: CmRefusal) -> None:
    server = Server()
    mad = bytearray(sent_as(request()))
    mad[at] = value
    assert server.rdma.receive(bytes(mad), ARRIVAL, 0.0) is refusal
    assert server.rdma.counters.refused[refusal] == 1


def test_mutated_messages_of_a_connection() -> None:
    """Every message of a real connection comes once as it is, and often with bytes changed."""
    rng = random.Random(11)
    for _ in range(150):
        world = World(seed=rng.getrandbits(16))
        client, server = world.nodes
        connected(world)
        listening(world, server, 7175, PortSpace.UDP)
        for _ in range(40):
            mad = bytearray(rng.choice([*REAL, *(raw for _, raw in world.carried)]))
            for _ in range(rng.choice([1, 1, 2, 8])):
                mad[rng.randrange(24, 256)] = rng.getrandbits(8)
            target = rng.choice(world.nodes)
            target.rdma.receive(bytes(mad), ARRIVAL, world.now)
            world.run(rng.choice([0, 0.01, 1]))
        for node in (client, server):
            for number in sorted(node.rdma._table.ids):
                if number in node.rdma._table.ids:
                    node.rdma.destroy_id(number)
        world.run(20000)
        for node in (client, server):
            assert node.rdma.cm.machines() == ()


def test_unmatched_is_counted() -> None:
    server = Server()
    server.hear(CmRtu(local_comm_id=1, remote_comm_id=2))
    server.hear(CmMra(local_comm_id=1, remote_comm_id=2, message=3))
    assert server.rdma.counters.refused[CmRefusal.UNMATCHED] == 2
    assert server.rdma.counters.files()["cm_rx_msgs/rtu"] == 1
