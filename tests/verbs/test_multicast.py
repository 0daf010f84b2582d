# SPDX-License-Identifier: Apache-2.0
"""Multicast groups among the processes of one host."""

from __future__ import annotations

import ipaddress
import itertools
import os
from collections.abc import Callable

import pytest

from tests.verbs.conftest import MakePair, Pair
from tests.verbs.side import Side
from verbena import verbs

QKEY = 0x11111111
GRH = 40
TEXT = b"to all of you"
GUID_MADE = 1  # a source GID that no address stands behind: no packet leaves this host
OVER_ROCE = os.environ.get("VERBENA_CARRIER") == "roce"
NUMBERS = itertools.count(1)


@pytest.fixture(params=["ff0e::77:0", "::ffff:239.7.7.0"])
def group(request: pytest.FixtureRequest) -> bytes:
    """A group of this test's own, of each IP version."""
    return (ipaddress.IPv6Address(request.param) + next(NUMBERS)).packed


@pytest.fixture
def ud_pair(make_pair: MakePair) -> Pair:
    return make_pair(qp_type="UD")


def source(side: Side, group: bytes) -> int:
    """The index of a source GID; over RoCE a member on this host gets the packet that
    leaves it, which needs an address of the group's IP version."""
    if not OVER_ROCE:
        return GUID_MADE
    is_ipv4 = verbs.Gid(group).is_ipv4_mapped
    table = side.ctx.query_gid_table()
    for entry in table:
        if entry.gid_index > GUID_MADE and entry.gid.is_ipv4_mapped == is_ipv4:
            return entry.gid_index
    pytest.skip("no interface has an address of the group's IP version; run the tests as root")


def send(side: Side, group: bytes, **options: int) -> None:
    side.fill(TEXT, 1000)
    ah = side.pd.create_ah(dgid=group, sgid_index=source(side, group), is_global=True)
    words = {"remote_qpn": verbs.MULTICAST_QPN, "remote_qkey": QKEY} | options
    side.qp.send(side.mr, 1000, len(TEXT), ah=ah, **words)
    assert [one.opcode for one in side.wait()] == ["SEND"]


def test_a_member_receives_what_is_sent_to_its_group(ud_pair: Pair, group: bytes) -> None:
    ud_pair.far.post_recv(0, 200)
    send(ud_pair.near, group)
    assert ud_pair.far.wait(1, timeout=0.05) == []
    ud_pair.far.attach_mcast(group)
    send(ud_pair.near, group)
    (received,) = ud_pair.far.wait()
    assert (received.byte_len, received.src_qp) == (GRH + len(TEXT), ud_pair.near.qp.qp_num)
    assert ud_pair.far.bytes_at(GRH, len(TEXT)) == TEXT
    assert ud_pair.far.bytes_at(24, 16)[12:] == group[12:]
    ud_pair.far.post_recv(0, 200)
    ud_pair.far.detach_mcast(group)
    send(ud_pair.near, group)
    assert ud_pair.far.wait(1, timeout=0.05) == []


def test_a_sender_in_the_group_receives_too(ud_pair: Pair, group: bytes) -> None:
    ud_pair.near.qp.attach_mcast(group)
    ud_pair.near.post_recv(0, 200)
    ud_pair.near.fill(TEXT, 1000)
    index = source(ud_pair.near, group)
    ah = ud_pair.near.pd.create_ah(dgid=group, sgid_index=index, is_global=True)
    ud_pair.near.qp.send(
        ud_pair.near.mr, 1000, len(TEXT), ah=ah, remote_qpn=verbs.MULTICAST_QPN, remote_qkey=QKEY
    )
    assert {one.opcode for one in ud_pair.near.wait(2)} == {"SEND", "RECV"}


def test_what_is_not_for_the_group_is_dropped(ud_pair: Pair, group: bytes) -> None:
    ud_pair.far.attach_mcast(group)
    ud_pair.far.post_recv(0, 200)
    send(ud_pair.near, group, remote_qkey=QKEY + 1)
    send(ud_pair.near, group, remote_qpn=ud_pair.far.info().qp_num)
    assert ud_pair.far.wait(1, timeout=0.05) == []


@pytest.fixture
def make_qp(pd: verbs.PD, cq: verbs.CQ) -> Callable[..., verbs.QP]:
    return lambda kind: pd.create_qp(send_cq=cq, qp_type=kind)


def test_only_ud_and_only_groups(make_qp: Callable[..., verbs.QP], group: bytes) -> None:
    ud, rc = make_qp(verbs.QPType.UD), make_qp(verbs.QPType.RC)
    with pytest.raises(verbs.VerbsError, match=r"only a UD QP can be in .* this is RC"):
        rc.attach_mcast(group)
    with pytest.raises(verbs.VerbsError, match="GID"):
        ud.attach_mcast(verbs.Gid(ipaddress.IPv6Address("::ffff:10.0.0.1").packed))
    with pytest.raises(verbs.VerbsError, match="not attached to this group"):
        ud.detach_mcast(group)
    with pytest.raises(ValueError, match="16 bytes"):
        ud.attach_mcast(b"short")


def test_a_closed_qp_has_left_its_groups(
    ctx: verbs.Context, make_qp: Callable[..., verbs.QP], group: bytes
) -> None:
    device = ctx.query_device()
    assert device.max_total_mcast_qp_attach == device.max_mcast_grp * device.max_mcast_qp_attach
    for _ in range(device.max_mcast_qp_attach + 1):
        qp = make_qp(verbs.QPType.UD)
        qp.attach_mcast(group)
        qp.attach_mcast(group)
        qp.close()
    kept = [make_qp(verbs.QPType.UD) for _ in range(device.max_mcast_qp_attach + 1)]
    for qp in kept[1:]:
        qp.attach_mcast(group)
    with pytest.raises(verbs.VerbsError, match=r"the group has .* QPs of this process already"):
        kept[0].attach_mcast(group)
    del kept, qp  # nobody refers to them any more
    make_qp(verbs.QPType.UD).attach_mcast(group)
