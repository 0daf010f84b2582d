# SPDX-License-Identifier: Apache-2.0
"""V7: how far InfiniBand's credits reach."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import MIB, CheckedWorld, credits, finish
from tests.validation.row import Figure, Row, Scope, at_most, near

NS_PER_KM = 5000
TABLE = {8: 13.1, 16: 6.55, 32: 3.28, 54.3: 1.93, 97: 1.08, 194: 0.54, 388: 0.27}  # Gb/s, km


def share(gbps: float, km: float, extender: int = 0) -> float:
    """Of the line, that one connection gets over such a link, whatever buffer is behind it."""
    world = CheckedWorld(framing="bare", window=256 * MIB, mtu=256, timeout=0)
    rate, delay = int(gbps * 1e9), int(km * NS_PER_KM * 1000)
    center = world.add_switch(2, **credits(16 * MIB))
    world.connect(world.add_host(), 0, center, 0, rate=rate, delay=delay, extender=extender)
    world.connect(world.add_host(), 0, center, 1, rate=rate, delay=0)
    world.set_routes(center, [0, 1])
    world.add_flows(0, 1, 4 * MIB)
    finish(world)
    sending = int(world.flows()["finish"][0]) - 2 * delay  # there, and the acknowledgement back
    return 4 * MIB * 8e12 / rate / sending


def measure(scope: Scope) -> Iterator[Figure]:
    for gbps, km in TABLE.items():
        yield near(f"{gbps:g} Gb/s, {km:g} km", share(gbps, km), 1.0, 0.02, "of the line")
        far = 1.2 * km
        yield at_most(f"{gbps:g} Gb/s, {far:.3g} km", share(gbps, far), 0.86)
        buffer = int(2 * far * NS_PER_KM * gbps / 8) + 3 * 256
        where = f"{gbps:g} Gb/s, {far:.3g} km, a pair of extenders"
        yield near(where, share(gbps, far, buffer), 1.0, 0.02, "of the line")


ROW = Row(
    number="V7",
    title="How far credits reach",
    setup="A link into a switch with 16 MiB of buffer for each lane, 5 ns a metre; and the same "
    "link between two range extenders with the round trip's bytes of buffer for each lane.",
    expected="FCCL is at most 2048 blocks of 64 bytes ahead of what has come (IBA 7.9.4), so 128 "
    "KiB per round trip: full rate up to 128 KiB / C / 10 ns metres, and 1/1.2 of it at 1.2 times "
    "that. Between extenders, which end that loop at each side, full rate again.",
    fails="the window of 2048 blocks is not kept, or credits count anything but blocks.",
    meaning="Beyond these distances InfiniBand needs a range extender, however large a switch's "
    "buffers are.",
    measure=measure,
    tested="`tests/sim/test_laws.py` (one distance), `tests/sim/test_extender.py`",
)
