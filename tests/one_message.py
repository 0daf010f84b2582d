# SPDX-License-Identifier: Apache-2.0
"""One message between two QPs of a process: the common part of the programs in the tests of P_Keys
and of ports, which those run in a network of their own and which set the QPs to INIT themselves."""

from __future__ import annotations

from dataclasses import dataclass

from verbena import verbs
from verbena.verbs import QP, AHAttr, QPType

TEXT_AT, TEXT_BYTES = 4096, 8
QKEY = 0x11111111  # to_init's own
ANSWER_SECONDS = 20  # a sender whose packets are dropped gives up before
DROPPED_SECONDS = 0.3  # until it is taken for certain that nothing arrives


@dataclass(frozen=True)
class Outcome:
    """The name of the sender's status, what its error says, and the completions of the receiver."""

    status: str
    text: str
    came: list[verbs.WC]


def open_pair(pd: verbs.PD, kind: QPType) -> tuple[QP, QP]:
    """Two QPs that share one CQ for what they send, and another for what they receive."""
    send_cq, recv_cq = pd.context.create_cq(64), pd.context.create_cq(64)
    return (
        pd.create_qp(send_cq=send_cq, recv_cq=recv_cq, qp_type=kind),
        pd.create_qp(send_cq=send_cq, recv_cq=recv_cq, qp_type=kind),
    )


def connect(qp: QP, peer: QP, address: AHAttr, retry_cnt: int, timeout: int = 8) -> None:
    """From INIT to RTS; a datagram QP has no peer."""
    if qp.qp_type == QPType.UD:
        qp.to_rtr()
        qp.to_rts()
        return
    qp.to_rtr(dest_qp_num=peer.qp_num, ah_attr=address, path_mtu=verbs.MTU.MTU_1024)
    qp.to_rts(timeout=timeout, retry_cnt=retry_cnt)


def send_one(here: QP, there: QP, address: AHAttr, arrives: bool = True) -> Outcome:
    """From one connected QP to the other; `address` is where a datagram goes.

    `arrives`: what was sent without an error also arrives, however busy the machine is.
    """
    mr, to = (qp.pd.alloc(2 * TEXT_AT, verbs.AccessFlags.LOCAL_WRITE) for qp in (here, there))
    there.recv(to, 0, TEXT_AT)
    if here.qp_type == QPType.UD:
        ah = here.pd.create_ah(address)
        here.send(mr, TEXT_AT, TEXT_BYTES, ah=ah, remote_qpn=there.qp_num, remote_qkey=QKEY)
    else:
        here.send(mr, TEXT_AT, TEXT_BYTES)
    (sent,) = here.send_cq.wait(1, ANSWER_SECONDS)
    text = ""
    try:
        sent.raise_for_status()
    except verbs.CompletionError as error:
        text = str(error)
    seconds = ANSWER_SECONDS if arrives and sent.is_success else DROPPED_SECONDS
    came = [wc for wc in there.recv_cq.wait(1, seconds) if wc.is_success]
    return Outcome(sent.status.name, text, came)
