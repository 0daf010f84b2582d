# SPDX-License-Identifier: Apache-2.0
"""Programs of Debian's pyverbs: `pyverbs_child.py NAME` runs one; a failed assert ends it."""

import sys
from time import monotonic

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

GID_INDEX = 1
SIZE = 10_000
REMOTE = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ


class End:
    """One end of an RC connection with one region."""

    def __init__(self, context):
        self.context = context
        self.pd = PD(context)
        self.channel = CompChannel(context)
        self.cq = CQ(context, 64, None, self.channel)
        capacity = QPCap(max_send_wr=16, max_recv_wr=16)
        attributes = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=capacity)
        self.qp = QP(self.pd, attributes)
        self.mr = MR(self.pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE | REMOTE)

    def connect(self, number):
        gid = self.context.query_gid(1, GID_INDEX).gid
        route = GlobalRoute(dgid=GID(gid), sgid_index=GID_INDEX)
        address = AHAttr(gr=route, is_global=1, port_num=1)
        attributes = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        attributes.qp_access_flags = REMOTE
        attributes.dest_qp_num = number
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.ah_attr = address
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = 12
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 14, 7, 7
        self.qp.to_rts(attributes)

    def sge(self, length=SIZE):
        return SGE(self.mr.buf, length, self.mr.lkey)

    def completion(self):
        deadline = monotonic() + 10
        while monotonic() < deadline:
            count, found = self.cq.poll()
            if count:
                return found[0]
        raise TimeoutError("no completion within 10 s")


def pair():
    context = Context(name="verbena0")
    a, b = End(context), End(context)
    a.connect(b.qp.qp_num)
    b.connect(a.qp.qp_num)
    return a, b


def device_list():
    (device,) = get_device_list()
    print(device.name.decode(), f"{device.guid:016x}")


def queries():
    with Context(name="verbena0") as context:
        device, port = context.query_device(), context.query_port(1)
        print(device.max_qp, device.max_sge, port.state, port.gid_tbl_len)
        assert context.query_gid(1, GID_INDEX).gid.startswith("fe80:")
        assert 2 <= len(context.query_gid_table(port.gid_tbl_len)) <= port.gid_tbl_len
        extended = context.query_device_ex()
        assert extended.orig_attr.max_qp == device.max_qp


def send():
    a, b = pair()
    text = "".join(chr(33 + i % 90) for i in range(SIZE))
    a.mr.write(text, SIZE)
    b.qp.post_recv(RecvWR(wr_id=7, sg=[b.sge()], num_sge=1))
    request = SendWR(wr_id=8, num_sge=1, sg=[a.sge()], opcode=e.IBV_WR_SEND)
    a.qp.post_send(request)
    sent, received = a.completion(), b.completion()
    assert (sent.wr_id, sent.status, sent.opcode) == (8, e.IBV_WC_SUCCESS, e.IBV_WC_SEND)
    assert (received.wr_id, received.status, received.byte_len) == (7, e.IBV_WC_SUCCESS, SIZE)
    assert b.mr.read(SIZE, 0).decode() == text


def write_and_read():
    a, b = pair()
    a.mr.write("w" * SIZE, SIZE)
    for opcode, expected in ((e.IBV_WR_RDMA_WRITE, "w"), (e.IBV_WR_RDMA_READ, "r")):
        request = SendWR(opcode=opcode, num_sge=1, sg=[a.sge()])
        request.set_wr_rdma(b.mr.rkey, b.mr.buf)
        a.qp.post_send(request)
        assert a.completion().status == e.IBV_WC_SUCCESS
        assert {a.mr.read(SIZE, 0), b.mr.read(SIZE, 0)} == {expected.encode() * SIZE}
        b.mr.write("r" * SIZE, SIZE)


def wrong_key():
    a, b = pair()
    b.mr.write("k" * SIZE, SIZE)
    request = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[a.sge()])
    request.set_wr_rdma(b.mr.rkey ^ 1, b.mr.buf)
    a.qp.post_send(request)
    assert a.completion().status == e.IBV_WC_REM_ACCESS_ERR
    assert b.mr.read(SIZE, 0) == b"k" * SIZE


def events():
    a, b = pair()
    b.cq.req_notify()
    b.qp.post_recv(RecvWR(num_sge=1, sg=[b.sge()]))
    a.qp.post_send(SendWR(num_sge=1, sg=[a.sge(8)]))
    b.channel.get_cq_event(b.cq)
    b.cq.ack_events(1)
    assert b.completion().byte_len == 8


globals()[sys.argv[1]]()
