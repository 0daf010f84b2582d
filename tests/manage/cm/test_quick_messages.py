# SPDX-License-Identifier: Apache-2.0
"""Messages that are packed by one call are those of their records' constructors, also in refusals.

Values are drawn around the bounds of their fields, so that some of them do not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.manage.cm import quick_messages as quick
from verbena.manage.cm.settings import CmSettings
from verbena.manage.cm_messages import CmDrep, CmDreq, CmPath, CmRep, CmReq, CmRtu, CmTransport
from verbena.manage.codes import IbMtu, IbRate
from verbena.manage.errors import MadError
from verbena.manage.record import Record


def of_width(bits: int) -> st.SearchStrategy[int]:
    most = (1 << bits) - 1
    fitting = st.integers(0, most)
    return st.one_of(fitting, fitting, fitting, st.sampled_from([0, most, most + 1, most * 2, -1]))


def octets(most: int) -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=most), st.binary(min_size=most, max_size=most + 1))


gids = st.one_of(st.binary(min_size=16, max_size=16), st.binary(min_size=15, max_size=17))
flags = st.booleans()
ids = st.tuples(of_width(32), of_width(32))


def outcome(make: Callable[[], Record]) -> bytes | str:
    """Return the bytes of a record, or why there is none."""
    try:
        return make().pack()
    except MadError as error:
        return str(error)


@given(st.sampled_from([CmRtu, CmDrep]), ids, octets(224))
def test_messages_with_private_data_alone(
    kind: type[CmRtu | CmDrep], names: tuple[int, int], data: bytes
) -> None:
    plain: dict[str, Any] = {
        "local_comm_id": names[0],
        "remote_comm_id": names[1],
        "private_data": data,
    }
    assert outcome(lambda: quick.quick_plain(kind, *names, data)) == outcome(lambda: kind(**plain))


@given(ids, of_width(24), octets(220))
def test_dreq(names: tuple[int, int], qpn: int, data: bytes) -> None:
    assert outcome(lambda: quick.quick_dreq(*names, qpn, data)) == outcome(
        lambda: CmDreq(
            local_comm_id=names[0], remote_comm_id=names[1], remote_qpn=qpn, private_data=data
        )
    )


@given(
    st.tuples(of_width(16), of_width(16)), st.tuples(gids, gids), of_width(20),
    st.sampled_from(list(IbRate)), of_width(8), of_width(8), of_width(4), flags, of_width(5),
)  # fmt: skip
def test_path(
    lids: tuple[int, int],
    ends: tuple[bytes, bytes],
    label: int,
    rate: IbRate,
    traffic_class: int,
    hops: int,
    sl: int,
    near: bool,
    wait: int,
) -> None:
    made = outcome(
        lambda: quick.quick_path(lids, ends, label, rate, traffic_class, hops, sl, near, wait)
    )
    assert made == outcome(
        lambda: CmPath(
            local_lid=lids[0],
            remote_lid=lids[1],
            local_gid=ends[0],
            remote_gid=ends[1],
            flow_label=label,
            packet_rate=rate,
            traffic_class=traffic_class,
            hop_limit=hops,
            sl=sl,
            subnet_local=near,
            local_ack_timeout=wait,
        )
    )


PATH = CmPath(local_gid=bytes(range(16)), remote_gid=bytes(16), flow_label=0xABCDE, sl=9)
REQ: dict[str, st.SearchStrategy[Any]] = {
    "local_comm_id": of_width(32),
    "local_ca_guid": of_width(64),
    "service_id": of_width(64),
    "local_qpn": of_width(24),
    "starting_psn": of_width(24),
    "transport": st.sampled_from(list(CmTransport)),
    "extended_transport": of_width(3),
    "responder_resources": of_width(8),
    "initiator_depth": of_width(8),
    "retry_count": of_width(3),
    "rnr_retry_count": of_width(3),
    "end_to_end_flow_control": flags,
    "srq": flags,
    "p_key": of_width(16),
    "path_mtu": st.sampled_from([*IbMtu, IbMtu(15)]),
    "local_cm_response_timeout": of_width(5),
    "max_cm_retries": of_width(4),
    "vendor_id": of_width(24),
    "private_data": octets(92),
}


def packed_req(of: dict[str, Any]) -> CmReq:
    waits = CmSettings(
        response_timeout=of["local_cm_response_timeout"], max_retries=of["max_cm_retries"]
    )
    return quick.quick_req(
        of["local_comm_id"], of["local_ca_guid"], of["service_id"], of["local_qpn"],
        of["starting_psn"], of["transport"], of["extended_transport"],
        (of["responder_resources"], of["initiator_depth"]),
        (of["retry_count"], of["rnr_retry_count"]), of["end_to_end_flow_control"], of["srq"],
        of["p_key"], of["path_mtu"], PATH, waits, of["vendor_id"], of["private_data"],
    )  # fmt: skip


def is_one_refusal(one: bytes | str, other: bytes | str) -> bool:
    """Of two values that do not fit, each constructor may name another one first."""
    return isinstance(one, str) and isinstance(other, str)


@given(st.fixed_dictionaries(REQ))
def test_req(of: dict[str, Any]) -> None:
    wait = of["local_cm_response_timeout"]
    made = outcome(lambda: packed_req(of))
    meant = outcome(lambda: CmReq(**of, remote_cm_response_timeout=wait, primary=PATH))
    assert made == meant or is_one_refusal(made, meant)


REP: dict[str, st.SearchStrategy[Any]] = {
    "local_comm_id": of_width(32),
    "remote_comm_id": of_width(32),
    "local_qpn": of_width(24),
    "local_eecn": of_width(24),
    "starting_psn": of_width(24),
    "responder_resources": of_width(8),
    "initiator_depth": of_width(8),
    "target_ack_delay": of_width(5),
    "end_to_end_flow_control": flags,
    "rnr_retry_count": of_width(3),
    "srq": flags,
    "local_ca_guid": of_width(64),
    "private_data": octets(196),
}


def packed_rep(of: dict[str, Any], vendor: int) -> CmRep:
    return quick.quick_rep(
        (of["local_comm_id"], of["remote_comm_id"]), of["local_qpn"], of["local_eecn"],
        of["starting_psn"], (of["responder_resources"], of["initiator_depth"]),
        of["target_ack_delay"], of["end_to_end_flow_control"], of["rnr_retry_count"],
        of["srq"], of["local_ca_guid"], vendor, of["private_data"],
    )  # fmt: skip


@given(st.fixed_dictionaries(REP), st.integers(0, (1 << 24) - 1))
def test_rep(of: dict[str, Any], vendor: int) -> None:
    made = outcome(lambda: packed_rep(of, vendor))
    high, middle, low = vendor.to_bytes(3, "big")
    meant = outcome(
        lambda: CmRep(**of, vendor_id_high=high, vendor_id_middle=middle, vendor_id_low=low)
    )
    assert made == meant or is_one_refusal(made, meant)


def test_a_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(MadError, match=r"CmDreq\.remote_qpn is 16777216"):
        quick.quick_dreq(1, 2, 1 << 24, b"")
    with pytest.raises(MadError, match=r"CmRtu\.private_data has 225 bytes"):
        quick.quick_plain(CmRtu, 1, 2, bytes(225))
