# SPDX-License-Identifier: Apache-2.0
"""What lies in memory between a program and the adapter: work requests and completions.

Programs in machine code write and read these bytes themselves, and ``driver.py`` does it for
programs in Python. All numbers are little-endian.

A send request has blocks of 64 bytes (up to four with inline data, otherwise one):

    0  opcode       1  flags: 1 signalled, 2 inline   2  index of its first block, 16 bits
    4  QP number    8  length in bytes               12  number of blocks
    16 remote address                                24  remote key      28  immediate data
    32 local address, 40 local key                   or from 32 on the inline data
    48 operand of an atomic (compare, or add)        56  value to swap in

A receive request has 16 bytes: address (8), length (4) and local key (4). Bit 31 of the length is
the owner bit. A completion has 64 bytes:

    0  QP number    4  index of the request, 16 bits  6  opcode           7  status
    8  length      12  immediate data                16  address of what failed
    63 owner bit

The owner bit of an entry is 1 in the first pass over its ring and then alternates, so that each
side sees by the entry alone whether it is new.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

BLOCK = 64
CQE_BYTES = 64
RECEIVE_BYTES = 16
MOST_BLOCKS = 4
INLINE_AT = 32
MOST_INLINE = MOST_BLOCKS * BLOCK - INLINE_AT
SIGNALLED, INLINE = 1, 2
OWNER = 1 << 31
MOST_MESSAGE = (1 << 31) - 1  # bytes

_SEND = struct.Struct("<BBHIIIQII")
_LOCAL = struct.Struct("<QI4xQQ")
_RECEIVE = struct.Struct("<QII")
_COMPLETION = struct.Struct("<IHBBIIQ39xB")


class HcaOpcode(IntEnum):
    """The numbers of ``ibv_wr_opcode``; those of received messages are those of ``ibv_wc``."""

    WRITE = 0
    WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    READ = 4
    COMPARE_AND_SWAP = 5
    FETCH_AND_ADD = 6
    RECV = 128
    RECV_WRITE_WITH_IMM = 129

    @property
    def is_atomic(self) -> bool:
        return self in (HcaOpcode.COMPARE_AND_SWAP, HcaOpcode.FETCH_AND_ADD)

    @property
    def is_write(self) -> bool:
        return self in (HcaOpcode.WRITE, HcaOpcode.WRITE_WITH_IMM)

    @property
    def has_immediate(self) -> bool:
        return self in (HcaOpcode.WRITE_WITH_IMM, HcaOpcode.SEND_WITH_IMM)

    @property
    def is_answered(self) -> bool:
        """The request ends by data from the peer, and not by an acknowledgement."""
        return self is HcaOpcode.READ or self.is_atomic


class HcaStatus(IntEnum):
    """The numbers of ``ibv_wc_status``."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13


@dataclass(frozen=True)
class SendRequest:
    """A send request as it lies in memory."""

    opcode: HcaOpcode
    qpn: int
    index: int
    length: int
    flags: int = SIGNALLED
    remote_address: int = 0
    rkey: int = 0
    immediate: int = 0
    local_address: int = 0
    lkey: int = 0
    operand: int = 0
    swap: int = 0
    inline: bytes = b""

    @property
    def blocks(self) -> int:
        """How many blocks of 64 bytes it takes."""
        return -(-(INLINE_AT + len(self.inline)) // BLOCK) if self.flags & INLINE else 1

    @property
    def is_signalled(self) -> bool:
        return bool(self.flags & SIGNALLED)

    def packed(self) -> bytes:
        """Its blocks."""
        head = _SEND.pack(
            self.opcode,
            self.flags,
            self.index & 0xFFFF,
            self.qpn,
            self.length,
            self.blocks,
            self.remote_address,
            self.rkey,
            self.immediate,
        )
        if self.flags & INLINE:
            tail = self.inline
        else:
            tail = _LOCAL.pack(self.local_address, self.lkey, self.operand, self.swap)
        return (head + tail).ljust(self.blocks * BLOCK, b"\0")


def blocks_of(block: bytes | bytearray) -> int:
    """How many blocks the request that begins with this block says it has."""
    return int.from_bytes(block[12:16], "little")


def parse_send(data: bytes) -> SendRequest:
    """Raises ValueError with what is wrong in a request of whole blocks."""
    opcode, flags, index, qpn, length, blocks, remote, rkey, immediate = _SEND.unpack_from(data)
    if opcode > HcaOpcode.FETCH_AND_ADD:
        raise ValueError(f"{opcode} is no opcode of a send request")
    if length > MOST_MESSAGE:
        raise ValueError(f"a message has at most {MOST_MESSAGE} bytes, not {length}")
    kind = HcaOpcode(opcode)
    if kind.is_atomic and length != 8:
        raise ValueError(f"an atomic has 8 bytes, not {length}")
    if flags & INLINE:
        if kind.is_answered:
            raise ValueError(f"{kind.name} cannot be inline")
        if length > blocks * BLOCK - INLINE_AT:
            raise ValueError(f"{length} bytes of inline data do not fit into {blocks} blocks")
        inline = data[INLINE_AT : INLINE_AT + length]
        return SendRequest(kind, qpn, index, length, flags, remote, rkey, immediate, inline=inline)
    local, lkey, operand, swap = _LOCAL.unpack_from(data, INLINE_AT)
    return SendRequest(
        kind, qpn, index, length, flags, remote, rkey, immediate, local, lkey, operand, swap
    )


@dataclass(frozen=True)
class ReceiveRequest:
    """A receive request; ``index`` counts those of its queue."""

    address: int
    length: int
    lkey: int
    index: int

    def packed(self, entries: int) -> bytes:
        """Its 16 bytes for a ring of ``entries``."""
        owner = OWNER if owner_bit(self.index, entries) else 0
        return _RECEIVE.pack(self.address, self.length | owner, self.lkey)


def parse_receive(data: bytes, index: int, entries: int) -> ReceiveRequest | None:
    """The request at a place of the ring; None: none was posted there in this pass."""
    address, length, lkey = _RECEIVE.unpack(data)
    if bool(length & OWNER) != owner_bit(index, entries):
        return None
    return ReceiveRequest(address, length & ~OWNER, lkey, index)


@dataclass(frozen=True)
class CompletionEntry:
    """A completion as it lies in memory."""

    qpn: int
    index: int
    opcode: HcaOpcode
    status: HcaStatus
    length: int = 0
    immediate: int = 0
    address: int = 0

    def packed(self, place: int, entries: int) -> bytes:
        """Its 64 bytes; ``place`` counts the completions of its queue."""
        return _COMPLETION.pack(
            self.qpn,
            self.index & 0xFFFF,
            self.opcode,
            self.status,
            self.length,
            self.immediate,
            self.address,
            owner_bit(place, entries),
        )


def parse_completion(data: bytes, place: int, entries: int) -> CompletionEntry | None:
    """The completion at a place of the ring; None: there is none yet."""
    qpn, index, opcode, status, length, immediate, address, owner = _COMPLETION.unpack(data)
    if bool(owner) != owner_bit(place, entries):
        return None
    return CompletionEntry(
        qpn, index, HcaOpcode(opcode), HcaStatus(status), length, immediate, address
    )


def owner_bit(place: int, entries: int) -> bool:
    """Whether the owner bit is 1 for the entry that is the ``place``-th of its queue, from 0."""
    return place // entries % 2 == 0
