# SPDX-License-Identifier: Apache-2.0
"""PyPI's ibverbs as its users write it, with both ends here: prints what completed.

With `names` it prints in place of that what verbena.verbs does not call as ibverbs does; with
`connect PORT` its CMID connects to a server that echoes 16 bytes, as rdma_server does.
"""

from __future__ import annotations

import sys
import time

import ibverbs as ib
import numpy as np

HALF = 4096
PORT, GID_INDEX = 1, 1
REMOTE = ib.AccessFlags.REMOTE_WRITE | ib.AccessFlags.REMOTE_READ | ib.AccessFlags.REMOTE_ATOMIC
# GPU memory, rdma_cm, and what the buffer protocol or a context manager does here.
ELSEWHERE = {"CMID", "reg_tensor", "tensor_addr_len", "__version__"}
ELSEWHERE |= {"PD.reg_dmabuf_mr", "MR.owner", "AsyncEvent.event_type_str"}
ELSEWHERE |= {"CQ.ack_events", "Context.ack_async_event"}  # events are acknowledged when taken


def print_names() -> None:
    from verbena import verbs

    for name in ib.__all__:
        theirs, ours = getattr(ib, name), getattr(verbs, name, None)
        if ours is None and name not in ELSEWHERE:
            print(name)
        if ours is None:
            continue
        members = [each for each in dir(theirs) if not each.startswith("_")]
        fields = getattr(ours, "__dataclass_fields__", ())
        for member in members if isinstance(theirs, type) else ():
            known = hasattr(ours, member) or member in fields
            if not known and f"{name}.{member}" not in ELSEWHERE:
                print(f"{name}.{member}")


def next_completion(cq: ib.CQ) -> ib.WC:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for completion in cq.poll(1):
            return completion
    raise TimeoutError("nothing completed within 10 s")


def exchange() -> None:
    context = ib.get_device_list()[0].open()
    pd = context.alloc_pd()
    channel = context.create_comp_channel()
    cq = context.create_cq(16, channel)
    memory = np.zeros(2 * HALF, np.uint8)
    memory[:HALF] = np.arange(HALF) % 251
    access = ib.AccessFlags.LOCAL_WRITE | REMOTE
    mr = ib.reg_tensor(pd, memory, access)
    qps = [pd.create_qp(ib.QPInitAttr(send_cq=cq, recv_cq=cq)) for _ in range(2)]
    port, gid = context.query_port(PORT), context.query_gid(PORT, GID_INDEX)
    infos = [ib.local_qp_info(qp, port, gid, port=PORT, psn=i) for i, qp in enumerate(qps)]
    for i, qp in enumerate(qps):
        remote = ib.QPInfo.from_bytes(infos[1 - i].to_bytes())
        ib.connect_rc(qp, remote, port=PORT, sgid_index=GID_INDEX, access=access, local_psn=i)

    def post(opcode: ib.WROpcode, remote_addr: int) -> None:
        sge = [ib.SGE(mr, HALF)]
        where = {"remote_addr": remote_addr, "rkey": mr.rkey}
        flags = ib.SendFlags.SIGNALED
        qps[0].post_send(ib.SendWR(sg_list=sge, opcode=opcode, send_flags=flags, **where))

    cq.req_notify()
    post(ib.WROpcode.RDMA_WRITE, mr.addr + HALF)
    channel.get_cq_event()
    cq.ack_events()
    next_completion(cq).raise_for_status()
    print("written", bool((memory[:HALF] == memory[HALF:]).all()))
    post(ib.WROpcode.RDMA_READ, mr.addr + HALF + 1)
    print("refused", next_completion(cq).status_str)


def connect(port: int) -> None:
    with ib.CMID.resolve("127.0.0.1", port) as identifier:
        pd = identifier.context.alloc_pd()
        cq = identifier.context.create_cq(8)
        memory = np.zeros(32, np.uint8)
        memory[:16] = np.arange(16)
        mr = ib.reg_tensor(pd, memory, ib.AccessFlags.LOCAL_WRITE)
        qp = identifier.create_qp(pd, ib.QPInitAttr(send_cq=cq, recv_cq=cq))
        qp.post_recv(ib.RecvWR(sg_list=[ib.SGE(mr.addr + 16, 16, mr.lkey)]))
        said = identifier.connect(b"ibverbs")
        print("connected", identifier.connected, said.rstrip(b"\0").decode("ascii", "replace"))
        how = {"opcode": ib.WROpcode.SEND, "send_flags": ib.SendFlags.SIGNALED}
        qp.post_send(ib.SendWR(sg_list=[ib.SGE(mr, 16)], **how))
        for _ in range(2):
            next_completion(cq).raise_for_status()
        print("echoed", memory[16:].tolist() == memory[:16].tolist())
        identifier.disconnect()
        print("connected", identifier.connected)
        for each in (qp, mr, cq, pd):
            each.close()


match sys.argv[1:]:
    case ["names"]:
        print_names()
    case ["connect", number]:
        connect(int(number))
    case _:
        exchange()
