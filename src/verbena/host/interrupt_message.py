# SPDX-License-Identifier: Apache-2.0
"""Message-signalled interrupts as they cross a link: a write of four bytes, and what it says.

Devices with MSI-X send them, local APICs take them. The address names the core and the data the
vector (SDM volume 3, 11.11; chapter 10 in older editions). The address of any other write is one
of memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from verbena._arguments import checked_arguments
from verbena.host.errors import HostError, HostTypeError

MESSAGE_BASE = 0xFEE0_0000
_MESSAGE_END = MESSAGE_BASE + (1 << 20)
_LOGICAL, _HINT = 1 << 2, 1 << 3  # of the address
_LEVEL = 1 << 15  # of the data
FIXED, LOWEST_PRIORITY = 0, 1  # delivery modes


@dataclass(frozen=True)
class InterruptMessage:
    """An interrupt on its way to local APICs.

    ``destination`` is the number of a core, or with ``logical`` a bit for each of the logical
    destinations; 255 is all cores. ``lowest``: it goes to one of them, whose priority is lowest.
    """

    destination: int
    vector: int
    logical: bool = False
    lowest: bool = False
    level: bool = False


def is_message(address: int) -> bool:
    """Whether a device's write to an address is an interrupt."""
    return MESSAGE_BASE <= address < _MESSAGE_END


@checked_arguments(HostTypeError)
def message_address(core: int) -> int:
    """What a driver writes as the address of a message to a core."""
    if not 0 <= core <= 255:
        raise HostError(f"a message names a core from 0 to 254, or 255 for all: not {core}")
    return MESSAGE_BASE | core << 12


def parse_message(address: int, data: int) -> InterruptMessage:
    """Raises HostError with what is wrong with the data."""
    mode, vector = data >> 8 & 7, data & 0xFF
    if mode not in (FIXED, LOWEST_PRIORITY):
        raise HostError(
            f"data {data:#x} have delivery mode {mode}: only 0 (fixed) and 1 (lowest priority) "
            "are here"
        )
    if vector < 32:
        raise HostError(f"data {data:#x} have vector {vector}: those of devices are 32 to 255")
    return InterruptMessage(
        destination=address >> 12 & 0xFF,
        vector=vector,
        logical=bool(address & _HINT and address & _LOGICAL),
        lowest=mode == LOWEST_PRIORITY,
        level=bool(data & _LEVEL),
    )
