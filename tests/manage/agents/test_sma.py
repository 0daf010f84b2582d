# SPDX-License-Identifier: Apache-2.0
"""What the SMA answers: statuses, the rules of PortInfo, and tables. Each rule is a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.manage.agents.managing import ask, bring_up, change, get, put
from verbena.manage.agents import ADAPTER, ENHANCED_SWITCH, SWITCH, PortEvent, Subnet
from verbena.manage.attribute_ids import Method, SmpAttribute
from verbena.manage.codes import (
    CapabilityMask,
    CapabilityMask2,
    IbMtu,
    PortPhysicalState,
    PortState,
    VirtualLanes,
)
from verbena.manage.mad import DirectedSmp
from verbena.manage.record import Record
from verbena.manage.smp_attributes import (
    ExtendedPortInfo,
    GuidInfo,
    LedInfo,
    LinearForwardingTable,
    MulticastForwardingTable,
    NodeDescription,
    NodeInfo,
    PKeyTable,
    PortInfo,
    SlToVlTable,
    SmInfo,
    SwitchInfo,
    VlArbitrationTable,
    VlWeight,
)

TO_SWITCH, TO_PEER = (1,), (1, 2)
OK, BAD_VERSION, BAD_METHOD, UNSUPPORTED, INVALID = 0, 0x4, 0x8, 0xC, 0x1C


def made(**profiles: Any) -> Subnet:
    """Hosts h1 and h2 at ports 1 and 2 of a switch with 4 ports."""
    subnet = Subnet()
    subnet.add_switch("s", ports=4, profile=profiles.get("switch", SWITCH))
    for number in (1, 2):
        subnet.add_adapter(f"h{number}", profile=profiles.get("adapter", ADAPTER))
        subnet.connect(f"h{number}", 1, "s", number, rate=profiles.get("rate", "4xEDR"))
    return subnet


S = SmpAttribute
STATUSES = [
    # attribute, method, where, modifier, status
    (S.NODE_INFO, Method.GET, TO_SWITCH, 0, OK),
    (S.NODE_INFO, Method.SET, TO_SWITCH, 0, UNSUPPORTED),
    (S.NODE_DESCRIPTION, Method.SET, TO_PEER, 0, OK),
    (S.SWITCH_INFO, Method.GET, TO_SWITCH, 0, OK),
    (S.SWITCH_INFO, Method.GET, TO_PEER, 0, UNSUPPORTED),
    (S.SWITCH_INFO, Method.SET, TO_PEER, 0, UNSUPPORTED),
    (S.GUID_INFO, Method.GET, TO_PEER, 0, OK),
    (S.GUID_INFO, Method.GET, TO_PEER, 1, INVALID),
    (S.PORT_INFO, Method.GET, TO_SWITCH, 0, OK),
    (S.PORT_INFO, Method.GET, TO_SWITCH, 4, OK),
    (S.PORT_INFO, Method.GET, TO_SWITCH, 5, INVALID),
    (S.PORT_INFO, Method.GET, TO_SWITCH, 0x80000001, OK),
    (S.PORT_INFO, Method.GET, TO_PEER, 0, OK),
    (S.PORT_INFO, Method.GET, TO_PEER, 1, OK),
    (S.PORT_INFO, Method.GET, TO_PEER, 2, INVALID),
    (S.PORT_INFO, Method.SET, TO_PEER, 2, INVALID),
    (S.P_KEY_TABLE, Method.GET, TO_PEER, 3, OK),
    (S.P_KEY_TABLE, Method.GET, TO_PEER, 4, INVALID),
    (S.P_KEY_TABLE, Method.GET, TO_SWITCH, 2 << 16 | 1, OK),
    (S.P_KEY_TABLE, Method.GET, TO_SWITCH, 2 << 16 | 2, INVALID),
    (S.P_KEY_TABLE, Method.GET, TO_SWITCH, 5 << 16, INVALID),
    (S.SL_TO_VL, Method.GET, TO_PEER, 0, OK),
    (S.SL_TO_VL, Method.GET, TO_SWITCH, 1 << 8 | 4, OK),
    (S.SL_TO_VL, Method.GET, TO_SWITCH, 1 << 8 | 5, INVALID),
    (S.SL_TO_VL, Method.SET, TO_SWITCH, 5 << 8 | 1, INVALID),
    (S.SL_TO_VL, Method.SET, TO_SWITCH, 1 << 17 | 1, INVALID),
    (S.VL_ARBITRATION, Method.GET, TO_PEER, 1 << 16, OK),
    (S.VL_ARBITRATION, Method.GET, TO_PEER, 2 << 16, INVALID),
    (S.VL_ARBITRATION, Method.GET, TO_PEER, 0, INVALID),
    (S.VL_ARBITRATION, Method.GET, TO_PEER, 5 << 16, INVALID),
    (S.VL_ARBITRATION, Method.SET, TO_SWITCH, 3 << 16 | 4, OK),
    (S.VL_ARBITRATION, Method.SET, TO_SWITCH, 3 << 16 | 5, INVALID),
    (S.LINEAR_FORWARDING, Method.GET, TO_SWITCH, 767, OK),
    (S.LINEAR_FORWARDING, Method.GET, TO_SWITCH, 768, INVALID),
    (S.LINEAR_FORWARDING, Method.SET, TO_SWITCH, 768, INVALID),
    (S.LINEAR_FORWARDING, Method.GET, TO_PEER, 0, UNSUPPORTED),
    (S.RANDOM_FORWARDING, Method.GET, TO_SWITCH, 0, UNSUPPORTED),
    (S.MULTICAST_FORWARDING, Method.GET, TO_SWITCH, 31, OK),
    (S.MULTICAST_FORWARDING, Method.GET, TO_SWITCH, 32, INVALID),
    (S.MULTICAST_FORWARDING, Method.SET, TO_SWITCH, 1 << 28, INVALID),
    (S.MULTICAST_FORWARDING, Method.GET, TO_PEER, 0, UNSUPPORTED),
    (S.SM_INFO, Method.GET, TO_PEER, 0, UNSUPPORTED),
    (S.VENDOR_DIAG, Method.GET, TO_PEER, 0, UNSUPPORTED),
    (S.LED_INFO, Method.SET, TO_SWITCH, 3, OK),
    (S.LED_INFO, Method.GET, TO_SWITCH, 5, INVALID),
    (S.MELLANOX_EXTENDED_PORT_INFO, Method.GET, TO_SWITCH, 3, OK),
    (S.MELLANOX_EXTENDED_PORT_INFO, Method.GET, TO_SWITCH, 5, INVALID),
    (0xFF17, Method.GET, TO_SWITCH, 0, UNSUPPORTED),
    (S.NODE_INFO, Method.GET_TABLE, TO_SWITCH, 0, BAD_METHOD),
    (S.NODE_INFO, Method.REPORT, TO_SWITCH, 0, BAD_METHOD),
    (S.NOTICE, Method.GET, TO_SWITCH, 0, OK),
]


@pytest.mark.parametrize(
    ("attribute", "method", "path", "modifier", "status"),
    STATUSES,
    ids=lambda value: value.name if hasattr(value, "name") else str(value),
)
def test_status(
    attribute: int, method: Method, path: tuple[int, ...], modifier: int, status: int
) -> None:
    smp = DirectedSmp(method=method, attribute_id=attribute, attribute_modifier=modifier)
    if method == Method.SET and attribute == S.SWITCH_INFO:
        smp = smp.with_attribute(SwitchInfo())
    response = made().ask("h1", smp.along(path))
    assert response is not None
    assert response.status == status | 0x8000
    assert response.hop_pointer == 0
    assert response.method == (Method.GET_RESP if method in (1, 2) else method | 0x80)


def test_another_version_of_the_class_is_refused() -> None:
    response = ask(made(), "h1", NodeInfo, TO_PEER, class_version=2)
    assert response is not None
    assert response.status_code == BAD_VERSION


DOWN, INIT, ARMED, ACTIVE = PortState.DOWN, PortState.INIT, PortState.ARMED, PortState.ACTIVE
# A state, what a Set wants, and the state afterwards, or None for status 0x1C.
STATE_ROWS = [
    (INIT, 0, INIT),
    (INIT, INIT, None),
    (INIT, ARMED, ARMED),
    (INIT, ACTIVE, None),
    (INIT, DOWN, INIT),  # the link trains again at once
    (INIT, 5, None),
    (INIT, 15, None),
    (ARMED, 0, ARMED),
    (ARMED, INIT, None),
    (ARMED, ARMED, ARMED),
    (ARMED, ACTIVE, ACTIVE),
    (ARMED, DOWN, INIT),
    (ACTIVE, ARMED, None),
    (ACTIVE, ACTIVE, ACTIVE),
    (ACTIVE, INIT, None),
    (ACTIVE, DOWN, INIT),
]


class TestPortState:
    @pytest.mark.parametrize(("before", "wanted", "after"), STATE_ROWS)
    @pytest.mark.parametrize(("path", "port"), [(TO_SWITCH, 2), (TO_PEER, 1)])
    def test_set(
        self, before: int, wanted: int, after: int | None, path: tuple[int, ...], port: int
    ) -> None:
        subnet = made()
        for state in range(PortState.ARMED, before + 1):
            assert change(subnet, "h1", path, port, port_state=state) == OK
        status = change(subnet, "h1", path, port, port_state=wanted)
        assert status == (INVALID if after is None else OK)
        state = get(subnet, "h1", PortInfo, path, port).port_state
        assert state == (before if after is None else after)

    @pytest.mark.parametrize("wanted", [PortState.ARMED, PortState.ACTIVE])
    def test_a_port_without_a_link_stays_down(self, wanted: int) -> None:
        subnet = made()
        assert change(subnet, "h1", TO_SWITCH, 3, port_state=wanted) == INVALID
        assert get(subnet, "h1", PortInfo, TO_SWITCH, 3).port_state == PortState.DOWN

    @pytest.mark.parametrize(
        ("physical", "state", "status", "after"),
        [
            (PortPhysicalState.DISABLED, 0, OK, (PortState.DOWN, PortPhysicalState.DISABLED)),
            (PortPhysicalState.DISABLED, 1, OK, (PortState.DOWN, PortPhysicalState.DISABLED)),
            (PortPhysicalState.POLLING, 1, OK, (PortState.INIT, PortPhysicalState.LINK_UP)),
            (PortPhysicalState.SLEEP, 0, OK, (PortState.INIT, PortPhysicalState.LINK_UP)),
            (PortPhysicalState.DISABLED, 3, INVALID, (PortState.INIT, PortPhysicalState.LINK_UP)),
            (PortPhysicalState.TRAINING, 0, INVALID, (PortState.INIT, PortPhysicalState.LINK_UP)),
            (PortPhysicalState.LINK_UP, 1, INVALID, (PortState.INIT, PortPhysicalState.LINK_UP)),
        ],
    )
    def test_physical(self, physical: int, state: int, status: int, after: tuple[int, int]) -> None:
        subnet = made()
        settings = {"port_state": state, "port_physical_state": physical}
        assert change(subnet, "h1", TO_SWITCH, 2, **settings) == status
        info = get(subnet, "h1", PortInfo, TO_SWITCH, 2)
        assert (info.port_state, info.port_physical_state) == after

    def test_a_disabled_port_is_enabled_again(self) -> None:
        subnet = made()
        change(subnet, "h1", TO_SWITCH, 2, port_physical_state=PortPhysicalState.DISABLED)
        assert ask(subnet, "h1", NodeInfo, TO_PEER) is None
        change(subnet, "h1", TO_SWITCH, 2, port_physical_state=PortPhysicalState.POLLING)
        assert ask(subnet, "h1", NodeInfo, TO_PEER) is not None

    def test_port_0(self) -> None:
        subnet = made()
        assert get(subnet, "h1", PortInfo, TO_SWITCH, 0).port_state == PortState.ACTIVE
        assert change(subnet, "h1", TO_SWITCH, 0, port_state=PortState.DOWN) == OK
        assert get(subnet, "h1", PortInfo, TO_SWITCH, 0).port_state == PortState.ACTIVE

    def test_enhanced_port_0_has_no_link_and_comes_up_again(self) -> None:
        subnet = made(switch=ENHANCED_SWITCH)
        assert change(subnet, "h1", TO_SWITCH, 0, port_state=PortState.ARMED) == OK
        assert change(subnet, "h1", TO_SWITCH, 0, port_state=PortState.DOWN) == OK
        assert get(subnet, "h1", PortInfo, TO_SWITCH, 0).port_state == PortState.INIT

    def test_enhanced_port_0(self) -> None:
        subnet = made(switch=ENHANCED_SWITCH)
        assert get(subnet, "h1", SwitchInfo, TO_SWITCH).enhanced_port_0
        for state in (PortState.ARMED, PortState.ACTIVE):
            assert change(subnet, "h1", TO_SWITCH, 0, port_state=state, lid=9, lmc=1) == OK
            assert get(subnet, "h1", PortInfo, TO_SWITCH, 0).port_state == state


HOST, EXTERNAL, ITSELF = (TO_PEER, 1), (TO_SWITCH, 2), (TO_SWITCH, 0)
FIELDS = [
    # port, field, value, status, value afterwards (None: as before)
    (HOST, "lid", 7, OK, 7),
    (HOST, "lid", 0xBFFF, OK, 0xBFFF),
    (HOST, "lid", 0xC000, INVALID, None),
    (HOST, "lid", 0xFFFF, INVALID, None),
    (EXTERNAL, "lid", 7, OK, 0),
    (ITSELF, "lid", 7, OK, 7),
    (HOST, "master_sm_lid", 0xC001, INVALID, None),
    (HOST, "gid_prefix", 0xFE80000000000001, OK, 0xFE80000000000001),
    (EXTERNAL, "gid_prefix", 1, OK, 0),
    (HOST, "lmc", 3, OK, 3),
    (ITSELF, "lmc", 1, INVALID, None),
    (HOST, "subnet_timeout", 20, OK, 20),
    (HOST, "master_sm_sl", 5, OK, 5),
    (HOST, "m_key_lease_period", 9, OK, 9),
    (HOST, "init_type_reply", 2, OK, 2),
    (HOST, "local_phy_errors", 8, OK, 8),
    (EXTERNAL, "hoq_life", 16, OK, 16),
    (EXTERNAL, "vl_stall_count", 7, OK, 7),
    (EXTERNAL, "vl_high_limit", 255, OK, 255),
    (HOST, "neighbor_mtu", IbMtu.BYTES_2048, OK, IbMtu.BYTES_2048),
    (HOST, "neighbor_mtu", 0, INVALID, None),
    (HOST, "neighbor_mtu", 6, INVALID, None),
    (HOST, "operational_vls", 0, OK, None),
    (HOST, "operational_vls", VirtualLanes.VL0_1, OK, VirtualLanes.VL0_1),
    (HOST, "operational_vls", VirtualLanes.VL0_14, INVALID, None),
    (EXTERNAL, "link_width_enabled", 0, OK, None),
    (EXTERNAL, "link_width_enabled", 1, OK, 1),
    (EXTERNAL, "link_width_enabled", 0xFF, OK, 3),
    (EXTERNAL, "link_width_enabled", 4, INVALID, None),
    (EXTERNAL, "link_speed_enabled", 15, OK, 7),
    (EXTERNAL, "link_speed_enabled", 4, OK, 4),
    (EXTERNAL, "link_speed_enabled", 8, INVALID, None),
    (EXTERNAL, "link_speed_ext_enabled", 30, OK, 30),
    (EXTERNAL, "link_speed_ext_enabled", 31, OK, 3),
    (EXTERNAL, "link_speed_ext_enabled", 4, INVALID, None),
    (EXTERNAL, "link_down_default_state", 1, OK, 1),
    (EXTERNAL, "link_down_default_state", 0, OK, None),
    (EXTERNAL, "link_down_default_state", 3, INVALID, None),
    (EXTERNAL, "partition_enforcement_inbound", True, OK, True),
    (EXTERNAL, "filter_raw_outbound", True, OK, True),
    (HOST, "partition_enforcement_inbound", True, OK, False),
    # Read only.
    (HOST, "capability_mask", 0, OK, None),
    (HOST, "mtu_cap", 1, OK, None),
    (HOST, "vl_cap", 1, OK, None),
    (HOST, "link_width_active", 1, OK, None),
    (HOST, "link_speed_supported", 1, OK, None),
    (HOST, "guid_cap", 0, OK, None),
    (HOST, "diag_code", 5, OK, None),
    (HOST, "resp_time_value", 1, OK, None),
    (HOST, "vl_arb_low_cap", 1, OK, None),
    (HOST, "local_port_num", 9, OK, 1),
    (HOST, "p_key_violations", 9, OK, None),
]


@pytest.mark.parametrize(("where", "field", "value", "status", "after"), FIELDS)
def test_fields_of_port_info(
    where: tuple[tuple[int, ...], int], field: str, value: Any, status: int, after: Any
) -> None:
    subnet = made()
    path, port = where
    before = get(subnet, "h1", PortInfo, path, port)
    assert change(subnet, "h1", path, port, **{field: value}) == status
    info = get(subnet, "h1", PortInfo, path, port)
    assert getattr(info, field) == (getattr(before, field) if after is None else after)
    others = {field: getattr(before, field)}
    if field not in ("local_port_num",):
        assert info.replace(**others) == before


def test_a_refused_set_changes_nothing() -> None:
    subnet = made()
    before = get(subnet, "h1", PortInfo, TO_PEER, 1)
    assert change(subnet, "h1", TO_PEER, 1, lid=5, neighbor_mtu=6, subnet_timeout=3) == INVALID
    assert get(subnet, "h1", PortInfo, TO_PEER, 1) == before


PLAIN = replace(ADAPTER, fdr10=False, capability_mask2=CapabilityMask2(0))


@pytest.mark.parametrize("record", [NodeDescription(name="x"), ExtendedPortInfo()])
def test_what_a_device_cannot_do_is_refused(record: Record) -> None:
    subnet = made(adapter=PLAIN)
    assert put(subnet, "h1", record, TO_PEER) == UNSUPPORTED


@pytest.mark.parametrize("record", [LedInfo(), ExtendedPortInfo(state_change_enable=1)])
def test_ports_that_do_not_exist(record: Record) -> None:
    assert put(made(), "h1", record, TO_SWITCH, 5) == INVALID


def test_a_vendor_speed_that_the_port_cannot_do() -> None:
    wanted = ExtendedPortInfo(state_change_enable=1, link_speed_enabled=1)
    assert put(made(rate="4xQDR"), "h1", wanted, TO_SWITCH, 2) == INVALID


def test_events_of_a_port() -> None:
    subnet = made()
    events: list[PortEvent] = []
    subnet.on_port_event = lambda port, event: events.append(event)
    change(subnet, "h1", TO_PEER, 1, lid=5, master_sm_lid=1, gid_prefix=8, client_reregister=True)
    change(subnet, "h1", TO_PEER, 1, port_state=PortState.ARMED)
    keys = PKeyTable(p_keys=(0xFFFF, 0x8001, *(0,) * 30))
    assert put(subnet, "h1", keys, TO_PEER) == OK
    assert get(subnet, "h1", PKeyTable, TO_PEER) == keys
    assert events == [
        PortEvent.LID,
        PortEvent.SM,
        PortEvent.GUIDS,
        PortEvent.CLIENT_REREGISTER,
        PortEvent.STATE,
        PortEvent.P_KEYS,
    ]


def test_client_reregister_is_in_the_response_to_its_set_alone() -> None:
    subnet = made()
    info = get(subnet, "h1", PortInfo, TO_PEER, 1).replace(port_state=0, port_physical_state=0)
    smp = DirectedSmp(method=Method.SET, attribute_modifier=1).along(TO_PEER)
    response = subnet.ask("h1", smp.with_attribute(info.replace(client_reregister=True)))
    assert response is not None
    assert response.attribute(PortInfo).client_reregister
    assert not get(subnet, "h1", PortInfo, TO_PEER, 1).client_reregister


ROUND_TRIPS: list[tuple[Record, tuple[int, ...], int]] = [
    (NodeDescription(name="another name"), TO_PEER, 0),
    (SlToVlTable(vls=(0, 1, 2, 3) * 3 + (15, 15, 14, 0)), TO_PEER, 0),
    (SlToVlTable(vls=(7,) * 16), TO_SWITCH, 2 << 8 | 3),
    (LinearForwardingTable(ports=bytes(range(64))), TO_SWITCH, 5),
    (MulticastForwardingTable(masks=tuple(range(32))), TO_SWITCH, 3),
    (LedInfo(led_mask=True), TO_SWITCH, 2),
    (PKeyTable(p_keys=tuple(range(32))), TO_SWITCH, 2 << 16 | 1),
]


@pytest.mark.parametrize(("record", "path", "modifier"), ROUND_TRIPS)
def test_what_is_set_is_what_a_get_returns(
    record: Record, path: tuple[int, ...], modifier: int
) -> None:
    subnet = made()
    before = get(subnet, "h1", type(record), path, modifier ^ 1 if path == TO_SWITCH else 0)
    assert put(subnet, "h1", record, path, modifier) == OK
    assert get(subnet, "h1", type(record), path, modifier) == record
    if path == TO_SWITCH:  # and its neighbour is as before
        assert get(subnet, "h1", type(record), path, modifier ^ 1) == before


def test_tables_of_lanes_begin_with_all_lanes_in_turn() -> None:
    in_turn = (*range(8), *range(8))
    for path, modifier in ((TO_PEER, 0), (TO_SWITCH, 1 << 8 | 2), (TO_SWITCH, 4)):
        assert get(made(), "h1", SlToVlTable, path, modifier).vls == in_turn


def test_a_p_key_table_has_no_entry_behind_its_end() -> None:
    subnet = made()  # port 0 has room for 8
    assert put(subnet, "h1", PKeyTable(p_keys=(*range(8), *(0,) * 24)), TO_SWITCH) == OK
    assert put(subnet, "h1", PKeyTable(p_keys=(*range(9), *(0,) * 23)), TO_SWITCH) == INVALID
    assert get(subnet, "h1", PKeyTable, TO_SWITCH).p_keys[:9] == (*range(8), 0)


def test_arbitration_keeps_the_entries_that_there_are() -> None:
    subnet = made()
    entries = tuple(VlWeight(vl=i % 8, weight=i) for i in range(32))
    assert put(subnet, "h1", VlArbitrationTable(entries=entries), TO_PEER, 1 << 16) == OK
    kept = get(subnet, "h1", VlArbitrationTable, TO_PEER, 1 << 16).entries
    assert kept == entries[:8] + (VlWeight(),) * 24


def test_one_lane_needs_no_arbitration() -> None:
    subnet = made(adapter=replace(ADAPTER, vl_cap=VirtualLanes.VL0))
    response = ask(subnet, "h1", VlArbitrationTable, TO_PEER, 1 << 16)
    assert response is not None
    assert response.status_code == UNSUPPORTED


def test_the_first_guid_is_read_only() -> None:
    subnet = made()
    own = subnet.nodes["h2"].ports[1].guid
    assert put(subnet, "h1", GuidInfo(guids=(5, 6, *(0,) * 6)), TO_PEER) == OK
    assert get(subnet, "h1", GuidInfo, TO_PEER).guids == (own, 6, *(0,) * 6)


def test_switch_info() -> None:
    subnet = made()
    before = get(subnet, "h1", SwitchInfo, TO_SWITCH)
    assert before.port_state_change
    wanted = before.replace(linear_fdb_top=9, life_time_value=18, linear_fdb_cap=3, lids_per_port=7)
    assert put(subnet, "h1", wanted.replace(port_state_change=False), TO_SWITCH) == OK
    after = get(subnet, "h1", SwitchInfo, TO_SWITCH)
    assert after == before.replace(linear_fdb_top=9, life_time_value=18)
    assert put(subnet, "h1", after.replace(port_state_change=True), TO_SWITCH) == OK
    assert not get(subnet, "h1", SwitchInfo, TO_SWITCH).port_state_change
    too_high = after.replace(linear_fdb_top=before.linear_fdb_cap)
    assert put(subnet, "h1", too_high, TO_SWITCH) == INVALID


class Manager:
    """A subnet manager's SMInfo."""

    def __init__(self) -> None:
        self.info = SmInfo(guid=7, priority=3)
        self.controls: list[int] = []

    def sm_info(self) -> SmInfo:
        return self.info

    def set_sm_info(self, control: int, info: SmInfo) -> SmInfo | None:
        self.controls.append(control)
        return self.info if control == 1 else None


