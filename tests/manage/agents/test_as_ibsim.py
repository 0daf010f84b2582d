# SPDX-License-Identifier: Apache-2.0
"""What OpenSM and infiniband-diags asked ibsim, asked again of our agents of the same topology."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.manage.packets import LACKING_OPENSM, OPENSM, opensm_trace
from verbena.fabrics import ibnetdiscover
from verbena.manage.agents import ADAPTER, SWITCH, Subnet, subnet_of_fabric
from verbena.manage.attribute_ids import Method, MgmtClass, SmpAttribute
from verbena.manage.attributes import attribute_of
from verbena.manage.codes import IbMtu, PortState
from verbena.manage.mad import DirectedSmp, parse_mad
from verbena.manage.record import Record
from verbena.manage.smp_attributes import NodeInfo, PortInfo, SwitchInfo

TRACE = opensm_trace()
pytestmark = pytest.mark.skipif(not TRACE, reason=LACKING_OPENSM)

DIAGS = "H-0002c90200002220"  # the host of infiniband-diags

# Fields in which two makers' hardware agrees: what the topology and the subnet manager decide.
COMPARED: dict[type[Record], tuple[str, ...]] = {
    NodeInfo: (
        *("base_version", "class_version", "node_type", "num_ports", "node_guid", "port_guid"),
        "local_port_num",
    ),
    SwitchInfo: (
        *("linear_fdb_top", "life_time_value", "default_port", "optimized_sl_to_vl"),
        *("default_multicast_primary_port", "default_multicast_not_primary_port"),
        *("enhanced_port_0", "multicast_fdb_cap", "partition_enforcement_cap"),
    ),
    PortInfo: (
        *("m_key", "lid", "master_sm_lid", "diag_code", "local_port_num", "port_state"),
        *("link_width_active", "link_speed_active", "port_physical_state"),
        *("link_down_default_state", "m_key_protect_bits", "lmc"),
        *("neighbor_mtu", "master_sm_sl", "vl_cap", "mtu_cap", "operational_vls", "hoq_life"),
        *("vl_arb_high_cap", "vl_arb_low_cap", "init_type", "init_type_reply"),
        *("m_key_violations", "p_key_violations", "q_key_violations", "client_reregister"),
    ),
}
# What ibsim shows where there is no link: width and speed of ports that are down, and a smaller MTU
# of port 0.
OF_LINKS = {"link_width_active", "link_speed_active"}


def subnet_like_ibsim() -> Subnet:
    """The topology with ibsim's rate and MTU."""
    text = json.loads(OPENSM.read_text())["topology"]
    like = {"mtu_cap": IbMtu.BYTES_2048, "fdr10": False}
    return subnet_of_fabric(
        ibnetdiscover.read(text, rate="4xSDR"),
        adapter=replace(ADAPTER, partition_cap=64, **like),
        switch=replace(SWITCH, **like),
    )


def programs() -> dict[int, str]:
    """The host of each program: its directed routes come to the first switch by this port."""
    where = {1: "H-0002c90200001110", 2: DIAGS}
    found: dict[int, str] = {}
    for each in TRACE:
        mad = parse_mad(bytes.fromhex(each["hex"]))
        if each["dir"] == "fabric->client" and isinstance(mad, DirectedSmp) and mad.path:
            found.setdefault(each["client_port"], where.get(mad.return_path[1], ""))
    return {program: host for program, host in found.items() if host}


def exchanges() -> Iterator[tuple[str, DirectedSmp, DirectedSmp | None]]:
    """Directed-route requests in their order, each with what came back.

    That is ibsim's answer, or the request itself, which was lost. The trace lacks some answers.
    """
    hosts = programs()
    for number, each in enumerate(TRACE):
        request = parse_mad(bytes.fromhex(each["hex"]))
        if each["dir"] != "client->fabric" or each["class"] != MgmtClass.SUBN_DIRECTED_ROUTE:
            continue
        if not request.is_response:
            assert isinstance(request, DirectedSmp)
            yield hosts.get(each["client_port"], DIAGS), request, answer_in_trace(number)


def key_of(each: dict[str, Any]) -> tuple[Any, ...]:
    """What a request and its answer share; ibsim returns the lower half of the transaction ID."""
    return each["client_port"], each["class"], each["attr"], each["mod"], each["tid"][8:]


def answer_in_trace(number: int) -> DirectedSmp | None:
    for each in TRACE[number + 1 :]:
        if each["dir"] == "fabric->client" and key_of(each) == key_of(TRACE[number]):
            mad = parse_mad(bytes.fromhex(each["hex"]))
            assert isinstance(mad, DirectedSmp)
            return mad
    return None


def test_answers_agree() -> None:
    subnet = subnet_like_ibsim()
    seen: Counter[str] = Counter()
    for host, request, theirs in exchanges():
        ours = subnet.ask(host, request)
        name = SmpAttribute(request.attribute_id).name
        where = (host, request, theirs)
        if theirs is None:
            continue
        if not theirs.is_response:
            assert ours is None, where
            seen["lost"] += 1
            continue
        assert ours is not None, where
        assert ours.status == theirs.status, where
        for field in ("method", "attribute_id", "attribute_modifier"):
            assert getattr(ours, field) == getattr(theirs, field)
        hops = ours.hop_count + 1
        assert ours.return_path[1:hops] == theirs.return_path[1:hops]
        assert ours.initial_path == theirs.initial_path
        compare(request, ours, theirs)
        seen[f"{Method(request.method).name} {name}"] += 1
    assert seen["GET NODE_INFO"] >= 25
    assert seen["GET PORT_INFO"] >= 240
    assert seen["SET PORT_INFO"] >= 50
    assert seen["SET SL_TO_VL"] >= 250
    assert seen["SET LINEAR_FORWARDING"] == 3
    assert seen["lost"] >= 1


def compare(request: DirectedSmp, ours: DirectedSmp, theirs: DirectedSmp) -> None:
    mine, other = attribute_of(ours), attribute_of(theirs)
    assert mine is not None
    assert other is not None
    fields = COMPARED.get(type(mine), tuple(mine.FIELDS))
    excused: set[str] = set()
    if isinstance(mine, PortInfo):
        is_switch_itself = theirs.attribute(PortInfo).mtu_cap == IbMtu.BYTES_1024
        excused |= OF_LINKS if mine.port_state == PortState.DOWN else set()
        excused |= {"mtu_cap"} if is_switch_itself else set()
    for field in fields:
        if field in excused:
            continue
        if getattr(mine, field) != getattr(other, field):
            raise AssertionError(f"{field}: {mine!r} and {other!r} to {request!r}")
