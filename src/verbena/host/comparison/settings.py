# SPDX-License-Identifier: Apache-2.0
"""The machines of the comparison: processor, link, disk and network. The ways of ways.py build
their computers from one ``Setup``, so that all rows are of the same machines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verbena._arguments import checked_class
from verbena.host.errors import HostError, HostTypeError
from verbena.host.pcie import Pcie

MOST_BYTES = 64 << 20
MOST_LATENCY_US = 10**6


@checked_class(HostTypeError)
@dataclass(frozen=True)
class Setup:
    """Two computers alike, each with a disk and an adapter behind a PCIe link of its own."""

    ghz: float = 3.0
    pcie: Pcie = field(default_factory=Pcie)
    disk_us: float = 10.0  # from a command until the medium has the data
    gbps: float = 100.0  # of the network
    wire_us: float = 1.0  # one way

    def __post_init__(self) -> None:
        if not 0.001 <= self.ghz <= 1000:
            raise HostError(f"the processors' clock is 0.001 to 1000 GHz, not {self.ghz:g}")
        if self.gbps <= 0:
            raise HostError(f"the network's rate is above 0 Gb/s, not {self.gbps:g}")
        for name, value in (("disk_us", self.disk_us), ("wire_us", self.wire_us)):
            if not 0 <= value <= MOST_LATENCY_US:
                raise HostError(
                    f"a latency is 0 to {MOST_LATENCY_US} us, a second: {name} is {value:g}"
                )


def checked_size(size: int) -> int:
    """The size, if the ways can move so many bytes; HostError otherwise."""
    if size < 8 or size % 8 or size > MOST_BYTES:
        raise HostError(
            f"{size} bytes: the ways move multiples of 8 bytes, which a load has, up to "
            f"{MOST_BYTES >> 20} MiB"
        )
    return size
