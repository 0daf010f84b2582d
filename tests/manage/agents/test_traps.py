# SPDX-License-Identifier: Apache-2.0
"""Traps: what makes them, to whom they go, and how often until they are repressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.manage.agents.managing import change, get, put
from tests.manage.agents.small_subnets import managed, two_switches
from verbena.manage.agents import (
    Drop,
    MadPacket,
    Subnet,
    key_violated,
    p_key_violated_at_switch,
    port_failed,
)
from verbena.manage.agents.traps import MOST_NOTICES
from verbena.manage.attribute_ids import Method
from verbena.manage.codes import CapabilityMask, PortState, lifetime_seconds
from verbena.manage.mad import GENERAL_QKEY, LidRoutedSmp, PerformanceMad
from verbena.manage.notices import (
    BadKeyTrap,
    BadPKeyAtSwitchTrap,
    LocalChangesTrap,
    Notice,
    NoticeType,
    PortErrorTrap,
    SystemImageGuidTrap,
    TrapNumber,
)
from verbena.manage.smp_attributes import NodeInfo, PKeyTable, PortInfo

PERIOD = lifetime_seconds(18)


def test_a_trap_is_repeated_until_it_is_repressed() -> None:
    subnet, lids, program = managed()
    subnet.advance(5)
    subnet.cut("s1", 3)
    assert [trap.issuer_lid for trap in program.traps()] == [lids["s1"]]
    due = subnet.next_due
    assert due == pytest.approx(5 + PERIOD)
    subnet.advance(due - 0.001)
    assert not program.packets
    subnet.advance(due)
    assert len(program.packets) == 1
    first = program.packets[0]
    assert (first.dlid, first.slid, first.qp) == (lids["h1"], lids["s1"], 0)
    program.repress()
    assert set(subnet.drops) == {Drop.LINK_DOWN}  # what s2 sends
    subnet.advance(due + 100 * PERIOD)
    assert not program.packets
    assert subnet.nodes["s1"].traps.sent == 2


def test_a_repress_of_another_trap_is_for_a_program() -> None:
    subnet, lids, _ = managed()
    repress = LidRoutedSmp(method=Method.TRAP_REPRESS, transaction_id=77)
    subnet.inject("h1", repress, dlid=lids["s1"])
    assert subnet.drops == {Drop.NO_RECEIVER: 1}


def test_an_equal_trap_keeps_the_distance_and_is_not_doubled() -> None:
    subnet, lids, program = managed()
    subnet.cut("s1", 3)
    subnet.restore("s1", 3)
    subnet.cut("s1", 3)
    assert len(program.packets) == 1
    program.repress()
    subnet.restore("s1", 3)
    assert not program.packets
    subnet.advance(PERIOD)  # that of s2, which was lost, comes now, too
    assert sorted(trap.issuer_lid for trap in program.traps()) == [lids["s1"], lids["s2"]]


def test_without_a_manager_there_is_no_trap() -> None:
    subnet = two_switches()
    subnet.cut("s1", 3)
    assert subnet.next_due is None
    subnet.advance(1000)
    assert subnet.nodes["s1"].traps.sent == 0


def test_a_port_that_cannot_trap_sends_none() -> None:
    subnet, _, program = managed()
    itself = subnet.nodes["s1"].ports[0]
    mask = PortInfo.get(itself.info, "capability_mask")
    PortInfo.put(itself.info, 0, capability_mask=mask & ~CapabilityMask.TRAP)
    subnet.cut("s1", 3)
    assert not program.packets


def test_a_port_that_is_not_active_drops_its_traps() -> None:
    subnet, _, program = managed()
    change(subnet, "h1", (1, 2), 1, port_state=PortState.DOWN)
    program.packets.clear()
    subnet.nodes["h2"].set_description("new")
    subnet.advance(subnet.now)
    assert not program.packets
    assert subnet.nodes["h2"].traps.next_due is None


def test_the_oldest_of_too_many_traps_is_dropped() -> None:
    subnet, _, program = managed()
    for number in range(MOST_NOTICES + 3):
        subnet.nodes["h2"].set_system_image_guid(number)
    subnet.advance(subnet.now)
    details = [trap.detail for trap in program.traps()]
    guids = [detail.system_image_guid for detail in details]  # type: ignore[union-attr]
    assert guids == list(range(3, MOST_NOTICES + 3))


P_KEYS = MadPacket(b"", dlid=7, slid=8, p_key=0x8123, sl=3, qp=0x11, source_qp=0x22)
CAUSES: list[tuple[str, Callable[[Subnet], Any], int, type, dict[str, Any]]] = [
    (
        "integrity",
        lambda s: port_failed(s.nodes["s1"].ports[2], TrapNumber.LOCAL_LINK_INTEGRITY),
        129,
        PortErrorTrap,
        {"port": 2},
    ),
    (
        "overrun",
        lambda s: port_failed(s.nodes["h1"].ports[1], TrapNumber.BUFFER_OVERRUN),
        130,
        PortErrorTrap,
        {"port": 1},
    ),
    (
        "watchdog",
        lambda s: port_failed(s.nodes["s1"].ports[1], TrapNumber.FLOW_CONTROL_WATCHDOG),
        131,
        PortErrorTrap,
        {"port": 1},
    ),
    (
        "is sm",
        lambda s: s.nodes["h2"].set_is_sm(1, None, is_sm=True),
        144,
        LocalChangesTrap,
        {"other_local_changes": False},
    ),
    (
        "name",
        lambda s: s.nodes["h2"].set_description("new"),
        144,
        LocalChangesTrap,
        {"other_local_changes": True, "node_description_changed": True},
    ),
    (
        "image",
        lambda s: s.nodes["h2"].set_system_image_guid(0x99),
        145,
        SystemImageGuidTrap,
        {"system_image_guid": 0x99},
    ),
    (
        "p_key",
        lambda s: key_violated(s.nodes["h2"].ports[1], P_KEYS, Drop.P_KEY),
        257,
        BadKeyTrap,
        {"lid1": 8, "lid2": 7, "offending_key": 0x8123, "sl": 3, "qp1": 0x22, "qp2": 0x11},
    ),
    (
        "q_key",
        lambda s: key_violated(s.nodes["h2"].ports[1], P_KEYS._replace(q_key=5), Drop.Q_KEY),
        258,
        BadKeyTrap,
        {"offending_key": 5},
    ),
    (
        "switch",
        lambda s: p_key_violated_at_switch(s.nodes["s1"].ports[2], P_KEYS),
        259,
        BadPKeyAtSwitchTrap,
        {"port": 2, "p_key": 0x8123},
    ),
]


@pytest.mark.parametrize(
    ("cause", "number", "kind", "fields"),
    [row[1:] for row in CAUSES],
    ids=[row[0] for row in CAUSES],
)
def test_causes(
    cause: Callable[[Subnet], Any], number: int, kind: type, fields: dict[str, Any]
) -> None:
    subnet, _, program = managed()
    cause(subnet)
    subnet.advance(subnet.now)
    (trap,) = program.traps()
    assert trap.trap_number == number
    detail = trap.detail
    assert isinstance(detail, kind)
    values = detail.values()  # type: ignore[attr-defined]
    assert {name: values[name] for name in fields} == fields


def test_a_management_packet_with_a_wrong_key() -> None:
    subnet, lids, program = managed()
    request = PerformanceMad(attribute_id=1)
    assert subnet.ask("h1", request, dlid=lids["h3"], p_key=0x8123) is None
    (trap,) = program.traps()
    assert trap.trap_number == TrapNumber.BAD_P_KEY
    assert get(subnet, "h1", PortInfo, (1, 3, 1), 1).p_key_violations == 1
    mad = MadPacket(request.pack(), 1, lids["h3"], lids["h1"], 1, 1, q_key=7)
    subnet.inject("h1", mad)
    assert subnet.nodes["h3"].drops == {Drop.P_KEY: 1, Drop.Q_KEY: 1}
    assert subnet.all_drops() == {Drop.P_KEY: 1, Drop.Q_KEY: 1}
    assert get(subnet, "h1", PortInfo, (1, 3, 1), 1).q_key_violations == 1
    change(subnet, "h1", (1, 3, 1), 1, q_key_violations=0)
    assert get(subnet, "h1", PortInfo, (1, 3, 1), 1).q_key_violations == 0
    subnet.inject("h1", mad._replace(q_key=GENERAL_QKEY))
    assert program.packets


def test_a_switch_enforces_partitions() -> None:
    subnet, lids, program = managed()
    keys = PKeyTable(p_keys=(0x8001, *(0,) * 31))
    assert put(subnet, "h1", keys, (1,), 3 << 16) == 0
    request = PerformanceMad(attribute_id=1)
    assert subnet.ask("h1", request, dlid=lids["h3"]) is not None
    change(subnet, "h1", (1,), 3, partition_enforcement_outbound=True)
    assert subnet.ask("h1", request, dlid=lids["h3"]) is None
    assert subnet.drops == {Drop.P_KEY_AT_SWITCH: 1}
    (trap,) = program.traps()
    assert trap.trap_number == TrapNumber.BAD_P_KEY_AT_SWITCH
    assert trap.issuer_lid == lids["s1"]
    route = subnet.path(lids["h1"], lids["h3"])
    assert (route.problem, route.at) == (Drop.P_KEY_AT_SWITCH, subnet.nodes["s1"].ports[3])
    subnet.read_counters()
    assert subnet.nodes["s1"].ports[3].tally["xmit_constraint_errors"] == 1
    change(subnet, "h1", (1,), 3, partition_enforcement_outbound=False)
    assert subnet.ask("h1", request, dlid=lids["h3"]) is not None
    assert put(subnet, "h1", keys, (1,), 1 << 16) == 0
    change(subnet, "h1", (1,), 1, partition_enforcement_inbound=True)
    assert subnet.ask("h1", request, dlid=lids["h3"]) is None
    subnet.read_counters()
    assert subnet.nodes["s1"].ports[1].tally["rcv_constraint_errors"] == 1


class TestNotice:
    def test_the_oldest_is_returned_and_removed(self) -> None:
        subnet, _, _ = managed()
        assert get(subnet, "h1", Notice, (1, 2)).notice_type == NoticeType.EMPTY
        subnet.nodes["h2"].set_system_image_guid(1)
        subnet.nodes["h2"].set_system_image_guid(2)
        first = get(subnet, "h1", Notice, (1, 2))
        assert (first.trap_number, first.count) == (TrapNumber.SYSTEM_IMAGE_GUID, 1)
        assert put(subnet, "h1", Notice(), (1, 2)) == 0  # another one: nothing is removed
        assert get(subnet, "h1", Notice, (1, 2)) == first
        assert put(subnet, "h1", first, (1, 2)) == 0
        second = get(subnet, "h1", Notice, (1, 2))
        assert second.count == 0
        assert second != first
        assert put(subnet, "h1", second, (1, 2)) == 0
        assert get(subnet, "h1", Notice, (1, 2)).notice_type == NoticeType.EMPTY


def test_traps_do_not_disturb_answers() -> None:
    subnet, _, program = managed()
    subnet.nodes["h2"].set_description("x")
    assert get(subnet, "h1", NodeInfo, (1, 2)).node_guid == subnet.nodes["h2"].guid
    assert len(program.packets) == 1
