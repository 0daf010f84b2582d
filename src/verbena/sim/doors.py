# SPDX-License-Identifier: Apache-2.0
"""Management packets of simulated nodes, and the rules by which directed-route SMPs pass them.

``World.serve`` gives a node's packets to a function as ``Mad``, and ``World.send_mad`` sends one.
The functions here move a directed-route SMP as the SMI of a node does (IBA 14.2.2), by the rules of
``verbena.manage.agents``; what is asked and answered is the caller's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verbena.manage.agents.directed_routes import (
    arrive_by_route,
    is_directed,
    leave_by_route,
    return_by_route,
)
from verbena.manage.attribute_ids import Method
from verbena.manage.mad import GENERAL_QKEY, MAD_BYTES, RETURNING
from verbena.sim.addresses import PERMISSIVE

if TYPE_CHECKING:
    from verbena.sim._world import World

__all__ = ["Mad", "Server", "answer", "arrive", "leave"]

SEND_ONLY_UD = 0x64  # the opcode
BTH = struct.Struct(">BBHII")
DETH = struct.Struct(">II")
METHOD, STATUS, DATA = 3, 4, slice(64, 128)


@dataclass(frozen=True)
class Mad:
    """A management packet: the 256 bytes of its MAD, and what its other headers say.

    ``port``: by which it came, or is to leave. A host's port is 1, and the switch itself is port 0.
    ``qp``: the destination, 0 (an SMP, on VL15) or 1. The LIDs of directed-route SMPs are 0xffff.
    """

    mad: bytes
    port: int = 1
    dlid: int = PERMISSIVE
    slid: int = PERMISSIVE
    qp: int = 0
    source_qp: int = 0
    sl: int = 0
    pkey: int = 0xFFFF
    qkey: int = 0

    def packet(self, last_address: int = 0xFFFF) -> bytes:
        """Return the packet from its BTH to the end of the MAD. Raises ValueError, TypeError.

        ``last_address``: the largest that ``dlid`` and ``slid`` may be.
        """
        if not isinstance(self.mad, bytes | bytearray) or len(self.mad) != MAD_BYTES:
            raise ValueError(f"a MAD has {MAD_BYTES} bytes")
        if self.qp not in (0, 1):
            raise ValueError(f"qp is {self.qp!r}: management packets go to QP 0 and QP 1")
        addresses = ("dlid", last_address), ("slid", last_address)
        for name, most in (*addresses, ("sl", 15), ("pkey", 0xFFFF)):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= most:
                raise ValueError(f"{name} is {value!r}, and not a whole number from 0 to {most}")
        bth = BTH.pack(SEND_ONLY_UD, 0x40, self.pkey, self.qp, 0)
        return bth + DETH.pack(self.qkey or self.qp * GENERAL_QKEY, self.source_qp) + self.mad


# What World.serve takes: of the world, the node and the packet it makes packets to send.
Server = Callable[["World", int, Mad], Mad | Iterable[Mad] | None]


def read(packet: bytes, port: int, slid: int, dlid: int, sl: int) -> Mad:
    """Return a packet that came by this port. A datagram of a program may have another length."""
    _, _, pkey, qp, _ = BTH.unpack_from(packet)
    qkey, source = DETH.unpack_from(packet, BTH.size)
    mad = packet[BTH.size + DETH.size :]
    return Mad(mad, port, dlid, slid, qp & 0xFFFFFF, source & 0xFFFFFF, sl, pkey, qkey)


def _is_directed(packet: Mad) -> bool:
    return len(packet.mad) == MAD_BYTES and is_directed(packet.mad)


def leave(mad: bytes | bytearray) -> Mad:
    """Return a directed-route SMP as its sender's node sends it, by the first port of its path.

    Its hop count is the number of hops, and its hop pointer 0. Raises ValueError for another MAD,
    or one without a hop, which goes nowhere.
    """
    packet = Mad(bytes(mad))
    left = leave_by_route(packet.mad) if _is_directed(packet) else None
    if left is None or not left[0]:
        raise ValueError("this is no directed-route SMP that has 1 to 63 hops before it")
    return replace(packet, port=left[0], mad=left[1])


def arrive(packet: Mad, *, switch: bool) -> Mad | None:
    """Return a packet as it goes on: its port is 0 if it is for this node, or that of the next hop.

    A packet that is no directed-route SMP is for this node. None: the path is not possible, or
    leads through a host, and the packet is discarded.
    """
    if not _is_directed(packet):
        return replace(packet, port=0)
    moved = arrive_by_route(packet.mad, packet.port, switch=switch)
    return None if moved is None else replace(packet, port=moved[0], mad=moved[1])


def answer(packet: Mad, data: bytes, status: int = 0) -> Mad:
    """Return the response to an SMP that ``arrive`` gave to this node, with 64 bytes of data.

    Its method is GetResp, and it leaves by the port by which the request came. Raises ValueError
    for a directed-route SMP that has not arrived.
    """
    header = bytearray(packet.mad)
    directed = _is_directed(packet)
    header[METHOD] = Method.GET_RESP
    struct.pack_into(">H", header, STATUS, status | (RETURNING if directed else 0))
    header[DATA] = data.ljust(64, b"\0")
    if not directed:
        return replace(packet, mad=bytes(header), dlid=packet.slid, slid=packet.dlid)
    back = return_by_route(bytes(header))
    if back is None:
        raise ValueError("this directed-route SMP has not arrived at its node")
    return replace(packet, port=back[0], mad=back[1])
