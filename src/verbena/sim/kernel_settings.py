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

__all__ = ["KERNEL", "KernelSettings", "kernel_source", "printed_kernel"]

KERNEL = (
    "copy_l3", "copy_memory", "segment_out", "segment_in", "gro_frame", "frame_in", "page", "ack",
    "skb", "softirq_poll", "softirq_packet", "registration", "registration_page",
)  # fmt: skip
_REGISTRATION = "0.67 us for a page of 4 KiB at 3 GHz, as users measured it with its allocation"
_SOURCES = {cost.name: f"{cost.per}; {cost.source}" for cost in DEFAULTS} | {
    "registration": "region; an order of magnitude, from memory; no measurement",
    "registration_page": f"page of 4 KiB; {_REGISTRATION} (github.com/kvcache-ai/Mooncake #848)",
}
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
    registration: _Cycles = 3000
    registration_page: _Cycles = 2000


def kernel_source(name: str) -> str:
    """Return what a cost of the kernel is for, and the source of its default: "PER; SOURCE"."""
    return _SOURCES[name]


def printed_kernel(given: KernelSettings, used: Any) -> list[str]:
    """Return a line for each of the costs ``used``, by name, with its source."""
    return [
        f"{'kernel.' + name:<22} {getattr(given, name)!s:<12} for each {_SOURCES[name]}"
        for name in KERNEL
        if name in used
    ]
