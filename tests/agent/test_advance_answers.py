# SPDX-License-Identifier: Apache-2.0
"""Answers in advance have the bytes of the answers that a program gets when it asks."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from verbena.agent import ucm_answers
from verbena.agent.advance_answers import (
    addresses_in_advance,
    attributes_in_advance,
    event_with_advance,
    path_in_advance,
)
from verbena.agent.messages import EVENT_MESSAGE, ProgramAnswer, answer
from verbena.agent.ucm_commands import UcmNumber
from verbena.manage.cm.qp_attributes import QpAttributes, QpMask
from verbena.manage.cm.routes import MadAddress

u8, u16, u24, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 24, 32))
u64 = st.integers(0, (1 << 64) - 1)
gids = st.binary(min_size=16, max_size=16)
sockaddrs = st.sampled_from([0, 16, 28, 48]).flatmap(lambda n: st.binary(min_size=n, max_size=n))
pairs = st.tuples(sockaddrs, sockaddrs)
addresses = st.builds(
    MadAddress, port=st.integers(1, 2), has_grh=st.booleans(), sgid=gids, dgid=gids, dlid=u16,
    sl=st.integers(0, 15), flow_label=st.integers(0, (1 << 20) - 1), hop_limit=u8, traffic_class=u8,
)  # fmt: skip
attributes = st.builds(
    QpAttributes, mask=st.sampled_from(list(QpMask)), state=st.integers(1, 3), path_mtu=u8,
    qkey=u32, rq_psn=u24, sq_psn=u24, dest_qpn=u24, access=u8, address=st.none() | addresses,
    pkey_index=u16, max_rd_atomic=u8, max_dest_rd_atomic=u8, min_rnr_timer=u8, port=u8, timeout=u8,
    retry_count=u8, rnr_retry=u8,
)  # fmt: skip


@given(u32, u64, u16, u8, pairs, pairs)
def test_addresses(
    number: int,
    guid: int,
    p_key: int,
    port: int,
    by_ip: tuple[bytes, bytes],
    by_gid: tuple[bytes, bytes],
) -> None:
    asked = ((ucm_answers.QUERY_ADDR, by_ip), (ucm_answers.QUERY_GID, by_gid))
    assert addresses_in_advance(number, guid, p_key, port, by_ip, by_gid) == b"".join(
        answer(
            data=ucm_answers.query_addr(guid, p_key, *both, port),
            command=UcmNumber.QUERY,
            number=number,
            option=option,
        )
        for option, both in asked
    )


@given(u32, st.binary(min_size=64, max_size=64))
def test_a_path(number: int, record: bytes) -> None:
    assert path_in_advance(number, record) == answer(
        data=ucm_answers.query_path([record], 1024),
        command=UcmNumber.QUERY,
        number=number,
        option=ucm_answers.QUERY_PATH,
    )


@given(u32, attributes, u32, st.booleans())
def test_attributes(number: int, of: QpAttributes, device: int, has_index: bool) -> None:
    to = of.address if has_index else None
    asked = {} if to is None else {"gid": to.sgid, "port": to.port}
    where = 0 if to is None else ucm_answers.QP_ATTR_GID_INDEX_AT
    made = attributes_in_advance(number, of, device if to else 0, has_index)
    assert made == answer(
        data=ucm_answers.qp_attr(of),
        gid_index_at=where,
        device=device if to else 0,
        command=UcmNumber.INIT_QP_ATTR,
        number=number,
        option=of.state,
        **asked,  # type: ignore[arg-type]
    )


@given(st.integers(0, 31), u32, st.tuples(u32, u64), u32, st.binary(max_size=304), st.booleans())
def test_a_message_with_an_event(
    flags: int, serial: int, about: tuple[int, int], uid: int, param: bytes, has_more: bool
) -> None:
    more = path_in_advance(about[0], bytes(64)) if has_more else b""
    made = event_with_advance(
        flags, serial, about, (40, bytes(range(16)), 3, 2), (uid, 9, 4, -110, param, 5, 6), more
    )
    assert len(made) == EVENT_MESSAGE
    first, *others = ProgramAnswer.parse(made)
    assert (first.flags, first.serial, first.number) == (flags, serial, about[0])
    assert (first.gid_index_at, first.gid) == (40, bytes(range(16)))
    assert first.data == ucm_answers.event(uid, 9, 4, -110, param, (5, 6))
    assert struct.unpack_from("=Q", made, 56)[0] == about[1]
    assert [each.command for each in others] == [UcmNumber.QUERY] * has_more
