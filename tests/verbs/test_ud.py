# SPDX-License-Identifier: Apache-2.0
"""Datagrams and address handles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.verbs.conftest import MakePair, Pair
from verbena import verbs
from verbena.verbs import SendFlags

QKEY = 0x11111111
GRH = 40
TEXT = b"a datagram"


@pytest.fixture
def ud_pair(make_pair: MakePair) -> Pair:
    return make_pair(qp_type="UD", max_inline_data=64)


def far_ah(pair: Pair) -> tuple[verbs.AH, int]:
    """An address handle to the far end, and its QP number."""
    info = pair.far.info()
    return pair.near.pd.create_ah(verbs.address_of(info, pair.near.gid_index)), info.qp_num


def test_a_datagram_arrives_behind_its_grh(ud_pair: Pair) -> None:
    ah, qpn = far_ah(ud_pair)
    ud_pair.far.post_recv(0, 200)
    ud_pair.near.fill(TEXT)
    ud_pair.near.qp.send(
        ud_pair.near.mr, 0, len(TEXT), ah=ah, remote_qpn=qpn, remote_qkey=QKEY, imm_data=7
    )
    assert ud_pair.near.wait()[0].ok
    (received,) = ud_pair.far.wait()
    assert received.byte_len == GRH + len(TEXT)
    assert (received.src_qp, received.imm_data) == (ud_pair.near.qp.qp_num, 7)
    assert ud_pair.far.bytes_at(GRH, len(TEXT)) == TEXT


def test_a_wrong_qkey_is_dropped(ud_pair: Pair) -> None:
    ah, qpn = far_ah(ud_pair)
    ud_pair.far.post_recv(0, 200)
    ud_pair.near.qp.send(ud_pair.near.mr, 0, 8, ah=ah, remote_qpn=qpn, remote_qkey=QKEY + 1)
    assert ud_pair.near.wait()[0].ok
    assert ud_pair.far.wait(1, timeout=0.05) == []


@pytest.mark.direct_only("by packets the datagram is under way when it completes")
def test_without_a_receive_a_datagram_is_dropped(ud_pair: Pair) -> None:
    ah, qpn = far_ah(ud_pair)
    ud_pair.near.qp.send(ud_pair.near.mr, 0, 8, ah=ah, remote_qpn=qpn, remote_qkey=QKEY)
    assert ud_pair.near.wait()[0].ok
    ud_pair.far.post_recv(0, 200)
    assert ud_pair.far.wait(1, timeout=0.05) == []


def test_an_answer_goes_back_to_where_the_message_came_from(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    a = near.pd.create_qp(send_cq=near.cq, qp_type=verbs.QPType.UD)
    b = far.pd.create_qp(send_cq=far.cq, qp_type=verbs.QPType.UD)
    verbs.connect_pair(a, b)
    info, index = verbs.local_qp_info(b)
    b.recv(far.mr, 0, 200)
    a.recv(near.mr, 0, 200)
    to_b = near.pd.create_ah(verbs.address_of(info, index))
    a.send(near.mr, 1000, 4, ah=to_b, remote_qpn=b.qp_num, remote_qkey=QKEY)
    near.wait()
    (wc,) = far.cq.wait(1, 10)
    back = far.pd.create_ah_from_wc(wc, memoryview(far.mr)[:GRH])
    far.fill(TEXT, 2000)
    b.send(far.mr, 2000, len(TEXT), ah=back, remote_qpn=wc.src_qp, remote_qkey=QKEY)
    far.wait()
    assert near.wait()[0].src_qp == b.qp_num
    assert near.bytes_at(GRH, len(TEXT)) == TEXT


def test_a_batch_of_datagrams_names_its_handles_by_index(ud_pair: Pair) -> None:
    ah, qpn = far_ah(ud_pair)
    for number in range(4):
        ud_pair.far.post_recv(number * 100, 100, wr_id=number)
    records = np.zeros(4, verbs.send_dtype)
    records["addr"] = ud_pair.near.mr.addr
    records["lkey"] = ud_pair.near.mr.lkey
    records["length"] = np.arange(1, 5)
    records["opcode"] = verbs.WROpcode.SEND
    records["flags"] = SendFlags.SIGNALED
    records["remote_qpn"] = qpn
    records["remote_qkey"] = QKEY
    assert ud_pair.near.qp.post_many(records, [ah]) == 4
    ud_pair.near.wait(4)
    assert [one.byte_len - GRH for one in ud_pair.far.wait(4)] == [1, 2, 3, 4]


def test_a_batch_with_an_index_outside_its_handles_is_refused(ud_pair: Pair) -> None:
    ah, _ = far_ah(ud_pair)
    records = np.zeros(1, verbs.send_dtype)
    records["ah"] = 1
    with pytest.raises(ValueError, match="outside ahs"):
        ud_pair.near.qp.post_many(records, [ah])


def test_a_datagram_longer_than_the_mtu_is_refused(make_pair: MakePair) -> None:
    pair = make_pair(qp_type="UD", nbytes=8192)
    ah, qpn = far_ah(pair)
    try:
        pair.near.qp.send(pair.near.mr, 0, 4097, ah=ah, remote_qpn=qpn, remote_qkey=QKEY)
    except verbs.VerbsError:
        return
    assert pair.near.wait()[0].status == "LOC_LEN_ERR"


def test_roce_needs_a_gid_in_the_address(pd: verbs.PD) -> None:
    with pytest.raises(verbs.VerbsError, match="RoCE needs a GID"):
        pd.create_ah(is_global=False, dlid=1)


def test_a_gid_has_16_bytes(pd: verbs.PD) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        pd.create_ah(dgid=b"short")
