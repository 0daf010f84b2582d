# SPDX-License-Identifier: Apache-2.0
"""Management packets: a MAD with what the other headers of its packet say.

Agents, subnets and simulated nodes exchange these. ``Drop`` names the reasons why one was lost, and
``PortEvent`` what happens to a port that programs and drivers want to know.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from ..mad import GENERAL_QKEY, PERMISSIVE_LID

__all__ = ["Drop", "MadPacket", "MadReceiver", "PortEvent"]


class MadPacket(NamedTuple):
    """A management packet: the 256 bytes of its MAD, and what its other headers say.

    ``port`` is the one by which it came to a node, or is to leave it; 0 is the switch itself.
    ``qp`` is the destination, 0 (an SMP, on VL15) or 1. A directed-route SMP has the permissive
    LIDs.
    """

    mad: bytes
    port: int = 1
    dlid: int = PERMISSIVE_LID
    slid: int = PERMISSIVE_LID
    qp: int = 0
    source_qp: int = 0
    sl: int = 0
    p_key: int = 0xFFFF
    q_key: int = 0

    def answer(self, mad: bytes) -> MadPacket:
        """Return the packet that carries the answer ``mad`` back to where this one came from."""
        q_key = GENERAL_QKEY if self.qp else 0
        return MadPacket(
            mad,
            self.port,
            self.slid,
            self.dlid,
            self.source_qp,
            self.qp,
            self.sl,
            self.p_key,
            q_key,
        )


# Gets the packets that no agent of a node answers: responses, traps, and classes of programs. It
# returns False for a packet that it does not take either.
MadReceiver = Callable[[MadPacket], bool | None]


class Drop(Enum):
    """Why a management packet was lost. The value is a sentence."""

    NO_MAD = "It is no MAD of 256 bytes with BaseVersion 1."
    ROUTE_INVALID = "The hop pointer or a port of a directed route is not possible."
    ROUTE_THROUGH_HOST = "A directed route leads through a node that is no switch."
    DAMAGED = "A lossy link has damaged it."
    LINK_DOWN = "The link of an output port is down."
    PORT_NOT_ACTIVE = "A port does not pass data packets: it is not ACTIVE."
    NO_SOURCE = "No port of the node has the source LID."
    NO_LID = "No port of the subnet has the destination LID."
    NO_PATH = "A switch's table has no output port for the LID: 255, above the top, or no port."
    LOOP = "Tables of switches lead back to a switch where the packet was."
    WRONG_PORT = "The tables lead to an end port that does not have the LID."
    P_KEY = "The destination's P_Key table has no entry for the packet's P_Key."
    P_KEY_AT_SWITCH = "A switch's port enforces partitions, and its table lacks the P_Key."
    Q_KEY = "A packet to QP 1 does not have its Q_Key."
    VL_15 = "A table SLtoVL gives the packet's service level lane 15: drop."
    M_KEY = "An SMP does not have the M_Key that the port demands."
    WRONG_QP = "A class of QP 0 came to QP 1, or the reverse."
    NO_RECEIVER = "A response, trap or message came to a port where nobody takes it."
    METHOD = "A request whose method asks for no answer, and that nobody takes."


class PortEvent(Enum):
    """What has happened to a port; the value is the name of the Linux event, where it has one."""

    STATE = "PORT_ACTIVE or PORT_ERR"
    LID = "LID_CHANGE"
    SM = "SM_CHANGE"
    P_KEYS = "PKEY_CHANGE"
    GUIDS = "GID_CHANGE"
    CLIENT_REREGISTER = "CLIENT_REREGISTER"
    CAPABILITIES = "PORT_CAPABILITIES"
