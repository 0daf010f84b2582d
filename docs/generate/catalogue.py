# SPDX-License-Identifier: Apache-2.0
"""The entries of docs/errors.md: meaning, causes, remedy, and examples. errors.py runs them."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Every Python example follows these lines, whichever came before it, and makes the QPs that it
# breaks. `ended` raises the error of a QP's request.
BEGIN = """\
from verbena import verbs
from verbena.verbs import AccessFlags, QPType, RecvWR, SendFlags, SendWR, SGE, WROpcode

ALL = 15  # LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC
ctx = verbs.open_device()
pd, cq = ctx.alloc_pd(), ctx.create_cq(64)
mine, theirs = pd.alloc(8192, ALL), pd.alloc(4096, ALL)


def pair(access=ALL, timeout=8, cq=cq):
    here, there = (pd.create_qp(send_cq=cq, max_send_wr=16, max_recv_wr=16) for _ in range(2))
    options = {"retry_cnt": 1, "rnr_retry": 1, "min_rnr_timer": 1}
    verbs.connect_pair(here, there, access=access, timeout=timeout, **options)
    return here, there


def ended(qp):
    while (wc := cq.wait(1, 30)[0]).qp_num != qp.qp_num:
        pass
    wc.raise_for_status()
"""
PAIR = "here, there = pair()\n"
STARTED = "# Python started with {variable}, and the lines of the beginning\n"
BY_PACKETS = "VERBENA_CARRIER=roce"


@dataclass(frozen=True)
class Example:
    """Lines of Python after BEGIN, or the command line of a program that `verbena run` starts.

    A connection that the lines use and do not make is made before them (PAIR).
    """

    title: str
    code: str = ""
    command: str = ""
    variable: str = ""  # of the environment in which Python has to be started

    @property
    def lines(self) -> str:
        """What is shown and run."""
        made = "here, there" in self.code or not re.search(r"\b(here|there)\b", self.code)
        started = STARTED.format(variable=self.variable) if self.variable else ""
        return f"{started}{'' if made else PAIR}{self.code}"


@dataclass(frozen=True)
class Entry:
    name: str
    means: str
    causes: str
    remedy: str
    examples: tuple[Example, ...] = ()


STATUSES = (
    Entry(
        "LOC_LEN_ERR",
        "The message does not fit: into the receive request that took it, or into the transport.",
        "receives that are shorter than what the peer sends; a datagram longer than the path MTU "
        "of the interface behind its GID (its receive buffer needs 40 bytes more, for the GRH); an "
        "atomic whose element is shorter "
        "than 8 bytes.",
        "post longer receives, or split the message.",
        (
            Example(
                "A receive request that is too short, at the receiver",
                "there.recv(theirs, length=16)\nhere.send(mine, length=64)\nended(there)",
            ),
            Example(
                "An atomic with too short an element",
                "here.fetch_add([mine.sge(4)], theirs.addr, theirs.rkey, 1)\nended(here)",
            ),
            Example(
                "A datagram beyond the path MTU",
                "here, there = (pd.create_qp(send_cq=cq, qp_type=QPType.UD) for _ in range(2))\n"
                "verbs.connect_pair(here, there)\n"
                "lo = [e for e in ctx.query_gid_table() if e.gid.raw[-4] == 127][0]\n"
                "ah = pd.create_ah(dgid=lo.gid, sgid_index=lo.gid_index)\n"
                "wr = SendWR(1, mine.sge(5000), ah=ah, remote_qpn=there.qp_num, "
                "remote_qkey=0x11111111)\n"
                "here.post_send(wr)\nended(here)",
            ),
        ),
    ),
    Entry(
        "LOC_QP_OP_ERR",
        "The QP's attributes do not allow the request.",
        "a READ or an atomic on a QP with `max_rd_atomic` 0.",
        "set the attribute when the QP goes to RTS.",
        (
            Example(
                "A READ without READ resources",
                "here.modify(qp_state=verbs.QPState.SQD)\n"
                "here.modify(qp_state=verbs.QPState.SQD, max_rd_atomic=0)\n"
                "here.modify(qp_state=verbs.QPState.RTS)\n"
                "here.read(mine, theirs.addr, theirs.rkey, length=64)\nended(here)",
            ),
        ),
    ),
    Entry(
        "LOC_PROT_ERR",
        "An element of the request, or of the receive request, does not fit the region that its "
        "lkey names.",
        "an rkey in the lkey's place, a region that is closed or of another protection domain, a "
        "range that leaves it, a READ into memory without `LOCAL_WRITE`, or memory that was "
        "unmapped under its region.",
        "compare the element with the region, and keep both until the request has completed.",
        (
            Example(
                "An lkey that names nothing",
                "here.write([SGE(mine.addr, 64, 0x5EED)], theirs.addr, theirs.rkey)\nended(here)",
            ),
            Example(
                "A READ into memory without LOCAL_WRITE",
                "target = pd.reg_mr(bytes(64), 0)\n"
                "here.read(target, theirs.addr, theirs.rkey, length=64)\nended(here)",
            ),
        ),
    ),
    Entry(
        "WR_FLUSH_ERR",
        "The QP was in ERR (or SQE) before the request's turn came. The request was not carried "
        "out.",
        "an earlier request that failed, a peer's request that failed at this QP, a peer that "
        "ended, or the program, which moved the QP to ERR.",
        "look for the first failure, which the text names; then reset the QP and connect it again.",
        (
            Example(
                "After another request failed",
                "there.recv(theirs, wr_id=7)  # is posted when the WRITE fails there\n"
                "here.write(mine, theirs.addr, 0x5EED, length=64)\n"
                "ended(there)",
            ),
            Example(
                "The program ended the QP",
                "here.recv(mine)\nhere.modify(qp_state=verbs.QPState.ERR)\nended(here)",
            ),
        ),
    ),
    Entry(
        "BAD_RESP_ERR",
        "The peer's response does not fit the request (over RoCE only).",
        "a peer that violates the protocol, or different values of `path_mtu` on the two sides.",
        "compare `path_mtu` on both sides, and look at a [capture](capture.md). There is no "
        "example, since two ends that run Verbena do not cause it.",
    ),
    Entry(
        "REM_INV_REQ_ERR",
        "The peer's QP refused the request as invalid.",
        "access flags of the peer's QP that do not allow the operation; for a SEND, a message that"
        " is longer than its receive request; for a SEND or WRITE, different values of `path_mtu`;"
        " for an atomic, an address that is not a multiple of 8; for a READ or an atomic, fewer "
        "READ resources (`max_dest_rd_atomic`) than were used. Over RoCE the text lists the "
        "possible causes for the operation, and if the peer is on this host, the check that failed"
        " there.",
        "correct the attributes of the peer's QP, or the request.",
        (
            Example(
                "The queue pair does not grant it",
                "here, there = pair(access=AccessFlags.REMOTE_WRITE)\n"
                "here.read(mine, theirs.addr, theirs.rkey, length=64)\nended(here)",
            ),
            Example(
                "An atomic that is not on 8 bytes",
                "here.fetch_add(mine, theirs.addr + 4, theirs.rkey, 1)\nended(here)",
            ),
            Example(
                "The receive request is too short",
                "there.recv(theirs, length=16)\nhere.send(mine, length=64)\nended(here)",
            ),
            Example(
                "The same by packets, to a process of this host",
                "here, there = pair(timeout=16)\n"
                "there.recv(theirs, length=16)\nhere.send(mine, length=64)\nended(here)",
                variable=BY_PACKETS,
            ),
        ),
    ),
    Entry(
        "REM_ACCESS_ERR",
        "The rkey does not grant the access that the request needs.",
        "a key of a region that is closed, or a local key; a range that leaves the region; a "
        "region registered without the access, or in another protection domain than the peer's QP.",
        "exchange address, length and rkey again after each registration.",
        (
            Example(
                "A key that names nothing",
                "here.write(mine, theirs.addr, 0x5EED, length=64)\nended(here)",
            ),
            Example(
                "Outside the region",
                "here.write(mine, theirs.addr, theirs.rkey, length=8192)\nended(here)",
            ),
            Example(
                "The region does not grant it",
                "readable = pd.alloc(4096, AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_READ)\n"
                "here.write(mine, readable.addr, readable.rkey, length=64)\nended(here)",
            ),
            Example(
                "Nor a FLUSH",
                "here, there = pair(ALL | AccessFlags.FLUSH_GLOBAL)\n"
                "here.flush(theirs.addr, theirs.rkey)\nended(here)",
            ),
            Example(
                "A WRITE by packets, to a process of this host",
                "here, there = pair(timeout=16)\n"
                "readable = pd.alloc(4096, AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_READ)\n"
                "here.write(mine, readable.addr, readable.rkey, length=64)\nended(here)",
                variable=BY_PACKETS,
            ),
        ),
    ),
    Entry(
        "REM_OP_ERR",
        "The peer could not carry the request out, although the request is valid.",
        "a wrong lkey in its receive request, a full completion queue, or memory that was unmapped"
        " under its region.",
        "look at the peer's own completions and events.",
        (
            Example(
                "The peer's receive request has a wrong lkey",
                "there.recv([SGE(theirs.addr, 64, 0x5EED)])\n"
                "here.send(mine, length=64)\nended(here)",
            ),
        ),
    ),
    Entry(
        "RETRY_EXC_ERR",
        "The request was not answered: 4.096 µs · 2^`timeout`, 1 + `retry_cnt` times.",
        "the peer does not exist, has ended, is not in RTR or RTS, or is connected to another QP; "
        "on a network also a GID of another host, a firewall (UDP port 4791), or loss; or the two "
        "QPs have no partition in common; or [only one of two programs of one host]"
        "(running.md#both-ends-need-the-same-carrier) has `VERBENA_CARRIER=roce`. The text says "
        "which: for a peer on this host the states of its process and QP, over RoCE the "
        "packets that came from the peer, last and since the request began, which distinguishes a "
        "peer that answers from one that does not. A Python program closes its QP when it ends, or"
        " when no reference to the QP is left ([Lives](python.md#lives)).",
        "follow the text's advice; [RoCE v2](roce.md) has a list for the network. To connect "
        "again, reset the QP or create a new one.",
        (
            Example(
                "The peer is not there",
                "there.close()\nhere.write(mine, theirs.addr, theirs.rkey, length=64)\nended(here)",
            ),
            Example(
                "By packets, a peer that answered before",
                "here, there = pair(timeout=16)\n"
                "here.write(mine, theirs.addr, theirs.rkey, length=64)\ncq.wait()\n"
                "there.close()\n"
                "here.write(mine, theirs.addr, theirs.rkey, length=4096)\nended(here)",
                variable=BY_PACKETS,
            ),
            Example(
                "A peer of another partition",
                "here, there = (pd.create_qp(send_cq=cq) for _ in range(2))\n"
                "there.to_init(pkey_index=1)\n"
                "verbs.connect_pair(here, there, timeout=8, retry_cnt=1)\n"
                "here.write(mine, theirs.addr, theirs.rkey, length=64)\nended(here)",
                variable="VERBENA_PKEYS=0xffff,0x8002",
            ),
        ),
    ),
    Entry(
        "RNR_RETRY_EXC_ERR",
        "The peer had no receive request in `rnr_retry` attempts with a wait of its "
        "`min_rnr_timer` each.",
        "the sender is faster than the receiver posts.",
        "post receives before the peer may send (the first one [before "
        "connect_rc](python.md#connecting)), use an SRQ, or set `rnr_retry` to 7, which waits "
        "for ever.",
        (Example("No receive request", "here.send(mine, length=64)\nended(here)"),),
    ),
    Entry(
        "GENERAL_ERR",
        "There was no memory for a request that needs the peer's service thread.",
        "a limit on address space or memory.",
        "raise it (`ulimit -v`, the container's memory). There is no example, since it needs a "
        "host at its limit.",
    ),
)

CALLS = (
    Entry(
        "create_qp, create_cq, create_srq",
        "`EINVAL`: a size is beyond the device's limit, or an object is of another context. "
        "`EOPNOTSUPP`: the device does not support that type.",
        "sizes that suit another adapter.",
        "ask `query_device` first.",
        (
            Example(
                "More requests than the device allows",
                "pd.create_qp(send_cq=cq, max_send_wr=99999)",
            ),
            Example("A kind of QP that is not offered", "pd.create_qp(send_cq=cq, qp_type=8)"),
            Example("A CQ without room", "ctx.create_cq(0)"),
            Example("The same from a program in C", command="ibv_rc_pingpong -g 1 -r 40000"),
        ),
    ),
    Entry(
        "modify_qp",
        "`EINVAL`: there is no such transition, the mask does not fit it, or a value is out of "
        "range. Nothing has changed. `ENETUNREACH` and others, to RTR: there is no route to the "
        "peer's GID. `EPROTONOSUPPORT`, to RTR: the peer is a process of this host with another "
        "build of Verbena, whose memory has another layout; the text names both builds.",
        "a step left out, attributes of another QP type, an address without a GID.",
        "follow the [table of states](qp-states.md).",
        (
            Example(
                "A state that does not follow",
                "qp = pd.create_qp(send_cq=cq)\nqp.modify(qp_state=verbs.QPState.RTS)",
            ),
            Example(
                "An attribute that is missing",
                "qp = pd.create_qp(send_cq=cq)\nqp.modify(qp_state=verbs.QPState.INIT, port_num=1)",
            ),
            Example(
                "An attribute that does not belong there",
                "qp = pd.create_qp(send_cq=cq)\n"
                "qp.modify(qp_state=verbs.QPState.INIT, pkey_index=0, port_num=1, "
                "qp_access_flags=0, timeout=14)",
            ),
            Example(
                "A value out of range",
                "qp = pd.create_qp(send_cq=cq)\nqp.to_init(port=2)",
            ),
            Example(
                "An address without a GID",
                "qp = pd.create_qp(send_cq=cq)\nqp.to_init()\n"
                "qp.to_rtr(ah_attr=verbs.AHAttr(is_global=False))",
            ),
        ),
    ),
    Entry(
        "reg_mr",
        "`EINVAL`: the range or the access flags are invalid. `EFAULT`: the memory is not mapped.",
        "remote access without `LOCAL_WRITE`; a length beyond the end of the allocation.",
        "correct flags and range.",
        (
            Example("Remote write without local write", "pd.alloc(4096, AccessFlags.REMOTE_WRITE)"),
            Example("Unknown flags", "pd.alloc(4096, 1 << 19)"),
            Example(
                "Memory that is not persistent", "pd.alloc(4096, AccessFlags.FLUSH_PERSISTENT)"
            ),
        ),
    ),
    Entry(
        "post_send",
        "`EINVAL`: the request is not valid for the QP. `ENOMEM`: the queue is full. Requests of a"
        " list before the bad one are posted.",
        "posting before RTS; more requests under way than `max_send_wr`; a CQ that is not polled, "
        "or unsignalled requests that no signalled one follows.",
        "poll, or create the QP with larger queues.",
        (
            Example(
                "Before RTS",
                "qp = pd.create_qp(send_cq=cq)\nqp.post_send(SendWR())",
            ),
            Example(
                "An opcode that the type does not have",
                "here, there = (pd.create_qp(send_cq=cq, qp_type=QPType.UC) for _ in range(2))\n"
                "verbs.connect_pair(here, there)\n"
                "here.read(mine, theirs.addr, theirs.rkey, length=64)",
            ),
            Example(
                "A FLUSH, which has a call of its own",
                "here.post_send(SendWR(opcode=WROpcode.FLUSH))",
            ),
            Example("Too many elements", "here.send([mine.sge(8)] * 20)"),
            Example(
                "Too much inline data",
                "here.send(mine, length=2000, flags=SendFlags.INLINE)",
            ),
            Example(
                "A full queue",
                "here, there = pair()\nfor _ in range(17):\n"
                "    here.write(mine, theirs.addr, theirs.rkey, length=64)",
            ),
            Example(
                "A queue full of requests none of which is signalled",
                "here, there = pair(cq=ctx.create_cq(16))\nfor _ in range(17):\n"
                "    here.write(mine, theirs.addr, theirs.rkey, length=64, flags=0)",
            ),
        ),
    ),
    Entry(
        "post_recv, post_srq_recv",
        "`EINVAL`: the queue does not take the request. `ENOMEM`: it is full.",
        "posting in RESET, or to a QP with an SRQ; a CQ that is not polled.",
        "post from INIT on; poll.",
        (
            Example(
                "In RESET",
                "qp = pd.create_qp(send_cq=cq)\nqp.recv(mine)",
            ),
            Example(
                "To a QP with an SRQ",
                "qp = pd.create_qp(send_cq=cq, srq=pd.create_srq(8))\nqp.to_init()\nqp.recv(mine)",
            ),
            Example("A full queue", "there.post_recv([RecvWR()] * 17)"),
        ),
    ),
    Entry(
        "poll_cq",
        "`EIO`: the CQ overran. It takes no further entry. Its QPs stay in their state, but the"
        " completions of their own requests are lost from then on, and a send queue that is full"
        " stays full (`ENOMEM`). An RC or XRC QP whose receive finds no entry goes to ERR.",
        "a CQ with fewer entries than requests can complete between two polls.",
        "create it with as many entries as the queues of its QPs have together.",
        (
            Example(
                "More completions than the CQ holds",
                "short = ctx.create_cq(2)\nhere, there = pair(cq=short)\n"
                "for _ in range(3):\n"
                "    here.write(mine, theirs.addr, theirs.rkey, length=64)\n\n"
                "short.wait(3, 30)  # the two that fit\nshort.wait(1, 30)",
            ),
        ),
    ),
    Entry(
        "query_port, query_gid, query_pkey, create_ah",
        "`EINVAL`: there is no such port or index, or RoCE has no such address, as one with a "
        "`port_num` that does not exist. `ENODATA`: there is no GID at that index. Both also apply"
        " to the address vector of `modify_qp`.",
        "a GID index of another adapter or host; an address handle made from a LID, or with a GID "
        "of zeros, because the peer sent none; `ah_attr.port_num` left at 0.",
        "`verbena devices` lists the GIDs.",
        (
            Example("No such GID", "ctx.query_gid(1, 300)"),
            Example("An address without a GID", "pd.create_ah(dlid=1, is_global=False)"),
            Example("A GID of zeros", "pd.create_ah(dgid=bytes(16), sgid_index=1)"),
            Example(
                "An address without a port",
                "pd.create_ah(dgid=ctx.query_gid(1, 1), sgid_index=1, port_num=0)",
            ),
            Example(
                "An address from an empty entry of the table",
                "pd.create_ah(dgid=ctx.query_gid(1, 1), sgid_index=200)",
            ),
        ),
    ),
    Entry(
        "destroy and dealloc",
        "`EBUSY`: another object still uses this one.",
        "the wrong order: objects are destroyed in the reverse order of their creation.",
        "destroy the users that the text counts. In Python, `with` destroys objects in order.",
        (
            Example(
                "A PD in use",
                "domain = ctx.alloc_pd()\n"
                "qp, mr = domain.create_qp(send_cq=cq), domain.alloc(4096)\n"
                "domain.close()",
            ),
            Example(
                "A CQ in use",
                "queue = ctx.create_cq(16)\nqp = pd.create_qp(send_cq=queue)\nqueue.close()",
            ),
        ),
    ),
)
