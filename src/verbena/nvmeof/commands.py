# SPDX-License-Identifier: Apache-2.0
"""Commands and completions: the 64 bytes at the start of a capsule, and the 16 of a response.

``COMMAND``, ``READ_WRITE`` and ``COMPLETION`` are the precompiled structs of the hot path, which
both sides use; ``Command`` is what everything else sees. A command describes its data by one
keyed SGL descriptor (memory of the host) or by an offset in its own capsule.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from .errors import FormatError

__all__ = [
    "CAPSULE",
    "COMMAND",
    "COMPLETION",
    "EVERY_NAMESPACE",
    "FLAG_SGL",
    "READ_WRITE",
    "SGL_IN_CAPSULE",
    "SGL_KEYED",
    "SGL_KEYED_INVALIDATE",
    "AdminOpcode",
    "Command",
    "FabricsType",
    "IoOpcode",
    "Sgl",
    "pack_command_capsule",
    "pack_completion",
    "pack_sgl",
    "parse_command",
]

CAPSULE = 64
COMPLETION_SIZE = 16
EVERY_NAMESPACE = 0xFFFFFFFF
FLAG_SGL = 0x40  # PSDT 01b: the data pointer is an SGL descriptor
_PSDT, _FUSE = 0xC0, 0x03
SGL_KEYED, SGL_KEYED_INVALIDATE, SGL_IN_CAPSULE = 0x40, 0x4F, 0x01
LONGEST_KEYED = (1 << 24) - 1

# opcode, flags, CID, NSID, data pointer as two words and two halves, CDW10 to CDW15
COMMAND = Struct("<BBHI16xQII6I")
# The same with CDW10 to CDW13 as first block, count of blocks, control and hints.
READ_WRITE = Struct("<BBHI16xQIIQHHI8x")
# result, SQHD, SQID, CID, status
COMPLETION = Struct("<QHHHH")


class AdminOpcode(IntEnum):
    """Commands of the admin queue."""

    GET_LOG_PAGE = 0x02
    IDENTIFY = 0x06
    ABORT = 0x08
    SET_FEATURES = 0x09
    GET_FEATURES = 0x0A
    ASYNC_EVENT = 0x0C
    KEEP_ALIVE = 0x18
    FABRICS = 0x7F


class FabricsType(IntEnum):
    """The fabrics commands (opcode 0x7F)."""

    PROPERTY_SET = 0x00
    CONNECT = 0x01
    PROPERTY_GET = 0x04
    DISCONNECT = 0x08


class IoOpcode(IntEnum):
    """Commands of I/O queues. Bit 0: data go to the controller; bit 1: they come from it."""

    FLUSH = 0x00
    WRITE = 0x01
    READ = 0x02
    COMPARE = 0x05
    WRITE_ZEROES = 0x08
    DATASET_MANAGEMENT = 0x09
    RESERVATION_REGISTER = 0x0D
    RESERVATION_REPORT = 0x0E
    RESERVATION_ACQUIRE = 0x11
    RESERVATION_RELEASE = 0x15


class Sgl(NamedTuple):
    """A descriptor: memory of the host by address and key, or bytes of the capsule by offset."""

    kind: int
    address: int
    length: int
    key: int


class Command(NamedTuple):
    """A submission queue entry."""

    opcode: int
    flags: int
    cid: int
    nsid: int
    sgl: Sgl
    cdw10: int = 0
    cdw11: int = 0
    cdw12: int = 0
    cdw13: int = 0
    cdw14: int = 0
    cdw15: int = 0

    @property
    def fabrics_type(self) -> int:
        """The type of a fabrics command, which is where others have the namespace's number."""
        return self.nsid & 0xFF

    @property
    def to_controller(self) -> bool:
        """Whether its data go from the host to the controller."""
        code = self.fabrics_type if self.opcode == AdminOpcode.FABRICS else self.opcode
        return bool(code & 1)

    @property
    def to_host(self) -> bool:
        """Whether its data go from the controller to the host."""
        if self.opcode == AdminOpcode.FABRICS:
            return False  # a property comes with the completion
        return self.opcode & 3 == 2

    @property
    def uses_sgl(self) -> bool:
        """Whether the data pointer is an SGL, and the command is not fused to another one."""
        return self.flags & (_PSDT | _FUSE) == FLAG_SGL


def parse_sgl(low: int, third: int, fourth: int) -> Sgl:
    """Return a descriptor from its words; the two last ones have 32 bits."""
    kind = fourth >> 24
    if kind >> 4 == 4:
        return Sgl(kind, low, third & 0xFFFFFF, third >> 24 | (fourth & 0xFFFFFF) << 8)
    return Sgl(kind, low, third, 0)


def pack_sgl(sgl: Sgl) -> tuple[int, int, int]:
    """Return the words of a descriptor. Raises FormatError if its length does not fit."""
    if sgl.kind >> 4 != 4:
        return sgl.address, sgl.length, sgl.kind << 24
    if sgl.length > LONGEST_KEYED:
        raise FormatError(f"a keyed descriptor has at most {LONGEST_KEYED} bytes, not {sgl.length}")
    return sgl.address, sgl.length | (sgl.key & 0xFF) << 24, sgl.key >> 8 | sgl.kind << 24


def parse_command(capsule: bytes | bytearray | memoryview) -> Command:
    """Return the command of a capsule. Raises FormatError if it is shorter than a command."""
    if len(capsule) < CAPSULE:
        raise FormatError(f"a command capsule has {CAPSULE} bytes, and {len(capsule)} have come")
    opcode, flags, cid, nsid, low, third, fourth, *words = COMMAND.unpack_from(capsule)
    return Command(opcode, flags, cid, nsid, parse_sgl(low, third, fourth), *words)


def pack_command_capsule(command: Command) -> bytes:
    """Return the 64 bytes of a command. Raises FormatError."""
    return COMMAND.pack(
        command.opcode,
        command.flags,
        command.cid,
        command.nsid,
        *pack_sgl(command.sgl),
        *command[5:],
    )


def pack_completion(result: int, head: int, qid: int, cid: int, status: int) -> bytes:
    """Return the 16 bytes of a completion; ``status`` is that of ``wire_status``."""
    return COMPLETION.pack(result, head, qid, cid, status)
