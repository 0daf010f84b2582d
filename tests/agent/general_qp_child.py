# SPDX-License-Identifier: Apache-2.0
"""Sends MADs from QP 1 to QP 1 of the same device, which test_ends.py starts: the agent hands such
messages over without a packet, but one may go out before it knows a new address of its own."""

from __future__ import annotations

import os

os.environ["VERBENA_MANAGES"] = "yes"

from verbena import verbs
from verbena.agent.general_qp import GeneralQp
from verbena.manage.cm.routes import CmDatagram, MadAddress
from verbena.manage.cm_messages import CmReq

context = verbs.open_device()
qp = GeneralQp(context)
gid = next(bytes(each.gid) for each in context.query_gid_table() if each.ndev_ifindex)
for _ in range(3):
    qp.send(CmDatagram(CmReq(), MadAddress(port=1, has_grh=True, sgid=gid, dgid=gid)))
print("sent", qp.dropped)
