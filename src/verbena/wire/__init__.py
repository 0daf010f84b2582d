# SPDX-License-Identifier: Apache-2.0
"""Packets of InfiniBand's transport, byte by byte: RoCE v1 and v2, and InfiniBand itself.

    from verbena import wire

    packet = wire.parse(frame)  # from the Ethernet header on
    print(packet.opcode_name, packet.psn, wire.icrc(frame) == packet.icrc)
    packet.psn += 1
    packet.icrc = wire.icrc(packet.to_bytes())

Bytes that are not a valid packet raise ``WireError``, a ``ValueError``.
"""

from __future__ import annotations

from .errors import FieldError, PacketError, UnseenError, WireError
from .opcodes import OpcodeInfo, opcode_info, opcode_name
from .packet import (
    Aeth,
    AtomicAckEth,
    AtomicEth,
    Deth,
    Ethernet,
    Feth,
    Grh,
    Ieth,
    Ipv4,
    Layer,
    Lrh,
    Packet,
    Rdeth,
    Reth,
    Udp,
    Vlan,
    Xrceth,
    icrc,
    parse,
    unseen_id,
    vcrc,
)

__all__ = [
    "Aeth",
    "AtomicAckEth",
    "AtomicEth",
    "Deth",
    "Ethernet",
    "Feth",
    "FieldError",
    "Grh",
    "Ieth",
    "Ipv4",
    "Layer",
    "Lrh",
    "OpcodeInfo",
    "Packet",
    "PacketError",
    "Rdeth",
    "Reth",
    "Udp",
    "UnseenError",
    "Vlan",
    "WireError",
    "Xrceth",
    "icrc",
    "opcode_info",
    "opcode_name",
    "parse",
    "unseen_id",
    "vcrc",
]
