# SPDX-License-Identifier: Apache-2.0
"""V1: an incast drains at the rate of the last link."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import MIB, CheckedWorld, finish, star
from tests.validation.row import Figure, Row, Scope, equal


def measure(scope: Scope) -> Iterator[Figure]:
    world = CheckedWorld(framing="bare")
    star(world, 65)
    world.add_flows(np.arange(1, 65), 0, MIB)
    finish(world)
    last_ack = int(world.flows()["finish"].max()) / 1e6
    back = 2 * (1 + 64 * 80e-6)
    yield equal("last data", round(last_ack - back, 3), 5371.037, "µs")
    yield equal("last acknowledgement", round(last_ack, 3), 5373.047, "µs")


ROW = Row(
    number="V1",
    title="64 senders into one port",
    setup="64 hosts send 1 MiB each to one host through one switch; 100 Gb/s, 1 µs a link, MTU "
    "4096, acknowledgements of 64 bytes (W1).",
    expected="the last data after N·S/C + one packet + 2 D, the last acknowledgement 2 D and twice "
    "its own time later.",
    fails="a packet is lost, sent twice, or delayed by anything but the last link.",
    meaning="The last link is busy without a gap from the first packet to the last.",
    measure=measure,
    tested="`tests/sim/test_laws.py`",
)
