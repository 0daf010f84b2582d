# SPDX-License-Identifier: Apache-2.0
"""What changes while the subnet is managed: links and nodes fail and return, also within sweeps."""

from __future__ import annotations

from random import Random

import pytest

from tests.manage.sm.managed import ManagedSubnet, problems_of
from tests.manage.sm.test_bring_up import random_fabric
from verbena import fabrics
from verbena.manage.agents import MadPacket
from verbena.manage.codes import PortState


def test_a_failed_link_is_routed_around() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    manager = managed.add("h0")
    managed.run()
    managed.subnet.cut("e0", 5)
    managed.run(3)
    assert manager.sweeps > 1  # by trap 128
    assert problems_of(managed) == []
    managed.subnet.restore("e0", 5)
    managed.run(3)
    assert problems_of(managed) == []


def test_a_host_leaves_and_another_one_joins() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    manager = managed.add("h0")
    managed.run()
    subnet = managed.subnet
    peer = subnet.node("h9").ports[1].peer
    assert peer is not None
    subnet.remove("h9")
    managed.run(3)
    assert managed.port_guid("h0") in manager.subnet.by_port_guid()
    assert "h9" not in {node.name for node in manager.subnet.nodes.values()}
    subnet.add_adapter("new", guid=0x77)
    subnet.connect("new", 1, peer.node.name, peer.number)
    managed.run(11)
    assert problems_of(managed) == []
    assert "new" in {node.name for node in manager.subnet.nodes.values()}


def test_the_own_link_fails_and_returns() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    manager = managed.add("h0")
    managed.run()
    managed.subnet.cut("h0", 1)
    managed.run(15)
    assert len(manager.subnet.nodes) == 1
    managed.subnet.restore("h0", 1)
    managed.run(15)
    assert problems_of(managed) == []


def test_a_manager_starts_before_its_link_is_up() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    managed.subnet.cut("h0", 1)
    managed.add("h0")
    managed.run(3)
    managed.subnet.restore("h0", 1)
    managed.run(15)
    assert problems_of(managed) == []


def test_a_light_sweep_notices_a_change_without_a_trap() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    manager = managed.add("h0")
    managed.run()
    managed.lose = lambda packet: packet.mad[3] == 5
    managed.subnet.cut("h9", 1)  # no route leads over it
    managed.run()
    assert manager.sweeps == 1
    managed.run(11)
    assert manager.sweeps == 2
    assert problems_of(managed) == []


def test_a_link_that_comes_while_the_change_is_cleared() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    managed.subnet.cut("h9", 1)
    cleared = []

    def restore(packet: MadPacket) -> bool:
        if packet.mad[3] == 2 and packet.mad[17] == 0x12 and not cleared:
            cleared.append(packet)
            managed.subnet.restore("h9", 1)
        return False

    managed.lose = restore
    managed.add("h0")
    managed.run(3)
    assert cleared
    assert problems_of(managed) == []


def test_a_node_that_stops_answering_delays_no_other() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    dead = managed.port_guid("h7").to_bytes(8, "big")
    subnet = managed.subnet
    link = subnet.node("h7").ports[1].peer
    assert link is not None

    def lose(packet: MadPacket) -> bool:
        path = packet.mad[129 : 129 + packet.mad[7]]
        return packet.mad[1] == 0x81 and path == b"\x01\x05\x02\x04"

    del dead
    managed.lose = lose
    manager = managed.add("h0")
    managed.run(2)
    assert len(manager.subnet.silent) == 1
    assert manager.sweeps >= 1
    silent = manager.subnet.silent[0]
    assert silent.peer is None
    assert silent.state == PortState.INIT
    managed.lose = lambda packet: False
    managed.run(12)
    assert manager.subnet.silent == []
    assert problems_of(managed) == []


@pytest.mark.parametrize("seed", range(30))
def test_links_fail_and_return_within_sweeps(seed: int) -> None:
    fabric = random_fabric(seed + 500)
    random = Random(seed)
    managed = ManagedSubnet(fabric, seed)
    subnet = managed.subnet
    cables = [cable for cable in fabric.cables() if cable.a != "h0" and cable.b != "h0"]
    down: list[fabrics.Cable] = []
    left = [random.randint(3, 40)]

    def shake(packet: MadPacket) -> bool:
        """Change a link after a random number of packets, for a while."""
        left[0] -= 1
        if not left[0] and managed.now < 8:
            left[0] = random.randint(5, 120)
            if down and random.random() < 0.5:
                cable = down.pop(random.randrange(len(down)))
                subnet.restore(cable.a, cable.a_port)
            elif len(down) < len(cables):
                cable = random.choice([each for each in cables if each not in down])
                down.append(cable)
                subnet.cut(cable.a, cable.a_port)
        return random.random() < 0.01

    managed.lose = shake
    manager = managed.add("h0")
    for _ in range(20):
        managed.run(0.5)
        left[0] = 1
    managed.lose = lambda packet: False
    for cable in down:
        subnet.restore(cable.a, cable.a_port)
    managed.run(60)
    assert problems_of(managed) == [], manager.problems


def test_two_nodes_of_one_guid_are_reported() -> None:
    fabric = fabrics.clos2(4)
    managed = ManagedSubnet(fabric)
    twin = managed.subnet.add_adapter("twin", guid=fabric.guid("h3"))
    managed.subnet.disconnect("h5", 1)
    free = managed.subnet.node("e2").ports[2]
    assert free.peer is None
    managed.subnet.connect("twin", 1, "e2", 2)
    manager = managed.add("h0")
    managed.run()
    (duplicate,) = manager.subnet.duplicates
    assert duplicate.guid == fabric.guid("h3")
    assert "is at the end of two routes" in str(duplicate)
    managed.subnet.remove("twin")
    managed.run(12)
    assert manager.subnet.duplicates == []
    del twin


def test_a_cable_from_a_switch_to_itself_is_a_loop() -> None:
    fabric = fabrics.one_switch(3)
    managed = ManagedSubnet(fabric)
    subnet = managed.subnet
    subnet.add_switch("extra", ports=6, guid=0x77)
    subnet.connect("extra", 1, "extra", 2)
    subnet.connect("extra", 3, "extra", 4)
    subnet.disconnect("h2", 1)
    subnet.connect("extra", 5, "s0", 3)
    manager = managed.add("h0")
    managed.run()
    numbers = [(one.number, other.number) for one, other in manager.subnet.loops]
    assert sorted(numbers) == [(1, 2), (3, 4)]
