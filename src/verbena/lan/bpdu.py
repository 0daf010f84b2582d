# SPDX-License-Identifier: Apache-2.0
"""Bridge protocol data units of the spanning tree (IEEE 802.1D-1998 clause 9), to and from frames.

The spanning tree sends and receives them; switches recognise their frames by the address.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from verbena.lan.errors import LanError
from verbena.lan.frame import Frame

GROUP = bytes.fromhex("0180c2000000")
"""The address of all bridges; frames to it and the 15 above are not forwarded (7.12.6)."""

LLC = bytes.fromhex("424203")
CONFIGURATION = struct.Struct(">HBBB8sI8sHHHHH")
TICKS = 256
"""Per second."""


@dataclass(frozen=True)
class Configuration:
    """A configuration BPDU. Times are seconds; identifiers are 8 bytes, the lower the better."""

    root: bytes
    cost: int
    bridge: bytes
    port: int
    message_age: float
    max_age: float
    hello: float
    forward_delay: float
    changes: bool = False
    acknowledges: bool = False


@dataclass(frozen=True)
class TopologyChange:
    """A topology change notification; it goes towards the root."""


Bpdu = Configuration | TopologyChange


def is_link_local(destination: bytes) -> bool:
    """Whether an address is one of those that no switch forwards."""
    return destination[:5] == GROUP[:5] and destination[5] < 16


def pack(bpdu: Bpdu, source: bytes) -> bytes:
    """The frame of a BPDU that a port with this MAC address sends."""
    if isinstance(bpdu, TopologyChange):
        body = bytes.fromhex("00000080")
    else:
        times = (bpdu.message_age, bpdu.max_age, bpdu.hello, bpdu.forward_delay)
        ticks = [round(each * TICKS) for each in times]
        flags = bpdu.changes | bpdu.acknowledges << 7
        who = (bpdu.root, bpdu.cost, bpdu.bridge, bpdu.port)
        body = CONFIGURATION.pack(0, 0, 0, flags, *who, *ticks)
    return Frame(GROUP, source, len(LLC + body), LLC + body).pack()


def parse(data: bytes) -> Bpdu:
    """The BPDU of a frame. Raises LanError for one that a switch has to ignore (9.3.4)."""
    frame = Frame.parse(data)
    length, payload = frame.ethertype, frame.payload
    if payload[:3] != LLC or not 7 <= length <= len(payload):
        raise LanError("the frame has no bridge protocol data unit")
    body = payload[3:length]
    if body[:2] != b"\0\0":
        raise LanError(f"protocol {body[:2].hex()} is not the spanning tree's, which is 0000")
    if body[3] == 0x80:
        return TopologyChange()
    if body[3] != 0 or len(body) < CONFIGURATION.size:
        raise LanError(f"a BPDU of type {body[3]:#x} and {len(body)} bytes is not known")
    fields = CONFIGURATION.unpack(body[: CONFIGURATION.size])
    flags, root, cost, bridge, port = fields[3:8]
    age, max_age, hello, forward_delay = (each / TICKS for each in fields[8:])
    if age >= max_age:
        raise LanError(f"the BPDU is {age:g} s old, and may be {max_age:g} s old")
    return Configuration(
        *(root, cost, bridge, port, age, max_age, hello, forward_delay),
        changes=bool(flags & 1),
        acknowledges=bool(flags & 0x80),
    )
