# SPDX-License-Identifier: Apache-2.0
"""The sweep of one subnet beside OpenSM's, where the InfiniBand Architecture decides the contents.

The vectors are a recording of OpenSM 3.3.23 over ibsim: three switches and four hosts. The order
of phases, the routes of discovery, and what ports, switches and tables are set to are compared.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.manage.packets import LACKING_OPENSM, OPENSM
from tests.manage.sm.managed import ManagedSubnet, problems_of
from verbena.manage.agents import ADAPTER, SWITCH, subnet_of_text
from verbena.manage.attribute_ids import Method, SmpAttribute
from verbena.manage.codes import IbMtu
from verbena.manage.mad import DirectedSmp
from verbena.manage.sm import SmSettings
from verbena.manage.smp_attributes import (
    LinearForwardingTable,
    PortInfo,
    SlToVlTable,
    SwitchInfo,
    VlArbitrationTable,
)

pytestmark = pytest.mark.skipif(not OPENSM.exists(), reason=LACKING_OPENSM)
Place = tuple[tuple[int, ...], int]  # the directed route, and the modifier without bit 31


@cache
def recording() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(OPENSM.read_text())
    return found


def of_opensm() -> list[DirectedSmp]:
    first = recording()["mads"][0]["client_port"]
    return [
        DirectedSmp.unpack(bytes.fromhex(each["hex"]))
        for each in recording()["mads"]
        if each["client_port"] == first
        and each["dir"] == "client->fabric"
        and each["class"] == 0x81
    ]


@cache
def of_ours() -> tuple[tuple[DirectedSmp, ...], ManagedSubnet]:
    text = recording()["topology"]
    adapter = replace(ADAPTER, mtu_cap=IbMtu.BYTES_2048)
    switch = replace(SWITCH, mtu_cap=IbMtu.BYTES_2048)
    managed = ManagedSubnet(subnet_of_text(text, adapter=adapter, switch=switch))
    managed.keep = True
    hosts = [node for node in managed.subnet.nodes.values() if not node.is_switch]
    first = next(node for node in hosts if node.name.endswith("1110"))
    managed.add(first.name, SmSettings(lane_tables=True, most_smps=4))
    managed.run()
    assert problems_of(managed) == []
    packets = [packet.mad for _, packet in managed.sent if packet.mad[1] == 0x81]
    return tuple(DirectedSmp.unpack(mad) for mad in packets), managed


def sets(mads: list[DirectedSmp], attribute: int) -> dict[Place, list[DirectedSmp]]:
    found: dict[Place, list[DirectedSmp]] = {}
    for mad in mads:
        if mad.method == Method.SET and mad.attribute_id == attribute:
            place = mad.path, mad.attribute_modifier & 0x7FFFFFFF
            found.setdefault(place, []).append(mad)
    return found


def final_port_infos(mads: list[DirectedSmp]) -> dict[Place, dict[str, int]]:
    """What all Sets of a port's PortInfo together have said of each field that both decide."""
    names = ("neighbor_mtu", "operational_vls")
    found: dict[Place, dict[str, int]] = {}
    for place, each in sets(mads, SmpAttribute.PORT_INFO).items():
        infos = [mad.attribute(PortInfo) for mad in each]
        last = infos[-1]
        said = {name: int(getattr(last, name)) for name in names}
        said["states"] = max(int(info.port_state) for info in infos)
        said["hoq_life"] = last.hoq_life
        found[place] = said
    return found


def phases(mads: list[DirectedSmp]) -> list[int]:
    """The attributes of Sets in their order, each run once."""
    found: list[int] = []
    for mad in mads:
        if mad.method == Method.SET and (not found or found[-1] != mad.attribute_id):
            found.append(mad.attribute_id)
    return found


def test_the_order_of_phases() -> None:
    ours, theirs = phases(list(of_ours()[0])), phases(of_opensm())
    switch, port = int(SmpAttribute.SWITCH_INFO), int(SmpAttribute.PORT_INFO)
    linear = int(SmpAttribute.LINEAR_FORWARDING)
    lanes = {int(SmpAttribute.SL_TO_VL), int(SmpAttribute.VL_ARBITRATION)}
    without = [[each for each in order if each not in lanes] for order in (ours, theirs)]
    assert without[1] == [switch, port, switch, linear, port]
    assert without[0] == without[1]
    assert set(ours) == set(theirs)


