# SPDX-License-Identifier: Apache-2.0
"""The usual Set of PortInfo, on bytes: a subnet manager's LIDs, limits, ARMED and ACTIVE.

``sma.py`` calls ``quick_port_set`` first, since a sweep of 2,000 hosts sets PortInfo 16,000 times;
``port_info_rules.py`` carries out every other Set, and has the rules that this file has to agree
with. A test compares the two on random Sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..codes import PortState
from .packets import PortEvent
from .port_states import STATE_SETS

if TYPE_CHECKING:
    from .node_ports import NodePort

__all__ = ["quick_port_set"]

LAST_UNICAST = 0xBFFF
# The state that a port takes, by the state that it is in and the one that a Set wants.
STATES = {
    (int(old), int(new)): int(state)
    for (old, new), state in STATE_SETS.items()
    if new != PortState.DOWN
}
STATE, PHYSICAL = 32, 33
WIDTH_ENABLED, SPEEDS, SPEEDS_EXTENDED2, SPEEDS_EXTENDED = 29, 35, 56, 63
ENFORCEMENT, FILTER_RAW = 0x0C, 0x03  # bits beside the lanes
PROTECT_AND_LMC, MTU_AND_SL, VL_CAP, INIT_AND_MTU_CAP, LANES, TIMEOUT = 34, 36, 37, 41, 43, 51


def quick_port_set(port: NodePort, mad: bytes) -> bool:
    """Carry out the Set of PortInfo in an SMP if it is of the usual kind; return whether it was.

    It is if it leaves widths, speeds and the physical state as they are, and every value is
    allowed. If it is not, nothing is changed.
    """
    info, number = port.info, port.number
    if not number:
        return False
    new = mad[64:128]
    lanes, mtu = new[LANES] >> 4, new[MTU_AND_SL] >> 4
    if (
        new[WIDTH_ENABLED] != info[WIDTH_ENABLED]
        or (new[SPEEDS] ^ info[SPEEDS]) & 0x0F
        or (new[SPEEDS_EXTENDED2] ^ info[SPEEDS_EXTENDED2]) & 0x07
        or (new[SPEEDS_EXTENDED] ^ info[SPEEDS_EXTENDED]) & 0x1F
        or (new[PHYSICAL] and new[PHYSICAL] != info[PHYSICAL] & 0x0F)
        or not 0 < lanes <= info[VL_CAP] >> 4
        or not 0 < mtu <= info[INIT_AND_MTU_CAP] & 0x0F
    ):
        return False
    before = info[STATE] & 0x0F
    state = STATES.get((before, new[STATE] & 0x0F))
    if state is None:
        return False
    told: list[PortEvent] = []
    filters = new[LANES] ^ info[LANES]
    if port.is_end:
        if not _is_usual_end(info, new):
            return False
        told = _set_end(port, info, new)
        info[MTU_AND_SL] = new[MTU_AND_SL]
    elif filters & ENFORCEMENT and not port.node.profile.partition_enforcement_cap:
        return False
    else:
        info[MTU_AND_SL] = mtu << 4 | info[MTU_AND_SL] & 0x0F
        info[LANES] ^= filters & (ENFORCEMENT | FILTER_RAW)
    info[38], info[42], info[53] = new[38], new[42], new[53]
    info[LANES] = lanes << 4 | info[LANES] & 0x0F
    surroundings = port.node.surroundings
    if not port.is_end and filters & ENFORCEMENT:
        surroundings.routing_changed()
    for event in told:
        if event is PortEvent.LID:
            surroundings.routing_changed()
        surroundings.port_event(port, event)
    if state != before:
        info[STATE] = info[STATE] & 0xF0 | state
        surroundings.routing_changed()
        surroundings.port_event(port, PortEvent.STATE)
    return True


def _is_usual_end(info: bytearray, new: bytes) -> bool:
    """Whether the LIDs of an end port are possible, and no count of violations is set back."""
    lid, sm_lid, lmc = new[16] << 8 | new[17], new[18] << 8 | new[19], new[PROTECT_AND_LMC] & 7
    return (
        0 < lid <= LAST_UNICAST + 1 - (1 << lmc)
        and 0 < sm_lid <= LAST_UNICAST
        and new[44:50] == info[44:50]
    )


def _set_end(port: NodePort, info: bytearray, new: bytes) -> list[PortEvent]:
    """Write what only end ports have, and return what has happened to the port."""
    told = []
    was, now = info[PROTECT_AND_LMC], new[PROTECT_AND_LMC]
    if new[16:18] != info[16:18] or (was ^ now) & 7:
        told.append(PortEvent.LID)
    if new[18:20] != info[18:20] or (new[MTU_AND_SL] ^ info[MTU_AND_SL]) & 0x0F:
        told.append(PortEvent.SM)
    if new[8:16] != info[8:16]:
        told.append(PortEvent.GUIDS)
    if new[TIMEOUT] & 0x80:
        told.append(PortEvent.CLIENT_REREGISTER)
    info[:20] = new[:20]
    info[26:28] = new[26:28]
    info[PROTECT_AND_LMC] = now & 0xC7 | was & 0x38
    info[INIT_AND_MTU_CAP] = new[INIT_AND_MTU_CAP] & 0xF0 | info[INIT_AND_MTU_CAP] & 0x0F
    info[TIMEOUT] = new[TIMEOUT] & 0x7F | info[TIMEOUT] & 0x80
    port.m_key = int.from_bytes(new[:8], "big")
    return told
