# SPDX-License-Identifier: Apache-2.0
"""MADs of OpenSM, infiniband-diags and ibsim, where their trace is kept beside the project."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.manage.packets import LACKING_OPENSM, opensm_trace
from tests.wire.shared import VECTORS
from verbena.manage.attribute_ids import CLASS_VERSIONS, Method, SmpAttribute, response_method
from verbena.manage.attributes import attribute_of
from verbena.manage.mad import DirectedSmp, MadHeader, SaMad, parse_mad
from verbena.manage.record import Record
from verbena.manage.sa_query import SaQuery
from verbena.manage.sa_records import PathRecord, record_stride
from verbena.manage.smp_attributes import NodeInfo, PortInfo

TRACE = opensm_trace()
pytestmark = pytest.mark.skipif(not TRACE, reason=LACKING_OPENSM)


def exchanged() -> list[tuple[dict[str, Any], MadHeader]]:
    return [(each, parse_mad(bytes.fromhex(each["hex"]))) for each in TRACE]


def is_empty_table(mad: MadHeader) -> bool:
    """OpenSM leaves what was in its buffer in the data of a table without records."""
    return (
        isinstance(mad, SaMad) and mad.method == Method.GET_TABLE_RESP and not mad.attribute_offset
    )


def test_headers() -> None:
    for each, mad in exchanged():
        assert mad.pack().hex() == each["hex"]
        assert (mad.mgmt_class, mad.method) == (each["class"], each["method"])
        assert (mad.attribute_id, mad.attribute_modifier) == (each["attr"], each["mod"])
        assert f"{mad.transaction_id:016x}" == each["tid"]
        assert mad.class_version == CLASS_VERSIONS[mad.mgmt_class]


def test_every_attribute_is_known_and_its_fields_are_all_of_it() -> None:
    """What is no field is zero, but in requests, where programs leave what was in their buffer."""
    kinds: Counter[str] = Counter()
    for each, mad in exchanged():
        record = attribute_of(mad)
        assert record is not None, each
        kinds[type(record).__name__] += 1
        if (mad.is_response or mad.method == Method.SET) and not is_empty_table(mad):
            assert type(record)(**record.values()) == record, (each, record)
    assert kinds["PortInfo"] >= 590
    assert len(kinds) >= 24


def test_responses_answer_their_requests() -> None:
    asked: dict[tuple[str, int], MadHeader] = {}
    answered = 0
    for each, mad in exchanged():
        key = each["tid"], each["class"]
        if not mad.is_response:
            asked[key] = mad
        elif key in asked:
            assert mad.method == response_method(asked[key].method)
            answered += 1
            if isinstance(mad, DirectedSmp):
                record = attribute_of(mad)
                request = asked[key]
                assert isinstance(request, DirectedSmp)
                made = request.response(record, mad.status_code)
                where = {"return_path": mad.return_path}
                assert made.replace(**where).pack() == mad.pack(), each
    assert answered >= 500


def test_discovery() -> None:
    nodes = {
        mad.attribute(NodeInfo).node_guid: mad.attribute(NodeInfo)
        for _, mad in exchanged()
        if mad.attribute_id == SmpAttribute.NODE_INFO and mad.method == Method.GET_RESP
        if isinstance(mad, DirectedSmp)
    }
    assert Counter(int(info.node_type) for info in nodes.values()) == {1: 4, 2: 3}
    states = {
        int(mad.attribute(PortInfo).port_state)
        for _, mad in exchanged()
        if mad.attribute_id == SmpAttribute.PORT_INFO and mad.method == Method.SET
        if isinstance(mad, DirectedSmp)
    }
    assert states == {0, 3, 4}


def test_tables() -> None:
    tables = 0
    for _, mad in exchanged():
        if isinstance(mad, SaMad) and mad.method == Method.GET_TABLE_RESP and mad.attribute_offset:
            record = attribute_of(mad)
            assert record is not None
            assert mad.attribute_offset * 8 == record_stride(type(record)), mad
            tables += 1
    assert tables >= 20


def test_path_query() -> None:
    queries = [
        SaQuery.of_mad(PathRecord, mad)
        for _, mad in exchanged()
        if isinstance(mad, SaMad) and mad.method == Method.GET_TABLE
        if mad.attribute_id == PathRecord.ATTRIBUTE
    ]
    assert queries
    for query in queries:
        assert query.record.pack() == PathRecord(**query.record.values()).pack()


NAMES = {
    "port_info": {
        "mkey": "m_key",
        "gid_prefix": "gid_prefix",
        "lid": "lid",
        "sm_lid": "master_sm_lid",
        "capmask": "capability_mask",
        "local_port": "local_port_num",
        "lmc": "lmc",
        "width_en": "link_width_enabled",
        "width_sup": "link_width_supported",
        "width_act": "link_width_active",
        "speed_sup": "link_speed_supported",
        "state": "port_state",
        "phys": "port_physical_state",
        "hoq": "hoq_life",
        "linkdown_def": "link_down_default_state",
        "mkey_prot": "m_key_protect_bits",
        "speed_act": "link_speed_active",
        "speed_en": "link_speed_enabled",
        "nbr_mtu": "neighbor_mtu",
        "smsl": "master_sm_sl",
        "vlcap": "vl_cap",
        "init_type": "init_type",
        "vl_high_limit": "vl_high_limit",
        "mtucap": "mtu_cap",
        "vlarb_high": "vl_arb_high_cap",
        "vlarb_low": "vl_arb_low_cap",
        "vl_stall": "vl_stall_count",
        "oper_vls": "operational_vls",
        "guid_cap": "guid_cap",
        "client_rereg": "client_reregister",
        "subnet_to": "subnet_timeout",
        "resp_time": "resp_time_value",
        "phy_err": "local_phy_errors",
        "overrun_err": "overrun_errors",
        "capmask2": "capability_mask2",
        "ext_act": "link_speed_ext_active",
        "ext_sup": "link_speed_ext_supported",
        "ext_en": "link_speed_ext_enabled",
    },
    "node_info": {
        "type": "node_type",
        "nports": "num_ports",
        "sysguid": "system_image_guid",
        "nodeguid": "node_guid",
        "portguid": "port_guid",
        "partcap": "partition_cap",
        "devid": "device_id",
        "rev": "revision",
        "local_port": "local_port_num",
        "vendor": "vendor_id",
    },
    "switch_info": {
        "lin_cap": "linear_fdb_cap",
        "mcast_cap": "multicast_fdb_cap",
        "lin_top": "linear_fdb_top",
        "lifetime": "life_time_value",
        "psc": "port_state_change",
        "part_enf_cap": "partition_enforcement_cap",
        "mcast_top": "multicast_fdb_top",
    },
    "sm_info": {
        "guid": "guid",
        "sm_key": "sm_key",
        "act": "act_count",
        "prio": "priority",
        "state": "sm_state",
    },
    "port_counters": {
        "port": "port_select",
        "select": "counter_select",
        "xmit_data": "xmit_data",
        "rcv_data": "rcv_data",
        "xmit_pkts": "xmit_packets",
        "rcv_pkts": "rcv_packets",
    },
}


def test_fields_as_another_reader_has_them() -> None:
    """The vectors have what tshark and their maker read in some of these MADs."""
    checked = 0
    for vector in json.loads((VECTORS / "packets.json").read_text())["vectors"]:
        if vector["layer"] != "mad":
            continue
        mad = parse_mad(bytes.fromhex(vector["hex"]))
        fields = vector["fields"]
        assert (mad.attribute_id, mad.attribute_modifier) == (fields["attr_id"], fields["attr_mod"])
        record = attribute_of(mad)
        assert isinstance(record, Record)
        for name, known in NAMES.items():
            for theirs, ours in known.items():
                if theirs in fields.get(name, {}):
                    value = fields[name][theirs]
                    value = int(value, 16) if isinstance(value, str) else value
                    assert getattr(record, ours) == value, (vector["id"], ours)
                    checked += 1
        if "node_desc" in fields:
            assert record.values()["name"] == fields["node_desc"]
        if "sl2vl" in fields:
            assert list(record.values()["vls"]) == fields["sl2vl"]
        if "pkeys" in fields:
            assert list(record.values()["p_keys"]) == fields["pkeys"]
        if "lft" in fields:
            assert list(record.values()["ports"]) == fields["lft"]
        if "mft" in fields:
            assert list(record.values()["masks"]) == fields["mft"]
    assert checked > 200
