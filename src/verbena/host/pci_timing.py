# SPDX-License-Identifier: Apache-2.0
"""How long what happens on a conventional PCI bus takes, in clocks of the bus.

``PciBus`` (pci.py) and its arbiter (pci_arbiter.py) ask here. The rules are those of the PCI Local
Bus Specification, revision 2.2: sections 3.3 (transactions), 3.4 (arbitration) and 3.5 (latency).
"""

from __future__ import annotations

from dataclasses import dataclass

from verbena._arguments import checked_class
from verbena.host.errors import HostError, HostTypeError

CLOCK_PS = {33: 30_000, 66: 15_000}  # the shortest period at "33" and "66" MHz (4.2.3.1, 7.6.4.1)
DECODINGS = {"fast": 1, "medium": 2, "slow": 3, "subtractive": 4}
"""Clocks from the address phase to DEVSEL# (3.6.1)."""

GRANT = 2  # clocks from REQ# to FRAME# while the bus is idle: GNT#, then FRAME# (3.4.1)
PARKED = 1  # for the host bridge, on which the idle bus is parked (3.4.3)
TURNAROUND = 1  # the idle clock behind a transaction; there is no fast back-to-back here (3.4.2)
INITIAL_LIMIT = 16  # clocks within which a target has its first data phase, or says Retry (3.5.1.1)
AFTER_RETRY = 2  # clocks for which a master takes REQ# back after Retry (3.4.1)


@checked_class(
    HostTypeError,
    but=("bytes_of", "edge", "first_phase", "is_delayed", "phases", "retry", "room", "to_boundary"),
)
@dataclass(frozen=True)
class PciTiming:
    """The rules of one bus. ``memory_wait`` and the like are wait states before the first data.

    ``burst_bytes``: the host bridge ends a burst of a device (Disconnect) at each address that is a
    multiple of it.
    """

    bits: int = 32
    mhz: int = 33
    latency_timer: int = 32
    memory_read_wait: int = 8
    memory_write_wait: int = 0
    burst_bytes: int = 4096

    def __post_init__(self) -> None:
        if self.bits not in (32, 64) or self.mhz not in CLOCK_PS:
            raise HostError(
                f"a PCI bus has 32 or 64 bits and 33 or 66 MHz, not {self.bits} and {self.mhz}"
            )
        if not 1 <= self.latency_timer <= 255:
            raise HostError(f"a latency timer is 1 to 255 clocks, not {self.latency_timer}")
        if not 0 <= self.memory_read_wait <= 255 or not 0 <= self.memory_write_wait <= 8:
            raise HostError(
                "memory_read_wait is 0 to 255 clocks, and memory_write_wait 0 to 8, not "
                f"{self.memory_read_wait} and {self.memory_write_wait}"
            )
        size = self.burst_bytes
        if size < self.width or size & size - 1:
            raise HostError(
                f"burst_bytes is a power of two from {self.width} on, not {self.burst_bytes}"
            )

    @property
    def width(self) -> int:
        """Bytes of a data phase."""
        return self.bits // 8

    @property
    def clock_ps(self) -> int:
        """The length of a clock, in ps."""
        return CLOCK_PS[self.mhz]

    @property
    def peak_mbps(self) -> float:
        """MB/s (of 10^6 bytes) if every clock were a data phase: 133 for 32 bits and 33 MHz."""
        return self.width * 1e6 / self.clock_ps

    def edge(self, at: int) -> int:
        """The first edge of the clock that is not before a time in ps."""
        return -(-at // self.clock_ps) * self.clock_ps

    def phases(self, address: int, size: int) -> int:
        """Data phases of ``size`` bytes, which may begin and end within one."""
        return -(-(address % self.width + size) // self.width)

    def bytes_of(self, address: int, phases: int) -> int:
        """Bytes that so many data phases move from an address on."""
        return phases * self.width - address % self.width

    def first_phase(self, is_read: bool, decoding: str, wait: int) -> int:
        """Clocks before the first data phase: address phase, turnaround of the data lines for a
        read, DEVSEL#, and the target's wait states. The fastest write has its data in the clock
        behind the address, so that ``fast`` adds nothing."""
        return 1 + is_read + DECODINGS[decoding] - 1 + wait

    def is_delayed(self, is_read: bool, decoding: str, wait: int) -> bool:
        """Whether a target is too slow to keep the bus: it says Retry and fetches meanwhile."""
        return self.first_phase(is_read, decoding, wait) + 1 > INITIAL_LIMIT

    def retry(self, decoding: str) -> int:
        """Clocks of a transaction that ends with Retry: address, DEVSEL# and STOP#."""
        return 1 + DECODINGS[decoding]

    def abort(self) -> int:
        """Clocks of a transaction that nobody claims: address, and all four times of DEVSEL#."""
        return 1 + max(DECODINGS.values())

    def room(self, first: int) -> int:
        """Data phases until the latency timer ends a burst that another master waits for."""
        return max(1, self.latency_timer - first)

    def to_boundary(self, address: int, size: int) -> int:
        """How many of ``size`` bytes are before the next multiple of ``burst_bytes``."""
        return min(size, self.burst_bytes - address % self.burst_bytes)
