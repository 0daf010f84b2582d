# SPDX-License-Identifier: Apache-2.0
"""P16: TCP incast collapse, with and without its cure."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import MICROSECOND
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between, equal
from tests.validation.v20_incast import MILLISECOND, goodput

SERVERS = (4, 8, 16, 32)
FULL = 500  # Mb/s: half of the line
WINDOW = 24 << 10  # twice what the line and its delay hold


def before_collapse(buffer: int, seed: int) -> tuple[int, float]:
    """The most servers that come through, and what happens to goodput with twice as many."""
    got = {
        servers: goodput(servers, 200 * MILLISECOND, buffer << 10, 5, seed, WINDOW)
        for servers in SERVERS
    }
    most = max((servers for servers in SERVERS[:-1] if got[servers] > FULL), default=SERVERS[0])
    return most, got[most] / got[2 * most]


def measure(scope: Scope) -> Iterator[Figure]:
    before = 0
    for buffer in (64, 128, 256):
        most, falls = before_collapse(buffer, scope.seed)
        if before:
            yield equal(f"{buffer} KiB: servers, to those with half the buffer", most / before, 2)
        else:
            yield between(f"{buffer} KiB: servers before the collapse", most, 4, 8)
            yield between(f"{buffer} KiB: goodput before, to that after it", falls, 5, 20)
        before = most
    for servers in SERVERS:
        fast = goodput(servers, 200 * MICROSECOND, 64 << 10, 5, scope.seed, WINDOW)
        yield at_least(f"{servers} servers, RTO 200 µs", fast, FULL, "Mb/s")


ROW = Row(
    number="P16",
    title="TCP incast (Phanishayee et al., FAST 2008)",
    setup="1 Gb/s, 256 KiB from each server, 100 µs, RTOmin 200 ms, buffers of 64, 128 and 256 KiB "
    "at the port; five blocks, without jitter. Connections are new for each block, the paper's go "
    "on and have learned where slow start must end: a receiver's window of 24 KiB keeps the new "
    "ones from losing half of their part at its end.",
    expected="a collapse to about a tenth beyond 4 to 8 servers with 64 KiB, beyond twice as many "
    "with twice the buffer, and none with an RTOmin of 200 µs.",
    fails="timeouts are not what makes the collapse, or the buffer does not decide where it "
    "begins.",
    meaning="Memory moves the collapse and does not end it; timers as short as round trips do.",
    measure=measure,
    confidence=Confidence.MEMORY,
    tested="`tests/sim/test_scenario_ready.py`",
)
