# SPDX-License-Identifier: Apache-2.0
"""The messages between programs and the process of a fabric, as preload/paths/fabric/question.h has
them.

A connection begins with a hello, which the process answers with a welcome. Both ends are on one
host, so numbers are in its byte order. A hello may have data behind it, and so may a welcome: the
answer to a question, or the sentence that says why the connection is refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "LONGEST_HELLO",
    "LONGEST_WELCOME",
    "MAGIC",
    "VERSION",
    "Hello",
    "Role",
    "Welcome",
    "fabric_address",
]

MAGIC = 0x56624661  # VbFa
VERSION = 2
_HELLO = struct.Struct("=IIIIQ64s")
_WELCOME = struct.Struct("=IIiI")
HOST_BYTES = 63
LONGEST_HELLO = _HELLO.size + (32 << 10)
LONGEST_WELCOME = _WELCOME.size + (128 << 10)


class Role(IntEnum):
    """What a connection is for."""

    UMAD = 1
    """A descriptor of /dev/infiniband/umadN; ``number`` is the host's port."""
    ISSM = 2
    """A descriptor of /dev/infiniband/issmN; the welcome waits until no other one is open."""
    CALL = 3
    """One ioctl(2) or write(2) of a descriptor of umadN, which ``inode`` names."""
    TREE = 4
    """The list of the host's files below /sys and /dev."""
    FILE = 5
    """The contents of one of them."""
    CONTROL = 6
    """A request of the command line: JSON, answered by JSON."""
    PAGE = 7
    """The page that tells programs of the states of ports and of ways."""


def fabric_address(uid: int, name: str) -> str:
    """Return the abstract name at which the process of a fabric listens."""
    return f"\0verbena/fabric/{uid}/{name}"


@dataclass(frozen=True)
class Hello:
    """The first message of a connection.

    ``host`` is the node to which the program is attached, ``number`` the port of it, and ``inode``
    that of the program's end of the socket, or of the socket that a call is about.
    """

    role: int
    host: str = ""
    number: int = 0
    inode: int = 0
    data: bytes = b""
    version: int = VERSION

    def pack(self) -> bytes:
        """Return its bytes."""
        host = self.host.encode()[:HOST_BYTES]
        head = _HELLO.pack(MAGIC, self.version, self.role, self.number, self.inode, host)
        return head + self.data

    @classmethod
    def parse(cls, raw: bytes) -> Hello | None:
        """Return it, or None for what is no hello."""
        if len(raw) < _HELLO.size:
            return None
        magic, version, role, number, inode, host = _HELLO.unpack_from(raw)
        if magic != MAGIC:
            return None
        name = host.partition(b"\0")[0].decode(errors="replace")
        return cls(role, name, number, inode, raw[_HELLO.size :], version)


@dataclass(frozen=True)
class Welcome:
    """The answer to a hello: ``error`` is an errno or 0, and ``data`` the answer or a sentence."""

    error: int = 0
    data: bytes = b""

    @classmethod
    def refused(cls, error: int, sentence: str) -> Welcome:
        """Return a refusal, which the program's user reads."""
        return cls(error, sentence.encode())

    def pack(self) -> bytes:
        """Return its bytes."""
        return _WELCOME.pack(MAGIC, VERSION, -self.error, len(self.data)) + self.data

    @classmethod
    def parse(cls, raw: bytes) -> Welcome | None:
        """Return it, or None for what is no welcome of this version."""
        if len(raw) < _WELCOME.size:
            return None
        magic, version, error, length = _WELCOME.unpack_from(raw)
        if (magic, version) != (MAGIC, VERSION):
            return None
        return cls(-error, raw[_WELCOME.size : _WELCOME.size + length])