def test_every_node_is_asked_the_same_way() -> None:
    """Breadth first along the same routes: OpenSM's recording begins behind the first question."""
    ours = [mad.path for mad in of_ours()[0] if mad.attribute_id == SmpAttribute.NODE_INFO]
    theirs = [mad.path for mad in of_opensm() if mad.attribute_id == SmpAttribute.NODE_INFO]
    assert set(theirs) <= set(ours)
    assert set(ours) - set(theirs) <= {(), (1,)}


def test_forwarding_tables_are_equal() -> None:
    ours = sets(list(of_ours()[0]), SmpAttribute.LINEAR_FORWARDING)
    theirs = sets(of_opensm(), SmpAttribute.LINEAR_FORWARDING)
    assert set(ours) == set(theirs)
    lids = _lids(of_opensm()), _lids(list(of_ours()[0]))
    assert lids[0] == lids[1]
    hosts = [lid for place, lid in lids[0].items() if place[1]]
    for place, mads in ours.items():
        one, other = (each[-1].attribute(LinearForwardingTable) for each in (mads, theirs[place]))
        assert [one.ports[lid] for lid in hosts] == [other.ports[lid] for lid in hosts]
        assert one.ports == other.ports


def _lids(mads: list[DirectedSmp]) -> dict[Place, int]:
    return {
        place: mad.attribute(PortInfo).lid
        for place, each in sets(mads, SmpAttribute.PORT_INFO).items()
        for mad in each
        if mad.attribute(PortInfo).lid
    }


def test_ports_get_the_same_settings() -> None:
    ours, theirs = final_port_infos(list(of_ours()[0])), final_port_infos(of_opensm())
    # OpenSM also writes ports without a link.
    linked = {place for place, said in theirs.items() if said["states"] == 4}
    ends = set(_lids(of_opensm()))
    assert linked <= set(ours)
    for place in sorted(linked):
        one, other = dict(ours[place]), dict(theirs[place])
        if place in ends:  # HOQLife is of switches
            del one["hoq_life"], other["hoq_life"]
        assert one == other, place


def test_end_ports_get_the_same_settings() -> None:
    fields = ("lid", "master_sm_lid", "gid_prefix", "subnet_timeout", "lmc", "m_key")
    fields += ("local_phy_errors", "overrun_errors", "operational_vls", "neighbor_mtu")
    found = []
    for mads in (list(of_ours()[0]), of_opensm()):
        by_place = {}
        for place, each in sets(mads, SmpAttribute.PORT_INFO).items():
            for mad in each:
                info = mad.attribute(PortInfo)
                if info.lid and place not in by_place and place[1]:
                    by_place[place] = {name: int(getattr(info, name)) for name in fields}
        found.append(by_place)
    assert found[0] == found[1]


def test_switches_get_the_same_settings() -> None:
    fields = ("linear_fdb_top", "life_time_value")
    ours = sets(list(of_ours()[0]), SmpAttribute.SWITCH_INFO)
    theirs = sets(of_opensm(), SmpAttribute.SWITCH_INFO)
    assert {place: len(mads) for place, mads in ours.items()} == {
        place: len(mads) for place, mads in theirs.items()
    }
    for place, mads in ours.items():
        one, other = (each[-1].attribute(SwitchInfo) for each in (mads, theirs[place]))
        assert [getattr(one, name) for name in fields] == [getattr(other, name) for name in fields]
        first = mads[0].attribute(SwitchInfo)
        assert first.port_state_change
        assert theirs[place][0].attribute(SwitchInfo).port_state_change


@pytest.mark.parametrize(
    ("attribute", "kind"),
    [(SmpAttribute.VL_ARBITRATION, VlArbitrationTable), (SmpAttribute.SL_TO_VL, SlToVlTable)],
)
def test_lane_tables_of_linked_ports(attribute: int, kind: Any) -> None:
    ours, theirs = sets(list(of_ours()[0]), attribute), sets(of_opensm(), attribute)
    both = set(ours) & set(theirs)
    assert both
    for place in both:
        one, other = (each[-1].attribute(kind) for each in (ours[place], theirs[place]))
        assert one == other, place