class TestSmInfo:
    def test_a_manager_answers(self) -> None:
        subnet, manager = made(), Manager()
        subnet.nodes["h2"].set_is_sm(1, manager)
        mask = get(subnet, "h1", PortInfo, TO_PEER, 1).capability_mask
        assert mask & CapabilityMask.IS_SM
        assert get(subnet, "h1", SmInfo, TO_PEER) == manager.info
        assert put(subnet, "h1", SmInfo(), TO_PEER, 1) == OK
        assert put(subnet, "h1", SmInfo(), TO_PEER, 2) == INVALID
        assert put(subnet, "h1", SmInfo(), TO_PEER, 6) == INVALID
        assert manager.controls == [1, 2]
        subnet.nodes["h2"].set_is_sm(1, None)
        assert put(subnet, "h1", SmInfo(), TO_PEER, 1) == UNSUPPORTED

    def test_or_a_program_does(self) -> None:
        subnet = made()
        subnet.nodes["h2"].set_is_sm(1, None, is_sm=True)

        def program(packet: Any) -> None:
            request = DirectedSmp.unpack(packet.mad)
            assert request.hop_pointer == 3
            assert request.return_path[1:3] == bytes((1, 1))
            subnet.inject("h2", request.response(SmInfo(guid=9)))

        subnet.attach("h2", program)
        assert get(subnet, "h1", SmInfo, TO_PEER).guid == 9


