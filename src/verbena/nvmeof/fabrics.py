# SPDX-License-Identifier: Apache-2.0
"""Formats of connecting: private data of the connection manager, Connect's data, properties.

Each NVMe queue is a connection of its own. Its REQ says which queue it is, and Connect, the first
command on it, says of which controller and host.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from .structure import Structure, number, octets, text

__all__ = [
    "DISCOVERY_NQN",
    "DYNAMIC_CONTROLLER",
    "LONGEST_NQN",
    "PORT",
    "AcceptData",
    "Capabilities",
    "Configuration",
    "ConnectData",
    "Property",
    "RejectData",
    "RejectStatus",
    "RequestData",
    "ShutdownStatus",
    "check_nqn",
    "is_nqn",
]

PORT = 4420
DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
LONGEST_NQN = 223
DYNAMIC_CONTROLLER = 0xFFFF
LAST_CONTROLLER = 0xFFEF


def is_nqn(name: str) -> bool:
    """Return whether a text can be a qualified name of NVMe."""
    return name.startswith("nqn.") and "\0" not in name and 11 < len(name.encode()) <= LONGEST_NQN


def check_nqn(name: object, of: str) -> None:
    """Raise TypeError unless it is a text. Not every target insists on names that begin with nqn.
    ``of`` says whose name it is."""
    if not isinstance(name, str):
        raise TypeError(
            f"the NQN of {of} is its name, a str as nqn.2026-01.org.example:name, and not {name!r}"
        )


# ---- private data of the connection manager ------------------------------------------------------


@dataclass
class RequestData(Structure):
    """What a host says in a REQ. ``hrqsize`` counts from 1 and ``hsqsize`` from 0, as Linux has."""

    SIZE: ClassVar[int] = 32
    recfmt: int = number(0, 2)
    qid: int = number(2, 2)
    hrqsize: int = number(4, 2)
    hsqsize: int = number(6, 2)
    cntlid: int = number(8, 2)


@dataclass
class AcceptData(Structure):
    """What a target says in a REP: how many commands it receives."""

    SIZE: ClassVar[int] = 32
    recfmt: int = number(0, 2)
    crqsize: int = number(2, 2)


@dataclass
class RejectData(Structure):
    """What a target says in a REJ."""

    SIZE: ClassVar[int] = 4
    recfmt: int = number(0, 2)
    status: int = number(2, 2)


class RejectStatus(IntEnum):
    """Why a target refuses a queue's connection."""

    LENGTH = 1
    FORMAT = 2
    QID = 3
    HSQSIZE = 4
    HRQSIZE = 5
    NO_RESOURCE = 6
    IRD = 7
    ORD = 8


# ---- Connect -------------------------------------------------------------------------------------


@dataclass
class ConnectData(Structure):
    """The data of Connect."""

    SIZE: ClassVar[int] = 1024
    host_id: bytes = octets(0, 16)
    cntlid: int = number(16, 2, DYNAMIC_CONTROLLER)
    subsystem_nqn: str = text(256, 256)
    host_nqn: str = text(512, 256)


# ---- properties ----------------------------------------------------------------------------------


class Property(IntEnum):
    """Offsets of properties."""

    CAP = 0x00
    VS = 0x08
    CC = 0x14
    CSTS = 0x1C


class ShutdownStatus(IntEnum):
    """CSTS.SHST."""

    NORMAL = 0
    UNDERWAY = 1
    COMPLETE = 2


@dataclass(frozen=True)
class Capabilities:
    """CAP: what a controller can do."""

    queue_entries: int = 128
    timeout: int = 15  # in units of 500 ms
    contiguous: bool = True

    def pack(self) -> int:
        """Return the property: the NVM command set, pages of 4 KiB."""
        return self.queue_entries - 1 | self.contiguous << 16 | self.timeout << 24 | 1 << 37

    @classmethod
    def parse(cls, value: int) -> Capabilities:
        """Return the fields of the property."""
        return cls((value & 0xFFFF) + 1, value >> 24 & 0xFF, bool(value >> 16 & 1))


@dataclass(frozen=True)
class Configuration:
    """CC: what the host wants of the controller."""

    enable: bool = False
    command_set: int = 0
    page_shift: int = 0
    arbitration: int = 0
    shutdown: int = 0
    submission_entry: int = 6
    completion_entry: int = 4

    def pack(self) -> int:
        """Return the property."""
        return (
            int(self.enable)
            | self.command_set << 4
            | self.page_shift << 7
            | self.arbitration << 11
            | self.shutdown << 14
            | self.submission_entry << 16
            | self.completion_entry << 20
        )

    @classmethod
    def parse(cls, value: int) -> Configuration:
        """Return the fields of the property."""
        return cls(
            bool(value & 1),
            value >> 4 & 7,
            value >> 7 & 15,
            value >> 11 & 7,
            value >> 14 & 3,
            value >> 16 & 15,
            value >> 20 & 15,
        )

    @property
    def is_valid(self) -> bool:
        """Whether a controller can be enabled with it."""
        rest = self.command_set, self.page_shift, self.arbitration
        return rest == (0, 0, 0) and (self.submission_entry, self.completion_entry) == (6, 4)
