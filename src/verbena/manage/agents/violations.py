# SPDX-License-Identifier: Apache-2.0
"""What goes wrong at a port and is counted and reported by a trap: 129 to 131, and 257 to 259.

The agents call these for management packets. Whoever has the links and the data packets of a node,
such as a simulator, calls them too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..notices import BadKeyTrap, BadPKeyAtSwitchTrap, PortErrorTrap, TrapNumber
from ..smp_attributes import PortInfo
from .packets import Drop, MadPacket

if TYPE_CHECKING:
    from .node_ports import NodePort

__all__ = ["key_violated", "p_key_violated_at_switch", "port_failed"]

MOST_VIOLATIONS = 0xFFFF
QP_BITS = 0xFFFFFF  # a program gives more, of which a packet has these
# Of a wrong P_Key and a wrong Q_Key: the counter of PortInfo, and the trap.
VIOLATED = {
    Drop.P_KEY: ("p_key_violations", TrapNumber.BAD_P_KEY),
    Drop.Q_KEY: ("q_key_violations", TrapNumber.BAD_Q_KEY),
}
# Counters of performance management of each trap of a port.
FAILURES: dict[int, str | None] = {
    TrapNumber.LOCAL_LINK_INTEGRITY: "local_link_integrity_errors",
    TrapNumber.BUFFER_OVERRUN: "excessive_buffer_overrun_errors",
    TrapNumber.FLOW_CONTROL_WATCHDOG: None,
}
# Bits of trap 259's data_valid, from the most significant: LID1, LID2, P_Key, SL, QP1 and QP2.
VALID = 0b1111_11 << 10


def port_failed(port: NodePort, number: TrapNumber) -> None:
    """Report that the errors of a port have reached a threshold: trap 129, 130 or 131.

    Raises KeyError for another trap.
    """
    counter = FAILURES[number]
    if counter is not None:
        port.tally.count(counter)
    lid = port.end_port.lid
    port.node.traps.notify(port, number, PortErrorTrap(lid=lid, port=port.number))


def _count_violation(port: NodePort, name: str) -> None:
    violations = PortInfo.get(port.info, name)
    PortInfo.put(port.info, 0, **{name: min(violations + 1, MOST_VIOLATIONS)})


def key_violated(end: NodePort, packet: MadPacket, why: Drop) -> None:
    """Report a packet with a wrong P_Key or Q_Key at an end port: trap 257 or 258.

    The packet's MAD is not looked at. Raises KeyError for another reason.
    """
    name, trap = VIOLATED[why]
    _count_violation(end, name)
    detail = BadKeyTrap(
        lid1=packet.slid,
        lid2=packet.dlid,
        offending_key=packet.q_key if why is Drop.Q_KEY else packet.p_key,
        sl=packet.sl & 15,
        qp1=packet.source_qp & QP_BITS,
        qp2=packet.qp & QP_BITS,
    )
    end.node.traps.notify(end, trap, detail)


def p_key_violated_at_switch(port: NodePort, packet: MadPacket) -> None:
    """Report a packet that an external port of a switch dropped for its P_Key: trap 259."""
    _count_violation(port, "p_key_violations")
    detail = BadPKeyAtSwitchTrap(
        data_valid=VALID,
        lid1=packet.slid,
        lid2=packet.dlid,
        p_key=packet.p_key,
        sl=packet.sl & 15,
        qp1=packet.source_qp & QP_BITS,
        qp2=packet.qp & QP_BITS,
        switch_lid=port.end_port.lid,
        port=port.number,
    )
    port.node.traps.notify(port, TrapNumber.BAD_P_KEY_AT_SWITCH, detail)