def test_a_vendor_speed_is_enabled_and_used() -> None:
    subnet = made(rate="4xFDR10")
    info = get(subnet, "h1", ExtendedPortInfo, TO_SWITCH, 2)
    assert (info.link_speed_supported, info.link_speed_active) == (1, 1)
    off = info.replace(link_speed_enabled=0)
    assert put(subnet, "h1", off, TO_SWITCH, 2) == OK
    assert get(subnet, "h1", ExtendedPortInfo, TO_SWITCH, 2) == info  # no change was asked for
    assert put(subnet, "h1", off.replace(state_change_enable=1), TO_SWITCH, 2) == OK
    change(subnet, "h1", TO_SWITCH, 2, port_state=PortState.DOWN)
    assert get(subnet, "h1", ExtendedPortInfo, TO_SWITCH, 2).link_speed_active == 0


def test_a_lid_routed_smp_is_answered_like_a_directed_one() -> None:
    from verbena.manage.mad import LidRoutedSmp

    subnet = made()
    lids = bring_up(subnet, "h1")
    lid = lids[subnet.nodes["h2"].guid]
    response = subnet.ask("h1", LidRoutedSmp(attribute_id=S.NODE_INFO), dlid=lid)
    assert response is not None
    assert response.status == 0
    assert response.attribute(NodeInfo).node_guid == subnet.nodes["h2"].guid
