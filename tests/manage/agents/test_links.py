# SPDX-License-Identifier: Apache-2.0
"""Links: what they negotiate, and what a link that fails and comes back does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.manage.agents.managing import ask, change, explore, get, put
from tests.manage.agents.small_subnets import managed, two_switches
from verbena.manage import MadError
from verbena.manage.agents import SWITCH, Drop, PortEvent, Subnet, link_rate
from verbena.manage.codes import LinkDownState, PortPhysicalState, PortState
from verbena.manage.mad import PerformanceMad
from verbena.manage.notices import LinkStateTrap, TrapNumber
from verbena.manage.pma_counters import PortCounters
from verbena.manage.smp_attributes import ExtendedPortInfo, NodeInfo, PortInfo, SwitchInfo

RATES = [
    # rate, width, base speed, extended, second extended, FDR10
    ("1xSDR", 1, 1, 0, 0, 0),
    ("4xDDR", 2, 2, 0, 0, 0),
    ("4xQDR", 2, 4, 0, 0, 0),
    ("4xFDR10", 2, 4, 0, 0, 1),
    ("8xFDR", 4, 4, 1, 0, 0),
    ("4xEDR", 2, 4, 2, 0, 0),
    ("2xHDR", 16, 4, 4, 0, 0),
    ("12xNDR", 8, 4, 8, 0, 0),
    ("4xXDR", 2, 4, 0, 1, 0),
]


@pytest.mark.parametrize(("rate", "width", "base", "extended", "extended2", "fdr10"), RATES)
def test_rates(rate: str, width: int, base: int, extended: int, extended2: int, fdr10: int) -> None:
    subnet = Subnet()
    for name in "ab":
        subnet.add_adapter(name)
    subnet.connect("a", 1, "b", 1, rate=rate)
    info = get(subnet, "a", PortInfo, (1,), 1)
    assert info.port_state == PortState.INIT
    assert (info.link_width_active, info.link_speed_active) == (width, base)
    assert (info.link_speed_ext_active, info.link_speed_ext_active2) == (extended, extended2)
    assert get(subnet, "a", ExtendedPortInfo, (1,), 1).link_speed_active == fdr10
    assert subnet.nodes["a"].ports[1].settings("enabled").rate == link_rate(rate)


@pytest.mark.parametrize("rate", ["EDR", "3xEDR", "4xABC", ""])
def test_a_rate_that_does_not_exist(rate: str) -> None:
    with pytest.raises(MadError, match="rate"):
        link_rate(rate)


def test_a_link_takes_what_both_ends_are_allowed_when_it_trains_again() -> None:
    subnet = two_switches(profile=replace(SWITCH, fdr10=False))
    change(subnet, "h1", (1,), 3, link_speed_ext_enabled=30, link_width_enabled=1)
    assert get(subnet, "h1", PortInfo, (1,), 3).link_speed_ext_active == 2
    change(subnet, "h1", (1, 3), 3, link_speed_enabled=3)
    change(subnet, "h1", (1,), 3, port_state=PortState.DOWN)
    for path, port in (((1,), 3), ((1, 3), 3)):
        info = get(subnet, "h1", PortInfo, path, port)
        assert (info.link_width_active, info.link_speed_ext_active) == (1, 0)
        assert info.link_speed_active == 2
        assert info.port_state == PortState.INIT


def test_ends_without_a_common_speed_do_not_come_up() -> None:
    subnet = two_switches()
    change(subnet, "h1", (1,), 3, link_width_enabled=1)
    change(subnet, "h1", (1, 3), 3, link_width_enabled=2, port_state=PortState.DOWN)
    assert get(subnet, "h1", PortInfo, (1,), 3).port_state == PortState.DOWN


def test_both_ends_asleep_stay_so() -> None:
    subnet = two_switches()
    for path in ((1, 3), (1,)):
        change(subnet, "h1", path, 3, link_down_default_state=LinkDownState.SLEEP)
    change(subnet, "h1", (1,), 3, port_state=PortState.DOWN)
    assert get(subnet, "h1", PortInfo, (1,), 3).port_state == PortState.DOWN


def port_state_change(subnet: Subnet, *switches: str) -> list[bool]:
    return [
        SwitchInfo.get(subnet.nodes[name].switch_info, "port_state_change") for name in switches
    ]


def clear_change(subnet: Subnet, path: tuple[int, ...]) -> None:
    put(subnet, "h1", get(subnet, "h1", SwitchInfo, path).replace(port_state_change=True), path)


def test_a_cut_is_seen_counted_and_reported() -> None:
    subnet, lids, program = managed()
    events: list[tuple[str, int, PortEvent]] = []
    subnet.on_port_event = lambda port, event: events.append((port.node.name, port.number, event))
    assert port_state_change(subnet, "s1", "s2") == [False, False]
    subnet.cut("s1", 3)
    assert events == [("s1", 3, PortEvent.STATE), ("s2", 3, PortEvent.STATE)]
    assert port_state_change(subnet, "s1", "s2") == [True, True]
    (trap,) = program.traps()  # that of s2 does not come through
    assert trap.trap_number == TrapNumber.LINK_STATE
    assert trap.issuer_lid == lids["s1"]
    assert trap.detail == LinkStateTrap(lid=lids["s1"])
    assert ask(subnet, "h1", NodeInfo, (1, 3)) is None
    assert subnet.drops[Drop.LINK_DOWN]
    assert subnet.path(lids["h1"], lids["h3"]).problem is Drop.LINK_DOWN
    request = PerformanceMad(attribute_id=PortCounters.ATTRIBUTE)
    counters = subnet.ask(
        "h1", request.with_attribute(PortCounters(port_select=3)), dlid=lids["s1"]
    )
    assert counters is not None
    assert counters.attribute(PortCounters).link_downed == 1
    subnet.restore("s1", 3)
    assert get(subnet, "h1", PortInfo, (1,), 3).port_state == PortState.INIT
    assert len(explore(subnet, "h1")) == 5


def test_a_disabled_port_and_its_peer_count_that_the_link_went_down() -> None:
    subnet, _, _ = managed()
    for _ in range(2):  # the second Set finds no link
        change(subnet, "h1", (1,), 3, port_physical_state=PortPhysicalState.DISABLED)
    ends = subnet.node("s1").ports[3], subnet.node("s2").ports[3]
    assert [end.tally["link_downed"] for end in ends] == [1, 1]


def test_a_cut_link_does_not_come_up_when_it_is_told_to() -> None:
    subnet = two_switches()
    subnet.cut("s1", 3)
    change(subnet, "h1", (1,), 3, port_state=PortState.DOWN)
    assert get(subnet, "h1", PortInfo, (1,), 3).port_state == PortState.DOWN
    subnet.restore("s2", 3)
    assert get(subnet, "h1", PortInfo, (1,), 3).port_state == PortState.INIT


def test_the_packets_of_a_set_that_takes_a_link_down_are_counted() -> None:
    subnet = two_switches()
    change(subnet, "h1", (1,), 3, port_physical_state=3)  # a Get and a Set
    subnet.read_counters()
    tally = subnet.nodes["s1"].ports[1].tally
    assert (tally["rcv_packets"], tally["xmit_packets"]) == (2, 2)
    assert (tally["rcv_data"], tally["xmit_data"]) == (144, 144)


def test_a_set_that_takes_a_link_down_is_a_change_at_the_other_end_only() -> None:
    subnet, _, _ = managed()
    change(subnet, "h1", (1,), 3, port_physical_state=3)
    assert port_state_change(subnet, "s1", "s2") == [False, True]


def test_a_set_of_armed_and_active_is_no_change() -> None:
    subnet, _, program = managed()
    subnet.cut("s1", 3)
    subnet.restore("s1", 3)
    program.repress()
    clear_change(subnet, (1,))
    for state in (PortState.ARMED, PortState.ACTIVE):
        assert change(subnet, "h1", (1,), 3, port_state=state) == 0
    assert port_state_change(subnet, "s1") == [False]


def test_nodes_come_and_go() -> None:
    subnet, lids, _ = managed()
    subnet.remove("h3")
    assert subnet.port_of_lid(lids["h3"]) is None
    assert subnet.path(lids["h1"], lids["h3"]).problem is Drop.NO_LID
    assert len(explore(subnet, "h1")) == 4
    subnet.add_adapter("h4", ports=2)
    subnet.connect("h4", 2, "s2", 1)
    found = explore(subnet, "h1")
    assert len(found) == 5
    assert found[subnet.nodes["h4"].guid].info.local_port_num == 2
    subnet.disconnect("h4", 2)
    assert len(explore(subnet, "h1")) == 4


def test_guids_are_unique_and_as_given() -> None:
    subnet = two_switches()
    guids = [port.guid for node in subnet.nodes.values() for port in node.end_ports()]
    assert len(set(guids)) == len(guids)
    node = subnet.nodes["h2"]
    node.set_guid(0x77)
    assert get(subnet, "h1", NodeInfo, (1, 2)).port_guid == 0x78
    node.set_port_guid(1, 0x1234)
    assert get(subnet, "h1", NodeInfo, (1, 2)).port_guid == 0x1234


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: s.add_adapter("h1"), "already"),
        (lambda s: s.add_switch("s9", ports=255), "254"),
        (lambda s: s.connect("h1", 1, "s1", 4), "in use"),
        (lambda s: s.connect("s1", 0, "s2", 4), "no port 0"),
        (lambda s: s.connect("s1", 5, "s2", 4), "no port 5"),
        (lambda s: s.connect("s1", 4, "s1", 4), "itself"),
        (lambda s: s.cut("s1", 4), "no cable"),
        (lambda s: s.cut("s9", 1), "no node"),
        (lambda s: s.nodes["h1"].end_port(2), "no port 2"),
        (lambda s: s.nodes["h1"].set_port_guid(1, 1 << 64), "64 bits"),
        (lambda s: s.advance(-1), "already"),
    ],
)
def test_mistakes(call: object, said: str) -> None:
    with pytest.raises(MadError, match=said):
        call(two_switches())  # type: ignore[operator]
