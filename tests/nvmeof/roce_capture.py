# SPDX-License-Identifier: Apache-2.0
"""Messages of RC connections from a capture: SENDs, RDMA WRITEs and READ responses, put together.

For tests only: it knows Ethernet, IPv4, and packets in order and without loss.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CAPTURES = Path(__file__).with_name("captures")
UDP_PORT = 4791
SENDS = {0x00: "first", 0x01: "middle", 0x02: "last", 0x04: "only", 0x17: "only"}
WRITES = {0x06: "first", 0x07: "middle", 0x08: "last", 0x0A: "only"}
RESPONSES = {0x0D: "first", 0x0E: "middle", 0x0F: "last", 0x10: "only"}
INVALIDATES = 0x17
# Bytes of extended headers.
EXTRA = {0x06: 16, 0x0A: 16, 0x0D: 4, 0x0F: 4, 0x10: 4, 0x16: 4, 0x17: 4}


class Message(NamedTuple):
    """One message: of which kind, from whom, to which QP."""

    kind: str
    source: str
    qpn: int
    opcode: int
    payload: bytes


def frames(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    at = 24
    while at + 16 <= len(data):
        _, _, length, _ = struct.unpack_from("<IIII", data, at)
        yield data[at + 16 : at + 16 + length]
        at += 16 + length


def messages(name: str) -> list[Message]:
    """Return the messages of a capture, in the order of their last packets."""
    parts: dict[tuple[str, str, int], bytes] = {}
    found = []
    for frame in frames(CAPTURES / f"{name}.pcap"):
        ip = frame[14:]
        if frame[12:14] != b"\x08\x00" or ip[9] != 17:
            continue
        udp = ip[(ip[0] & 15) * 4 :]
        if struct.unpack_from("!H", udp, 2)[0] != UDP_PORT:
            continue
        bth = udp[8 : struct.unpack_from("!H", udp, 4)[0]]
        opcode, pad = bth[0], bth[1] >> 4 & 3
        qpn = int.from_bytes(bth[5:8], "big")
        source = ".".join(map(str, ip[12:16]))
        for kind, opcodes in (("send", SENDS), ("write", WRITES), ("response", RESPONSES)):
            place = opcodes.get(opcode)
            if place is None or qpn == 1:
                continue
            payload = bth[12 + EXTRA.get(opcode, 0) : len(bth) - 4 - pad]
            key = (kind, source, qpn)
            whole = payload if place in ("first", "only") else parts.get(key, b"") + payload
            if place in ("last", "only"):
                found.append(Message(kind, source, qpn, opcode, whole))
                parts.pop(key, None)
            else:
                parts[key] = whole
    return found
