# SPDX-License-Identifier: Apache-2.0
"""Log pages: discovery, SMART, changed namespaces, supported commands, errors.

A host reads any part of a page (``part_of``); what is beyond its end is zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from .commands import AdminOpcode, IoOpcode
from .errors import FormatError
from .structure import Structure, number, octets, text

__all__ = [
    "AddressFamily",
    "DiscoveryEntry",
    "DiscoveryHeader",
    "LogPage",
    "SubsystemKind",
    "pack_changed",
    "pack_discovery",
    "pack_effects",
    "pack_smart",
    "parse_discovery",
    "part_of",
]


class LogPage(IntEnum):
    """LID."""

    ERRORS = 0x01
    SMART = 0x02
    FIRMWARE = 0x03
    CHANGED_NAMESPACES = 0x04
    EFFECTS = 0x05
    DISCOVERY = 0x70


class SubsystemKind(IntEnum):
    """What an entry of the discovery log is about."""

    REFERRAL = 1
    NVM = 2
    CURRENT_DISCOVERY = 3


class AddressFamily(IntEnum):
    """ADRFAM."""

    IPV4 = 1
    IPV6 = 2


_RDMA, _CONNECTED, _ROCE_V2, _RDMA_CM = 1, 1, 4, 1
_FLOW_CONTROL_MAY_BE_OFF = 4
_EVERY_CHANGE = 0xFFFFFFFF


@dataclass
class DiscoveryHeader(Structure):
    """The head of the discovery log; ``generation`` changes with each change of the log."""

    SIZE: ClassVar[int] = 1024
    generation: int = number(0, 8)
    records: int = number(8, 8)
    recfmt: int = number(16, 2)


@dataclass
class DiscoveryEntry(Structure):
    """A subsystem at an address."""

    SIZE: ClassVar[int] = 1024
    transport: int = number(0, 1, _RDMA)
    family: int = number(1, 1, AddressFamily.IPV4)
    kind: int = number(2, 1, SubsystemKind.NVM)
    requirements: int = number(3, 1)
    port_id: int = number(4, 2, 1)
    cntlid: int = number(6, 2, 0xFFFF)
    admin_queue: int = number(8, 2, 32)
    flags: int = number(10, 2)
    service: str = text(32, 32)
    nqn: str = text(256, 256)
    address: str = text(512, 256)
    qp_type: int = number(768, 1, _CONNECTED)
    provider: int = number(769, 1, 1)
    cm_type: int = number(770, 1, _RDMA_CM)
    pkey: int = number(776, 2)


def pack_discovery(generation: int, entries: Sequence[DiscoveryEntry]) -> bytes:
    """Return the discovery log."""
    head = DiscoveryHeader(generation=generation, records=len(entries))
    return head.pack() + b"".join(each.pack() for each in entries)


def parse_discovery(page: bytes) -> tuple[DiscoveryHeader, list[DiscoveryEntry]]:
    """Return the head and the entries that the bytes hold. Raises FormatError."""
    head = DiscoveryHeader.parse(page)
    if head.recfmt:
        raise FormatError(f"the discovery log has the format {head.recfmt}, which is unknown")
    size = DiscoveryEntry.SIZE
    count = min(head.records, len(page) // size - 1)
    return head, [
        DiscoveryEntry.parse(page[size * n : size * (n + 1)]) for n in range(1, count + 1)
    ]


@dataclass
class Smart(Structure):
    """Health and use; temperatures are in kelvins, data in units of 512,000 bytes."""

    SIZE: ClassVar[int] = 512
    warning: int = number(0, 1)
    temperature: int = number(1, 2, 300)
    spare: int = number(3, 1, 100)
    spare_threshold: int = number(4, 1, 5)
    used: int = number(5, 1)
    units_read: int = number(32, 16)
    units_written: int = number(48, 16)
    reads: int = number(64, 16)
    writes: int = number(80, 16)
    serial: bytes = octets(511, 1)


def pack_smart(reads: int, read_bytes: int, writes: int, written_bytes: int) -> bytes:
    """Return the SMART log."""
    unit = 512_000
    page = Smart(
        reads=reads,
        writes=writes,
        units_read=-(-read_bytes // unit),
        units_written=-(-written_bytes // unit),
    )
    return page.pack()


def pack_changed(numbers: Sequence[int]) -> bytes:
    """Return the list of changed namespaces; more than 1024 are told by one special number."""
    if len(numbers) > 1024:
        return struct.pack("<I", _EVERY_CHANGE).ljust(4096, b"\0")
    return struct.pack(f"<{len(numbers)}I", *sorted(numbers)).ljust(4096, b"\0")


_SUPPORTED, _CHANGES_DATA = 1, 2
_WRITERS = frozenset({IoOpcode.WRITE, IoOpcode.WRITE_ZEROES, IoOpcode.DATASET_MANAGEMENT})


def pack_effects() -> bytes:
    """Return the log of supported commands."""
    words = [0] * 1024
    for admin in AdminOpcode:
        if admin is not AdminOpcode.FABRICS:
            words[admin] = _SUPPORTED
    for opcode in IoOpcode:
        words[256 + opcode] = _SUPPORTED | (_CHANGES_DATA if opcode in _WRITERS else 0)
    return struct.pack("<1024I", *words)


def part_of(page: bytes, offset: int, length: int) -> bytes:
    """Return a part of a log page, with zeros for what is beyond its end."""
    return page[offset : offset + length].ljust(length, b"\0")
