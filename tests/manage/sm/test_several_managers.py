# SPDX-License-Identifier: Apache-2.0
"""Two and three subnet managers: in the end exactly one is the master, and the tables are whole."""

from __future__ import annotations

from random import Random

import pytest

from tests.manage.sm.managed import ManagedSubnet, problems_of
from tests.manage.sm.test_bring_up import random_fabric
from verbena import fabrics
from verbena.manage.attribute_ids import Method, SmpAttribute
from verbena.manage.codes import SmState
from verbena.manage.mad import DirectedSmp, LidRoutedSmp
from verbena.manage.sm import SmControl, SmSettings, SubnetManager
from verbena.manage.sm.election import Decision, Verdict, decide
from verbena.manage.smp_attributes import SmInfo

STATES = (SmState.NOT_ACTIVE, SmState.DISCOVERING, SmState.STANDBY, SmState.MASTER)


def test_the_higher_priority_wins_then_the_lower_guid() -> None:
    own = SmInfo(guid=5, priority=3, sm_state=SmState.DISCOVERING)
    lower = SmInfo(guid=6, priority=3, sm_state=SmState.STANDBY)
    higher = SmInfo(guid=9, priority=4, sm_state=SmState.STANDBY)
    assert decide(own, [lower]) == Decision(Verdict.LEAD)
    assert decide(own, [lower, higher]) == Decision(Verdict.FOLLOW, higher)
    assert decide(own, [higher.replace(sm_state=SmState.NOT_ACTIVE)]) == Decision(Verdict.LEAD)
    master = lower.replace(sm_state=SmState.MASTER)
    assert decide(own, [master]) == Decision(Verdict.FOLLOW, master)
    own = own.replace(sm_state=SmState.MASTER)
    assert decide(own, [lower]) == Decision(Verdict.LEAD)
    assert decide(own, [higher]) == Decision(Verdict.HAND_OVER, higher)


def test_a_late_manager_of_higher_priority_takes_over() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    first = managed.add("h0", priority=1)
    managed.run()
    second = managed.add("h9", priority=2)
    managed.run(11)
    assert (first.state, second.state) == (SmState.STANDBY, SmState.MASTER)
    assert problems_of(managed) == []
    lids = {node.end_ports()[0].lid for node in managed.subnet.nodes.values()}
    assert len(lids) == len(managed.subnet.nodes)


def test_a_late_manager_of_lower_priority_stands_by() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    first = managed.add("h0", priority=2)
    managed.run()
    second = managed.add("h9", priority=1)
    managed.run(30)
    assert (first.state, second.state) == (SmState.MASTER, SmState.STANDBY)


def test_a_standby_takes_over_from_a_dead_master() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    managed.add("h0", priority=2)
    second = managed.add("h9", priority=1)
    managed.run(5)
    assert second.state == SmState.STANDBY
    managed.stop("h0")
    managed.run(70)
    assert second.state == SmState.MASTER
    assert problems_of(managed) == []


@pytest.mark.parametrize("seed", range(16))
def test_exactly_one_is_the_master_in_the_end(seed: int) -> None:
    random = Random(seed)
    fabric = random_fabric(seed + 900)
    managed = ManagedSubnet(fabric, seed)
    managed.lose = lambda packet: managed.random.random() < 0.03
    hosts = random.sample(fabric.hosts, min(len(fabric.hosts), random.choice([2, 3])))
    for host in hosts:
        managed.add(host, priority=random.choice([1, 1, 2, 3]), retries=5)
        managed.run(random.choice([0, 0, 0.3, 5]))
    managed.run(20)
    if random.random() < 0.5 and len(hosts) > 2:
        managed.stop(random.choice(hosts))
    managed.run(60)
    managed.lose = lambda packet: False
    managed.run(90)
    states = [manager.state for manager in managed.managers.values()]
    assert sorted(states) == [SmState.STANDBY] * (len(states) - 1) + [SmState.MASTER]
    best = max(managed.managers.values(), key=lambda each: (each.settings.priority, -each.guid))
    assert managed.masters == [best]
    assert problems_of(managed) == []


