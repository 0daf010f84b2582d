# SPDX-License-Identifier: Apache-2.0
"""What two sides of a connection say to each other: a hello, and a header before each message.

The session and the transports call this. Numbers are little-endian. Messages (DATA and LARGE) are
numbered from 1 on; each header confirms all messages of the peer up to ``confirmed``, which also
gives their credits back. In the header of another kind ``number`` is up to which message of the
peer all bytes are there.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from .errors import PeerError

__all__ = [
    *("CALLS", "HEADER_SIZE", "HELLO_SIZE", "MESSAGES", "NO_ROOM", "OTHER_PURPOSE"),
    *("UNKNOWN", "Header", "Hello", "MessageKind"),
]

UNKNOWN = b"VRBP unknown session"
"""The private data of a REJ to a side that comes back to a session that has gone."""
OTHER_PURPOSE = b"VRBP other purpose"
"""The private data of a REJ to a side that wants other connections than the listener gives."""
NO_ROOM = b"VRBP no room"
"""The private data of a REJ by a side that cannot make what it has for each connection."""
MESSAGES, CALLS = 0, 1
"""Purposes of connections: messages (verbena.connect), and calls (verbena.rpc)."""
_DIRECT, _PACKETS = 8, 16  # flags of a hello; one of earlier versions has neither
_MAGIC = b"VRBP"
_VERSION = 1
_HELLO = struct.Struct("<4sBBHIQQQ")
_HEADER = struct.Struct("<BxxxIQQQQ")
HELLO_SIZE = _HELLO.size
HEADER_SIZE = _HEADER.size


class MessageKind(IntEnum):
    """DATA has its bytes behind the header; the bytes of a LARGE one are fetched by a READ.

    A NOTE is 64 bits, in ``addr``, outside the order of messages. The ``addr`` of a BYE is how many
    LARGE messages were not fetched, and cannot be any more.
    """

    DATA = 1
    LARGE = 2
    CONFIRM = 3
    REVOKE = 4
    BYE = 5
    NOTE = 6


@dataclass(frozen=True, slots=True)
class Hello:
    """The first thing that each side says.

    ``is_known`` is False in the answer to a side that comes back to a session that has gone.
    ``arrived`` is how many messages of the peer this side has, and ``purpose`` what the connection
    is for: a side refuses a peer that wants something else. ``comes_back`` is whether this side
    was given a policy of reconnection. ``local_packets`` is whether this side's device sends
    packets to peers of its host (VERBENA_CARRIER=roce); None: it does not say.
    """

    session: int
    slots: int
    slot_size: int
    arrived: int = 0
    is_return: bool = False
    is_known: bool = True
    purpose: int = MESSAGES
    comes_back: bool = False
    local_packets: bool | None = None

    def to_bytes(self) -> bytes:
        """Return the message."""
        flags = int(self.is_return) | int(self.is_known) << 1 | int(self.comes_back) << 2
        if self.local_packets is not None:
            flags |= _PACKETS if self.local_packets else _DIRECT
        return _HELLO.pack(
            *(_MAGIC, _VERSION, flags, self.slots, self.slot_size),
            *(self.session, self.arrived, self.purpose),
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Hello:
        """Parse it. Raises PeerError for anything else."""
        if len(data) < HELLO_SIZE or not data.startswith(_MAGIC):
            raise PeerError(
                errno.EPROTO,
                f"the peer speaks something else ({data[:8]!r}): both sides have to use"
                " verbena.listen and verbena.connect",
            )
        _, version, flags, slots, slot_size, session, arrived, purpose = _HELLO.unpack_from(data)
        if version != _VERSION or not slots or slot_size <= HEADER_SIZE:
            raise PeerError(
                errno.EPROTO, f"the peer speaks version {version}: use one version of Verbena"
            )
        is_return, is_known, comes_back = (bool(flags & 1 << bit) for bit in range(3))
        packets = bool(flags & _PACKETS) if flags & (_PACKETS | _DIRECT) else None
        return cls(
            session,
            slots,
            slot_size,
            arrived,
            is_return,
            is_known,
            purpose,
            comes_back,
            local_packets=packets,
        )


class Header(NamedTuple):
    """What precedes the bytes of a message; a tuple, since it is made twice for each message."""

    kind: int
    rkey: int = 0
    number: int = 0
    confirmed: int = 0
    length: int = 0
    addr: int = 0

    def to_bytes(self) -> bytes:
        """Return its bytes."""
        return _HEADER.pack(*self)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Header:
        """Parse it."""
        return cls._make(_HEADER.unpack_from(data))
