# SPDX-License-Identifier: Apache-2.0
"""Sends itself a datagram by each LID that it is told, 1 last, and says what completed."""

from __future__ import annotations

import sys

from verbena import verbs

QKEY = 7
lids = [int(word) for word in sys.argv[1:]]

with verbs.open_device() as context, context.alloc_pd() as pd:
    port = context.query_port(1)
    assert (port.link_layer, port.lid) == (verbs.LinkLayer.INFINIBAND, 1), port
    assert [entry.gid_type for entry in context.query_gid_table()] == [verbs.GidType.IB]
    cq = context.create_cq(8)
    mr = pd.reg_mr(bytearray(128), verbs.AccessFlags.LOCAL_WRITE)
    qp = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD)
    qp.to_init(qkey=QKEY)
    qp.to_rtr()
    qp.to_rts(sq_psn=0)
    qp.recv(mr, 0, 64)
    for lid in lids:
        ah = pd.create_ah(dlid=lid, is_global=False)
        qp.send(mr, 64, 16, ah=ah, remote_qpn=qp.qp_num, remote_qkey=QKEY)
    completions = cq.wait(len(lids) + 1, 10)
    for wc in completions:
        wc.raise_for_status()
        assert not wc.wc_flags & verbs.WCFlags.GRH
        if wc.opcode == verbs.WCOpcode.RECV:
            print("received", wc.byte_len, "from LID", wc.slid)
