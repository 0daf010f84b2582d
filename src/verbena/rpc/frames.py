# SPDX-License-Identifier: Apache-2.0
"""The frames that the two sides of a link exchange, and what they say to each other at first.

Links, calls and streams use this. A frame is a header of 32 bytes and its payload; numbers are
little-endian. ``HELLO`` and ``WELCOME`` have structures of msgspec as payload, in MessagePack.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import Annotated

import msgspec

__all__ = [
    *("FRAME", "FRAME_SIZE", "TOKEN", "FrameFlags", "FrameKind"),
    *("LinkHello", "LinkWelcome", "MethodEntry", "PROTOCOL"),
]

PROTOCOL = 2
FRAME = struct.Struct("<BBHIQQII")
"""kind, flags, method or status, credits given back, call, microseconds or count, length, taken."""
FRAME_SIZE = FRAME.size
TOKEN = struct.Struct("<QQII")
"""Memory that the receiver may access: address, length, rkey, and zero."""


class FrameKind(IntEnum):
    """What a frame is for."""

    HELLO = 1
    WELCOME = 2
    REQUEST = 3
    RESPONSE = 4
    ITEM = 5  # of a stream, in either direction
    END = 6  # of the client's items
    CANCEL = 7
    GRANT = 8  # so many more items may be sent
    DONE = 9  # memory that a token named has been read
    CREDIT = 10  # only gives credits back
    MORE = 11  # the next part of a frame in parts
    BELL = 12  # a request was written into the ring
    BYE = 13


class FrameFlags(IntFlag):
    """How the payload travels, and what precedes it."""

    PARTS = 1  # in several frames; the length is that of all
    FETCH = 2  # the payload is a TOKEN of the sender's memory
    WRITTEN = 4  # the payload was written into the memory that the request's REPLY named
    REPLY = 8  # a TOKEN precedes the payload: memory for the response
    NAMED = 16  # arguments by name


class MethodEntry(msgspec.Struct, array_like=True, frozen=True):
    """A method in the server's table; its number is its place there."""

    name: str
    parameters: list[str]
    raw: bool  # its one argument is not encoded
    sends: bool  # the client sends items
    receives: bool  # the client receives items
    returns_raw: bool  # its result is not encoded


class LinkHello(msgspec.Struct, array_like=True, frozen=True):
    """What a client says first."""

    protocol: int
    codec: str
    max_message: int
    wants_ring: bool = False
    wake_addr: int = 0
    wake_rkey: int = 0
    datagram_qpn: int = 0


class LinkWelcome(msgspec.Struct, array_like=True, frozen=True):
    """What the server answers; with ``refused`` it says why it does not serve this client."""

    protocol: int
    refused: str
    max_message: int
    calls: int = 0  # that may be under way at a time
    client: int = 0
    methods: list[MethodEntry] = []
    ring_addr: int = 0
    ring_rkey: int = 0
    ring_slots: int = 0
    ring_slot_size: int = 0
    datagram_qpn: int = 0
    datagram_room: int = 0
    name: str = ""
    # The server's Strategies.
    response: Annotated[str, msgspec.Meta(pattern="^(auto|inline|write|rendezvous)$")] = "auto"
    inline_most: Annotated[int, msgspec.Meta(ge=0)] = 16 << 10
