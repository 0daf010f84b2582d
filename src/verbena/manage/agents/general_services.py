# SPDX-License-Identifier: Apache-2.0
"""The general services of a node: which agent answers a packet to QP 1 (IBA 13.5, 16).

``answer_gmp`` checks the P_Key and Q_Key of a packet. Performance management is the hardware's;
other packets are offered to the port's receiver, which is a program. A Get or Set that it does not
take is answered by the agent of its class in ``AGENTS``, or refused as Linux refuses it, with
status 0xC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..attribute_ids import Method, MgmtClass, StatusCode, response_method
from ..mad import GENERAL_QKEY
from .packets import Drop, MadPacket
from .pma import answer_performance
from .vendor_agents import answer_ping, answer_sysstat
from .violations import key_violated

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = ["AGENTS", "answer_gmp"]

# Returns the response to a Get or Set, or None for one that the agent does not take.
ClassAgent = Callable[["NodeAgent", "NodePort", bytes], bytes | None]

AGENTS: dict[int, ClassAgent] = {
    MgmtClass.OPENIB_PING: answer_ping,
    0x33: answer_sysstat,
}
ANSWERED = (int(Method.GET), int(Method.SET))
SMPS = (int(MgmtClass.SUBN_LID_ROUTED), int(MgmtClass.SUBN_DIRECTED_ROUTE))
PERFORMANCE = int(MgmtClass.PERFORMANCE)
REFUSED = int(StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED)


def answer_gmp(node: NodeAgent, packet: MadPacket, now: float) -> bytes | None:
    """Return the response to a packet to QP 1 of this node, or None if there is none."""
    mad = packet.mad
    if mad[1] in SMPS:
        node.drop(Drop.WRONG_QP)
        return None
    port = node.ports.get(packet.port)
    if port is None:
        node.drop(Drop.NO_LID)
        return None
    end = port.end_port
    if end.find_p_key(packet.p_key) is None:
        node.drop(Drop.P_KEY)
        key_violated(end, packet, Drop.P_KEY)
        return None
    if packet.q_key != GENERAL_QKEY:
        node.drop(Drop.Q_KEY)
        key_violated(end, packet, Drop.Q_KEY)
        return None
    is_request = mad[3] in ANSWERED
    if mad[1] == PERFORMANCE and not mad[3] & 0x80:
        return answer_performance(node, end, mad)
    if node.offer(packet):
        return None
    if not is_request:
        node.drop(Drop.NO_RECEIVER if mad[3] & 0x80 else Drop.METHOD)
        return None
    agent = AGENTS.get(mad[1])
    answered = agent(node, end, mad) if agent else None
    return refused(mad) if answered is None else answered


def refused(mad: bytes, status: int = REFUSED) -> bytes:
    """Return a response with the request's data and a status."""
    response = bytearray(mad)
    response[3] = response_method(mad[3])
    response[4:6] = status.to_bytes(2, "big")
    return bytes(response)
