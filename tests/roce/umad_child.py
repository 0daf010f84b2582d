# SPDX-License-Identifier: Apache-2.0
"""Opens umad0 of a RoCE port and prints what comes of it: umad_child.py serve | ask GID | refused.

The structures are those of Linux's ib_user_mad.h. `serve` answers MADs of a vendor's class, and
`ask` sends one to the port that has the GID.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import sys

REGISTER2 = 0xC0281B04
AGENT = struct.Struct("=IIBB2xI16sIB3x")
HEADER = struct.Struct("=5I4s4s2s6B16s4sH6x")
VENDOR, OUI, GET, RESPONSE = 0x32, 0x123456, 1, 0x80
GENERAL_QKEY = 0x80010000


def register(fd: int, qp: int, management_class: int, methods: int) -> int:
    mask = struct.pack("=2Q", methods, 0)
    argument = bytearray(AGENT.pack(0, qp, management_class, 1, 0, mask, OUI, 0))
    fcntl.ioctl(fd, REGISTER2, argument)
    return int(AGENT.unpack(argument)[0])


def packed(agent: int, gid: str, mad: bytes, timeout: int) -> bytes:
    """A message for QP 1 of the GID; without one, the address has no GRH."""
    q_key = GENERAL_QKEY.to_bytes(4, "big")
    grh = (1, 0, 64, 0, socket.inet_pton(socket.AF_INET6, gid)) if gid else (0, 0, 0, 0, bytes(16))
    head = (agent, 0, timeout, 0, 0, (1).to_bytes(4, "big"), q_key, bytes(2), 0, 0)
    return HEADER.pack(*head, *grh, bytes(4), 0) + mad


def vendor_mad(method: int, transaction: int, data: bytes) -> bytes:
    head = struct.pack(">BBBBHHQHHI", 1, VENDOR, 1, method, 0, 0, transaction, 0, 0, 0)
    return (head + bytes(12) + bytes(1) + OUI.to_bytes(3, "big") + data).ljust(256, b"\0")


def received(fd: int) -> tuple[int, str, bytes]:
    """The errno of a message, the GID from which it came, and its MAD."""
    raw = os.read(fd, HEADER.size + 256)
    told = HEADER.unpack(raw[: HEADER.size])
    return told[1], socket.inet_ntop(socket.AF_INET6, told[14]), raw[HEADER.size :]


def serve(fd: int) -> None:
    agent = register(fd, 1, VENDOR, 1 << GET)
    print("ready", flush=True)
    while True:
        _, gid, mad = received(fd)
        transaction = int.from_bytes(mad[8:16], "big")
        answer = vendor_mad(GET | RESPONSE, transaction, mad[40:48].upper())
        os.write(fd, packed(agent, gid, answer, 0))


def ask(fd: int, gid: str) -> None:
    agent = register(fd, 1, VENDOR, 0)
    os.write(fd, packed(agent, gid, vendor_mad(GET, 7, b"question"), 1000))
    status, source, mad = received(fd)
    print(errno.errorcode.get(status, "OK"), source, mad[40:48].decode(errors="replace"))


def refused(fd: int) -> None:
    """What Linux refuses: QP 0, methods of the connection manager, addresses without a GRH."""
    for qp, management_class in ((0, 0x81), (1, 7)):
        try:
            register(fd, qp, management_class, 2)
        except OSError as error:
            print(errno.errorcode[error.errno or 0])
    agent = register(fd, 1, VENDOR, 0)
    try:
        os.write(fd, packed(agent, "", vendor_mad(GET, 7, b""), 1000))
    except OSError as error:
        print(errno.errorcode[error.errno or 0])


if __name__ == "__main__":
    opened = os.open("/dev/infiniband/umad0", os.O_RDWR)
    {"serve": serve, "ask": ask, "refused": refused}[sys.argv[1]](opened, *sys.argv[2:])
