# SPDX-License-Identifier: Apache-2.0
"""The M_Key of a port: which SMPs it lets in, its lease, and what a wrong one does (IBA 14.2.4).

The SMA calls ``key_permits`` for each request. The table ``DEMANDS`` is the rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..attribute_ids import Method
from ..notices import BadMKeyTrap, TrapNumber
from ..smp_attributes import PortInfo

if TYPE_CHECKING:
    from .node_ports import NodePort

__all__ = ["hides_key", "key_permits"]

# M_KeyProtectBits from which on a method needs the right key, where the key is not 0.
DEMANDS = {Method.GET: 2, Method.SET: 0, Method.TRAP_REPRESS: 0}
PROTECT_BYTE = 34
MOST_VIOLATIONS = 0xFFFF
MOST_TRAP_HOPS = 30


def protect_bits(port: NodePort) -> int:
    """M_KeyProtectBits of an end port."""
    return port.info[PROTECT_BYTE] >> 6


def hides_key(port: NodePort, key: int) -> bool:
    """Whether a Get with this key shows an M_Key of 0 in PortInfo."""
    return bool(port.m_key) and key != port.m_key and protect_bits(port) != 0


def key_permits(port: NodePort, mad: bytes, now: float, slid: int) -> bool:
    """Whether an end port carries out a request with the key that it has.

    A wrong key where one is needed is counted, begins the lease period and makes trap 256; a right
    one ends the lease. When the lease has run out, the protection bits become 0, so that a new
    subnet manager can read the key.
    """
    if port.lease_end is not None and now >= port.lease_end:
        port.lease_end = None
        port.info[PROTECT_BYTE] &= 0x3F
    if not port.m_key or int.from_bytes(mad[24:32], "big") == port.m_key:
        if mad[3] in DEMANDS:
            port.lease_end = None
        return True
    if protect_bits(port) < DEMANDS.get(Method(mad[3]), 0):
        return True
    _violated(port, mad, now, slid)
    return False


def _violated(port: NodePort, mad: bytes, now: float, slid: int) -> None:
    info = port.info
    violations = PortInfo.get(info, "m_key_violations")
    PortInfo.put(info, 0, m_key_violations=min(violations + 1, MOST_VIOLATIONS))
    period = PortInfo.get(info, "m_key_lease_period")
    if port.lease_end is None and period:
        port.lease_end = now + period
    directed = mad[1] == 0x81
    hops = mad[7] if directed else 0
    detail = BadMKeyTrap(
        lid=slid,
        dr_slid=mad[32] << 8 | mad[33] if directed else 0,
        method=mad[3],
        attribute_id=mad[16] << 8 | mad[17],
        attribute_modifier=int.from_bytes(mad[20:24], "big"),
        m_key=int.from_bytes(mad[24:32], "big"),
        dr_notice=directed,
        dr_path_truncated=hops > MOST_TRAP_HOPS,
        dr_hop_count=min(hops, MOST_TRAP_HOPS),
        dr_return_path=mad[193 : 193 + min(hops, MOST_TRAP_HOPS)],
    )
    port.node.traps.notify(port, TrapNumber.BAD_M_KEY, detail)
