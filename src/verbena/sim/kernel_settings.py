# SPDX-License-Identifier: Apache-2.0
"""What the kernel of a simulated host charges its core for the sockets of programs: the cycles of
each cost, with the defaults and sources of ``verbena.host.costs``.

``inside.InsideSettings`` has these settings as "kernel", and ``kernel.Kernel`` charges by them.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from verbena.host.costs import DEFAULTS
from verbena.sim.settings import Settings

__all__ = ["KERNEL", "KernelSettings", "printed_kernel"]

KERNEL = (
    "copy_l3", "copy_memory", "segment_out", "segment_in", "gro_frame", "frame_in", "page", "ack",
    "skb", "softirq_poll", "softirq_packet",
)  # fmt: skip
_SOURCES = {cost.name: f"{cost.per}; {cost.source}" for cost in DEFAULTS}
_Cycles = Annotated[float, Meta(ge=0, le=10**9)]


class KernelSettings(Settings):
    """Whether the adapter splits and joins segments of up to 64 KiB, the part of what a receiver
    copies that is in memory and not in the cache, and cycles for each thing that the kernel does.

    System calls, wake-ups, interrupts and doorbells are those of "cpu".
    """

    tso: bool = True
    gro: bool = True
    miss: Annotated[float, Meta(ge=0, le=1)] = 0.4
    copy_l3: _Cycles = 0.2
    copy_memory: _Cycles = 0.5
    segment_out: _Cycles = 600
    segment_in: _Cycles = 2000
    gro_frame: _Cycles = 150
    frame_in: _Cycles = 900
    page: _Cycles = 400
    ack: _Cycles = 800
    skb: _Cycles = 400
    softirq_poll: _Cycles = 500
    softirq_packet: _Cycles = 2000


def printed_kernel(given: KernelSettings, used: Any) -> list[str]:
    """Return a line for each of the costs ``used``, by name, with its source."""
    return [
        f"{'kernel.' + name:<22} {getattr(given, name)!s:<12} for each {_SOURCES[name]}"
        for name in KERNEL
        if name in used
    ]