@pytest.mark.parametrize("priorities", [(1, 2), (2, 1), (1, 1)])
def test_two_masters_become_one_when_subnets_are_joined(priorities: tuple[int, int]) -> None:
    fabric = fabrics.chain(6, 2)
    managed = ManagedSubnet(fabric)
    cable = next(c for c in fabric.cables() if {c.a, c.b} == {"s2", "s3"})
    managed.subnet.cut(cable.a, cable.a_port)
    hosts = fabric.hosts[0], fabric.hosts[-1]
    for host, priority in zip(hosts, priorities, strict=True):
        managed.add(host, priority=priority)
    managed.run(1)
    assert len(managed.masters) == 2
    managed.subnet.restore(cable.a, cable.a_port)
    managed.run(60)
    assert len(managed.masters) == 1
    assert problems_of(managed) == []


def test_controls_are_refused_in_other_states() -> None:
    managed = ManagedSubnet(fabrics.one_switch(3))
    master = managed.add("h0", priority=2)
    standby = managed.add("h1", priority=1)
    managed.run(1)
    info = SmInfo(guid=77, priority=15)
    assert master.set_sm_info(SmControl.DISABLE, info) is None
    assert master.set_sm_info(SmControl.ACKNOWLEDGE, info) is None
    assert master.set_sm_info(99, info) is None
    answer = standby.set_sm_info(SmControl.DISABLE, master.sm_info())
    assert answer is not None
    assert answer.sm_state == SmState.NOT_ACTIVE
    managed.run(100)
    assert standby.state == SmState.NOT_ACTIVE
    assert standby.set_sm_info(SmControl.STANDBY, master.sm_info()) is not None
    managed.run(20)
    assert standby.state == SmState.STANDBY


def test_a_master_to_which_another_one_hands_over_sets_everything_again() -> None:
    managed = ManagedSubnet(fabrics.clos2(4))
    master = managed.add("h0", priority=2)
    managed.run(1)
    managed.keep = True
    other = SmInfo(guid=managed.port_guid("h3"), priority=1, sm_state=SmState.MASTER)
    answer = master.set_sm_info(SmControl.HANDOVER, other)
    assert answer is not None
    assert answer.sm_state == SmState.MASTER
    managed.run(1)
    sets = [int.from_bytes(p.mad[16:18], "big") for _, p in managed.sent if p.mad[3] == 2]
    blocks = sets.count(SmpAttribute.LINEAR_FORWARDING)
    assert blocks == len(master.subnet.switches)
    assert SmpAttribute.SM_INFO in sets  # ACKNOWLEDGE


def test_sm_info_is_answered_without_an_agent() -> None:
    managed = ManagedSubnet(fabrics.one_switch(3))
    manager = managed.add("h0", priority=4)
    managed.run()
    managed.subnet.node("h0").set_is_sm(1, None, is_sm=True)  # as on a port of Linux
    request = LidRoutedSmp(attribute_id=SmInfo.ATTRIBUTE)
    answer = managed.subnet.ask("h1", request, dlid=manager.lid)
    assert answer is not None
    assert answer.attribute(SmInfo) == manager.sm_info()
    directed = DirectedSmp(attribute_id=SmInfo.ATTRIBUTE)
    path = next(port for port in managed.subnet.node("s0").ports.values() if port.peer is not None)
    answer = managed.subnet.ask("h1", directed.along([1, path.number]))
    assert answer is not None
    assert answer.attribute(SmInfo).priority == 4
    wrong = directed.along([1, path.number]).replace(method=Method.SET, attribute_modifier=9)
    answer = managed.subnet.ask("h1", wrong)
    assert answer is not None
    assert answer.status_code == 0x1C


def test_a_manager_alone_on_a_port_without_a_link() -> None:
    manager = SubnetManager(1, SmSettings())
    assert manager.start(0.0)
    assert manager.next_deadline() == pytest.approx(0.2)
