# SPDX-License-Identifier: Apache-2.0
"""Identify data: of the controller, of namespaces, and the lists of namespaces.

The fields are those that hosts use; all others are zero. Both sides use these tables.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from .errors import FormatError
from .structure import Structure, number, octets, padded_text, text

__all__ = [
    "SGLS_IN_CAPSULE",
    "SGLS_KEYED",
    "ControllerKind",
    "IdentifyController",
    "IdentifyNamespace",
    "IdentifyWhat",
    "OptionalCommand",
    "pack_descriptors",
    "pack_namespace_list",
    "parse_descriptors",
    "parse_namespace_list",
]

IDENTIFY_SIZE = 4096
_LISTED = 1024
SGLS_KEYED, SGLS_IN_CAPSULE = 0x5, 0x100000


class IdentifyWhat(IntEnum):
    """CNS: what Identify asks for."""

    NAMESPACE = 0x00
    CONTROLLER = 0x01
    ACTIVE_NAMESPACES = 0x02
    DESCRIPTORS = 0x03
    COMMAND_SET_NAMESPACE = 0x05
    COMMAND_SET_CONTROLLER = 0x06


class ControllerKind(IntEnum):
    """CNTRLTYPE."""

    IO = 1
    DISCOVERY = 2


class OptionalCommand(IntEnum):
    """Bits of ONCS."""

    COMPARE = 1 << 0
    DATASET_MANAGEMENT = 1 << 2
    WRITE_ZEROES = 1 << 3
    RESERVATIONS = 1 << 5


@dataclass
class IdentifyController(Structure):
    """CNS 1."""

    SIZE: ClassVar[int] = IDENTIFY_SIZE
    serial: str = padded_text(4, 20)
    model: str = padded_text(24, 40)
    firmware: str = padded_text(64, 8)
    burst: int = number(72, 1)
    multipath: int = number(76, 1)
    max_transfer: int = number(77, 1)
    cntlid: int = number(78, 2)
    version: int = number(80, 4)
    shutdown_latency: int = number(88, 4)
    async_events: int = number(92, 4)
    attributes: int = number(96, 4)
    kind: int = number(111, 1)
    admin_commands: int = number(256, 2)
    abort_limit: int = number(258, 1)
    event_limit: int = number(259, 1)
    firmware_updates: int = number(260, 1)
    log_attributes: int = number(261, 1)
    error_entries: int = number(262, 1)
    keep_alive: int = number(320, 2)
    submission_entry: int = number(512, 1, 0x66)
    completion_entry: int = number(513, 1, 0x44)
    max_commands: int = number(514, 2)
    namespaces: int = number(516, 4)
    optional_commands: int = number(520, 2)
    write_cache: int = number(525, 1)
    atomic_write: int = number(526, 2)
    sgls: int = number(536, 4)
    max_namespaces: int = number(540, 4)
    subsystem_nqn: str = text(768, 256)
    command_capsule: int = number(1792, 4)
    response_capsule: int = number(1796, 4, 1)
    in_capsule_offset: int = number(1800, 2)
    fabrics_attributes: int = number(1802, 1)
    max_descriptors: int = number(1803, 1)


@dataclass
class IdentifyNamespace(Structure):
    """CNS 0: of the block formats only the first one, which is in use."""

    SIZE: ClassVar[int] = IDENTIFY_SIZE
    size: int = number(0, 8)
    capacity: int = number(8, 8)
    used: int = number(16, 8)
    features: int = number(24, 1)
    formats: int = number(25, 1)
    format: int = number(26, 1)
    sharing: int = number(30, 1)
    reservations: int = number(31, 1)
    deallocation: int = number(33, 1)
    attributes: int = number(99, 1)
    nguid: bytes = octets(104, 16)
    eui64: bytes = octets(120, 8)
    format_metadata: int = number(128, 2)
    format_shift: int = number(130, 1)
    format_speed: int = number(131, 1)

    @property
    def block_size(self) -> int:
        """The bytes of a block. Raises FormatError for a format that is none for a disk."""
        if not 9 <= self.format_shift <= 16 or self.format_metadata:
            raise FormatError(
                f"blocks of 2^{self.format_shift} bytes with {self.format_metadata} bytes of"
                " metadata are not supported: format the namespace with 512 or 4096 bytes"
            )
        return 1 << self.format_shift


def pack_namespace_list(numbers: Iterable[int], after: int) -> bytes:
    """Return CNS 2: the first 1024 active namespaces with numbers greater than ``after``."""
    found = sorted(each for each in numbers if each > after)[:_LISTED]
    return struct.pack(f"<{len(found)}I", *found).ljust(IDENTIFY_SIZE, b"\0")


def parse_namespace_list(block: bytes) -> list[int]:
    """Return the numbers of CNS 2. Raises FormatError."""
    if len(block) < IDENTIFY_SIZE:
        raise FormatError(f"a list of namespaces has {IDENTIFY_SIZE} bytes, not {len(block)}")
    numbers = struct.unpack_from(f"<{_LISTED}I", block)
    return list(numbers[: numbers.index(0)]) if 0 in numbers else list(numbers)


_EUI64, _NGUID, _UUID, _COMMAND_SET = 1, 2, 3, 4
_LENGTHS = {_EUI64: 8, _NGUID: 16, _UUID: 16, _COMMAND_SET: 1}


def pack_descriptors(nguid: bytes, uuid: bytes) -> bytes:
    """Return CNS 3: the identifiers of a namespace."""
    parts = ((_NGUID, nguid), (_UUID, uuid), (_COMMAND_SET, b"\0"))
    made = b"".join(bytes([kind, len(value), 0, 0]) + value for kind, value in parts)
    return made.ljust(IDENTIFY_SIZE, b"\0")


def parse_descriptors(block: bytes) -> dict[int, bytes]:
    """Return the identifiers of CNS 3 by type. Raises FormatError for a wrong length."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(block) and block[at + 1]:
        kind, length = block[at], block[at + 1]
        value = bytes(block[at + 4 : at + 4 + length])
        if len(value) < length or _LENGTHS.get(kind, length) != length:
            raise FormatError(f"an identifier of type {kind} has {length} bytes")
        found[kind] = value
        at += 4 + length
    return found
